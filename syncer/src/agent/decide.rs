//! Decides what the node does next. Pure: depends only on the facts.

use globalps_core::rollout::{Goal, Revision};
use globalps_dockerconfig::merge_on_node;

use super::desired::{DesiredFiles, desired, in_journal};
use super::facts::{FileGuard, NodeFacts};
use crate::delivery::config_file::{
    has_entries_of_its_own, is_as_written, is_own, is_replaced, is_unparsable, parsed, restored,
};
use crate::delivery::credential_provider::{self, ProviderFacts};
use crate::node::file::FileSnapshot;
use crate::node::managed::ManagedEntries;
use crate::node::state::{
    ChangeStep, FailedTask, JournalState, Obstacle, PendingChange, ProviderSide, Superseded, Task,
};

#[derive(Debug)]
pub(crate) enum Action {
    /// Nothing to do.
    Idle,
    /// Fetch the task's content first.
    Fetch,
    /// Start the kubelet, which a rollback left down.
    Revive,
    /// Continue the change in the journal, forward or back.
    Resume,
    /// End the observation period after a change: it can no longer be rolled back.
    Settle,
    /// Begin a change. `quarantine`: the file can't be parsed, so keep its bytes first. `drift`: the task was in force, and
    /// another process changed managed entries. `is_own`: it wrote the node's own file again, so a restore returns that.
    Begin {
        change: Box<PendingChange>,
        quarantine: bool,
        drift: bool,
        is_own: bool,
    },
    /// The files of the credential provider can't be brought to the desired state.
    Obstructed(Obstacle),
    /// Another program manages the file.
    LeaveAlone,
    /// Another program wrote the file, perhaps as a part of an update: ask the controller before it is replaced.
    Ask,
    /// Another process keeps undoing the task; stop restoring it.
    GiveUp,
    /// The task failed before and is not repeated.
    Reject(FailedTask),
    /// The task is in force unchanged.
    Confirm,
    /// Nothing of globalps is on the node, so there is nothing to restore.
    Forget,
    /// Wait for the task to restore the node. The last report stays, if it is about this assignment.
    StandBy,
}

impl Action {
    /// Whether the action changes a node that may have nothing of globalps.
    pub(super) fn changes_node(&self) -> bool {
        matches!(self, Self::Begin { .. } | Self::Forget)
    }

    /// Whether the action may restart the kubelet.
    pub(super) fn restarts(&self, state: Option<&JournalState>) -> bool {
        match self {
            Self::Begin { change, .. } => change.restart,
            Self::Resume => state
                .and_then(|state| state.change.as_ref())
                .is_some_and(|change| change.restart),
            _ => false,
        }
    }
}

pub(crate) fn decide(facts: &NodeFacts) -> Action {
    let action = guarded(facts, decide_change(facts));
    let is_change = matches!(
        action,
        Action::Begin { .. } | Action::Resume | Action::Settle | Action::Fetch | Action::Ask
    );
    if !is_change && facts.restart && facts.state.is_some_and(is_kubelet_down) {
        return Action::Revive;
    }
    action
}

/// Where a daemon may update the node, the file is replaced only while it is what globalps wrote, or what the controller has confirmed.
/// Stepping aside decides by the file's content: nobody could confirm it. A rollback leaves the file as it is.
pub(super) fn guarded(facts: &NodeFacts, action: Action) -> Action {
    let pending = facts.state.and_then(|state| state.change.as_ref());
    let target = match &action {
        Action::Begin { change, .. } => Some(&change.target),
        Action::Resume => pending
            .filter(|change| change.step == ChangeStep::Forward)
            .map(|change| &change.target),
        _ => None,
    };
    let is_replaced = target.is_some_and(|target| target != facts.file);
    if is_replaced && !facts.is_updating && !facts.may_replace() {
        return Action::Ask;
    }
    action
}

/// Whether the file may be replaced now: see [`guarded`].
pub(super) fn is_replaceable(facts: &NodeFacts) -> bool {
    let is_ours = |state: &JournalState| match &state.change {
        // What another program wrote before the change, it may have written again.
        Some(change) if *facts.file == change.before && change.before_managed.is_empty() => false,
        Some(change) => change.knows(facts.file),
        None => is_ours(facts, state),
    };
    facts.may_replace() || facts.is_updating && facts.state.is_some_and(is_ours)
}

/// No other program has written the file since globalps did, by its identity or by entries that only globalps can have written.
fn is_ours(facts: &NodeFacts, state: &JournalState) -> bool {
    let is_last = |guard: FileGuard| *guard.found == state.written;
    facts.guard.is_some_and(is_last)
        || is_as_written(facts.file, state) && has_entries_of_its_own(state)
}

fn is_kubelet_down(state: &JournalState) -> bool {
    state.failed.as_ref().is_some_and(|failure| failure.stuck)
}

