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
use super::hold::{keeps_selector, why_held};
use super::input::{Recorded, Snapshot};
use super::members::members;
use super::outcome::{Outcome, failed, has_halted, is_complete};
use super::revision::{config_file, content, next_revision, provider_since, restoring};
use super::selection::{resolved, resolved_for_rollout};
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
    /// Nodes get this, one batch after the other.
    Reach(Goal),
    /// Every node is restored: the controller deletes the objects that it created.
    CleanUp,
}

/// What the controller writes, and what it reports.
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts do not depend on each other"
)]
#[derive(Clone, Debug)]
pub struct Plan {
    /// What the pull secrets come to.
    pub resolved: Resolved,
    /// What all nodes are to have.
    pub aim: Aim,
    /// The syncers stay on the nodes that were selected before.
    pub keeps_selector: bool,
    /// The nodes with their goals, for the plan and the report; empty for [`Aim::Nothing`].
    pub members: Vec<Member>,
    /// Enough canaries have had the revision.
    pub canary_passed: bool,
    /// A rollback is due, which needs the history: see [`roll_back`].
    pub needs_history: bool,
    /// Written before `global`, which no longer has this content.
    pub history: Option<HistoryWrite>,
    /// Written before `global`, which no longer has this revision.
    pub rolled_out: Option<RolledOutWrite>,
    /// `None`: it stays as it is.
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

/// The members of the revision in force are asked for once, since each step needs them: whether its rollout has to end first, how
/// far it got, and what to do next.
pub fn plan(snapshot: &Snapshot) -> Plan {
    let Snapshot {
        config,
        secrets,
        recorded,
        ..
    } = snapshot;
    let before = recorded.global.as_ref();
    let in_force = before.map_or_else(Vec::new, |global| {
        let goal = Goal::Revision(global.revision);
        members(snapshot, goal, global.canary_passed, global.provider_since)
    });
    let resolved = resolved_for_rollout(&config.spec, secrets, before, &in_force);
    let absence = snapshot.absence();
    let held = why_held(snapshot, &absence, resolved.desired.is_some());
    let plan = match (held, &resolved.desired) {
        (Some(reason), _) => hold(snapshot, resolved, reason, in_force),
        (None, Some(desired)) if !snapshot.is_removal_held(&absence) => {
            reach(snapshot, &resolved, desired, before, in_force)
        }
        _ if snapshot.is_in_force() => restore(snapshot, resolved, in_force),
        _ => Plan {
            removes_agents: snapshot.agents.has_leftovers,
            ..Plan::new(resolved, Aim::Nothing)
        },
    };
    completed(snapshot, plan)
}

/// The plan that rejects the current additional Secret, once the history is read. `last`: the last one of it that was rolled out.
/// If the current one equals that, a rollback would not help.
pub fn roll_back(snapshot: &Snapshot, plan: Plan, last: &Source) -> Plan {
    let desired = plan.resolved.desired.as_ref();
    let additional = desired.and_then(|desired| desired.additional.as_ref());
    let global = snapshot.recorded.global.as_ref();
    let (Some(global), Some(additional), Source::Found(good)) = (global, additional, last) else {
        return plan;
    };
    if good == additional {
        return plan;
    }
    let before = rejecting(global, additional, good, &plan.members);
    let resolved = resolved(&snapshot.config.spec, &snapshot.secrets, Some(&before));
    match &resolved.desired {
        // If both do not fit, nothing changes.
        Some(desired) if resolved.too_large.is_none() => {
            let plan = reach(snapshot, &resolved, desired, Some(&before), plan.members);
            completed(snapshot, plan)
        }
        _ => plan,
    }
}

/// Adds what does not depend on why nodes get what they get.
fn completed(snapshot: &Snapshot, mut plan: Plan) -> Plan {
    let Snapshot {
        config,
        recorded,
        nodes,
        clock,
        ..
    } = snapshot;
    plan.keeps_selector = keeps_selector(&config.spec, nodes);
    plan.no_longer_abandoned = no_longer_abandoned(clock, nodes, &plan.members);
    for name in &plan.no_longer_abandoned {
        let object = nodes.objects.get(name);
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
    let additional = &plan.resolved.additional;
    plan.forget = forget(config, recorded, goal, additional, &plan.members);
    let annotated = to_annotate(nodes, plan.forget, &plan.assignments);
    plan.assignments.extend(annotated);
    plan
}

/// Every node keeps its content; new nodes get the fleet's, if any node has some. What needs no limits continues.
fn hold(snapshot: &Snapshot, resolved: Resolved, reason: Hold, in_force: Vec<Member>) -> Plan {
    let recorded = &snapshot.recorded;
    let mut plan = Plan::new(resolved, Aim::Hold(reason));
    plan.global = lost_global(recorded);
    if !snapshot.nodes.are_known || !snapshot.may_be_on_nodes() {
        return plan;
    }
    let restores = recorded.is_restoring();
    if !snapshot.is_configuration_known() {
        // Which nodes are selected is not known.
        plan.assignments = upkeep(snapshot, &[], restores);
        return plan;
    }
    plan.members = match &recorded.global {
        Some(_) if restores => members(snapshot, Goal::Restore, true, 0),
        _ => in_force,
    };
    plan.assignments = upkeep(snapshot, &plan.members, restores);
    if let Some(global) = &recorded.global {
        plan.canary_passed = global.canary_passed;
        let is_halted = has_halted(&snapshot.config.spec, &plan.members);
        let older = recorded.rolled_out_revision;
        let revision = fleet_revision(older, global, true, is_halted);
        plan.assignments.extend(bootstrap(snapshot, revision));
    }
    plan
}

/// `global-pull-secret` as it was, if another client deleted or changed it.
fn lost_global(recorded: &Recorded) -> Option<GlobalWrite> {
    let global = recorded.global.as_ref();
    let global = global.filter(|_| recorded.global_is_lost)?;
    Some(GlobalWrite {
        content: global.content.clone()?,
        global: global.clone(),
    })
}

/// Rolls out the desired content. `in_force`: the members of `before`'s revision.
fn reach(
    snapshot: &Snapshot,
    resolved: &Resolved,
    desired: &Desired,
    before: Option<&Global>,
    in_force: Vec<Member>,
) -> Plan {
    let (spec, recorded, now) = (
        &snapshot.config.spec,
        &snapshot.recorded,
        snapshot.clock.now,
    );
    let same =
        before.filter(|global| global.revision.is_identified() && global.has(&desired.content));
    let revision = same.map_or_else(
        || next_revision(recorded, snapshot.new_id),
        |global| global.revision,
    );
    let goal = Goal::Revision(revision);
    let mut plan = Plan::new(resolved.clone(), Aim::Reach(goal));
    let last = before.filter(|_| same.is_none());
    let last = last.map(|global| (global, Outcome::of(spec, recorded, global, &in_force, now)));
    let provider_since = provider_since(before, &desired.content, revision.number);
    let had_passed = same.is_some_and(|global| global.canary_passed && !global.restoring);
    let are_known = same.is_some_and(|it| !it.restoring && it.provider_since == provider_since);
    plan.members = if are_known {
        in_force
    } else {
        // Each has thousands.
        drop(in_force);
        members(snapshot, goal, had_passed, provider_since)
    };
    let members = &plan.members;
    plan.canary_passed = had_passed || rollout::has_canary_passed(members, goal, &spec.rollout);
    let is_off_nodes =
        spec.kubelet.delivery == DeliveryType::None && members.iter().all(Member::is_done);
    let had_config_file = before.is_some_and(|global| global.config_file.is_some());
    // First record that nothing is left on the nodes.
    plan.removes_agents = is_off_nodes && !had_config_file && snapshot.agents.has_leftovers;
    let rolled_out = same
        .and_then(|global| global.rolled_out)
        .or_else(|| is_complete(spec, recorded, members, revision).then_some(now));
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
        config_file: config_file(&spec.kubelet, before).filter(|_| !is_off_nodes),
        content_since: since(before, &desired.content, revision),
    };
    if let Some((global, last)) = last {
        let is_kept = spec.history_limit > 0 && global.last_additional != desired.additional;
        plan.history = last.history(global, now).filter(|_| is_kept);
        plan.rolled_out = last.content(global);
    }
    plan.assignments = assignments(snapshot, members, plan.canary_passed);
    // What is written now replaces the one before it.
    let older = plan.rolled_out.as_ref().map(|write| write.revision);
    let older = older.or(recorded.rolled_out_revision);
    let is_halted = has_halted(spec, members);
    let for_new_nodes = fleet_revision(older, &next, spec.rollout.paused, is_halted);
    plan.assignments.extend(bootstrap(snapshot, for_new_nodes));
    // The additional Secret of this revision is at fault, and the user wants the last valid one back.
    plan.needs_history = is_halted
        && same.is_some()
        && spec.rollout.on_failure == OnFailure::Rollback
        && !spec.rollout.paused
        && desired.additional.is_some()
        && next.rolled_out.is_none()
        && !next.additional_was_rolled_out
        && resolved.rejected.is_none();
    let is_written =
        !recorded.global_is_lost && same.is_some_and(|global| global.has_same_state(&next));
    if !is_written {
        plan.global = Some(GlobalWrite {
            content: content(same, desired),
            global: next,
        });
    }
    plan
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
fn restore(snapshot: &Snapshot, resolved: Resolved, in_force: Vec<Member>) -> Plan {
    if !snapshot.may_be_on_nodes() {
        return Plan::new(resolved, Aim::CleanUp);
    }
    let (spec, recorded, now) = (
        &snapshot.config.spec,
        &snapshot.recorded,
        snapshot.clock.now,
    );
    let mut plan = Plan::new(resolved, Aim::Reach(Goal::Restore));
    let global = recorded.global.as_ref();
    let begins = global.filter(|global| !global.restoring);
    plan.history = begins.and_then(|global| {
        // Until the nodes are restored, `undo` brings it back.
        let last = Outcome::of(spec, recorded, global, &in_force, now).history(global, now);
        last.filter(|_| spec.history_limit > 0)
    });
    // Each has thousands.
    drop(in_force);
    plan.members = members(snapshot, Goal::Restore, true, 0);
    plan.assignments = assignments(snapshot, &plan.members, true);
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
    plan.global = begins.and_then(|global| {
        let config_file = config_file(&spec.kubelet, Some(global));
        restoring(global, config_file)
    });
    plan
}

#[cfg(test)]
#[path = "plan_tests.rs"]
pub(crate) mod tests;
