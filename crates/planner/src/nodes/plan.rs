//! The plan: what the controller writes next. Pure: every decision of the controller is made here.

use std::collections::BTreeSet;

use globalps_core::api::NodePullSecretSpec;
use globalps_core::rollout::{Goal, Member, rejection};

use super::abandoned::no_longer_abandoned;
use super::assignments::{Batch, assignments};
use super::confirmations::{Confirmation, confirmations};
pub use super::course::{Aim, Hold};
use super::course::{Course, course, keeps_selector};
use super::forget::{Forget, forget, to_annotate};
use super::input::{Nodes, Snapshot};
use super::members::{Rollout, RolloutTarget};
use super::observed::Target;
use super::selection::{resolved, resolved_for_rollout};
use super::state::{NodeState, node_states};
use super::written::{Written, cleaned_up, held, reached, restored};
use crate::content::history::HistoryWrite;
use crate::content::resolve::Resolved;
use crate::content::secret::{Global, GlobalWrite, RolledOutWrite};
use crate::content::source::{Data, Source};

/// What the controller writes, and what it reports.
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
    /// Files of others that syncers may replace, if no update of the node has begun.
    pub confirmations: Vec<Confirmation>,
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

/// What is known before anything is decided that may need the history.
pub struct Judgement<'a> {
    snapshot: &'a Snapshot<'a>,
    states: Vec<NodeState<'a>>,
    /// The rollout of the revision in force.
    in_force: Rollout,
    resolved: Resolved,
    course: Course,
}

/// Judges each node, once. Whether the rollout in force has to end first decides on the content, and that on the course of the plan.
pub fn judge<'a>(snapshot: &'a Snapshot<'a>) -> Judgement<'a> {
    let Snapshot {
        config,
        secrets,
        recorded,
        clock,
        ..
    } = snapshot;
    let (spec, before) = (&config.spec, recorded.global.as_ref());
    let states = node_states(snapshot);
    let in_force = Rollout::of(
        &states,
        spec,
        recorded,
        before.map(RolloutTarget::of),
        clock.now,
    );
    let resolved = resolved_for_rollout(spec, secrets, before, &in_force);
    let course = course(snapshot, before, resolved.desired.as_ref());
    Judgement {
        snapshot,
        states,
        in_force,
        resolved,
        course,
    }
}

