//! The plan: what the controller writes next. Pure: every decision of the controller is made here.

use std::collections::BTreeSet;

use globalps_core::api::{DeliveryType, NodePullSecretSpec, OnFailure};
use globalps_core::names::GLOBAL_SECRET;
use globalps_core::rollout::{self, Goal, Member};

use super::abandoned::no_longer_abandoned;
use super::assignments::{assignments, upkeep};
use super::bootstrap::{bootstrap, fleet_revision};
use super::forget::{Forget, forget, to_annotate};
pub use super::hold::Hold;
use super::hold::{is_removal_held, keeps_selector, why_held};
use super::input::Snapshot;
use super::members::members;
use super::outcome::{Outcome, failed, has_halted, is_complete};
use super::revision::{config_file, content, next_revision, provider_since, restoring};
use super::selection;
use crate::content::history::HistoryWrite;
use crate::content::resolve::{Desired, Resolved};
use crate::content::secret::{Global, GlobalWrite, RolledOutWrite};
use crate::content::since::since;
use crate::content::source::{Data, Source};

/// The desired state of the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// No additional Secret, no source, and nothing to clean up.
    Nothing,
    /// Every node keeps its content.
    Hold(Hold),
    Reach(Goal),
    /// Every node is restored: the controller deletes the objects that it created.
    CleanUp,
}

#[expect(
    clippy::struct_excessive_bools,
    reason = "facts do not depend on each other"
)]
#[derive(Clone, Debug)]
pub struct Plan {
    pub resolved: Resolved,
    pub aim: Aim,
    /// The syncers stay on the nodes that were selected before.
    pub keeps_selector: bool,
    /// The nodes with their goals, for the plan and the report; empty for [`Aim::Nothing`].
    pub members: Vec<Member>,
    /// Enough canaries have had the revision.
    pub canary_passed: bool,
    /// A rollback needs `last_rolled_out` from the history.
    pub needs_history: bool,
    /// Written before `global`, which no longer has this content.
    pub history: Option<HistoryWrite>,
    /// Written before `global`, which no longer has this revision.
    pub rolled_out: Option<RolledOutWrite>,
    pub global: Option<GlobalWrite>,
    /// Nodes no longer get anything, and all of them are restored: remove the syncers and their objects, or what is left of them.
    pub removes_agents: bool,
    /// `NodePullSecret`s to write: node and spec, in this order.
    pub assignments: Vec<(String, NodePullSecretSpec)>,
    /// Nodes with the permission of a cleanup that is over: their next write ends it.
    pub no_longer_abandoned: BTreeSet<String>,
    /// Whether earlier content may be forgotten.
    pub forget: Forget,
}

impl Plan {
    /// A plan without writes.
    fn new(resolved: Resolved, aim: Aim) -> Self {
        Self {
            resolved,
            aim,
            keeps_selector: false,
            members: Vec::new(),
            canary_passed: false,
            needs_history: false,
            history: None,
            rolled_out: None,
            global: None,
            removes_agents: false,
            assignments: Vec::new(),
            no_longer_abandoned: BTreeSet::new(),
            forget: Forget::NotAsked,
        }
    }

    /// Nodes keep or get content.
    pub fn keeps_content(&self) -> bool {
        matches!(self.aim, Aim::Reach(Goal::Revision(_)) | Aim::Hold(_))
    }
}

pub fn plan(snapshot: &Snapshot) -> Plan {
    let mut plan = decide(snapshot);
    plan.keeps_selector = keeps_selector(snapshot);
    plan.no_longer_abandoned = no_longer_abandoned(snapshot, &plan.members);
    for name in &plan.no_longer_abandoned {
        let object = snapshot.node_pull_secrets.get(name);
        if let Some(object) = object
            && plan.assignments.iter().all(|(other, _)| other != name)
        {
            plan.assignments.push((name.clone(), object.spec.clone()));
        }
    }
    let goal = match plan.aim {
        Aim::Hold(_) => None,
        Aim::Reach(goal) => Some(goal),
        Aim::Nothing | Aim::CleanUp => Some(Goal::Restore),
    };
    plan.forget = forget(snapshot, goal, &plan.resolved.additional, &plan.members);
    let annotated = to_annotate(snapshot, plan.forget, &plan.assignments);
    plan.assignments.extend(annotated);
    plan
}

