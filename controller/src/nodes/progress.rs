//! The progress of a node's assignment, from its object, its Node and the leader's clock. Pure.
//!
//! A status counts only for its own node: nothing that a node reports raises a revision, and every state in flight ends.

use globalps_core::api::{NodePullSecret, NodePullSecretStatus, Phase};
use globalps_core::rollout::{Goal, Progress, UNRESPONSIVE_AFTER};
use jiff::{SignedDuration, Timestamp};

use super::clock::AssignmentClock;
use super::input::NodeView;

/// If a node becomes `NotReady` this soon after it was done, the change failed.
const SUSPECT_FOR: SignedDuration = SignedDuration::from_secs(30);
/// Delay after which the control plane notices an unresponsive kubelet.
const NODE_MONITOR_GRACE: SignedDuration = SignedDuration::from_secs(50);
/// A kubelet may briefly report `NotReady` after its restart.
const BLIP: SignedDuration = SignedDuration::from_secs(15);
/// A restarted kubelet posts a heartbeat immediately; without one for this long it failed.
const HEARTBEAT_WITHIN: SignedDuration = SignedDuration::from_mins(2);
/// Interval between attempts on a blocked node.
const BLOCKED_RETRY: SignedDuration = SignedDuration::from_secs(15);

/// Reason of a `Failed` node whose kubelet does not serve: the only one that the change itself may have caused.
const KUBELET_DOWN: &str = "KubeletDown";
/// Reason of a `Syncing` node whose revision is no longer available. It has changed nothing.
const SUPERSEDED: &str = "Superseded";

/// Input of [`progress`] besides the object and the node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context<'a> {
    pub(super) clock: &'a AssignmentClock,
    pub(super) now: Timestamp,
    /// How long the node must be Ready to count as done.
    pub(super) min_ready: SignedDuration,
    /// It is a new node of a fleet that has content, and gets that outside the limits.
    pub(super) joins_the_fleet: bool,
}

/// Last assignment and progress; `None`: the node has no assignment and no content.
pub(super) fn progress(
    object: &NodePullSecret,
    node: &NodeView,
    context: Context,
) -> Option<(Goal, Progress)> {
    let spec = &object.spec;
    let goal = match (spec.restore, spec.revision) {
        (true, _) => Goal::Restore,
        (false, 0) => return unassigned(object, node, context),
        (false, revision) => Goal::Revision(revision),
    };
    let Some(status) = up_to_date(object) else {
        // A revoked node already has the revision that is assigned now.
        let progress = match (spec.revoked, is_bootstrapping(object, context)) {
            (true, _) => Progress::Done,
            (false, true) => Progress::Bootstrapping,
            (false, false) => Progress::InFlight,
        };
        return Some((goal, progress));
    };
    let progress = match (&status.phase, goal) {
        (Phase::Synced, Goal::Revision(revision)) if status.revision == revision => {
            settled(object, status, node, context)
        }
        (Phase::Restored, Goal::Restore) => settled(object, status, node, context),
        (Phase::RolledBack, _) => Progress::Failed,
        (Phase::Failed, _) if status.reason == KUBELET_DOWN => Progress::Failed,
        (Phase::Failed | Phase::ForeignOwner, _) => Progress::Blocked,
        (Phase::Syncing, _) if status.reason == SUPERSEDED => Progress::Blocked,
        _ if is_bootstrapping(object, context) => Progress::Bootstrapping,
        _ => Progress::InFlight,
    };
    Some((goal, progress))
}

/// The status, if it describes the current spec.
pub(super) fn up_to_date(object: &NodePullSecret) -> Option<&NodePullSecretStatus> {
    let generation = object.metadata.generation.unwrap_or_default();
    let status = object.status.as_ref();
    status.filter(|status| status.observed_generation == generation && generation > 0)
}

/// Whether a blocked node may retry. One with a conflict over its file may not: each attempt restarts its kubelet.
pub(super) fn is_retry_due(
    object: &NodePullSecret,
    clock: &AssignmentClock,
    now: Timestamp,
) -> bool {
    let is_failed = up_to_date(object).is_some_and(|status| status.phase == Phase::Failed);
    is_failed && clock.assigned_for(object, now) >= BLOCKED_RETRY
}