fn decide_change(facts: &NodeFacts) -> Action {
    let change = facts.state.and_then(|state| state.change.as_ref());
    let stands_by =
        facts.restores_only && facts.task.is_none_or(|task| task.goal() != Goal::Restore);
    if facts.is_updating
        && let Some(task) = facts.task
    {
        return step_aside(facts, task);
    }
    if let Some(change) = change {
        let is_newer = facts.task.is_some_and(|task| *task != change.task);
        // A change in progress is finished or rolled back before anything newer begins, unless its restart is still pending:
        // newer content shares the restart.
        match change.step {
            ChangeStep::Watching if is_newer || is_drifted(facts) => return Action::Settle,
            ChangeStep::Watching => return Action::Confirm,
            ChangeStep::Forward
                if change.awaits_restart() && is_newer && !facts.is_cooled_down && !stands_by => {}
            // There is nothing to undo, and what prevents it may last.
            ChangeStep::Forward if change.is_repair() && is_other(facts, change) => {
                return Action::Settle;
            }
            ChangeStep::Forward | ChangeStep::Back => return Action::Resume,
        }
    }
    if facts.is_foreign && facts.task.is_none_or(|task| task.goal() != Goal::Restore) {
        return Action::LeaveAlone;
    }
    if stands_by {
        return Action::StandBy;
    }
    let Some(task) = facts.task else {
        return Action::Idle;
    };
    if let Some(failure) = facts.state.and_then(|state| state.failed.as_ref())
        && failure.task == *task
    {
        return keep(facts).unwrap_or_else(|| Action::Reject(failure.clone()));
    }
    if facts
        .state
        .is_some_and(|state| state.given_up.as_ref() == Some(task))
    {
        return Action::GiveUp;
    }
    match (task.goal(), facts.state, desired(facts)) {
        (Goal::Restore, None, _) => Action::Forget,
        (Goal::Restore, Some(state), _) => begin(facts, state, task, &DesiredFiles::default()),
        (Goal::Revision(_), _, None) => Action::Fetch,
        (Goal::Revision(_), state, Some(desired)) => {
            let first = JournalState::new(facts.file.clone(), 0);
            begin(facts, state.unwrap_or(&first), task, &desired)
        }
    }
}

/// Another revision is assigned, or a restore.
fn is_other(facts: &NodeFacts, change: &PendingChange) -> bool {
    let assigned = facts.task.map(|task| task.revision);
    assigned.is_some_and(|assigned| assigned != change.task.revision)
}

/// Repairs what is in force without a restart, while the assigned task is not worked on. `None`: there is nothing to repair.
pub(super) fn keep(facts: &NodeFacts) -> Option<Action> {
    let state = facts.state.filter(|state| state.change.is_none())?;
    let in_force = Task {
        revision: state.revision,
        ..state.applied.as_ref().or(facts.task)?.clone()
    };
    let facts = NodeFacts {
        restart: false,
        ..*facts
    };
    let desired = in_journal(&facts, state)?;
    let is_known = in_force.goal() != Goal::Restore;
    let action = is_known.then(|| begin(&facts, state, &in_force, &desired))?;
    matches!(action, Action::Begin { .. }).then_some(action)
}

/// Restores the node's own file and removes the provider, unless another program has written the file: that stays as it is. A
/// file alone is restored without a kubelet restart, so this can't fail because of the kubelet.
fn step_aside(facts: &NodeFacts, task: &Task) -> Action {
    let Some(state) = facts.state else {
        return match task.goal() {
            Goal::Restore => Action::Forget,
            Goal::Revision(_) => Action::LeaveAlone,
        };
    };
    let aside = Task {
        revision: Revision::NONE,
        ..task.clone()
    };
    let failed = state.failed.as_ref();
    if let Some(failure) = failed.filter(|failure| failure.task == aside) {
        return Action::Reject(failure.clone());
    }
    if let Some(change) = &state.change {
        let is_begun = change.started_from.is_some() || change.step == ChangeStep::Back;
        let has_provider = change.provider.is_some();
        return match change.step {
            ChangeStep::Watching => Action::Settle,
            ChangeStep::Forward if change.is_repair() => Action::Settle,
            // Files that refer to each other are never left half written.
            _ if has_provider => Action::Resume,
            _ if !change.knows(facts.file) => Action::Settle,
            _ if is_begun || change.task == aside => Action::Resume,
            _ => begin_aside(facts, state, &aside),
        };
    }
    if state.provider.is_some() || is_ours(facts, state) {
        return begin_aside(facts, state, &aside);
    }
    if is_replaced(facts.file, state) {
        // The file is the node's own again. What the next change finds is the new original.
        return Action::Forget;
    }
    Action::LeaveAlone
}

