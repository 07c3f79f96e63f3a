//! How far a revision got. Pure.

use globalps_core::api::{DeliveryType, GlobalPullSecretSpec};
use globalps_core::rollout::{self, Goal, Member, Revision};
use jiff::Timestamp;

use super::input::Recorded;
use crate::content::history::HistoryWrite;
use crate::content::secret::{Global, RolledOutWrite};

/// How far a revision got that another one replaces now. Nodes may have reported since its state was written.
pub(super) struct Outcome {
    /// When every reachable node had it.
    rolled_out: Option<Timestamp>,
    /// It passed its canary and did not fail: new nodes get it until a later one has.
    is_for_new_nodes: bool,
}

impl Outcome {
    /// `members`: with this revision as their goal.
    pub(super) fn of(
        spec: &GlobalPullSecretSpec,
        recorded: &Recorded,
        global: &Global,
        members: &[Member],
        now: Timestamp,
    ) -> Self {
        let goal = Goal::Revision(global.revision);
        let has_passed =
            global.canary_passed || rollout::has_canary_passed(members, goal, &spec.rollout);
        let is_complete = is_complete(spec, recorded, members, global.revision);
        let rolled_out = global
            .rolled_out
            .or(is_complete.then_some(now))
            .filter(|_| !global.restoring);
        Self {
            rolled_out,
            is_for_new_nodes: rolled_out.is_some()
                || has_passed && !global.restoring && !has_halted(spec, members),
        }
    }

    /// The replaced additional Secret for the history, if it was rolled out to every node, with this revision or an earlier one.
    pub(super) fn history(&self, global: &Global, now: Timestamp) -> Option<HistoryWrite> {
        let earlier = global.additional_was_rolled_out.then_some(now);
        Some(HistoryWrite {
            revision: global.revision.number,
            rolled_out: self.rolled_out.or(earlier)?,
            additional: global.last_additional.clone()?,
        })
    }

    pub(super) fn content(&self, global: &Global) -> Option<RolledOutWrite> {
        let content = global.content.clone().filter(|_| self.is_for_new_nodes)?;
        Some(RolledOutWrite {
            revision: global.revision,
            content,
        })
    }
}

/// Every reachable node has it, and there is at least one. If nodes get nothing: every namespace.
pub(super) fn is_complete(
    spec: &GlobalPullSecretSpec,
    recorded: &Recorded,
    members: &[Member],
    revision: Revision,
) -> bool {
    if spec.kubelet.delivery == DeliveryType::None {
        return recorded.namespaces_have == Some(revision);
    }
    selected(members).any(Member::is_done)
        && selected(members).all(|m| m.is_done() || m.is_passed_over() && !m.has_failed())
}

/// Those with a revision as their goal.
fn selected(members: &[Member]) -> impl Iterator<Item = &Member> {
    members.iter().filter(|member| member.goal != Goal::Restore)
}

pub(super) fn has_halted(spec: &GlobalPullSecretSpec, members: &[Member]) -> bool {
    let failed = failed(members).count();
    rollout::is_halted(failed, &spec.rollout, members.len())
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
