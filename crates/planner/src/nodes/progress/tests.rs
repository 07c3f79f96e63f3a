use globalps_core::api::NodePullSecretSpec;
use globalps_core::rollout::RevisionId;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::super::input::NotReady;

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
}

fn uptime(seconds: i64) -> Uptime {
    SignedDuration::from_secs(seconds)
}

fn context(clock: &LeaderClock, seconds: i64) -> Context<'_> {
    Context {
        clock,
        now: uptime(seconds),
        min_ready: SignedDuration::ZERO,
        joins_the_fleet: true,
        is_rolled_out: false,
        is_own: true,
        is_changed: false,
        is_observed: false,
    }
}

/// What happens on a node and when, in seconds, and how far its clock is ahead of the leader's.
#[derive(Clone, Debug)]
struct Story {
    assigned: i64,
    restarts: Option<i64>,
    reports: i64,
    heartbeats: Vec<i64>,
    /// From when on the node is ready or not.
    changes: Vec<(i64, Result<(), bool>)>,
    /// From when on its clock has which offset.
    offsets: Vec<(i64, i64)>,
    min_ready: i64,
    /// It reports again that often, each time after it was `Syncing` for that long.
    again: Option<(i64, i64)>,
}

/// Assigned at 800, restarted at 900, `Synced` at 901.
fn story() -> Story {
    Story {
        assigned: 800,
        restarts: Some(900),
        reports: 901,
        heartbeats: vec![700, 902],
        changes: vec![(0, Ok(()))],
        offsets: vec![(0, 0)],
        min_ready: 0,
        again: None,
    }
}

impl Story {
    fn by_node(&self, seconds: i64) -> Timestamp {
        let mut offsets = self.offsets.iter().rev();
        let offset = offsets.find(|(from, _)| *from <= seconds);
        at(seconds + offset.map_or(0, |(_, offset)| *offset))
    }

    fn objects(&self, now: i64) -> (NodePullSecret, NodeView) {
        let is_assigned = now >= self.assigned;
        let mut object = NodePullSecret::new(
            "a",
            NodePullSecretSpec {
                revision: if is_assigned { 5 } else { 4 },
                ..NodePullSecretSpec::default()
            },
        );
        object.metadata.generation = Some(if is_assigned { 2 } else { 1 });
        let has_reported = now >= self.reports;
        let (again, syncing) = self.again.unwrap_or((i64::MAX, 0));
        let since = (now - self.reports) % again;
        let reported = if has_reported { now - since } else { 100 };
        let phase = if has_reported && again - since <= syncing {
            Phase::Syncing
        } else {
            Phase::Synced
        };
        let restarted = self.restarts.filter(|_| has_reported).unwrap_or(100);
        object.status = Some(NodePullSecretStatus {
            observed_generation: if has_reported { 2 } else { 1 },
            revision: if has_reported { 5 } else { 4 },
            phase,
            kubelet_restarted_at: Some(Time(self.by_node(restarted))),
            last_transition_time: Some(Time(self.by_node(reported))),
            ..NodePullSecretStatus::default()
        });
        let mut changes = self.changes.iter().rev();
        let (since, ready) = changes.find(|(from, _)| *from <= now).expect("a change");
        let mut heartbeats = self.heartbeats.iter().rev();
        let heartbeat = heartbeats.find(|time| **time <= now).unwrap_or(&0);
        let node = NodeView {
            ready: match ready {
                Ok(()) => Ok(self.by_node(*since)),
                Err(true) => Err(NotReady {
                    since: at(*since),
                    unknown: true,
                }),
                Err(false) => Err(NotReady {
                    since: self.by_node(*since),
                    unknown: false,
                }),
            },
            heartbeat: self.by_node(*heartbeat),
            ..NodeView::of_test("a", at(0))
        };
        (object, node)
    }