/// The state of a node without an assignment. Its object may be younger than the content on its disk.
fn unassigned(
    object: &NodePullSecret,
    node: &NodeView,
    context: Context,
) -> Option<(Goal, Progress)> {
    match up_to_date(object) {
        Some(status) if status.restored => None,
        // An older syncer does not report `restored` here.
        Some(status) => Some((Goal::Revision(status.revision), Progress::Done)),
        // It must report first. One that never does, and can't have had an assignment, has no content.
        None => {
            let assigned_for = context.clock.assigned_for(object, context.now);
            let is_awaited = assigned_for < UNRESPONSIVE_AFTER;
            let progress = match (object.spec.revoked, is_awaited) {
                (true, true) if node.ready.is_ok() => Progress::Unknown,
                (true, _) | (false, true) => Progress::Blocked,
                (false, false) => return None,
            };
            Some((Goal::Revision(0), progress))
        }
    }
}

/// A new node that never had content: its first assignment disrupts nothing.
fn is_bootstrapping(object: &NodePullSecret, context: Context) -> bool {
    let has_nothing = object
        .status
        .as_ref()
        .is_some_and(|status| status.revision == 0);
    context.joins_the_fleet && has_nothing && !object.spec.restore
}

/// The progress of a node that reports that it is done. It is done once the API server has received a heartbeat since the
/// kubelet's restart, and the node has been Ready for long enough.
fn settled(
    object: &NodePullSecret,
    status: &NodePullSecretStatus,
    node: &NodeView,
    context: Context,
) -> Progress {
    if lost(object, node, context).is_some() {
        return Progress::Failed;
    }
    let in_phase = in_phase_for(object, status, context);
    match (node.ready, status.kubelet_restarted_at.as_ref()) {
        // NotReady for another reason, or only briefly: the rollout counts it as unavailable.
        (Err(_), _) => Progress::Done,
        (Ok(_), Some(restarted)) if node.heartbeat < seconds(restarted.0) => Progress::InFlight,
        (Ok(since), _) => {
            let ready_for = context.now.duration_since(since).max(SignedDuration::ZERO);
            if in_phase.min(ready_for) < context.min_ready {
                Progress::InFlight
            } else {
                Progress::Done
            }
        }
    }
}

/// A Node's conditions have whole seconds, so the times to compare are truncated.
fn seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// By the leader's clock, or by the node's if that is longer: the leader may be new.
fn in_phase_for(
    object: &NodePullSecret,
    status: &NodePullSecretStatus,
    context: Context,
) -> SignedDuration {
    let own = context.clock.in_phase_for(object, context.now);
    let reported = status.last_transition_time.as_ref();
    let reported = reported.map_or(SignedDuration::ZERO, |time| {
        context.now.duration_since(time.0)
    });
    own.max(reported)
}

/// How the change broke a node that had reached its goal, as a clause; `None`: it did not.
pub(super) fn lost(object: &NodePullSecret, node: &NodeView, context: Context) -> Option<String> {
    let status = up_to_date(object)?;
    if !matches!(status.phase, Phase::Synced | Phase::Restored) {
        return None;
    }
    // Without a restart the change can't have broken it.
    let restarted = seconds(status.kubelet_restarted_at.as_ref()?.0);
    let Err(not_ready) = node.ready else {
        let is_unresponsive =
            node.heartbeat < restarted && in_phase_for(object, status, context) >= HEARTBEAT_WITHIN;
        return is_unresponsive
            .then(|| "its kubelet has sent no heartbeat since its restart".to_owned());
    };
    let done = seconds(status.last_transition_time.as_ref()?.0).max(restarted);
    let after = not_ready.since.duration_since(done);
    let suspect = SUSPECT_FOR.max(context.min_ready);
    let (within, is_lasting) = if not_ready.unknown {
        (suspect + NODE_MONITOR_GRACE, true)
    } else {
        (suspect, context.now.duration_since(not_ready.since) >= BLIP)
    };
    let is_suspect = not_ready.since >= restarted && after <= within;
    (is_suspect && is_lasting).then(|| {
        let seconds = after.as_secs().max(0);
        format!("it became NotReady {seconds} s after the change")
    })
}

