//! The progress of a cluster with its assignment, from its `ClusterPullSecret`. Pure.

// Times and numbers of other programs must not overflow.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

use globalps_core::api::{ClusterPhase, ClusterPullSecret, ClusterPullSecretStatus};
use globalps_core::names::requested_retry;
use globalps_core::reasons::Reason;
use globalps_core::rollout::{
    self, Goal, Member, Progress, Revision, UNREACHABLE_AFTER, UNRESPONSIVE_AFTER,
};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;

use super::clock::ClusterClock;
use super::input::{ClusterKey, FleetInput};
use crate::refused::Failure;

/// The rollout skips a cluster that is unreachable for this long.
const SKIPPED_AFTER: SignedDuration = SignedDuration::from_secs(30);
/// Progress extends the deadline of an assignment to this age at most, because a cluster can report progress forever.
const MAX_EXTENSION: SignedDuration = SignedDuration::from_hours(1);
/// The hub retries a blocked cluster after this time.
const BLOCKED_RETRY: SignedDuration = SignedDuration::from_secs(30);

/// Input of [`member`] besides the object and its goal.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) clock: &'a ClusterClock,
    /// There is a revision that new clusters get outside the limits.
    pub(super) fleet_has_content: bool,
    /// The object's revision is one of the fleet. Otherwise the hub can't have assigned it.
    pub(super) is_known: bool,
    /// Another client deleted the object, and the cluster has not reported since.
    pub(super) was_deleted: bool,
    /// The last write of the object failed.
    pub(super) refused: (Option<&'a Failure>, Timestamp),
}

impl<'a> Context<'a> {
    pub(super) fn of(input: &'a FleetInput, key: &ClusterKey, fleet_has_content: bool) -> Self {
        let assigned = input.objects.get(key).map(|it| it.spec.assigned());
        let mut revisions = input.revisions.iter();
        let drift = &input.drift;
        Self {
            clock: input.clock,
            fleet_has_content,
            is_known: assigned.is_some_and(|it| revisions.any(|known| known.revision() == it)),
            was_deleted: drift.deleted.contains_key(key) || drift.recreated.contains(key),
            refused: input.refused_object(key),
        }
    }
}

/// The cluster as a member of the rollout.
pub(super) fn member(
    name: String,
    object: Option<&ClusterPullSecret>,
    goal: Goal,
    context: Context,
) -> Member {
    let Context {
        clock,
        refused: (refused, at),
        ..
    } = context;
    let assigned = match object {
        Some(object) => progress(object, context),
        // This plan writes it again.
        None if context.was_deleted => Some(deleted(refused, at)),
        None => None,
    };
    let is_up_to_date = object.is_some_and(|object| up_to_date(object).is_some());
    let mut member = Member {
        name,
        goal,
        not_ready: object.and_then(|object| unreachable_for(object, clock)),
        assigned,
        assigned_for: object.map_or(SignedDuration::ZERO, |object| assigned_for(object, clock)),
        is_up_to_date,
        agent_down: None,
        unable: None,
        awaits_agent: false,
        is_revoked: object.is_some_and(|object| object.spec.revoked),
        retry: object.is_some_and(is_retry_requested),
        has_failed_before: object.is_some_and(|object| {
            rollout::has_failed_another(failed_revision(object, context), goal)
        }),
        zone: String::new(),
        is_last: false,
        is_canary: false,
        // What it has is assigned outside the limits.
        is_skipped: object.is_some_and(|object| has_unassigned(object, goal)),
        in_place: false,
        refused: refused.map(|refused| refused.of_member(at)),
    };
    if object.is_some() && refused.is_some_and(|refused| refused.is_open(at)) {
        // Its assignment may still be written.
        member.assigned = match member.assigned {
            in_flight @ Some((_, Progress::InFlight)) => in_flight,
            _ => Some((Goal::Revision(Revision::NONE), Progress::Unknown)),
        };
    }
    if member.at_goal() == Some(Progress::Blocked) {
        // Each attempt ends in the same phase, which is then as old as the first one.
        member.retry |= object.is_some_and(|object| {
            clock
                .elapsed(object)
                .in_phase
                .min(assigned_for(object, clock))
                >= BLOCKED_RETRY
        });
    }
    member
}

/// The status, if it refers to the current spec.
pub fn up_to_date(object: &ClusterPullSecret) -> Option<&ClusterPullSecretStatus> {
    let generation = object.metadata.generation.unwrap_or_default();
    let status = object.status.as_ref();
    status.filter(|status| status.observed_generation == generation && generation > 0)
}

