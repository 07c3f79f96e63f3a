//! The decision itself: limits first, then who fits into them.

use super::spread::Spread;
use super::{Fleet, Goal, Member, Progress, has_canary_passed, is_halted, share};

/// Names of members, in the order in which they are to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Next {
    /// They are assigned their goal now.
    pub assignments: Vec<String>,
    /// Their assignment is revoked.
    pub revocations: Vec<String>,
}

/// Members with a revision for a goal go before members that restore. Of each kind the canaries go first, then batches
/// that double, up to `maxUnavailable` members of both kinds together. A member that is still in flight for an earlier
/// goal counts, and takes the new goal before a member at rest does. Members that go last do so one at a time, when no
/// other waits or is in flight.
pub fn next(fleet: &Fleet) -> Next {
    let (timed_out, others): (Vec<&Member>, Vec<&Member>) = fleet
        .members
        .iter()
        .partition(|member| member.is_timed_out());
    let mut revocations: Vec<String> = timed_out.iter().map(|m| m.name.clone()).collect();
    revocations.sort_unstable();
    let mut next = Next {
        assignments: Vec::new(),
        revocations,
    };
    if fleet.limits.paused {
        return next;
    }
    let mut spread = Spread::of(fleet.members);
    let most = share(&fleet.limits.max_unavailable, fleet.members.len());
    let mut unavailable = fleet.unavailable;
    for member in others.iter().filter(|member| member.is_unavailable()) {
        unavailable += 1;
        spread.takes(member);
    }
    for is_restore in [false, true] {
        let kind: Vec<&Member> = others
            .iter()
            .copied()
            .filter(|member| member.goal.is_restore() == is_restore)
            .collect();
        let failed = fleet.members.iter();
        let failed = failed.filter(|m| m.goal.is_restore() == is_restore && m.has_failed());
        if is_halted(failed.count(), fleet.limits, fleet.members.len()) {
            continue;
        }
        let limit = batch(fleet, &kind, most);
        let candidates = candidates(fleet, &kind);
        // A member in flight for an earlier goal counts already. It takes the new goal where there is room for that.
        let at_goal = kind
            .iter()
            .filter(|m| m.at_goal().is_some() && m.is_unavailable());
        let mut room_at_goal = limit.saturating_sub(at_goal.count());
        let mut superseded: Vec<&Member> = candidates
            .iter()
            .copied()
            .filter(|member| member.is_in_flight())
            .collect();
        superseded.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        for member in superseded.into_iter().take(room_at_goal) {
            room_at_goal -= 1;
            next.assignments.push(member.name.clone());
        }
        let room = limit.saturating_sub(unavailable);
        let resting = candidates
            .into_iter()
            .filter(|member| !member.is_in_flight());
        for member in spread.choose(resting.collect(), room) {
            unavailable += 1;
            next.assignments.push(member.name.clone());
        }
    }
    next
}

/// How many members may be unavailable now: 1 at first, then twice as many as are done, up to `most`; before the canary
/// has passed not more than there are canaries.
fn batch(fleet: &Fleet, kind: &[&Member], most: usize) -> usize {
    let done = kind.iter().filter(|m| m.at_goal() == Some(Progress::Done));
    let ramp = done.count().saturating_mul(2).max(1);
    let canaries = fleet.limits.canary.nodes.max(1) as usize;
    let most = if has_passed(fleet, kind) {
        most
    } else {
        most.min(canaries)
    };
    ramp.min(most)
}

/// Restoring needs no canary but the first member that does it.
fn has_passed(fleet: &Fleet, kind: &[&Member]) -> bool {
    match kind.first().map(|member| member.goal) {
        Some(goal @ Goal::Revision(_)) => {
            fleet.canary_passed || has_canary_passed(fleet.members, goal, fleet.limits)
        }
        Some(Goal::Restore) | None => true,
    }
}

/// The members that may be assigned their goal now, if there is room.
fn candidates<'a>(fleet: &Fleet, kind: &[&'a Member]) -> Vec<&'a Member> {
    let waiting = || kind.iter().copied().filter(|member| member.is_waiting());
    let in_flight = |member: &&Member| member.is_in_flight();
    if !has_passed(fleet, kind) {
        return waiting().filter(|member| member.is_canary).collect();
    }
    let is_earlier =
        |member: &&&Member| !member.is_last && (member.is_waiting() || member.is_unavailable());
    if kind.iter().any(|member| is_earlier(&member)) {
        return waiting()
            .filter(|member| !member.is_last || in_flight(member))
            .collect();
    }
    // One at a time, whatever the limit.
    if kind
        .iter()
        .any(|member| member.is_last && member.is_unavailable())
    {
        return waiting().filter(in_flight).collect();
    }
    waiting()
        .min_by_key(|m| (m.is_revoked, &m.name))
        .into_iter()
        .collect()
}
