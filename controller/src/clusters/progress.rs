//! How far a cluster is with its assignment, from its object. Pure.

use globalps_core::api::{ClusterPhase, ClusterPullSecret, ClusterPullSecretStatus};
use globalps_core::names::RETRY_ANNOTATION;
use globalps_core::rollout::{Goal, Member, Progress, UNREACHABLE_AFTER};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;

/// A cluster that can't be reached for this long is passed over.
const AWAY_AFTER: SignedDuration = SignedDuration::from_secs(30);
/// Progress extends the deadline of an assignment until then: a cluster may report progress without an end.
const LONGEST: SignedDuration = SignedDuration::from_hours(1);
/// A blocked cluster is asked to try again after this long.
const BLOCKED_RETRY: SignedDuration = SignedDuration::from_secs(30);

/// The cluster as a member of the rollout. `fleet_has_content`: it has something that a new cluster gets beside the limits.
pub(super) fn member(
    name: String,
    object: Option<&ClusterPullSecret>,
    goal: Goal,
    fleet_has_content: bool,
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
        is_revoked: object.is_some_and(|object| object.spec.revoked),
        retry: object.is_some_and(is_asked_again),
        zone: String::new(),
        is_last: false,
        is_canary: false,
        is_skipped: false,
        in_place: false,
    };
    if member.is_blocked() {
        member.retry |= object.is_some_and(|object| in_phase_for(object, now) >= BLOCKED_RETRY);
    }
    member
}

/// The status, if it is about the spec as it is.
pub(crate) fn up_to_date(object: &ClusterPullSecret) -> Option<&ClusterPullSecretStatus> {
    let generation = object.metadata.generation.unwrap_or_default();
    let status = object.status.as_ref();
    status.filter(|status| status.observed_generation == generation && generation > 0)
}

fn is_asked_again(object: &ClusterPullSecret) -> bool {
    let asked = object.annotations().get(RETRY_ANNOTATION);
    asked.is_some_and(|asked| *asked != object.spec.retry)
}

/// What it was assigned and how far it is; `None`: nothing yet.
fn progress(object: &ClusterPullSecret, fleet_has_content: bool) -> Option<(Goal, Progress)> {
    let spec = &object.spec;
    let goal = match (spec.remove, spec.revision) {
        (true, _) => Goal::Restore,
        (false, 0) => return None,
        (false, revision) => Goal::Revision(revision),
    };
    let has_nothing = object.status.as_ref().is_none_or(|it| it.revision == 0);
    let on_its_way = if fleet_has_content && has_nothing && !spec.remove {
        Progress::Bootstrapping
    } else {
        Progress::InFlight
    };
    // A revoked cluster is asked for what it had, and nothing is written there.
    if spec.revoked {
        return Some((goal, Progress::Done));
    }
    let Some(status) = up_to_date(object) else {
        return Some((goal, on_its_way));
    };
    let progress = match (status.phase, goal) {
        (ClusterPhase::Synced, Goal::Revision(revision)) if status.revision == revision => {
            Progress::Done
        }
        (ClusterPhase::Removed, Goal::Restore) => Progress::Done,
        (ClusterPhase::Failed, _) => Progress::Failed,
        (ClusterPhase::Blocked, _) => Progress::Blocked,
        (ClusterPhase::Unreachable, _) if has(status, goal) => Progress::Done,
        _ => on_its_way,
    };
    Some((goal, progress))
}

/// What is in force there is what it was asked for, as far as anybody knows.
fn has(status: &ClusterPullSecretStatus, goal: Goal) -> bool {
    goal == Goal::Revision(status.revision)
}

/// Since the assignment, or since the cluster's last progress after it: a large cluster takes as long as its nodes do.
fn assigned_for(object: &ClusterPullSecret, now: Timestamp) -> SignedDuration {
    let assigned = object.spec.assigned_at.as_ref();
    let Some(assigned) = assigned else {
        return SignedDuration::ZERO;
    };
    let in_all = now.duration_since(assigned.0).max(SignedDuration::ZERO);
    let progress = up_to_date(object).and_then(|status| status.last_progress_time.as_ref());
    match progress {
        Some(progress) if in_all < LONGEST => {
            let since = now.duration_since(progress.0);
            since.clamp(SignedDuration::ZERO, in_all)
        }
        _ => in_all,
    }
}

fn in_phase_for(object: &ClusterPullSecret, now: Timestamp) -> SignedDuration {
    let status = object.status.as_ref();
    let since = status.and_then(|status| status.last_transition_time.as_ref());
    since.map_or(SignedDuration::ZERO, |since| now.duration_since(since.0))
}

/// A cluster that is away holds its slot for a shorter time than a node: nothing there waits for the hub.
fn unreachable_for(object: &ClusterPullSecret, now: Timestamp) -> Option<SignedDuration> {
    let status = object.status.as_ref()?;
    if status.phase != ClusterPhase::Unreachable {
        return None;
    }
    let time = in_phase_for(object, now).max(SignedDuration::ZERO);
    Some(if time >= AWAY_AFTER {
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
    fn progress_extends_the_deadline_but_not_without_an_end() {
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