    /// Its progress at this time, for a leader that began at `begins` and plans rarely.
    fn progress(&self, begins: i64, now: i64) -> Progress {
        let mut clock = LeaderClock::default();
        let (object, node) = self.objects(begins);
        clock.observe([&object].into_iter(), [&node].into_iter(), uptime(begins));
        for second in begins + 1..=now {
            let (object, node) = self.objects(second);
            clock.observe_object(&object, uptime(second));
            clock.observe_node(&node, uptime(second));
        }
        let (object, node) = self.objects(now);
        let context = Context {
            min_ready: SignedDuration::from_secs(self.min_ready),
            ..context(&clock, now)
        };
        Case::of(&object, &node, context)
            .progress()
            .map_or(Progress::Done, |(_, progress)| progress)
    }
}

#[test]
fn a_heartbeat_completes_a_node_and_a_loss_soon_after_fails_it() {
    use Progress::{Done, Failed, InFlight, Soaking};
    let not_ready = |from| vec![(0, Ok(())), (from, Err(false))];
    let unknown = |from| vec![(0, Ok(())), (from, Err(true))];
    let blip = |from, to| vec![(0, Ok(())), (from, Err(false)), (to, Ok(()))];
    let ready = || vec![(0, Ok(()))];
    for (case, changes, heartbeats, min_ready, expected) in [
        (
            "a heartbeat since the restart",
            blip(900, 902),
            vec![700, 902],
            0,
            Done,
        ),
        (
            "also if it was never NotReady",
            ready(),
            vec![700, 950],
            0,
            Done,
        ),
        ("no heartbeat yet", ready(), vec![700], 0, InFlight),
        (
            "one of between its assignment and its restart",
            ready(),
            vec![700, 850],
            0,
            InFlight,
        ),
        (
            "not Ready for long enough yet",
            blip(900, 902),
            vec![700, 902],
            120,
            Soaking,
        ),
        (
            "Ready again only recently",
            blip(985, 990),
            vec![700, 950],
            30,
            Soaking,
        ),
        (
            "reported only recently",
            ready(),
            vec![700, 950],
            100,
            Soaking,
        ),
        ("for long enough", blip(900, 910), vec![700, 950], 90, Done),
        (
            "NotReady for a moment after the change",
            not_ready(986),
            vec![700, 950],
            0,
            Done,
        ),
        (
            "NotReady since the restart",
            not_ready(900),
            vec![700],
            0,
            Failed,
        ),
        (
            "NotReady 29 s after it",
            not_ready(930),
            vec![700, 902],
            0,
            Failed,
        ),
        (
            "NotReady 39 s after it: unrelated",
            not_ready(940),
            vec![700, 902],
            0,
            Done,
        ),
        (
            "within minReadySeconds it is a failure",
            not_ready(940),
            vec![700, 902],
            60,
            Failed,
        ),
        (
            "unresponsive: noticed later",
            unknown(970),
            vec![700, 902],
            0,
            Failed,
        ),
        (
            "unresponsive much later: unrelated",
            unknown(990),
            vec![700, 902],
            0,
            Done,
        ),
        (
            "NotReady since before the assignment",
            not_ready(500),
            vec![400],
            0,
            Done,
        ),
    ] {
        // The node's clock is wrong, or is set in the middle of the change.
        for offsets in [
            vec![(0, 0)],
            vec![(0, 3600)],
            vec![(0, -3600)],
            vec![(0, 86400)],
            vec![(0, -86400)],
            vec![(0, 0), (850, 3600)],
            vec![(0, 0), (900, 3600)],
            vec![(0, 0), (901, 20)],
        ] {
            let story = Story {
                changes: changes.clone(),
                heartbeats: heartbeats.clone(),
                offsets,
                min_ready,
                ..story()
            };
            let found = story.progress(300, 1000);
            assert_eq!(found, expected, "{case}: {story:?}");
        }
    }
    let half = Timestamp::from_millisecond(900_500).expect("a time");
    assert_eq!(seconds(half), at(900), "a Node has whole seconds");
}