#[cfg(test)]
mod tests {
    use globalps_core::api::NodePullSecretSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::super::input::NotReady;
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
    }

    fn ago(seconds: i64, unknown: bool) -> Result<Timestamp, NotReady> {
        Err(NotReady {
            since: at(1000 - seconds),
            unknown,
        })
    }

    /// The node restarted its kubelet at 900, reported `Synced` at 901, and now is 1000.
    fn synced(ready: Result<Timestamp, NotReady>, heartbeat: i64, min_ready: i64) -> Progress {
        let status = NodePullSecretStatus {
            observed_generation: 1,
            revision: 5,
            phase: Phase::Synced,
            kubelet_restarted_at: Some(Time(at(900))),
            last_transition_time: Some(Time(at(901))),
            ..NodePullSecretStatus::default()
        };
        of(5, false, Some(status), ready, heartbeat, min_ready)
    }

    fn of(
        revision: i64,
        revoked: bool,
        status: Option<NodePullSecretStatus>,
        ready: Result<Timestamp, NotReady>,
        heartbeat: i64,
        min_ready: i64,
    ) -> Progress {
        let spec = NodePullSecretSpec {
            revision,
            revoked,
            ..NodePullSecretSpec::default()
        };
        let mut object = NodePullSecret::new("a", spec);
        object.metadata.generation = Some(1);
        object.status = status;
        let node = NodeView {
            ready,
            heartbeat: at(heartbeat),
            ..NodeView::of_test("a", at(0))
        };
        let context = Context {
            clock: &AssignmentClock::default(),
            now: at(1000),
            min_ready: SignedDuration::from_secs(min_ready),
            joins_the_fleet: true,
        };
        progress(&object, &node, context).map_or(Progress::Done, |(_, progress)| progress)
    }

    #[test]
    fn a_node_is_done_after_a_heartbeat_and_failed_if_lost_soon_after() {
        use Progress::{Done, Failed, InFlight};
        let ready = |since| Ok(at(since));
        for (case, ready, heartbeat, min_ready, expected) in [
            ("a heartbeat since the restart", ready(902), 900, 0, Done),
            ("also if it was never NotReady", ready(10), 950, 0, Done),
            (
                "not Ready for long enough yet",
                ready(902),
                950,
                120,
                InFlight,
            ),
            ("Ready again only recently", ready(990), 950, 30, InFlight),
            ("for long enough", ready(910), 950, 90, Done),
            (
                "NotReady for a moment after the change",
                ago(14, false),
                950,
                0,
                Done,
            ),
            (
                "NotReady since the restart",
                ago(100, false),
                950,
                0,
                Failed,
            ),
            ("NotReady 29 s after it", ago(70, false), 950, 0, Failed),
            (
                "NotReady 39 s after it: unrelated",
                ago(60, false),
                950,
                0,
                Done,
            ),
            (
                "within minReadySeconds it is a failure",
                ago(60, false),
                950,
                60,
                Failed,
            ),
            ("unresponsive: noticed later", ago(30, true), 950, 0, Failed),
            (
                "unresponsive much later: unrelated",
                ago(10, true),
                950,
                0,
                Done,
            ),
            (
                "NotReady since before the change",
                ago(500, false),
                10,
                0,
                Done,
            ),
        ] {
            assert_eq!(synced(ready, heartbeat, min_ready), expected, "{case}");
        }
        assert_eq!(synced(ready(10), 899, 0), InFlight, "no heartbeat yet");
        let half = Timestamp::from_millisecond(900_500).expect("a time");
        assert_eq!(seconds(half), at(900), "a Node has whole seconds");
    }

    #[test]
    fn a_kubelet_without_another_heartbeat_failed() {
        let mut clock = AssignmentClock::default();
        let status = NodePullSecretStatus {
            observed_generation: 1,
            revision: 5,
            phase: Phase::Synced,
            kubelet_restarted_at: Some(Time(at(i64::from(u32::MAX)))),
            ..NodePullSecretStatus::default()
        };
        let mut object = NodePullSecret::new(
            "a",
            NodePullSecretSpec {
                revision: 5,
                ..NodePullSecretSpec::default()
            },
        );
        object.metadata.generation = Some(1);
        object.status = Some(status);
        let name = "a".to_owned();
        clock.observe([(&name, &object)], at(1000));
        let after = |seconds: i64, heartbeat: i64| {
            let node = NodeView {
                heartbeat: at(heartbeat),
                ..NodeView::of_test("a", at(0))
            };
            let context = Context {
                clock: &clock,
                now: at(1000 + seconds),
                min_ready: SignedDuration::ZERO,
                joins_the_fleet: true,
            };
            progress(&object, &node, context).map(|(_, progress)| progress)
        };
        assert_eq!(after(0, 0), Some(Progress::InFlight));
        assert_eq!(after(119, 0), Some(Progress::InFlight));
        assert_eq!(
            after(120, 0),
            Some(Progress::Failed),
            "also if the node lies about the time"
        );
        let heard = after(120, i64::from(u32::MAX));
        assert_eq!(heard, Some(Progress::Done), "in the second of its restart");
    }

    /// An object of this generation, and a clock that has seen it for this long at 1000.
    fn seen_for(
        seconds: i64,
        generation: Option<i64>,
        revision: i64,
        status: Option<NodePullSecretStatus>,
    ) -> (NodePullSecret, AssignmentClock) {
        let spec = NodePullSecretSpec {
            revision,
            ..NodePullSecretSpec::default()
        };
        let mut object = NodePullSecret::new("a", spec);
        object.metadata.generation = generation;
        object.status = status;
        let mut clock = AssignmentClock::default();
        clock.observe([(&"a".to_owned(), &object)], at(1000 - seconds));
        (object, clock)
    }

    #[test]
    fn a_status_counts_only_for_its_generation() {
        for (generation, observed, expected) in [
            (Some(2), 2, true),
            (Some(2), 1, false),
            (Some(1), 2, false),
            (None, 0, false),
            (Some(0), 0, false),
        ] {
            let status = NodePullSecretStatus {
                observed_generation: observed,
                ..NodePullSecretStatus::default()
            };
            let (object, _) = seen_for(0, generation, 5, Some(status));
            let case = (generation, observed);
            assert_eq!(up_to_date(&object).is_some(), expected, "{case:?}");
        }
    }

    #[test]
    fn only_a_failed_node_is_retried_after_a_while() {
        for (case, phase, observed, seconds, expected) in [
            ("too soon", Phase::Failed, 1, 14, false),
            ("in time", Phase::Failed, 1, 15, true),
            ("of an older assignment", Phase::Failed, 0, 15, false),
            ("a fight", Phase::ForeignOwner, 1, 15, false),
            ("done", Phase::Synced, 1, 15, false),
        ] {
            let status = NodePullSecretStatus {
                observed_generation: observed,
                phase,
                ..NodePullSecretStatus::default()
            };
            let (object, clock) = seen_for(seconds, Some(1), 5, Some(status));
            assert_eq!(is_retry_due(&object, &clock, at(1000)), expected, "{case}");
        }
    }

    #[test]
    fn a_node_without_an_assignment_must_report_its_state() {
        use Progress::{Blocked, Done, Unknown};
        let reported = |restored, revision| {
            Some(NodePullSecretStatus {
                observed_generation: 1,
                restored,
                revision,
                ..NodePullSecretStatus::default()
            })
        };
        let of = |revision, progress| Some((Goal::Revision(revision), progress));
        for (case, status, revoked, is_ready, seconds, expected) in [
            ("nothing", reported(true, 0), false, true, 0, None),
            ("something", reported(false, 3), false, true, 0, of(3, Done)),
            (
                "wait for its report",
                None,
                false,
                true,
                119,
                of(0, Blocked),
            ),
            ("no report in time", None, false, true, 120, None),
            ("it may have content", None, true, true, 119, of(0, Unknown)),
            ("not ready", None, true, false, 119, of(0, Blocked)),
            ("it never reports", None, true, true, 120, of(0, Blocked)),
        ] {
            let (mut object, clock) = seen_for(seconds, Some(1), 0, status);
            object.spec.revoked = revoked;
            let node = NodeView {
                ready: if is_ready { Ok(at(0)) } else { ago(60, true) },
                ..NodeView::of_test("a", at(0))
            };
            let context = Context {
                clock: &clock,
                now: at(1000),
                min_ready: SignedDuration::ZERO,
                joins_the_fleet: true,
            };
            assert_eq!(progress(&object, &node, context), expected, "{case}");
        }
    }

    #[test]
    fn a_new_node_applying_its_first_revision_still_bootstraps() {
        use Progress::{Bootstrapping, InFlight};
        for (case, generation, revision, joins_the_fleet, expected) in [
            ("asked", 0, 0, true, Bootstrapping),
            ("in progress", 1, 0, true, Bootstrapping),
            ("it has content", 1, 4, true, InFlight),
            ("it is old", 1, 0, false, InFlight),
        ] {
            let status = NodePullSecretStatus {
                observed_generation: generation,
                revision,
                phase: Phase::Syncing,
                ..NodePullSecretStatus::default()
            };
            let (object, clock) = seen_for(0, Some(1), 5, Some(status));
            let context = Context {
                clock: &clock,
                now: at(1000),
                min_ready: SignedDuration::ZERO,
                joins_the_fleet,
            };
            let node = NodeView::of_test("a", at(0));
            let found = progress(&object, &node, context);
            assert_eq!(found, Some((Goal::Revision(5), expected)), "{case}");
        }
    }

    #[test]
    fn only_a_kubelet_that_does_not_serve_is_a_failure_of_the_change() {
        use Progress::{Blocked, Bootstrapping, Done, Failed, InFlight};
        let status = |generation, phase: &str, reason: &str, revision| {
            Some(NodePullSecretStatus {
                observed_generation: generation,
                revision,
                phase: phase.into(),
                reason: reason.to_owned(),
                ..NodePullSecretStatus::default()
            })
        };
        for (case, revoked, status, expected) in [
            ("not reported", false, status(0, "Synced", "", 4), InFlight),
            (
                "revoked and not reported",
                true,
                status(0, "Synced", "", 4),
                Done,
            ),
            ("in progress", false, status(1, "Syncing", "", 4), InFlight),
            (
                "its revision is no longer available",
                false,
                status(1, "Syncing", "Superseded", 4),
                Blocked,
            ),
            (
                "done with another revision",
                false,
                status(1, "Synced", "", 4),
                InFlight,
            ),
            ("done", false, status(1, "Synced", "", 5), Done),
            ("rolled back", false, status(1, "RolledBack", "", 4), Failed),
            ("down", false, status(1, "Failed", "KubeletDown", 4), Failed),
            (
                "a full disk",
                false,
                status(1, "Failed", "DiskFull", 4),
                Blocked,
            ),
            (
                "a fight",
                false,
                status(1, "ForeignOwner", "Fought", 4),
                Blocked,
            ),
            (
                "a phase of a newer release",
                false,
                status(1, "Dreaming", "", 4),
                InFlight,
            ),
            (
                "a status of another generation",
                false,
                status(9, "RolledBack", "", 4),
                InFlight,
            ),
        ] {
            let progress = of(5, revoked, status, Ok(at(0)), 0, 0);
            assert_eq!(progress, expected, "{case}");
        }
        let new = NodeView::of_test("a", at(999));
        let mut object = NodePullSecret::new(
            "a",
            NodePullSecretSpec {
                revision: 5,
                ..NodePullSecretSpec::default()
            },
        );
        object.metadata.generation = Some(2);
        object.status = status(1, "Pending", "", 0);
        let clock = AssignmentClock::default();
        let context = Context {
            clock: &clock,
            now: at(1000),
            min_ready: SignedDuration::ZERO,
            joins_the_fleet: true,
        };
        let found = progress(&object, &new, context);
        assert_eq!(found, Some((Goal::Revision(5), Bootstrapping)));
        let first_rollout = Context {
            joins_the_fleet: false,
            ..context
        };
        let found = progress(&object, &new, first_rollout);
        assert_eq!(found, Some((Goal::Revision(5), InFlight)));
        object.status = status(1, "Pending", "", 4);
        let found = progress(&object, &new, context);
        assert_eq!(
            found,
            Some((Goal::Revision(5), InFlight)),
            "it already has content"
        );
    }
}