fn begin_aside(facts: &NodeFacts, state: &JournalState, aside: &Task) -> Action {
    let change = state.change.as_ref();
    let has_provider =
        state.provider.is_some() || change.is_some_and(|change| change.provider.is_some());
    let facts = NodeFacts {
        task: Some(aside),
        restart: facts.restart && has_provider,
        ..*facts
    };
    begin(&facts, state, aside, &DesiredFiles::default())
}

/// Whether another process changed managed entries. Restoring them ends the observation of the previous change.
fn is_drifted(facts: &NodeFacts) -> bool {
    let (Some(task), Some(state), Some(desired)) = (facts.task, facts.state, desired(facts)) else {
        return false;
    };
    let mut settled = state.clone();
    settled.change = None;
    task.goal() != Goal::Restore
        && !matches!(begin(facts, &settled, task, &desired), Action::Confirm)
}

fn begin(facts: &NodeFacts, state: &JournalState, task: &Task, desired: &DesiredFiles) -> Action {
    // A change whose restart is pending. The new change replaces it and rolls back to the same file.
    let pending = state.change.as_ref();
    let is_own = pending.is_none() && task.goal() != Goal::Restore && is_own(facts.file, state);
    let managed = match pending {
        Some(change) => change.managed(),
        None if is_own => ManagedEntries::default(),
        None => state.managed.clone(),
    };
    let unparsable = is_unparsable(facts.file);
    // If the file can't be parsed, the node's own entries come from the snapshot.
    let existing = parsed(facts.file)
        .or_else(|| parsed(&state.snapshot))
        .unwrap_or_default();
    let merged = merge_on_node(
        &existing,
        &desired.config,
        &managed.applied(),
        &managed.overridden(),
    );
    let target_managed = ManagedEntries::of(&merged);
    let same = !unparsable && merged.config.means_the_same(&existing);
    let target = match (task.goal(), &desired.provider) {
        (Goal::Revision(_), Some(_)) if same => facts.file.clone(),
        (Goal::Restore, _) | (Goal::Revision(_), Some(_)) => {
            restored(&merged.config, facts.file, state)
        }
        (Goal::Revision(_), None) if same && *facts.file != FileSnapshot::Absent => {
            facts.file.clone()
        }
        (Goal::Revision(_), None) => facts.file.with_bytes(merged.config.render()),
    };
    let target = if target_managed.is_empty() {
        target
    } else {
        target.narrowed()
    };
    let side = desired.provider.as_ref();
    let provider = match credential_provider::change(facts.provider, state, side, facts.restart) {
        Ok(provider) => provider,
        Err(obstacle) => return Action::Obstructed(obstacle),
    };
    let mut drift = false;
    if pending.is_none() {
        if target == *facts.file && task.goal() == Goal::Restore && provider.is_none() {
            return Action::Forget;
        }
        let in_force = state.revision == task.revision
            && state.managed.keys == target_managed.keys
            && state.provider.as_ref() == side.and_then(|side| side.installed.as_ref());
        let on_disk = |is: fn(&ProviderFacts, &ProviderSide) -> bool| {
            let both = facts.provider.zip(provider.as_ref());
            both.is_none_or(|(found, change)| is(found, &change.target))
        };
        if target == *facts.file && in_force && on_disk(ProviderFacts::has_all) {
            return Action::Confirm;
        }
        // If the mode was never recorded as narrowed, the change is not drift by another process.
        let is_mode_only = same && *facts.file != FileSnapshot::Absent;
        let is_of_others = target != *facts.file && (!is_mode_only || facts.is_watched);
        drift = in_force
            && (is_of_others || !on_disk(ProviderFacts::has_files))
            && task.goal() != Goal::Restore;
        if drift && facts.is_conflict_limit_reached {
            return Action::GiveUp;
        }
    }
    let is_needed = match facts.provider.zip(provider.as_ref()) {
        Some((found, change)) => credential_provider::needs_restart(found, state, change),
        // Content that is restored immediately was never missed by the kubelet.
        None => pending.is_some() || !(same || drift && facts.is_watched),
    };
    let before = pending.map_or(facts.file, |change| &change.before).clone();
    let before_managed = match pending {
        Some(change) => change.before_managed.clone(),
        None => managed,
    };
    let change = PendingChange {
        task: task.clone(),
        step: ChangeStep::Forward,
        restart: facts.restart && is_needed,
        target,
        target_managed,
        started_from: None,
        before: if before_managed.is_empty() {
            before
        } else {
            before.narrowed()
        },
        before_managed,
        before_revision: state.revision,
        back_from: None,
        failure: String::new(),
        provider,
        superseded: pending.map(|change| Superseded {
            file: facts.file.clone(),
            managed: change.managed(),
        }),
    };
    Action::Begin {
        change: Box::new(change),
        quarantine: unparsable,
        drift,
        is_own,
    }
}

#[cfg(test)]
mod tests;
