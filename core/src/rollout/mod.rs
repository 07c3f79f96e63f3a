//! Which members of a fleet get their goal next. A member is a node or a cluster. Pure: the caller observes, calls
//! [`next`], and writes what it returns.

mod next;
mod spread;
#[cfg(test)]
mod tests;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::api;

pub use next::{Next, next};

/// An assignment is revoked from a member that was not ready for this long, so that it holds up nobody.
pub const UNREACHABLE_AFTER: SignedDuration = SignedDuration::from_mins(5);
/// A member that has not responded to its assignment for this long is unresponsive.
pub const UNRESPONSIVE_AFTER: SignedDuration = SignedDuration::from_mins(2);
/// Longest time in flight, whatever the member reports meanwhile.
pub const DEADLINE: SignedDuration = SignedDuration::from_mins(10);

/// The state that a member shall reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// This revision is in force.
    Revision(i64),
    /// The member is as it was before its first revision.
    Restore,
}

impl Goal {
    fn is_restore(self) -> bool {
        self == Self::Restore
    }
}

/// How far a member is with its assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It may change at any moment, or has changed and has not proven itself yet. It counts as unavailable.
    InFlight,
    /// It is new, runs nothing yet and gets what the fleet has. It counts towards no limit.
    Bootstrapping,
    Done,
    /// It failed because of what it was assigned. It counts towards `maxFailures`.
    Failed,
    /// Trouble of its own keeps it from changing: a full disk, a silent bus. It counts towards no limit.
    Blocked,
    /// Nobody knows what it was assigned: its object was deleted. It may be in the middle of a change and counts as
    /// unavailable, but is assigned nothing before it has reported.
    Unknown,
    /// Another program manages its file. It is never assigned anything.
    Foreign,
}

/// Since when a member is not ready.
pub type NotReadyFor = SignedDuration;

#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // Independent facts.
pub struct Member {
    pub name: String,
    pub goal: Goal,
    pub not_ready: Option<NotReadyFor>,
    /// What it was assigned last; `None`: nothing yet.
    pub assigned: Option<(Goal, Progress)>,
    /// For how long the caller has seen this assignment, by its own clock.
    pub assigned_for: SignedDuration,
    /// It has responded to its last assignment, so its agent runs.
    pub is_up_to_date: bool,
    /// Its last assignment was revoked: others go first.
    pub is_revoked: bool,
    /// It failed or was blocked, and may try once more.
    pub retry: bool,
    /// The failure domain that it belongs to; empty: none.
    pub zone: String,
    /// It goes after all others, and alone: a control-plane node.
    pub is_last: bool,
    /// It may be among the first.
    pub is_canary: bool,
    /// Somebody is removing it, or an admin keeps changes away: it gets nothing new.
    pub is_skipped: bool,
    /// To reach its goal makes it unavailable at no time: after the canary, no limit holds it up.
    pub in_place: bool,
}

impl Member {
    pub(crate) fn at_goal(&self) -> Option<Progress> {
        let (assigned, progress) = self.assigned?;
        (assigned == self.goal).then_some(progress)
    }

    fn is_in_flight(&self) -> bool {
        matches!(self.assigned, Some((_, Progress::InFlight)))
    }

    /// From its assignment until it is done *and* ready again; also where it broke in doing so.
    fn is_unavailable(&self) -> bool {
        let was_ready_lately = self.not_ready.is_some_and(|time| time < UNREACHABLE_AFTER);
        let has_changed = matches!(self.at_goal(), Some(Progress::Done | Progress::Failed));
        let is_unknown = matches!(self.assigned, Some((_, Progress::Unknown)));
        self.is_in_flight() || is_unknown || has_changed && was_ready_lately
    }

    /// In flight, but dead, unresponsive or beyond its deadline: the assignment is revoked.
    pub fn is_timed_out(&self) -> bool {
        let is_dead = self.not_ready.is_some_and(|time| time >= UNREACHABLE_AFTER);
        self.is_in_flight() && (is_dead || self.is_unresponsive() || self.assigned_for >= DEADLINE)
    }

    /// It has not responded to its last assignment in time.
    pub fn is_unresponsive(&self) -> bool {
        !self.is_up_to_date && self.assigned_for >= UNRESPONSIVE_AFTER
    }

    /// It can be assigned its goal now.
    fn is_waiting(&self) -> bool {
        let is_open = match self.at_goal() {
            None => !self.is_done(),
            Some(Progress::Failed | Progress::Blocked) => self.retry,
            Some(_) => false,
        };
        is_open
            && !self.is_foreign()
            && !self.is_skipped
            && self.not_ready.is_none()
            && (self.is_up_to_date || self.is_in_flight())
    }

    /// Nothing is left to do for the goal: it is reached, or there is nothing to restore.
    pub fn is_done(&self) -> bool {
        self.at_goal() == Some(Progress::Done) || self.goal.is_restore() && self.assigned.is_none()
    }

    /// The change itself failed here, and no further attempt is due.
    pub fn has_failed(&self) -> bool {
        self.at_goal() == Some(Progress::Failed) && !self.retry
    }

    /// Trouble of its own keeps it from its goal.
    pub fn is_blocked(&self) -> bool {
        self.at_goal() == Some(Progress::Blocked)
    }

    pub fn is_foreign(&self) -> bool {
        matches!(self.assigned, Some((_, Progress::Foreign)))
    }

    /// It has held a slot in vain, and may do so again: members that wait for their first attempt go before it.
    fn goes_later(&self) -> bool {
        self.is_revoked || self.is_blocked()
    }

    /// Nobody waits for it: absent, unresponsive, skipped, or with trouble of its own.
    pub fn is_passed_over(&self) -> bool {
        self.not_ready.is_some() || self.is_unresponsive() || self.is_skipped || self.is_blocked()
    }
}

/// All members, and the limits.
#[derive(Clone, Debug)]
pub struct Fleet<'a> {
    pub members: &'a [Member],
    pub limits: &'a api::Rollout,
    /// Enough canaries have had the revision, now or earlier.
    pub canary_passed: bool,
    /// Members that are unavailable for another reason, beside those that the members' progress tells of.
    pub unavailable: usize,
}

/// Whether this many failures halt the members with the same kind of goal.
pub fn is_halted(failed: usize, limits: &api::Rollout, members: usize) -> bool {
    failed >= share(&limits.max_failures, members)
}

/// Canaries that have reached the goal, of those that are needed.
pub fn has_canary_passed(members: &[Member], goal: Goal, limits: &api::Rollout) -> bool {
    let canaries = || members.iter().filter(|m| m.goal == goal && m.is_canary);
    let needed = canaries().count().min(limits.canary.nodes as usize).max(1);
    let done = canaries().filter(|m| m.at_goal() == Some(Progress::Done));
    done.count() >= needed
}

/// A number of members for a number or a percentage; at least 1, and 1 where it is neither.
pub fn share(limit: &IntOrString, members: usize) -> usize {
    let number = match limit {
        IntOrString::Int(number) => usize::try_from(*number).unwrap_or(0),
        IntOrString::String(text) => match text.strip_suffix('%').map(str::parse::<usize>) {
            Some(Ok(percent)) => members.saturating_mul(percent.min(100)) / 100,
            _ => 0,
        },
    };
    number.max(1)
}
