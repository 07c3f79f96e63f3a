//! The progress of a cluster with its assignment, from its `ClusterPullSecret`. Pure.

// Times and numbers of other programs must not overflow.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

use globalps_core::api::{ClusterPhase, ClusterPullSecret, ClusterPullSecretStatus};
use globalps_core::names::RETRY_ANNOTATION;
use globalps_core::rollout::{Goal, Member, Progress, Revision, UNREACHABLE_AFTER};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;

use crate::refused::Failure;

/// The rollout skips a cluster that is unreachable for this long.
const SKIPPED_AFTER: SignedDuration = SignedDuration::from_secs(30);
/// Progress extends the deadline of an assignment to this age at most, because a cluster can report progress forever.
const MAX_EXTENSION: SignedDuration = SignedDuration::from_hours(1);
/// The hub retries a blocked cluster after this time.
const BLOCKED_RETRY: SignedDuration = SignedDuration::from_secs(30);

/// The cluster as a member of the rollout. `fleet_has_content`: there is a revision that new clusters get outside the limits.
/// `refused`: the last write of its object failed.
pub(super) fn member(
    name: String,
    object: Option<&ClusterPullSecret>,
    goal: Goal,
    fleet_has_content: bool,
    (refused, at): (Option<&Failure>, Timestamp),
    now: Timestamp,
) -> Member {
    let assigned = object.and_then(|object| progress(object, fleet_has_content));
    let is_up_to_date = object.is_some_and(|object| up_to_date(object).is_some());
    let mut member = Member {
        name,
        goal,
        not_ready: object.and_then(|object| unreachable_for(object, now)),
        assigned,
        assigned_for: object.map_or(SignedDuration::ZERO, |object| assigned_for(object, now)),
        is_up_to_date,
        agent_down: None,
        awaits_agent: false,
        is_revoked: object.is_some_and(|object| object.spec.revoked),
        retry: object.is_some_and(is_retry_requested),
        zone: String::new(),
        is_last: false,
        is_canary: false,
        is_skipped: false,
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
    if member.is_blocked() {
        // Each attempt ends in the same phase, which is then as old as the first one.
        member.retry |= object.is_some_and(|object| {
            in_phase_for(object, now).min(assigned_for(object, now)) >= BLOCKED_RETRY
        });
    }
    member
}

/// The status, if it refers to the current spec.
pub(crate) fn up_to_date(object: &ClusterPullSecret) -> Option<&ClusterPullSecretStatus> {
    let generation = object.metadata.generation.unwrap_or_default();
    let status = object.status.as_ref();
    status.filter(|status| status.observed_generation == generation && generation > 0)
}

fn is_retry_requested(object: &ClusterPullSecret) -> bool {
    let requested = object.annotations().get(RETRY_ANNOTATION);
    requested.is_some_and(|requested| *requested != object.spec.retry)
}

/// The assignment and its progress; `None`: nothing assigned yet.
fn progress(object: &ClusterPullSecret, fleet_has_content: bool) -> Option<(Goal, Progress)> {
    let spec = &object.spec;
    let goal = match (spec.remove, spec.revision) {
        (true, _) => Goal::Restore,
        (false, 0) => return None,
        (false, _) => Goal::Revision(spec.assigned()),
    };
    let has_nothing = object.status.as_ref().is_none_or(|it| it.revision == 0);
    let in_progress = if fleet_has_content && has_nothing && !spec.remove {
        Progress::Bootstrapping
    } else {
        Progress::InFlight
    };
    // A revoked cluster is assigned what it has, so there is nothing to write.
    if spec.revoked {
        return Some((goal, Progress::Done));
    }
    let Some(status) = up_to_date(object) else {
        return Some((goal, in_progress));
    };
    let progress = match (status.phase, goal) {
        (ClusterPhase::Synced, Goal::Revision(revision)) if status.in_force() == revision => {
            Progress::Done
        }
        (ClusterPhase::Removed, Goal::Restore) => Progress::Done,
        (ClusterPhase::Failed, _) => Progress::Failed,
        (ClusterPhase::Blocked, _) => Progress::Blocked,
        (ClusterPhase::Unreachable, _) if has(status, goal) => Progress::Done,
        _ => in_progress,
    };
    Some((goal, progress))
}

/// Whether the last known revision in the cluster is the goal.
fn has(status: &ClusterPullSecretStatus, goal: Goal) -> bool {
    goal == Goal::Revision(status.in_force())
}

/// Time since the assignment, or since the cluster's last progress after it: a large cluster needs more time.
fn assigned_for(object: &ClusterPullSecret, now: Timestamp) -> SignedDuration {
    let assigned = object.spec.assigned_at.as_ref();
    let Some(assigned) = assigned else {
        return SignedDuration::ZERO;
    };
    let total = now.duration_since(assigned.0).max(SignedDuration::ZERO);
    let progress = up_to_date(object).and_then(|status| status.last_progress_time.as_ref());
    match progress {
        Some(progress) if total < MAX_EXTENSION => {
            let since = now.duration_since(progress.0);
            since.clamp(SignedDuration::ZERO, total)
        }
        _ => total,
    }
}

fn in_phase_for(object: &ClusterPullSecret, now: Timestamp) -> SignedDuration {
    let status = object.status.as_ref();
    let since = status.and_then(|status| status.last_transition_time.as_ref());
    since.map_or(SignedDuration::ZERO, |since| now.duration_since(since.0))
}

/// How long the cluster is unreachable. From [`SKIPPED_AFTER`] on, this is at least the limit for nodes: a cluster must release
/// its slot earlier than a node, since nothing in the cluster waits for the hub.
fn unreachable_for(object: &ClusterPullSecret, now: Timestamp) -> Option<SignedDuration> {
    let status = object.status.as_ref()?;
    if status.phase != ClusterPhase::Unreachable {
        return None;
    }
    let time = in_phase_for(object, now).max(SignedDuration::ZERO);
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
            let member = member(
                "a".to_owned(),
                Some(&object),
                goal,
                true,
                (None, at(now)),
                at(now),
            );
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
            assert_eq!(
                assigned_for(&object, at(now)),
                SignedDuration::from_mins(expected),
                "{progress:?} {now}"
            );
        }
    }
}