fn decide(snapshot: &Snapshot) -> Plan {
    let before = snapshot.global.as_ref();
    let resolved = selection::resolved_for_rollout(snapshot, before);
    if let Some(reason) = why_held(snapshot, resolved.desired.is_some()) {
        return hold(snapshot, resolved, reason);
    }
    let desired = match &resolved.desired {
        Some(desired) if !is_removal_held(snapshot) => desired,
        _ if snapshot.is_in_force() => return restore(snapshot, resolved),
        _ => {
            return Plan {
                removes_agents: snapshot.has_leftovers,
                ..Plan::new(resolved, Aim::Nothing)
            };
        }
    };
    let mut plan = reach(snapshot, &resolved, desired, before);
    match rollback(snapshot, &plan, before, desired) {
        Rollback::No => plan,
        Rollback::NeedsHistory => {
            plan.needs_history = true;
            plan
        }
        Rollback::To(before) => {
            let resolved = selection::resolved(snapshot, Some(&before));
            match &resolved.desired {
                // If both do not fit, nothing changes.
                Some(desired) if resolved.too_large.is_none() => {
                    reach(snapshot, &resolved, desired, Some(&before))
                }
                _ => plan,
            }
        }
    }
}

/// Every node keeps its content; new nodes get the fleet's, if any node has some. What needs no limits continues.
fn hold(snapshot: &Snapshot, resolved: Resolved, reason: Hold) -> Plan {
    let mut plan = Plan::new(resolved, Aim::Hold(reason));
    plan.global = lost_global(snapshot);
    if !snapshot.are_nodes_known || !snapshot.may_be_on_nodes() {
        return plan;
    }
    let restores = snapshot.is_restoring();
    if !snapshot.is_configuration_known() {
        // Which nodes are selected is not known.
        plan.assignments = upkeep(snapshot, &[], restores);
        return plan;
    }
    if let Some(global) = &snapshot.global {
        let goal = if restores {
            Goal::Restore
        } else {
            Goal::Revision(global.revision)
        };
        plan.canary_passed = global.canary_passed;
        plan.members = members(snapshot, goal, plan.canary_passed, global.provider_since);
    }
    plan.assignments = upkeep(snapshot, &plan.members, restores);
    if let Some(global) = &snapshot.global {
        let is_halted = has_halted(snapshot, &plan.members);
        let older = snapshot.rolled_out_revision;
        let revision = fleet_revision(older, global, true, is_halted);
        plan.assignments.extend(bootstrap(snapshot, revision));
    }
    plan
}

/// `global-pull-secret` as it was, if another client deleted or changed it.
fn lost_global(snapshot: &Snapshot) -> Option<GlobalWrite> {
    let global = snapshot.global.as_ref();
    let global = global.filter(|_| snapshot.global_is_lost)?;
    Some(GlobalWrite {
        content: global.content.clone()?,
        global: global.clone(),
    })
}

/// Rolls out the desired content.
fn reach(
    snapshot: &Snapshot,
    resolved: &Resolved,
    desired: &Desired,
    before: Option<&Global>,
) -> Plan {
    let same =
        before.filter(|global| global.revision.is_identified() && global.has(&desired.content));
    let revision = same.map_or_else(|| next_revision(snapshot), |global| global.revision);
    let goal = Goal::Revision(revision);
    let mut plan = Plan::new(resolved.clone(), Aim::Reach(goal));
    // Before the members of the new revision, since each has thousands.
    let last = before.filter(|_| same.is_none());
    let last = last.map(|global| (global, Outcome::of(snapshot, global)));
    let provider_since = provider_since(before, &desired.content, revision.number);
    let had_passed = same.is_some_and(|global| global.canary_passed && !global.restoring);
    plan.members = members(snapshot, goal, had_passed, provider_since);
    let members = &plan.members;
    plan.canary_passed =
        had_passed || rollout::has_canary_passed(members, goal, &snapshot.spec.rollout);
    let is_off_nodes = is_off_nodes(snapshot, members);
    let had_config_file = before.is_some_and(|global| global.config_file.is_some());
    // First record that nothing is left on the nodes.
    plan.removes_agents = is_off_nodes && !had_config_file && snapshot.has_leftovers;
    let members = &plan.members;
    let rolled_out = same
        .and_then(|global| global.rolled_out)
        .or_else(|| is_complete(snapshot, members, revision).then_some(snapshot.now));
    let next = Global {
        revision,
        content: None,
        last_scopes: desired.scopes.clone(),
        provider_since,
        last_additional: desired.additional.clone(),
        last_original: desired.original.clone(),
        last_sources: desired.sources.clone(),
        canary_passed: plan.canary_passed,
        rolled_out,
        restoring: false,
        additional_was_rolled_out: rolled_out.is_none()
            && before.is_some_and(|global| {
                global.last_additional == desired.additional
                    && (global.additional_was_rolled_out || global.rolled_out.is_some())
            }),
        rejected: resolved.rejected.clone(),
        rejected_reason: before
            .filter(|_| resolved.rejected.is_some())
            .and_then(|global| global.rejected_reason.clone()),
        config_file: config_file(snapshot, before).filter(|_| !is_off_nodes),
        content_since: since(before, &desired.content, revision),
    };
    if let Some((global, last)) = last {
        let is_kept =
            snapshot.spec.history_limit > 0 && global.last_additional != desired.additional;
        plan.history = last.history(global, snapshot.now).filter(|_| is_kept);
        plan.rolled_out = last.content(global);
    }
    plan.assignments = assignments(snapshot, members, plan.canary_passed);
    // What is written now replaces the one before it.
    let older = plan.rolled_out.as_ref().map(|write| write.revision);
    let fleet_revision = fleet_revision(
        older.or(snapshot.rolled_out_revision),
        &next,
        snapshot.spec.rollout.paused,
        has_halted(snapshot, members),
    );
    plan.assignments.extend(bootstrap(snapshot, fleet_revision));
    let is_written =
        !snapshot.global_is_lost && same.is_some_and(|global| global.has_same_state(&next));
    if !is_written {
        plan.global = Some(GlobalWrite {
            content: content(same, desired),
            global: next,
        });
    }
    plan
}