/// Its kubelet was not restarted, so nothing says that the change broke it.
#[test]
fn a_node_that_flaps_soaks_for_twice_as_long_at_most() {
    use Progress::{Blocked, Done, Soaking};
    let flaps = |from: i64, until: i64| {
        let times = (from..until).step_by(30).enumerate();
        times.map(|(at, time)| (time, if at % 2 == 0 { Err(false) } else { Ok(()) }))
    };
    let ready = || [(0, Ok(()))].into_iter();
    // Every 30 s, from 930 on; at 1020 it is Ready again.
    let always: Vec<_> = ready().chain(flaps(930, 3000)).collect();
    let later: Vec<_> = ready().chain(flaps(990, 3000)).collect();
    let in_between = flaps(930, 990).chain(flaps(1050, 3000));
    let in_between: Vec<_> = ready().chain(in_between).collect();
    for (case, changes, min_ready, now, expected) in [
        ("while it may still soak", &always, 60, 1500, Soaking),
        ("after 10 minutes", &always, 60, 1501, Blocked),
        ("also while it is NotReady", &always, 60, 1540, Blocked),
        ("a longer soak", &always, 400, 1700, Soaking),
        ("twice as long", &always, 400, 1701, Blocked),
        (
            "it was Ready for long enough at first",
            &later,
            60,
            1030,
            Soaking,
        ),
        ("which counts later", &later, 60, 1520, Done),
        ("also while it is NotReady later", &later, 60, 1540, Done),
        ("it was so in between", &in_between, 60, 1520, Done),
        ("no soak", &always, 0, 1520, Done),
    ] {
        let story = Story {
            restarts: None,
            changes: changes.clone(),
            min_ready,
            ..story()
        };
        assert_eq!(story.progress(300, now), expected, "{case}");
    }
}

/// Its file is repaired, or it lies about when it was done.
#[test]
fn repeated_reports_at_most_double_the_soak_of_a_node() {
    use Progress::{Blocked, Done, InFlight, Soaking};
    for (case, again, min_ready, now, expected) in [
        ("while it may still soak", (60, 0), 120, 1500, Soaking),
        ("after 10 minutes", (60, 0), 120, 1501, Blocked),
        ("also much later", (60, 0), 120, 9000, Blocked),
        ("a longer soak", (180, 0), 400, 1700, Soaking),
        ("twice as long", (180, 0), 400, 1701, Blocked),
        ("with a change in between", (60, 9), 120, 1501, Blocked),
        ("which is in flight", (60, 9), 120, 1559, InFlight),
        ("one report for long enough", (180, 0), 120, 1450, Soaking),
        ("which counts later", (180, 0), 120, 1501, Done),
        ("a change is no soak", (180, 100), 120, 1501, Blocked),
        ("it was long enough before it", (180, 9), 120, 1501, Done),
    ] {
        let story = Story {
            restarts: None,
            again: Some(again),
            min_ready,
            ..story()
        };
        assert_eq!(story.progress(300, now), expected, "{case}");
    }
}

