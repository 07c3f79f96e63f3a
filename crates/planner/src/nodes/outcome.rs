//! How far a revision got. Pure.

use globalps_core::api::{DeliveryType, GlobalPullSecretSpec};
use globalps_core::rollout::{self, Goal, Member, Revision};
use jiff::Timestamp;

use super::input::Recorded;
use super::members::{Target, members};
use super::state::NodeState;
use crate::content::history::HistoryWrite;
use crate::content::secret::{Global, RolledOutWrite};

/// The members of a target, and how far they are.
pub(super) struct Rollout {
    /// `None`: there are no members.
    pub(super) target: Option<Target>,
    pub(super) members: Vec<Member>,
    pub(super) outcome: Outcome,
}

/// How far a revision got. Nodes may have reported since its state was written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    pub(super) canary_passed: bool,
    /// Every reachable node has it, and there is at least one. If nodes get nothing: every namespace.
    pub(super) is_complete: bool,
    pub(super) is_halted: bool,
}

impl Rollout {
    pub(super) fn of(
        states: &[NodeState],
        spec: &GlobalPullSecretSpec,
        recorded: &Recorded,
        target: Option<Target>,
    ) -> Self {
        let members = target.map_or_else(Vec::new, |target| members(states, target));
        let limits = &spec.rollout;
        let canary_passed = target.is_some_and(|target| {
            target.canary_passed || rollout::has_canary_passed(&members, target.goal, limits)
        });
        let is_complete = if spec.kubelet.delivery == DeliveryType::None {
            let everywhere = recorded.namespaces_have.map(Goal::Revision);
            everywhere.is_some() && everywhere == target.map(|target| target.goal)
        } else {
            selected(&members).any(Member::is_done)
                && selected(&members).all(|m| m.is_done() || m.is_passed_over() && !m.has_failed())
        };
        let is_halted = rollout::is_halted(failed(&members).count(), limits, members.len());
        Self {
            target,
            members,
            outcome: Outcome {
                canary_passed,
                is_complete,
                is_halted,
            },
        }
    }
}

impl Outcome {
    /// When every reachable node had it.
    fn rolled_out(self, global: &Global, now: Timestamp) -> Option<Timestamp> {
        let rolled_out = global.rolled_out.or(self.is_complete.then_some(now));
        rolled_out.filter(|_| !global.restoring)
    }

    /// The replaced additional Secret for the history, if it was rolled out to every node, with this revision or an earlier one.
    pub(super) fn history(self, global: &Global, now: Timestamp) -> Option<HistoryWrite> {
        let earlier = global.additional_was_rolled_out.then_some(now);
        Some(HistoryWrite {
            revision: global.revision.number,
            rolled_out: self.rolled_out(global, now).or(earlier)?,
            additional: global.last_additional.clone()?,
        })
    }

    /// The replaced content, if it passed its canary and did not fail: new nodes get it until a later one has.
    pub(super) fn content(self, global: &Global, now: Timestamp) -> Option<RolledOutWrite> {
        let has_passed = self.canary_passed && !global.restoring && !self.is_halted;
        let is_for_new_nodes = self.rolled_out(global, now).is_some() || has_passed;
        let content = global.content.clone().filter(|_| is_for_new_nodes)?;
        Some(RolledOutWrite {
            revision: global.revision,
            content,
        })
    }
}

/// Those with a revision as their goal.
fn selected(members: &[Member]) -> impl Iterator<Item = &Member> {
    members.iter().filter(|member| member.goal != Goal::Restore)
}

pub(super) fn failed(members: &[Member]) -> impl Iterator<Item = &Member> {
    selected(members).filter(|member| member.has_failed())
}

/// The revision for new nodes: the newest one if it has passed its canary and its rollout continues, otherwise the last one before
/// it that passed its canary, `older`. A paused rollout without an earlier one keeps its revision. `None`: no revision has passed,
/// or only one that failed.
pub(super) fn fleet_revision(
    older: Option<Revision>,
    global: &Global,
    is_paused: bool,
    is_halted: bool,
) -> Option<Revision> {
    if global.restoring {
        return None;
    }
    let newest = Some(global.revision);
    if global.rolled_out.is_some() {
        return newest;
    }
    let older = older.filter(|older| older.is_identified() && *older != global.revision);
    let passed = newest.filter(|_| global.canary_passed && !is_halted);
    if is_paused {
        older.or(passed)
    } else {
        passed.or(older)
    }
}