/// Nodes get nothing, and every node is restored.
fn is_off_nodes(snapshot: &Snapshot, members: &[Member]) -> bool {
    snapshot.spec.kubelet.delivery == DeliveryType::None && members.iter().all(Member::is_done)
}

enum Rollback {
    No,
    /// The last valid additional Secret must be read first.
    NeedsHistory,
    /// Replace the current state by this one, which rejects the current additional Secret.
    To(Box<Global>),
}

/// Whether too many nodes failed with this revision, and the user wants a rollback then. If the additional Secret equals the last
/// valid one, a rollback would not help.
fn rollback(
    snapshot: &Snapshot,
    plan: &Plan,
    before: Option<&Global>,
    desired: &Desired,
) -> Rollback {
    let spec = &snapshot.spec.rollout;
    let (Some(global), Some(additional)) = (before, &desired.additional) else {
        return Rollback::No;
    };
    let is_new = plan.aim != Aim::Reach(Goal::Revision(global.revision));
    let next = plan.global.as_ref().map_or(global, |write| &write.global);
    let is_innocent = next.rolled_out.is_some() || next.additional_was_rolled_out;
    let is_due = spec.on_failure == OnFailure::Rollback
        && !spec.paused
        && !is_new
        && !is_innocent
        && plan.resolved.rejected.is_none()
        && has_halted(snapshot, &plan.members);
    match &snapshot.last_rolled_out {
        _ if !is_due => Rollback::No,
        None => Rollback::NeedsHistory,
        Some(Source::Found(good)) if good != additional => {
            Rollback::To(Box::new(rejecting(global, additional, good, &plan.members)))
        }
        Some(_) => Rollback::No,
    }
}

fn rejecting(global: &Global, additional: &Data, good: &Data, members: &[Member]) -> Global {
    let failed: Vec<&str> = failed(members).map(|m| m.name.as_str()).take(3).collect();
    Global {
        rejected: Some(additional.clone()),
        rejected_reason: Some(format!(
            "revision {} failed on {} and was rolled back on every node",
            global.revision.number,
            failed.join(", ")
        )),
        last_additional: Some(good.clone()),
        // It comes from the history.
        additional_was_rolled_out: true,
        ..global.clone()
    }
}

/// No additional Secret and no source: every node restores, then everything is deleted.
fn restore(snapshot: &Snapshot, resolved: Resolved) -> Plan {
    if !snapshot.may_be_on_nodes() {
        return Plan::new(resolved, Aim::CleanUp);
    }
    let mut plan = Plan::new(resolved, Aim::Reach(Goal::Restore));
    let begun = snapshot.global.as_ref().filter(|global| !global.restoring);
    plan.history = begun.and_then(|global| {
        // Until the nodes are restored, `undo` brings it back.
        let last = Outcome::of(snapshot, global).history(global, snapshot.now);
        last.filter(|_| snapshot.spec.history_limit > 0)
    });
    plan.members = members(snapshot, Goal::Restore, true, 0);
    plan.assignments = assignments(snapshot, &plan.members, true);
    let global = snapshot.global.as_ref();
    if plan.assignments.is_empty() && plan.members.iter().all(Member::is_done) {
        plan.aim = Aim::CleanUp;
        plan.history = None;
        // Nothing is left on the nodes: the next leader continues the cleanup, though a finalizer keeps some object.
        // If that is refused, the deletion is tried all the same.
        let is_refused = snapshot.refused.of("Secret", GLOBAL_SECRET).is_some();
        let global = global.filter(|global| global.config_file.is_some() && !is_refused);
        plan.global = global.and_then(|global| restoring(global, None));
        return plan;
    }
    // The restore has begun: an invalid Secret that appears now must not bring the last valid content back, and no new node gets
    // the content that is being removed.
    let global = global.filter(|global| !global.restoring);
    plan.global = global.and_then(|global| restoring(global, config_file(snapshot, Some(global))));
    plan
}

#[cfg(test)]
#[path = "plan_tests.rs"]
pub(crate) mod tests;