impl Judgement<'_> {
    /// A rollback is due, to the last additional Secret that was rolled out, which is in the history.
    pub fn needs_history(&self) -> bool {
        self.at_fault().is_some()
    }

    /// The revision in force that failed, and its additional Secret, if that is at fault and the user wants the last one back.
    fn at_fault(&self) -> Option<(&Global, &Data)> {
        let Snapshot {
            config, recorded, ..
        } = self.snapshot;
        let global = recorded.global.as_ref()?;
        let additional = self.resolved.desired.as_ref()?.additional.as_ref()?;
        let rolls_back = self.course.aim == Aim::Reach(Goal::Revision(global.revision))
            && self.in_force.step.outcome.rolls_back(&config.spec.rollout)
            && !global.additional_was_rolled_out
            && self.resolved.rejected.is_none();
        rolls_back.then_some((global, additional))
    }

    /// What is in force instead of it if the current additional Secret is rejected, and what the pull secrets come to then. `None`:
    /// that would not help.
    fn rejecting(&self, last: &Source) -> Option<(Global, Resolved)> {
        let (global, additional) = self.at_fault()?;
        let Source::Found(good) = last else {
            return None;
        };
        if good == additional {
            return None;
        }
        let (number, members) = (global.revision.number, &self.in_force.members);
        let before = Global {
            rejected: Some(additional.clone()),
            rejected_reason: Some(rejection(number, members, ("on", "on every node"))),
            last_additional: Some(good.clone()),
            // It comes from the history.
            additional_was_rolled_out: true,
            ..global.clone()
        };
        let Snapshot {
            config, secrets, ..
        } = self.snapshot;
        let resolved = resolved(&config.spec, secrets, Some(&before));
        // If both do not fit, nothing changes.
        let fits = resolved.desired.is_some() && resolved.too_large.is_none();
        fits.then_some((before, resolved))
    }

    /// The plan. `last`: the last additional Secret that was rolled out, if it [`needs_history`](Self::needs_history).
    pub fn plan(mut self, last: &Source) -> Plan {
        let snapshot = self.snapshot;
        if let Some((before, resolved)) = self.rejecting(last) {
            self.course = course(snapshot, Some(&before), resolved.desired.as_ref());
            self.resolved = resolved;
            return self.planned(Some(&before));
        }
        self.planned(snapshot.recorded.global.as_ref())
    }

    /// The plan that takes this course. `before`: what is in force, or what a rollback leaves of it.
    fn planned(self, before: Option<&Global>) -> Plan {
        let Self {
            snapshot,
            states,
            in_force,
            resolved,
            course,
        } = self;
        let Snapshot {
            config,
            recorded,
            agents,
            nodes,
            clock,
            refused,
            ..
        } = snapshot;
        let spec = &config.spec;
        let last = in_force.step.outcome;
        let next = if in_force.target == course.target {
            in_force
        } else {
            // Each has thousands.
            drop(in_force);
            Rollout::of(&states, spec, recorded, course.target, clock.now)
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
        let is_halted = next.step.outcome.is_halted;
        let mut plan = Plan {
            resolved,
            aim: course.aim,
            keeps_selector: keeps_selector(spec, nodes),
            canary_passed: if is_held {
                course.target.is_some_and(|it| it.ledger.canary_passed)
            } else {
                next.step.outcome.ledger.canary_passed
            },
            members: next.members,
            history: written.history,
            rolled_out: written.rolled_out,
            global: written.global,
            removes_agents: agents.has_leftovers
                && (written.removes_agents || course.aim == Aim::Nothing),
            assignments: Vec::new(),
            confirmations: Vec::new(),
            no_longer_abandoned: BTreeSet::new(),
            forget: Forget::NotAsked,
        };
        if course.assigns {
            let all_restore = || plan.members.iter().all(|it| it.goal == Goal::Restore);
            let batch = Batch {
                next: (!is_held).then_some(&next.step.next),
                restores: if is_held {
                    recorded.is_restoring()
                } else {
                    all_restore()
                },
                for_new_nodes: written.for_new_nodes,
            };
            plan.assignments = assignments(&states, nodes, &plan.members, batch, clock.now);
            if spec.kubelet.delivery.is_observed() {
                let goal = course.target.map(|target| target.ledger.goal);
                observed(goal, &plan.resolved, before, nodes).assign(&mut plan.assignments, nodes);
            }
        }
        let is_restored = plan.assignments.is_empty() && plan.members.iter().all(Member::is_done);
        if plan.aim == Aim::Reach(Goal::Restore) && is_restored {
            plan.aim = Aim::CleanUp;
            plan.history = None;
            // If that is refused, the deletion is tried all the same.
            let record = spec.kubelet.delivery.record_secret();
            let is_refused = refused.of("Secret", record).is_some();
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
        plan.confirmations = confirmations(&states, &plan.assignments);
        plan
    }
}

/// What the nodes' files should have. A revision in force may be that of an earlier pull secret.
fn observed(
    goal: Option<Goal>,
    resolved: &Resolved,
    before: Option<&Global>,
    nodes: &Nodes,
) -> Target {
    let in_force = before.filter(|global| goal == Some(Goal::Revision(global.revision)));
    let kept = in_force.and_then(|global| {
        let content = global.content.as_ref()?;
        Some((&content.config, global.last_original.is_some()))
    });
    let desired = resolved.desired.as_ref();
    let desired = desired.map(|desired| (&desired.content.config, desired.original.is_some()));
    Target::of(goal, kept.or(desired), nodes, before)
}

/// The plan with an empty history.
#[cfg(any(test, feature = "testing"))]
pub fn plan(snapshot: &Snapshot) -> Plan {
    judge(snapshot).plan(&Source::Absent)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
pub(crate) mod tests;