fn is_retry_requested(object: &ClusterPullSecret) -> bool {
    requested_retry(object.annotations()).is_some_and(|requested| requested != object.spec.retry)
}

/// A cluster without its object. Its last assignment may still be in progress there.
fn deleted(refused: Option<&Failure>, at: Timestamp) -> (Goal, Progress) {
    let lasts = refused.is_some_and(|refused| refused.lasts_for(at) >= UNRESPONSIVE_AFTER);
    let progress = if lasts {
        Progress::Blocked
    } else {
        Progress::Unknown
    };
    (Goal::Revision(Revision::NONE), progress)
}

/// The cluster is at rest with its goal, though its object assigns something else.
pub(super) fn has_unassigned(object: &ClusterPullSecret, goal: Goal) -> bool {
    let spec = &object.spec;
    let Some(status) = up_to_date(object) else {
        return false;
    };
    let is_at_rest = matches!(status.phase, ClusterPhase::Pending | ClusterPhase::Synced);
    let is_goal = goal == Goal::Revision(status.in_force()) && status.in_force().is_identified();
    let is_assigned = !spec.remove && !spec.revoked && Goal::Revision(spec.assigned()) == goal;
    is_at_rest && is_goal && !is_assigned
}

/// A revision that isn't known counts as none: the cluster has what it reports.
fn unassigned(object: &ClusterPullSecret, clock: &ClusterClock) -> (Goal, Progress) {
    let is_awaited =
        up_to_date(object).is_none() && assigned_for(object, clock) < UNRESPONSIVE_AFTER;
    let progress = if is_awaited {
        Progress::Unknown
    } else {
        Progress::Done
    };
    (Goal::Revision(Revision::NONE), progress)
}

/// The cluster had its goal before other clients changed its object and the hub reverted that, so it has nothing to do.
fn had(object: &ClusterPullSecret, goal: Goal) -> bool {
    /// The change, and its revert.
    const CHANGES: i64 = 2;
    let generation = object.metadata.generation.unwrap_or_default();
    object.status.as_ref().is_some_and(|status| {
        let age = generation.checked_sub(status.observed_generation);
        status.phase == ClusterPhase::Synced
            && has(status, goal)
            && age.is_some_and(|age| (0..=CHANGES).contains(&age))
    })
}

/// The assignment and its progress; `None`: nothing assigned yet.
fn progress(object: &ClusterPullSecret, context: Context) -> Option<(Goal, Progress)> {
    let spec = &object.spec;
    let goal = match (spec.remove, spec.revision) {
        (true, _) => Goal::Restore,
        // It has nothing, or content of an unknown revision.
        (false, 0) if !spec.revoked => {
            let unknown = (Goal::Revision(Revision::NONE), Progress::Done);
            return (!has_nothing(object)).then_some(unknown);
        }
        (false, 0) => return Some(unassigned(object, context.clock)),
        (false, _) if !context.is_known => return Some(unassigned(object, context.clock)),
        (false, _) => Goal::Revision(spec.assigned()),
    };
    let is_new = context.fleet_has_content && has_nothing(object) && !context.was_deleted;
    let in_progress = if is_new && !spec.remove {
        Progress::Bootstrapping
    } else {
        Progress::InFlight
    };
    // A revoked cluster is assigned what it has, so there is nothing to write.
    if spec.revoked {
        let status = object.status.as_ref();
        let has_it = status.is_some_and(|status| has(status, goal));
        return Some(if has_it {
            (goal, Progress::Done)
        } else {
            unassigned(object, context.clock)
        });
    }
    let Some(status) = up_to_date(object) else {
        let progress = if had(object, goal) {
            Progress::Done
        } else {
            in_progress
        };
        return Some((goal, progress));
    };
    let progress = match (status.phase, goal) {
        (ClusterPhase::Synced, Goal::Revision(revision)) if status.in_force() == revision => {
            Progress::Done
        }
        (ClusterPhase::Removed, Goal::Restore) => Progress::Done,
        // Its nodes may come later than its API server.
        (ClusterPhase::Failed, _)
            if in_progress == Progress::Bootstrapping && status.reason == Reason::Installing =>
        {
            Progress::Blocked
        }
        (ClusterPhase::Failed, _) => Progress::Failed,
        (ClusterPhase::Blocked, _) => Progress::Blocked,
        (ClusterPhase::Unreachable, _) if has(status, goal) => Progress::Done,
        _ => in_progress,
    };
    Some((goal, progress))
}

/// The cluster has nothing of the fleet, as far as is known.
pub fn has_nothing(object: &ClusterPullSecret) -> bool {
    object.status.as_ref().is_none_or(|it| it.revision == 0)
}

