//! The plan: what the controller writes next. Pure: every decision of the controller is made here.

use std::collections::BTreeSet;

use globalps_core::api::NodePullSecretSpec;
use globalps_core::names::GLOBAL_SECRET;
use globalps_core::rollout::{Goal, Member};

use super::abandoned::no_longer_abandoned;
use super::assignments::{Scope, assignments};
pub use super::course::{Aim, Hold};
use super::course::{Course, course, keeps_selector};
use super::forget::{Forget, forget, to_annotate};
use super::input::Snapshot;
use super::members::Target;
use super::outcome::{Rollout, failed};
use super::selection::{resolved, resolved_for_rollout};
use super::state::{NodeState, node_states};
use super::written::{Written, cleaned_up, held, reached, restored};
use crate::content::history::HistoryWrite;
use crate::content::resolve::Resolved;
use crate::content::secret::{Global, GlobalWrite, RolledOutWrite};
use crate::content::source::{Data, Source};

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
    /// Nodes keep or get content.
    pub fn keeps_content(&self) -> bool {
        matches!(self.aim, Aim::Reach(Goal::Revision(_)) | Aim::Hold(_))
    }
}

/// Each node is judged once. Whether the rollout in force has to end first decides on the content, that on the course of the plan,
/// and that on the goals of the nodes.
pub fn plan(snapshot: &Snapshot) -> Plan {
    let Snapshot {
        config,
        secrets,
        recorded,
        ..
    } = snapshot;
    let before = recorded.global.as_ref();
    let states = node_states(snapshot);
    let in_force = Rollout::of(&states, &config.spec, recorded, before.map(Target::of));
    let resolved = resolved_for_rollout(&config.spec, secrets, before, &in_force);
    let course = course(snapshot, resolved.desired.as_ref());
    planned(snapshot, &states, resolved, course, before, in_force)
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
    let (spec, recorded) = (&snapshot.config.spec, &snapshot.recorded);
    let resolved = resolved(spec, &snapshot.secrets, Some(&before));
    match &resolved.desired {
        // If both do not fit, nothing changes.
        Some(desired) if resolved.too_large.is_none() => {
            let states = node_states(snapshot);
            let in_force = Rollout::of(&states, spec, recorded, Some(Target::of(&before)));
            let course = Course::to(recorded, Some(&before), desired, snapshot.new_id);
            planned(snapshot, &states, resolved, course, Some(&before), in_force)
        }
        _ => plan,
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

/// The plan that takes this course. `in_force`: the rollout of `before`'s revision.
fn planned(
    snapshot: &Snapshot,
    states: &[NodeState],
    resolved: Resolved,
    course: Course,
    before: Option<&Global>,
    in_force: Rollout,
) -> Plan {
    let Snapshot {
        config,
        recorded,
        agents,
        nodes,
        clock,
        refused,
        ..
    } = snapshot;
    let (spec, last) = (&config.spec, in_force.outcome);
    let next = if in_force.target == course.target {
        in_force
    } else {
        // Each has thousands.
        drop(in_force);
        Rollout::of(states, spec, recorded, course.target)
    };
    let written = match (course.aim, &resolved.desired) {
        (Aim::Reach(Goal::Revision(revision)), Some(desired)) => {
            reached(snapshot, &resolved, desired, revision, before, last, &next)
        }
        (Aim::Reach(Goal::Restore), _) => restored(snapshot, last),
        (Aim::Hold(_), _) => held(recorded, &next),
        _ => Written::default(),
    };
    let is_held = matches!(course.aim, Aim::Hold(_));
    let is_halted = next.outcome.is_halted;
    let mut plan = Plan {
        resolved,
        aim: course.aim,
        keeps_selector: keeps_selector(spec, nodes),
        canary_passed: if is_held {
            course.target.is_some_and(|target| target.canary_passed)
        } else {
            next.outcome.canary_passed
        },
        members: next.members,
        needs_history: written.needs_history,
        history: written.history,
        rolled_out: written.rolled_out,
        global: written.global,
        removes_agents: agents.has_leftovers
            && (written.removes_agents || course.aim == Aim::Nothing),
        assignments: Vec::new(),
        no_longer_abandoned: BTreeSet::new(),
        forget: Forget::NotAsked,
    };
    if course.assigns {
        let all_restore = || plan.members.iter().all(|it| it.goal == Goal::Restore);
        let scope = Scope {
            limits: (!is_held).then_some(&spec.rollout),
            canary_passed: plan.canary_passed,
            restores: if is_held {
                recorded.is_restoring()
            } else {
                all_restore()
            },
            for_new_nodes: written.for_new_nodes,
        };
        plan.assignments = assignments(states, nodes, &plan.members, scope, clock.now);
    }
    let is_restored = plan.assignments.is_empty() && plan.members.iter().all(Member::is_done);
    if plan.aim == Aim::Reach(Goal::Restore) && is_restored {
        plan.aim = Aim::CleanUp;
        plan.history = None;
        // If that is refused, the deletion is tried all the same.
        let is_refused = refused.of("Secret", GLOBAL_SECRET).is_some();
        plan.global = cleaned_up(recorded).filter(|_| !is_refused);
    }
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
    plan.forget = forget(config, recorded, goal, additional, is_halted);
    let annotated = to_annotate(nodes, plan.forget, &plan.assignments);
    plan.assignments.extend(annotated);
    plan
}

#[cfg(test)]
#[path = "plan_tests.rs"]
pub(crate) mod tests;
