//! Which members of a fleet get their goal next. A member is a node or a cluster. Pure: the caller observes, calls [`step`], and
//! writes what it returns.

mod ledger;
mod next;
mod revision;
mod spread;
#[cfg(test)]
mod tests;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::api;

pub use ledger::{Ledger, Outcome, Step, rejection, step};
pub use next::Next;
use next::next;
pub use revision::{Revision, RevisionId};

/// The assignment of a member that was `NotReady` for this long is revoked, so that others can proceed.
pub const UNREACHABLE_AFTER: SignedDuration = SignedDuration::from_mins(5);
/// A member that hasn't responded to its assignment for this long is unresponsive.
pub const UNRESPONSIVE_AFTER: SignedDuration = SignedDuration::from_mins(2);
/// Longest time in flight, regardless of what the member reports.
pub const DEADLINE: SignedDuration = SignedDuration::from_mins(10);

/// The desired state of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// This revision is in force.
    Revision(Revision),
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
    /// It may change at any moment, or has changed and isn't verified yet. It counts as unavailable.
    InFlight,
    /// It has changed, and must stay ready for a while to count as done. It counts as unavailable.
    Soaking,
    /// It is new, runs nothing yet, and gets the revision that others have. It counts towards no limit.
    Bootstrapping,
    /// It has changed, and its agent reports that it works.
    Done,
    /// It failed because of what it was assigned. It counts towards `maxFailures`, unless it also failed before.
    Failed,
    /// An error of its own blocks the change: a full disk, an unresponsive system bus. It counts towards no limit.
    Blocked,
    /// Another program changes the member and reports the end. It counts towards no limit, is no error, and nobody waits for it.
    Aside,
    /// Its object was deleted, so its last assignment is not known. It may be in the middle of a change and counts as
    /// unavailable, but gets no assignment until it has reported.
    Unknown,
    /// Another program manages its file. It never gets an assignment.
    Foreign,
}

/// The last attempt to write a member's assignment failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The next attempt is not due yet.
    pub backs_off: bool,
    /// All attempts have failed for a while, so the rollout doesn't wait for the member.
    pub lasts: bool,
}

/// How long a member has been `NotReady`.
pub type NotReadyFor = SignedDuration;

/// A node or a cluster, as the limits of a rollout see it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct Member {
    /// Unique in the fleet.
    pub name: String,
    /// Where it should get to.
    pub goal: Goal,
    /// `None`: it is ready.
    pub not_ready: Option<NotReadyFor>,
    /// Its last assignment; `None`: none yet.
    pub assigned: Option<(Goal, Progress)>,
    /// How long the caller has seen this assignment, by its own clock.
    pub assigned_for: SignedDuration,
    /// It has responded to its last assignment, so its agent runs.
    pub is_up_to_date: bool,
    /// How long the caller has seen that its agent doesn't run; `None`: it runs, or that is not known.
    pub agent_down: Option<SignedDuration>,
    /// How long the caller has not once found it ready with an agent that runs; `None`: it is.
    pub unable: Option<SignedDuration>,
    /// Its agent is about to be replaced, and would begin the change again: it gets nothing new for a moment.
    pub awaits_agent: bool,
    /// Its last assignment was revoked, so others go first.
    pub is_revoked: bool,
    /// It failed or was blocked, and gets one more attempt.
    pub retry: bool,
    /// It failed another revision than its goal and has reached none since, so that a failure says nothing about the goal.
    pub has_failed_before: bool,
    /// Its failure domain; empty: none.
    pub zone: String,
    /// It goes after all others, and alone: a control-plane node.
    pub is_last: bool,
    /// It may be a canary.
    pub is_canary: bool,
    /// It is being removed, or an admin excludes it from changes. It gets no new assignment.
    pub is_skipped: bool,
    /// The change needs no downtime: after the canary, no limit applies.
    pub in_place: bool,
    /// `None`: the last write of its assignment did not fail.
    pub refused: Option<Refused>,
}

impl Member {
    /// How far it is with its goal; `None`: that is not assigned.
    pub fn at_goal(&self) -> Option<Progress> {
        let (assigned, progress) = self.assigned?;
        (assigned == self.goal).then_some(progress)
    }

    /// From its assignment until it is done.
    pub fn is_in_flight(&self) -> bool {
        matches!(
            self.assigned,
            Some((_, Progress::InFlight | Progress::Soaking))
        )
    }

