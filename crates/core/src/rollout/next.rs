//! The decision itself: limits first, then the members that fit into them.

use std::cmp::Reverse;

use super::spread::{Spread, held_ago};
use super::{Fleet, Goal, Member, Progress, has_canary_passed, is_halted, share};

/// Names of members, in the order in which to write them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Next {
    /// Members to assign their goal now.
    pub assignments: Vec<String>,
    /// Members whose assignment to revoke.
    pub revocations: Vec<String>,
}

/// Members with a revision as their goal go before members that restore. Of each kind the canaries go first, then doubling
/// batches, up to `maxUnavailable` members of both kinds together. Members that change in place are not limited and go at once. A
/// member still in flight for an earlier goal counts, and gets the new goal before idle members do. Members that go last do so
/// one at a time, when no other waits or is in flight. Members that held a slot in vain, or failed before, go when no other can. A member whose
/// assignment can't be written takes no slot until its next attempt.
pub(super) fn next(fleet: &Fleet) -> Next {
    let (timed_out, others): (Vec<&Member>, Vec<&Member>) = fleet
        .members
        .iter()
        // A revocation that can't be written frees no slot.
        .partition(|member| member.is_timed_out() && !member.backs_off());
    let mut revocations: Vec<String> = timed_out.iter().map(|m| m.name.clone()).collect();
    revocations.sort_unstable();
    let mut next = Next {
        assignments: Vec::new(),
        revocations,
    };
    if fleet.limits.paused {
        return next;
    }
    let others = assign_in_place(fleet, others, &mut next);
    let mut spread = Spread::of(fleet.members);
    let most = share(&fleet.limits.max_unavailable, fleet.members.len());
    let unavailable = others.iter().filter(|member| member.is_unavailable());
    let is_over = unavailable.clone().count() > most;
    let mut room = most;
    for member in unavailable {
        room = room.saturating_sub(1);
        spread.takes(member);
    }
    let mut kinds: Vec<Kind> = [false, true]
        .into_iter()
        .map(|is_restore| {
            others
                .iter()
                .copied()
                .filter(move |m| m.goal.is_restore() == is_restore)
        })
        .map(Iterator::collect)
        .filter(|members: &Vec<&Member>| !has_halted(fleet, members))
        .map(|members| Kind::of(fleet, &members, most))
        .collect();
    // The limit is exceeded if members that changed in place now have a goal that needs a restart.
    for kind in kinds.iter_mut().filter(|_| !is_over) {
        next.assignments.append(&mut kind.superseded);
    }
    for goes_later in [false, true] {
        for kind in &mut kinds {
            let waiting = kind.resting.iter().copied();
            let waiting = waiting.filter(|member| member.goes_later() == goes_later);
            for member in spread.choose(waiting.collect(), room.min(kind.room)) {
                room -= 1;
                kind.room -= 1;
                next.assignments.push(member.name.clone());
            }
        }
    }
    next
}

/// Assigns members that change in place, once the canary has passed and unless their rollout has halted; returns the others. One
/// in flight takes no slot.
fn assign_in_place<'a>(
    fleet: &Fleet,
    members: Vec<&'a Member>,
    next: &mut Next,
) -> Vec<&'a Member> {
    let Some(goal) = members.iter().find(|m| m.in_place).map(|m| m.goal) else {
        return members;
    };
    let has_passed = fleet.canary_passed || has_canary_passed(fleet.members, goal, fleet.limits);
    let kind = members.iter().copied().filter(|m| m.goal == goal);
    if !has_passed || has_halted(fleet, &kind.collect::<Vec<_>>()) {
        return members;
    }
    let is_free = |member: &&Member| {
        member.in_place && member.goal == goal && (member.is_waiting() || member.is_in_flight())
    };
    let (mut free, rest): (Vec<&Member>, Vec<&Member>) = members.into_iter().partition(is_free);
    free.retain(|member| member.is_waiting());
    free.sort_unstable_by_key(|member| (member.goes_later(), &member.name));
    next.assignments
        .extend(free.into_iter().map(|member| member.name.clone()));
    rest
}

/// Members with the same kind of goal.
struct Kind<'a> {
    /// How many more of them may become unavailable.
    room: usize,
    /// In flight for an earlier goal: they count already and get the new one now.
    superseded: Vec<String>,
    /// Idle members that can start.
    resting: Vec<&'a Member>,
}

impl<'a> Kind<'a> {
    fn of(fleet: &Fleet, members: &[&'a Member], most: usize) -> Self {
        let limit = batch(fleet, members, most);
        let (mut in_flight, resting): (Vec<&Member>, Vec<&Member>) = candidates(fleet, members)
            .into_iter()
            .partition(|member| member.is_in_flight());
        in_flight.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let unavailable = members.iter().filter(|member| member.is_unavailable());
        let at_goal = unavailable
            .clone()
            .filter(|member| member.at_goal().is_some());
        let superseded = in_flight
            .into_iter()
            .take(limit.saturating_sub(at_goal.count()));
        Self {
            room: limit.saturating_sub(unavailable.count()),
            superseded: superseded.map(|member| member.name.clone()).collect(),
            resting,
        }
    }
}

/// Whether failures have halted the members with this kind of goal.
fn has_halted(fleet: &Fleet, members: &[&Member]) -> bool {
    let failed = members.iter().filter(|member| member.has_failed());
    is_halted(failed.count(), fleet.limits, fleet.members.len())
}

/// How many members may be unavailable now: 1 at first, then twice the number that is done, up to `most`. Before the canary has
/// passed, at most the number of canaries.
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

/// Restoring needs no canary other than the first member that does it.
fn has_passed(fleet: &Fleet, kind: &[&Member]) -> bool {
    match kind.first().map(|member| member.goal) {
        Some(goal @ Goal::Revision(_)) => {
            fleet.canary_passed || has_canary_passed(fleet.members, goal, fleet.limits)
        }
        Some(Goal::Restore) | None => true,
    }
}

/// The members that may get their goal now if there is room.
fn candidates<'a>(fleet: &Fleet, kind: &[&'a Member]) -> Vec<&'a Member> {
    let waiting = || kind.iter().copied().filter(|member| member.is_waiting());
    let in_flight = |member: &&Member| member.is_in_flight();
    if !has_passed(fleet, kind) {
        return waiting().filter(|member| member.is_canary).collect();
    }
    // Those that may hold a slot in vain again, and again, must not keep the last ones from their first attempt.
    let last_waits = waiting().any(|member| member.is_last && !member.goes_later());
    let goes_after = |member: &&Member| last_waits && member.goes_later();
    let is_earlier = |member: &&Member| {
        let may_go = member.is_waiting() || member.is_expected();
        let is_open = member.is_unavailable() || may_go && !goes_after(member);
        !member.is_last && is_open
    };
    if kind.iter().any(is_earlier) {
        return waiting()
            .filter(|member| in_flight(member) || !member.is_last && !goes_after(member))
            .collect();
    }
    // One at a time, regardless of the limit.
    if kind
        .iter()
        .any(|member| member.is_last && member.is_unavailable())
    {
        return waiting().filter(in_flight).collect();
    }
    waiting()
        .min_by_key(|m| (m.goes_later(), Reverse(held_ago(m)), &m.name))
        .into_iter()
        .collect()
}