/// The revision that the cluster has failed and not recovered from; `NONE`: none.
pub(super) fn failed_revision(object: &ClusterPullSecret, context: Context) -> Revision {
    let is_synced = !object.spec.revoked
        && up_to_date(object).is_some_and(|status| status.phase == ClusterPhase::Synced);
    rollout::failed_revision(object.spec.failed(), progress(object, context), is_synced)
}

/// Whether the last known revision in the cluster is the goal.
fn has(status: &ClusterPullSecretStatus, goal: Goal) -> bool {
    goal == Goal::Revision(status.in_force())
}

/// Time since the assignment, or since the cluster's last progress after it: a large cluster needs more time.
fn assigned_for(object: &ClusterPullSecret, clock: &ClusterClock) -> SignedDuration {
    // Not by `assignedAt`, which another client may remove while no hub runs.
    if !object.spec.has_assignment() {
        return SignedDuration::ZERO;
    }
    let elapsed = clock.elapsed(object);
    let total = elapsed.assigned;
    let has_progress = up_to_date(object).is_some_and(|status| status.last_progress_time.is_some());
    if has_progress && total < MAX_EXTENSION {
        elapsed.without_progress.min(total)
    } else {
        total
    }
}

/// How long the cluster is unreachable. From [`SKIPPED_AFTER`] on, this is at least the limit for nodes: a cluster must release
/// its slot earlier than a node, since nothing in the cluster waits for the hub.
fn unreachable_for(object: &ClusterPullSecret, clock: &ClusterClock) -> Option<SignedDuration> {
    let status = object.status.as_ref()?;
    if status.phase != ClusterPhase::Unreachable {
        return None;
    }
    let time = clock.elapsed(object).in_phase;
    Some(if time >= SKIPPED_AFTER {
        time.max(UNREACHABLE_AFTER)
    } else {
        time
    })
}

#[cfg(test)]
mod tests {
    use globalps_core::api::{ClusterPullSecretSpec, ClusterPullSecretStatus};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn context(clock: &ClusterClock, now: Timestamp) -> Context<'_> {
        Context {
            clock,
            fleet_has_content: true,
            is_known: true,
            was_deleted: false,
            refused: (None, now),
        }
    }

    #[test]
    fn a_blocked_cluster_is_retried_some_time_after_each_attempt() {
        let at = |second: i64| Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second);
        let mut object = ClusterPullSecret::new("a", ClusterPullSecretSpec::default());
        object.metadata.generation = Some(1);
        object.spec.revision = 1;
        object.status = Some(ClusterPullSecretStatus {
            observed_generation: 1,
            phase: ClusterPhase::Blocked,
            last_transition_time: Some(Time(at(0))),
            last_progress_time: Some(Time(at(0))),
            ..ClusterPullSecretStatus::default()
        });
        let goal = Goal::Revision(object.spec.assigned());
        for (assigned, now, expected) in [
            (0, 29, false),
            (0, 30, true),
            (60, 89, false),
            (60, 90, true),
        ] {
            object.spec.assigned_at = Some(Time(at(assigned)));
            let clock = ClusterClock::of_times([&object].into_iter(), at(now));
            let context = context(&clock, at(now));
            let member = member("a".to_owned(), Some(&object), goal, context);
            assert!(member.is_blocked());
            assert_eq!(member.retry, expected, "assigned at {assigned}, now {now}");
        }
    }

    #[test]
    fn progress_extends_the_deadline_up_to_a_limit() {
        let at = |minute: i64| Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minute);
        let mut object = ClusterPullSecret::new(
            "a",
            ClusterPullSecretSpec {
                revision: 1,
                assigned_at: Some(Time(at(10))),
                ..ClusterPullSecretSpec::default()
            },
        );
        object.metadata.generation = Some(1);
        for (progress, now, expected) in [
            (None, 15, 5),
            (Some(14), 15, 1),
            (Some(5), 15, 5),
            (Some(69), 69, 0),
            (Some(70), 70, 60),
            (Some(99), 100, 90),
        ] {
            object.status = Some(ClusterPullSecretStatus {
                observed_generation: 1,
                last_progress_time: progress.map(|minute| Time(at(minute))),
                ..ClusterPullSecretStatus::default()
            });
            let clock = ClusterClock::of_times([&object].into_iter(), at(now));
            assert_eq!(
                assigned_for(&object, &clock),
                SignedDuration::from_mins(expected),
                "{progress:?} {now}"
            );
        }
    }
}