    /// From its assignment until it is done *and* ready again, or if the change broke it.
    fn is_unavailable(&self) -> bool {
        let was_ready_lately = self.not_ready.is_some_and(|time| time < UNREACHABLE_AFTER);
        let has_changed = matches!(self.at_goal(), Some(Progress::Done | Progress::Failed));
        let is_unknown = matches!(self.assigned, Some((_, Progress::Unknown)));
        self.is_in_flight() || is_unknown || has_changed && was_ready_lately
    }

    /// In flight, but dead, unresponsive or past its deadline: the assignment is revoked.
    pub fn is_timed_out(&self) -> bool {
        let is_dead = self.not_ready.is_some_and(|time| time >= UNREACHABLE_AFTER);
        let is_soaking = matches!(self.assigned, Some((_, Progress::Soaking)));
        let is_late = self.assigned_for >= DEADLINE && !is_soaking;
        self.is_in_flight() && (is_dead || self.is_silent() || is_late)
    }

    /// It hasn't responded to its last assignment in time.
    fn is_silent(&self) -> bool {
        !self.is_up_to_date && self.assigned_for >= UNRESPONSIVE_AFTER
    }

    /// It gets nothing new, and its agent has not run for a while.
    pub fn is_without_agent(&self) -> bool {
        let lasts = self
            .agent_down
            .is_some_and(|time| time >= UNRESPONSIVE_AFTER);
        lasts && !self.is_in_flight() && !self.is_done()
    }

    /// Its agent is silent or away, and nobody waits for it.
    pub fn is_unresponsive(&self) -> bool {
        self.is_silent() || self.is_without_agent()
    }

    /// Its agent can begin a change.
    fn has_agent(&self) -> bool {
        self.is_up_to_date && self.agent_down.is_none() && !self.awaits_agent
    }

    /// It can get its goal now.
    fn is_waiting(&self) -> bool {
        let is_open = match self.at_goal() {
            None => !self.is_done(),
            Some(Progress::Failed | Progress::Blocked) => self.retry,
            Some(_) => false,
        };
        is_open && self.can_start()
    }

    /// What keeps it from getting its goal now may be over in a moment: it was ready a moment ago, or its agent has just stopped.
    /// Not a new member: in some fleets there is always one.
    fn is_expected(&self) -> bool {
        let nothing = Goal::Revision(Revision::NONE);
        let has_other = self
            .assigned
            .is_some_and(|(assigned, _)| ![nothing, self.goal].contains(&assigned));
        let was_able_lately = self.unable.is_none_or(|time| time < UNRESPONSIVE_AFTER);
        has_other && was_able_lately && !self.is_left_out()
    }

    /// After the canary it gets its goal at once.
    pub fn waits_in_place(&self) -> bool {
        self.in_place && self.is_waiting()
    }

    /// Nothing of its own keeps it from an attempt.
    fn can_start(&self) -> bool {
        !self.is_foreign()
            && !self.is_skipped
            && !self.backs_off()
            && self.not_ready.is_none()
            && (self.has_agent() || self.is_in_flight())
    }

    /// It has reached its goal, or has nothing to restore.
    pub fn is_done(&self) -> bool {
        self.at_goal() == Some(Progress::Done) || self.goal.is_restore() && self.assigned.is_none()
    }

    /// The change itself failed, and no further attempt can start. While its kubelet is down, a retry that was asked for can't, and
    /// must not let the next member break as well.
    pub fn has_failed(&self) -> bool {
        let is_retried = self.retry && self.can_start();
        self.at_goal() == Some(Progress::Failed) && !is_retried && !self.has_failed_before
    }

    /// An error of its own blocks it, or it failed before, too.
    pub fn is_blocked(&self) -> bool {
        match self.at_goal() {
            Some(Progress::Blocked) => true,
            Some(Progress::Failed) => self.has_failed_before,
            _ => false,
        }
    }

    /// Another program changes it. If that can't be written, its agent doesn't know, and it has an error instead.
    pub fn is_aside(&self) -> bool {
        self.at_goal() == Some(Progress::Aside) && !self.is_refused()
    }

    /// It has reached its goal. If its assignment was revoked meanwhile, it must report again.
    fn has_confirmed(&self) -> bool {
        self.at_goal() == Some(Progress::Done) && self.is_up_to_date
    }

    /// Another program manages what would change.
    pub fn is_foreign(&self) -> bool {
        matches!(self.assigned, Some((_, Progress::Foreign)))
    }