#[test]
fn a_clock_set_back_breaks_no_healthy_node_and_ends_no_wait() {
    use Progress::{Done, Failed, InFlight};
    for (case, set_back, heartbeats, begins, now, expected) in [
        (
            "after the restart",
            901,
            vec![700, 904, 1204],
            300,
            1000,
            Done,
        ),
        ("no heartbeat", 901, vec![700], 300, 1022, InFlight),
        (
            "no heartbeat for too long",
            901,
            vec![700],
            300,
            1023,
            Failed,
        ),
        (
            "in between, and no heartbeat since",
            860,
            vec![700],
            300,
            1000,
            InFlight,
        ),
        (
            "in between, with a heartbeat",
            860,
            vec![700, 904],
            300,
            1000,
            Done,
        ),
        (
            "with a heartbeat before the report",
            901,
            vec![700, 902],
            300,
            1000,
            InFlight,
        ),
        (
            "which a dead kubelet would not survive",
            901,
            vec![700, 902],
            300,
            1023,
            Done,
        ),
        (
            "a new leader waits for the next heartbeat",
            901,
            vec![700, 902],
            910,
            1199,
            InFlight,
        ),
        (
            "a new leader has heard it",
            901,
            vec![700, 902, 1200],
            910,
            1200,
            Done,
        ),
        (
            "a new leader hears nothing",
            901,
            vec![700],
            910,
            1270,
            Failed,
        ),
    ] {
        let story = Story {
            reports: 903,
            heartbeats,
            offsets: vec![(0, 3600), (set_back, 0)],
            ..story()
        };
        assert_eq!(story.progress(begins, now), expected, "{case}");
    }
}

#[test]
fn the_soak_counts_from_the_report_as_the_leader_received_it() {
    use Progress::{Done, Soaking};
    for (case, begins, reports, offset, now, expected) in [
        ("a delayed restart", 300, 908, 0, 927, Soaking),
        ("for long enough", 300, 908, 0, 928, Done),
        ("a clock that is behind", 300, 908, -3600, 927, Soaking),
        ("a clock that is ahead", 300, 908, 3600, 928, Done),
        ("a new leader begins again", 920, 908, 0, 939, Soaking),
        (
            "also if the node's clock is behind",
            920,
            908,
            -3600,
            939,
            Soaking,
        ),
        ("and ends in time", 920, 908, 0, 940, Done),
    ] {
        let story = Story {
            assigned: 900,
            restarts: Some(907),
            reports,
            heartbeats: vec![700, 908],
            offsets: vec![(0, offset)],
            min_ready: 20,
            ..story()
        };
        assert_eq!(story.progress(begins, now), expected, "{case}");
    }
    let in_place = Story {
        restarts: None,
        heartbeats: vec![700],
        ..story()
    };
    assert_eq!(in_place.progress(300, 902), Done, "nothing was restarted");
}

/// As after a new disk, of which an interrupted watch has shown only the result.
#[test]
fn a_report_of_the_same_phase_at_another_time_soaks_again() {
    let first = Story {
        min_ready: 60,
        ..story()
    };
    let again = Story {
        reports: first.reports + 50,
        heartbeats: vec![first.reports + 51],
        ..first.clone()
    };
    let mut clock = LeaderClock::default();
    for (story, second) in [(&first, first.assigned), (&first, first.reports)] {
        let (object, node) = story.objects(second);
        clock.observe([&object].into_iter(), [&node].into_iter(), uptime(second));
    }
    let mut at_second = |second| {
        let (object, node) = again.objects(second);
        clock.observe([&object].into_iter(), [&node].into_iter(), uptime(second));
        let context = Context {
            min_ready: SignedDuration::from_secs(60),
            ..context(&clock, second)
        };
        Case::of(&object, &node, context)
            .progress()
            .map_or(Progress::Done, |(_, progress)| progress)
    };
    assert_eq!(at_second(again.reports), Progress::Soaking);
    assert_eq!(at_second(first.reports + 60), Progress::Soaking);
    assert_eq!(at_second(again.reports + 60), Progress::Done);
}

#[test]
fn a_new_leader_does_not_wait_again_for_a_fleet_that_is_done() {
    for (is_rolled_out, expected) in [(false, Progress::Soaking), (true, Progress::Done)] {
        let (object, node) = story().objects(1000);
        let mut clock = LeaderClock::default();
        clock.observe([&object].into_iter(), [&node].into_iter(), uptime(1000));
        let context = Context {
            is_rolled_out,
            min_ready: SignedDuration::from_secs(60),
            ..context(&clock, 1001)
        };
        let found = Case::of(&object, &node, context)
            .progress()
            .map(|(_, progress)| progress);
        assert_eq!(found, Some(expected), "{is_rolled_out}");
    }
}

