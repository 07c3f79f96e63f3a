//! The nodes as members of the rollout, once they have a goal, and its next step. Pure.

use globalps_core::api::{DeliveryType, GlobalPullSecretSpec};
use globalps_core::rollout::{self, Goal, Ledger, Member, Progress, Revision, Step, step};
use jiff::Timestamp;

use super::input::Recorded;
use super::state::NodeState;
use crate::content::secret::Global;

/// What members are to reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RolloutTarget {
    /// The goal, a revision or what was there before globalps, and how far it is.
    pub ledger: Ledger,
    /// The first revision with the current configuration of the provider; 0: none.
    pub provider_since: i64,
}

impl RolloutTarget {
    /// What was there before globalps.
    pub const RESTORE: Self = Self {
        ledger: Ledger::new(Goal::Restore),
        provider_since: 0,
    };

    /// The revision in force.
    pub fn of(global: &Global) -> Self {
        Self {
            ledger: Ledger {
                goal: Goal::Revision(global.revision),
                canary_passed: global.canary_passed,
                rolled_out: global.rolled_out,
            },
            provider_since: global.provider_since,
        }
    }
}

/// The members of a target, and their next step.
pub(super) struct Rollout {
    /// `None`: there are no members.
    pub(super) target: Option<RolloutTarget>,
    pub(super) members: Vec<Member>,
    pub(super) step: Step,
}

impl Rollout {
    pub(super) fn of(
        states: &[NodeState],
        spec: &GlobalPullSecretSpec,
        recorded: &Recorded,
        target: Option<RolloutTarget>,
        now: Timestamp,
    ) -> Self {
        let members = target.map_or_else(Vec::new, |target| members(states, target));
        let mut ledger = target.unwrap_or(RolloutTarget::RESTORE).ledger;
        // Another program changes all nodes, in its own order.
        ledger.canary_passed |= spec.kubelet.delivery.is_observed();
        // If nodes get nothing, namespaces do.
        let everywhere = recorded.namespaces_have.map(Goal::Revision);
        let is_everywhere =
            spec.kubelet.delivery == DeliveryType::None && everywhere == Some(ledger.goal);
        let step = step(ledger, &members, &spec.rollout, is_everywhere, now);
        Self {
            target,
            members,
            step,
        }
    }
}

/// The nodes with a goal: the selected ones, and those that restore. Nobody waits for the unsupported ones.
pub fn members(states: &[NodeState], target: RolloutTarget) -> Vec<Member> {
    let RolloutTarget {
        ledger,
        provider_since,
    } = target;
    let goal = ledger.goal;
    let restoring = goal == Goal::Restore;
    let members = states.iter().filter_map(|state| {
        let is_known = state.object.is_some() || state.is_unreadable;
        if !is_known && !state.node.can_run_syncer() || state.is_unsupported {
            return None;
        }
        let is_selected = !restoring && state.is_selected;
        let goal = if is_selected { goal } else { Goal::Restore };
        let is_canary = is_selected && state.is_canary;
        let member = member(state, goal, is_canary && !ledger.canary_passed);
        let has_goal =
            is_selected || member.assigned.is_some() || restoring && state.node.can_run_syncer();
        let has_provider = provider_since > 0 && state.in_place >= Some(provider_since);
        has_goal.then_some(Member {
            is_canary,
            in_place: state.is_observed || is_selected && has_provider,
            ..member
        })
    });
    // Grown by doubling it would take twice as much.
    let mut all = Vec::with_capacity(states.len());
    all.extend(members);
    all
}

/// `soaks`: it must stay ready for as long as a canary.
fn member(state: &NodeState, goal: Goal, soaks: bool) -> Member {
    let (node, restores) = (state.node, goal == Goal::Restore);
    let is_abandoned = restores && state.is_abandoned;
    let has_new_owner = !restores && state.has_new_owner;
    let judged = if soaks { state.as_canary } else { state.judged };
    let mut member = Member {
        name: node.name.clone(),
        goal,
        not_ready: state.not_ready,
        assigned: if node.is_foreign() && !restores {
            Some((goal, Progress::Foreign))
        } else if node.is_updating() && !restores || has_new_owner {
            // It is left alone until the end of the update, or this plan writes its object.
            Some((goal, Progress::Blocked))
        } else if state.object.is_none() && restores {
            // What is on it is unknown.
            let unknown = (Goal::Revision(Revision::NONE), Progress::Blocked);
            (!state.is_cleaned_up).then_some(unknown)
        } else {
            judged.assigned
        },
        assigned_for: state.assigned_for,
        is_up_to_date: state.is_up_to_date,
        agent_down: state.agent_down,
        unable: state.unable,
        awaits_agent: state.awaits_agent,
        is_revoked: state.object.is_some_and(|object| object.spec.revoked),
        retry: state.is_asked(),
        has_failed_before: rollout::has_failed_another(judged.failed, goal),
        zone: node.zone().to_owned(),
        is_last: node.is_control_plane(),
        is_canary: false,
        // What it has is assigned outside the limits.
        is_skipped: !restores && state.is_skipped || state.has_unassigned(goal),
        in_place: false,
        refused: state.refused,
    };
    if state.is_unreadable {
        // What it does is unknown. It gets nothing until its object is readable, and nobody waits for it.
        member.assigned = (!is_abandoned).then_some((goal, Progress::Blocked));
        member.is_up_to_date = true;
        member.retry = false;
        return member;
    }
    let is_left = match member.assigned {
        // Its own restart makes it NotReady for a moment.
        Some((_, Progress::InFlight | Progress::Soaking)) => member.is_timed_out(),
        _ => {
            member.not_ready.is_some()
                || member.is_unresponsive()
                || matches!(member.at_goal(), Some(Progress::Failed | Progress::Blocked))
        }
    };
    if is_abandoned && is_left {
        // There is nothing to do for it, and it takes no slot: as done it would count as unavailable.
        member.assigned = None;
    }
    if state.is_write_open {
        // Its assignment may still be written.
        member.assigned = match member.assigned {
            in_flight @ Some((_, Progress::InFlight)) => in_flight,
            _ => Some((Goal::Revision(Revision::NONE), Progress::Unknown)),
        };
    }
    member.retry |= member.is_blocked() && state.is_retry_due;
    member.retry &= !has_new_owner && !node.is_updating();
    member
}

#[cfg(test)]
mod tests;