    /// The next attempt to write its assignment is not due yet.
    fn backs_off(&self) -> bool {
        self.refused.is_some_and(|refused| refused.backs_off)
    }

    /// It does not reach its goal because its assignment can't be written.
    pub fn is_refused(&self) -> bool {
        self.refused.is_some_and(|refused| refused.lasts) && !self.is_done()
    }

    /// It held a slot in vain and may do so again: members that wait for their first attempt go before it.
    fn goes_later(&self) -> bool {
        self.is_revoked || self.is_blocked() || self.has_failed_before || self.refused.is_some()
    }

    /// The rollout doesn't wait for it: it is absent, unresponsive, foreign, aside, skipped or blocked, or its assignment can't be written.
    pub fn is_passed_over(&self) -> bool {
        self.not_ready.is_some() || self.is_left_out()
    }

    fn is_left_out(&self) -> bool {
        self.is_unresponsive()
            || self.is_foreign()
            || self.is_skipped
            || self.is_blocked()
            || self.is_aside()
            || self.is_refused()
    }

    /// As a canary it must be done before others start. One that is `NotReady` may be back in a moment, or restarts for the change;
    /// one that failed must not be replaced by fewer canaries.
    fn is_awaited(&self) -> bool {
        let is_absent = self.not_ready.is_some_and(|time| time >= UNREACHABLE_AFTER);
        let is_changing = self.is_in_flight() && !self.is_timed_out();
        is_changing || self.has_failed() || !is_absent && !self.is_left_out()
    }
}

/// The revision that a member has failed and not recovered from, to record with its next assignment; `NONE`: none. `before`: as
/// recorded with its last one. `is_synced`: it reports that it has what it was assigned.
pub fn failed_revision(
    before: Revision,
    assigned: Option<(Goal, Progress)>,
    is_synced: bool,
) -> Revision {
    match assigned {
        Some((Goal::Revision(_), Progress::Done)) if is_synced => Revision::NONE,
        Some((Goal::Revision(revision), Progress::Failed)) if !before.is_identified() => revision,
        _ => before,
    }
}

/// Whether a member that failed this revision failed another one than its goal.
pub fn has_failed_another(failed: Revision, goal: Goal) -> bool {
    failed.is_identified() && goal != Goal::Revision(failed)
}

/// All members, and the limits.
#[derive(Clone, Debug)]
struct Fleet<'a> {
    /// In any order, each once.
    members: &'a [Member],
    /// The user's configuration.
    limits: &'a api::Rollout,
    /// Enough canaries have had the revision, now or earlier.
    canary_passed: bool,
}

/// Whether this many failures halt the members with the same kind of goal.
pub fn is_halted(failed: usize, limits: &api::Rollout, members: usize) -> bool {
    failed >= share(&limits.max_failures, members)
}

/// Those that may be the canary of this goal.
fn canaries(members: &[Member], goal: Goal) -> impl Iterator<Item = &Member> {
    let canaries = members.iter().filter(|member| member.is_canary);
    canaries.filter(move |member| member.goal == goal)
}

/// Whether enough canaries have reached the goal. Those that can't change don't count, but at least one must have it.
pub fn has_canary_passed(members: &[Member], goal: Goal, limits: &api::Rollout) -> bool {
    let (done, others): (Vec<&Member>, Vec<&Member>) =
        canaries(members, goal).partition(|member| member.has_confirmed());
    let open = others.iter().filter(|member| member.is_awaited()).count();
    let needed = (done.len() + open).min(limits.canary.nodes as usize);
    done.len() >= needed.max(1)
}

/// The canaries that the others wait for although none of them changes or can; empty: there is no canary. `None`: one changes or
/// can, or enough have passed.
pub fn stuck_canaries<'a>(
    members: &'a [Member],
    goal: Goal,
    limits: &api::Rollout,
) -> Option<Vec<&'a Member>> {
    let is_asked = members.iter().any(|member| member.goal == goal);
    if !is_asked || has_canary_passed(members, goal, limits) {
        return None;
    }
    let moves =
        |member: &Member| member.is_in_flight() || !member.is_passed_over() && !member.has_failed();
    let open = canaries(members, goal).filter(|member| !member.has_confirmed());
    let open: Vec<&Member> = open.collect();
    let is_stuck = !open.iter().any(|member| moves(member));
    is_stuck.then_some(open)
}

/// Resolves a number or percentage to a number of members: at least 1, and 1 for an invalid value.
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