fn of(revision: i64, revoked: bool, status: Option<NodePullSecretStatus>) -> Progress {
    let spec = NodePullSecretSpec {
        revision,
        revoked,
        ..NodePullSecretSpec::default()
    };
    let mut object = NodePullSecret::new("a", spec);
    object.metadata.generation = Some(1);
    object.status = status;
    let node = NodeView::of_test("a", at(0));
    let clock = LeaderClock::default();
    let context = Context {
        joins_the_fleet: false,
        ..context(&clock, 1000)
    };
    Case::of(&object, &node, context)
        .progress()
        .map_or(Progress::Done, |(_, progress)| progress)
}

/// An object of this generation, and a clock that has seen it for this long at 1000.
fn seen_for(
    seconds: i64,
    generation: Option<i64>,
    revision: i64,
    status: Option<NodePullSecretStatus>,
) -> (NodePullSecret, LeaderClock) {
    let spec = NodePullSecretSpec {
        revision,
        ..NodePullSecretSpec::default()
    };
    let mut object = NodePullSecret::new("a", spec);
    object.metadata.generation = generation;
    object.status = status;
    let mut clock = LeaderClock::default();
    clock.observe(
        [&object].into_iter(),
        std::iter::empty(),
        uptime(1000 - seconds),
    );
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
        assert_eq!(
            is_retry_due(&object, &clock, uptime(1000)),
            expected,
            "{case}"
        );
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
    let of = |revision, progress| {
        Some((
            Goal::Revision(Revision::new(revision, RevisionId::UNKNOWN)),
            progress,
        ))
    };
    for (case, status, revoked, is_ready, seconds, expected) in [
        ("nothing", reported(true, 0), false, true, 0, None),
        ("something", reported(false, 3), false, true, 0, of(0, Done)),
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
            ready: if is_ready {
                Ok(at(0))
            } else {
                Err(NotReady {
                    since: at(940),
                    unknown: true,
                })
            },
            ..NodeView::of_test("a", at(0))
        };
        let context = context(&clock, 1000);
        assert_eq!(
            Case::of(&object, &node, context).progress(),
            expected,
            "{case}"
        );
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
            joins_the_fleet,
            ..context(&clock, 1000)
        };
        let node = NodeView::of_test("a", at(0));
        let found = Case::of(&object, &node, context).progress();
        assert_eq!(
            found,
            Some((
                Goal::Revision(Revision::new(5, RevisionId::UNKNOWN)),
                expected
            )),
            "{case}"
        );
    }
}

#[test]
fn only_a_kubelet_that_does_not_serve_fails_the_change() {
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
            status(1, "ForeignOwner", "ConflictLimit", 4),
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
        let progress = of(5, revoked, status);
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
    let clock = LeaderClock::default();
    let context = context(&clock, 1000);
    let found = Case::of(&object, &new, context).progress();
    assert_eq!(
        found,
        Some((
            Goal::Revision(Revision::new(5, RevisionId::UNKNOWN)),
            Bootstrapping
        ))
    );
    let first_rollout = Context {
        joins_the_fleet: false,
        ..context
    };
    let found = Case::of(&object, &new, first_rollout).progress();
    assert_eq!(
        found,
        Some((
            Goal::Revision(Revision::new(5, RevisionId::UNKNOWN)),
            InFlight
        ))
    );
    object.status = status(1, "Pending", "", 4);
    let found = Case::of(&object, &new, context).progress();
    assert_eq!(
        found,
        Some((
            Goal::Revision(Revision::new(5, RevisionId::UNKNOWN)),
            InFlight
        )),
        "it already has content"
    );
    object.status = status(2, "Pending", "", 5);
    let found = Case::of(&object, &new, context).progress();
    assert_eq!(
        found.map(|(_, progress)| progress),
        Some(Blocked),
        "its syncer only restores"
    );
}
