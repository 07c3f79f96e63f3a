//! Unit tests of `fleet`, and its sample objects.

use super::table::{changes, headline, overview, render};
use super::verdict::{FleetGoal, advice, verdict};
use super::*;
use crate::terminal::columns::columns;
use crate::terminal::layout::Layout;
use crate::view::members::Verdict;
use comfy_table::Color;
use serde_json::json;

/// `FleetPullSecret` `clusters/team-a` with this reason of its condition `Ready`.
pub(crate) fn fleet(reason: &str, revision: i64) -> FleetPullSecret {
    let is_ready = if reason == "Synced" { "True" } else { "False" };
    let condition = |type_: &str, status: &str, reason: &str| {
        json!({
            "type": type_, "status": status, "reason": reason, "message": "a sentence",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let progressing = match reason {
        "RollingOut" => condition("Progressing", "True", "RollingOut"),
        "WaitingForCanary" => condition("Progressing", "True", reason),
        "Paused" | "Halted" | "NoCanary" => condition("Progressing", "False", reason),
        _ => condition("Progressing", "False", "Complete"),
    };
    // The hub reports these in another condition.
    let ready = match reason {
        "Paused" | "Halted" | "NoCanary" | "WaitingForCanary" => "RollingOut",
        reason => reason,
    };
    let object = json!({
        "apiVersion": "globalps.io/v1alpha1",
        "kind": "FleetPullSecret",
        "metadata": {
            "name": "team-a", "namespace": "clusters", "generation": 2, "uid": "fleet-1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"secretRef": {"name": "team-a-source"}},
        "status": {
            "observedGeneration": 2,
            "revision": revision,
            "counts": {"total": 4, "synced": 1, "failed": 1, "unreachable": 0},
            "conditions": [condition("Ready", is_ready, ready), progressing],
        },
    });
    serde_json::from_value(object).expect("a FleetPullSecret")
}

/// `ClusterPullSecret` of a cluster in this phase with this revision in force; it was assigned revision 3.
pub(crate) fn object(cluster: &str, phase: ClusterPhase, revision: i64) -> ClusterPullSecret {
    let reason = match phase {
        ClusterPhase::Failed => "NodesFailed",
        ClusterPhase::Blocked => "Conflict",
        ClusterPhase::Unreachable => "ConnectionRefused",
        _ => "",
    };
    let message = match reason {
        "" => String::new(),
        _ => format!("why {cluster}"),
    };
    let assigned = if phase == ClusterPhase::Synced {
        revision
    } else {
        3
    };
    let object = json!({
        "apiVersion": "globalps.io/v1alpha1",
        "kind": "ClusterPullSecret",
        "metadata": {
            "name": format!("{cluster}.clusters.team-a"), "namespace": "clusters", "generation": 1,
        },
        "spec": {"fleet": "clusters/team-a", "cluster": cluster, "revision": assigned},
        "status": {
            "observedGeneration": 1, "phase": phase.as_str(), "revision": revision,
            "reason": reason, "message": message,
            "nodes": {"total": 2, "synced": 1},
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        },
    });
    serde_json::from_value(object).expect("a ClusterPullSecret")
}

fn now() -> Timestamp {
    "2026-01-01T00:10:00Z".parse().expect("a time")
}

fn mixed() -> [ClusterPullSecret; 4] {
    [
        object("m1", ClusterPhase::Synced, 3),
        object("m2", ClusterPhase::Synced, 2),
        object("m3", ClusterPhase::Failed, 2),
        object("m4", ClusterPhase::Syncing, 2),
    ]
}

#[test]
fn a_cluster_is_where_it_stands_with_the_newest_revision() {
    use ClusterPhase::{Failed, Pending, Removing, Synced, Syncing, Unreachable};
    #[rustfmt::skip]
    let cases = [
        ("it has it", (Synced, 3), json!({}), Synced),
        ("it has an earlier one", (Synced, 2), json!({}), Pending),
        ("it has not reported on its assignment", (Failed, 2), json!({"metadata": {"generation": 2}}), Syncing),
        (
            "the Secret is to go",
            (Synced, 3),
            json!({"metadata": {"generation": 2}, "spec": {"remove": true}}),
            Removing,
        ),
        ("nothing is assigned", (Pending, 0), json!({"metadata": {"generation": 2}, "spec": {"revision": 0}}), Pending),
        ("it is away", (Unreachable, 2), json!({"metadata": {"generation": 2}}), Unreachable),
    ];
    for (sentence, reported, change, expected) in cases {
        let mut value = json!(object("m1", reported.0, reported.1));
        json_patch::merge(&mut value, &change);
        let object: ClusterPullSecret = serde_json::from_value(value).expect("an object");
        let status = FleetStatus::of(&fleet("RollingOut", 3), [&object], &[]);
        assert_eq!(status.clusters[0].phase, expected, "{sentence}");
    }
}

#[test]
fn a_revoked_assignment_and_every_obstacle_are_shown() {
    let mut fleet = fleet("ClustersBlocked", 3);
    let mut objects = [
        object("m1", ClusterPhase::Synced, 2),
        object("m2", ClusterPhase::Synced, 2),
    ];
    objects[0].spec.revoked = true;
    let status = fleet.status.as_mut().expect("one");
    let failures = json!([
        {"cluster": "clusters/m2", "reason": "DuplicateCluster", "message": "same as `clusters/m9`"},
        {"cluster": "clusters/m9", "reason": "DuplicateCluster", "message": "same as `clusters/m2`"},
        {"cluster": "clusters/hub", "reason": "IsHub", "message": "the hub"},
        {"cluster": "clusters/m7", "reason": "NodesFailed", "message": "its object is gone"},
    ]);
    status.failures = serde_json::from_value(failures).expect("failures");
    let status = FleetStatus::of(&fleet, &objects, &[]);
    let wide = Layout {
        wide: true,
        no_headers: true,
        ..Layout::default()
    };
    assert_eq!(
        render(&status, now(), wide, None),
        "\
clusters/hub   Blocked   0                        IsHub              the hub
clusters/m2    Blocked   2          1/2     10m   DuplicateCluster   same as `clusters/m9`
clusters/m9    Blocked   0                        DuplicateCluster   same as `clusters/m2`
clusters/m1    Pending   2          1/2     10m   Revoked            the cluster made no progress, so the hub revoked its last assignment
"
    );
    assert_eq!(
        json!(status.clusters[0]),
        json!({
            "name": "clusters/hub", "fleet": "clusters/team-a", "phase": "Blocked", "revision": 0,
            "reason": "IsHub", "message": "the hub", "nodes": null, "since": "",
        })
    );
    let (message, hint) = advice(&status).expect("advice");
    assert_eq!(
        message,
        "3 clusters blocked: `clusters/hub`: the hub; `clusters/m2`: same as `clusters/m9`; `clusters/m9`: same as `clusters/m2`"
    );
    assert!(!hint.contains("retry"), "a retry changes nothing: {hint}");
    let one = FleetStatus::of(&fleet, &objects, &["m9".to_owned()]);
    assert_eq!(one.clusters.len(), 1, "it can be asked for by its name");
}

#[test]
fn it_is_ready_if_the_hub_says_so_and_no_cluster_is_away() {
    for (sentence, change, expected) in [
        ("ready", json!({}), (true, "True", "Synced")),
        (
            "another spec",
            json!({"metadata": {"generation": 3}}),
            (false, "Unknown", "NotReported"),
        ),
        (
            "one is away",
            json!({"status": {"counts": {"unreachable": 1}}}),
            (false, "False", "ClustersUnreachable"),
        ),
    ] {
        let mut value = json!(fleet("Synced", 3));
        json_patch::merge(&mut value, &change);
        let fleet: FleetPullSecret = serde_json::from_value(value).expect("one");
        let row = FleetStatus::of(&fleet, [], &[]).fleet;
        let found = (row.ready, row.state, row.reason.as_str());
        assert_eq!(found, expected, "{sentence}");
    }
}

#[test]
fn named_clusters_count_alone() {
    let objects = mixed();
    for (named, expected) in [
        (&["m1"][..], (true, 1)),
        (&["clusters/m1", "m2"], (false, 2)),
        (&["other/m1"], (false, 0)),
    ] {
        let named: Vec<String> = named.iter().map(ToString::to_string).collect();
        let status = FleetStatus::of(&fleet("ClustersFailed", 3), &objects, &named);
        let found = (status.fleet.ready, status.fleet.counts.total);
        assert_eq!(found, expected, "{named:?}");
    }
}

#[test]
fn the_json_is_what_scripts_rely_on() {
    let objects = mixed();
    let status = FleetStatus::of(&fleet("ClustersFailed", 3), &objects, &["m3".to_owned()]);
    let one = json!({
        "name": "clusters/team-a", "ready": false, "revision": 3, "paused": false,
        "counts": {"total": 1, "synced": 0, "progressing": 0, "failed": 1, "unreachable": 0, "unsupported": 0},
        "reason": "ClustersFailed", "message": "a sentence",
    });
    let cluster = json!({
        "name": "clusters/m3", "fleet": "clusters/team-a", "phase": "Failed", "revision": 2,
        "reason": "NodesFailed", "message": "why m3", "nodes": {"total": 2, "synced": 1},
        "since": "2026-01-01T00:00:00Z",
    });
    let mut found = json!(status);
    assert_eq!(found["clusters"], json!([cluster]));
    let fields = found.as_object_mut().expect("an object");
    fields.remove("clusters");
    fields.remove("conditions");
    assert_eq!(found, one);
    let overview = json!(Overview::of(&[status]));
    for field in ["ready", "revision", "counts"] {
        assert_eq!(overview[field], one[field], "{field}");
    }
    assert_eq!(overview["clusters"], json!([cluster]));
    assert_eq!(overview["fleets"][0]["name"], "clusters/team-a");
}

#[test]
fn the_table_has_a_line_for_each_cluster_and_failed_ones_first() {
    let objects = mixed();
    let status = FleetStatus::of(&fleet("ClustersFailed", 3), &objects, &[]);
    assert_eq!(
        render(&status, now(), Layout::default(), None),
        "\
revision 3  1/4 clusters synced  1 failed
CLUSTER       PHASE     REVISION   NODES   AGE   REASON
clusters/m3   Failed    2          1/2     10m   NodesFailed
clusters/m4   Syncing   2          1/2     10m
clusters/m2   Pending   2          1/2     10m
clusters/m1   Synced    3          1/2     10m
"
    );
    let wide = Layout {
        wide: true,
        no_headers: true,
        ..Layout::default()
    };
    let text = render(&status, now(), wide, None);
    assert!(
        text.starts_with("clusters/m3   Failed    2          1/2     10m   NodesFailed   why m3\n"),
        "{text}"
    );
    let live = Layout {
        width: Some(30),
        height: Some(8),
        live: true,
        ..Layout::default()
    };
    let text = render(&status, now(), live, advice(&status).as_ref());
    assert!(text.contains("... and 3 more: 1 Syncing, 1 …"), "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 30),
        "{text}"
    );
}

#[test]
fn the_overview_has_a_line_for_each_fleet_pull_secret() {
    let all = [FleetStatus::of(&fleet("RollingOut", 3), [], &[])];
    let wide = Layout {
        wide: true,
        ..Layout::default()
    };
    for (layout, has_namespaces, expected) in [
        (
            Layout::default(),
            false,
            "\
NAME     READY   REVISION   CLUSTERS   SYNCED   FAILED   UNREACHABLE   REASON
team-a   False   3          4          1        1        0             RollingOut",
        ),
        (
            wide,
            true,
            "\
NAMESPACE   NAME     READY   REVISION   CLUSTERS   SYNCED   FAILED   UNREACHABLE   AGE   REASON       MESSAGE
clusters    team-a   False   3          4          1        1        0             10m   RollingOut   a sentence",
        ),
    ] {
        assert_eq!(overview(&all, now(), layout, has_namespaces), expected);
    }
}

#[test]
fn an_overview_fits_the_terminal_and_has_the_unready_first() {
    let mut all: Vec<FleetStatus> = (0..9)
        .map(|_| FleetStatus::of(&fleet("Synced", 3), [], &[]))
        .collect();
    all.push(FleetStatus::of(&fleet("ClustersFailed", 3), [], &[]));
    let layout = Layout {
        width: Some(80),
        height: Some(6),
        live: true,
        ..Layout::default()
    };
    let text = overview(&all, now(), layout, false);
    assert_eq!(text.lines().count(), 5, "{text}");
    assert!(
        text.contains("False") && text.ends_with("... and 7 more"),
        "{text}"
    );
}

#[test]
fn without_a_terminal_only_changes_are_printed() {
    let fleet = fleet("RollingOut", 3);
    let before = [FleetStatus::of(&fleet, &mixed(), &[])];
    let mut objects = mixed().to_vec();
    objects[1] = object("m2", ClusterPhase::Failed, 2);
    objects.remove(0);
    let after = [FleetStatus::of(&fleet, &objects, &[])];
    assert_eq!(
        changes(&before, &after),
        [
            "clusters/m2  Failed  revision 2  1/2 nodes  NodesFailed",
            "clusters/m1  gone"
        ]
    );
    assert_eq!(changes(&[], &before).len(), 4);
    assert_eq!(changes(&after, &after).len(), 0);
}

#[test]
fn a_wait_ends_when_all_is_done_or_a_person_is_needed() {
    use ClusterPhase::{Blocked, Failed, Pending, Synced, Syncing, Unreachable};
    #[rustfmt::skip]
    let cases = [
        ("all have it", "Synced", Synced, "done"),
        ("under way", "RollingOut", Syncing, "going"),
        ("one has failed", "ClustersFailed", Failed, "1 cluster failed: `clusters/m1`: why m1"),
        ("one tries again", "ClustersFailed", Syncing, "going"),
        ("one is blocked", "ClustersBlocked", Blocked, "1 cluster blocked: `clusters/m1`: why m1"),
        ("one is away", "RollingOut", Unreachable, "going"),
        ("paused, but one is in flight", "Paused", Syncing, "going"),
        ("paused, and none is in flight", "Paused", Pending, "the rollout is paused: a sentence"),
        ("halted, but one is in flight", "Halted", Syncing, "going"),
        ("halted, and none is in flight", "Halted", Pending, "a sentence"),
        ("no cluster can be the canary", "NoCanary", Pending, "the rollout waits for a canary: a sentence"),
        ("the canary may be back", "WaitingForCanary", Unreachable, "going"),
        ("it was rolled back", "RolledBack", Synced, "a sentence"),
        ("the source is not valid", "Held", Synced, "a sentence"),
        ("the hub may not read a namespace", "NamespaceForbidden", Failed, "a sentence"),
        ("the hub does not trust its namespace", "NamespaceNotTrusted", Failed, "a sentence"),
        ("the hub does not keep its revisions", "TooLarge", Synced, "a sentence"),
    ];
    for (sentence, reason, phase, expected) in cases {
        let objects = [object("m1", phase, 3)];
        let all = [FleetStatus::of(&fleet(reason, 3), &objects, &[])];
        let found = match verdict(&all, FleetGoal::Synced, now()) {
            Verdict::Done => "done".to_owned(),
            Verdict::Going => "going".to_owned(),
            Verdict::Stuck { reason, hint } => {
                assert!(!hint.is_empty());
                reason
            }
        };
        assert_eq!(found, expected, "{sentence}");
    }
    assert_eq!(verdict(&[], FleetGoal::Removed, now()), Verdict::Done);
    let all = [FleetStatus::of(&fleet("Removing", 3), [], &[])];
    assert_eq!(verdict(&all, FleetGoal::Removed, now()), Verdict::Going);
}

#[test]
fn a_wait_for_a_removal_ends_when_a_person_is_needed() {
    use ClusterPhase::{Blocked, Pending, Removed, Removing, Synced, Unreachable};
    let title = "FleetPullSecret `clusters/team-a` is being deleted, and";
    let paused = format!("{title} its rollout is paused: the Secret stays in 1 cluster");
    let blocked =
        format!("{title} the Secret can't be removed from 1 cluster: `clusters/m1`: why m1");
    #[rustfmt::skip]
    let cases = [
        ("it waits for its turn", false, &[(Synced, false)][..], None),
        ("paused", true, &[(Synced, false)], Some(&paused)),
        ("paused, and away", true, &[(Unreachable, false)], Some(&paused)),
        ("paused, but under way", true, &[(Removing, true), (Synced, false)], None),
        ("paused, and blocked", true, &[(Blocked, true)], Some(&paused)),
        ("blocked", false, &[(Blocked, true)], Some(&blocked)),
        ("blocked before the removal", false, &[(Blocked, false)], None),
        ("and another one waits", false, &[(Blocked, true), (Synced, false)], None),
        ("and another one is away", false, &[(Blocked, true), (Unreachable, false)], Some(&blocked)),
        ("only away", false, &[(Unreachable, true)], None),
        ("paused, and another one is done", true, &[(Removed, true), (Synced, false)], Some(&paused)),
        ("blocked, and another one is done", false, &[(Blocked, true), (Removed, true)], Some(&blocked)),
        ("paused, and done", true, &[(Removed, true)], None),
    ];
    for (sentence, is_paused, rows, expected) in cases {
        let mut deleted = fleet("Removing", 3);
        deleted.metadata.deletion_timestamp = Some(Time(now()));
        deleted.spec.rollout.paused = is_paused;
        let objects = rows.iter().enumerate().map(|(at, (phase, remove))| {
            let mut object = object(&format!("m{}", at + 1), *phase, 3);
            object.spec.remove = *remove;
            object
        });
        let objects: Vec<ClusterPullSecret> = objects.collect();
        let found = |fleet: &FleetPullSecret| {
            let all = [FleetStatus::of(fleet, &objects, &[])];
            let found = verdict(&all, FleetGoal::Removed, now());
            match found {
                Verdict::Stuck { reason, hint } => {
                    let verb = if is_paused { "resume" } else { "retry" };
                    assert!(hint.contains(&format!("fleet {verb} team-a")), "{hint}");
                    let advised = Some((reason.clone(), hint));
                    assert_eq!(advice(&all[0]), advised, "{sentence}");
                    Some(reason)
                }
                Verdict::Going => None,
                Verdict::Done => Some("done".to_owned()),
            }
        };
        assert_eq!(found(&deleted).as_ref(), expected, "{sentence}");
        deleted.spec.deletion_policy = DeletionPolicy::Orphan;
        assert_eq!(found(&deleted), None, "{sentence}: it stays there");
    }
    let mut deleted = fleet("Removing", 3);
    deleted.metadata.deletion_timestamp = Some(Time(now()));
    deleted.spec.rollout.paused = true;
    let mut nothing = object("m1", Pending, 0);
    nothing.spec.revision = 0;
    let all = [FleetStatus::of(&deleted, [&nothing], &[])];
    assert_eq!(verdict(&all, FleetGoal::Removed, now()), Verdict::Going);
}

#[test]
fn a_wait_ends_once_the_hub_has_found_no_clusters() {
    let mut empty = fleet("NoClusters", 3);
    empty.status.as_mut().expect("one").counts = Counts::default();
    let created: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    let soon = created + jiff::SignedDuration::from_secs(5);
    let objects = [object("m1", ClusterPhase::Synced, 2)];
    for (sentence, objects, now, is_stuck) in [
        ("just created", &[][..], soon, false),
        ("none is selected", &[], now(), true),
        ("the hub has not looked", &objects, now(), false),
    ] {
        let all = [FleetStatus::of(&empty, objects, &[])];
        let found = verdict(&all, FleetGoal::Synced, now);
        assert_eq!(
            matches!(found, Verdict::Stuck { .. }),
            is_stuck,
            "{sentence}"
        );
    }
}

#[test]
fn a_cluster_that_was_asked_to_try_again_ends_no_wait() {
    let mut failed = object("m1", ClusterPhase::Failed, 2);
    let annotations = failed.annotations_mut();
    annotations.insert(names::RETRY_ANNOTATION.to_owned(), "now".to_owned());
    let going = [FleetStatus::of(&fleet("ClustersFailed", 3), [&failed], &[])];
    assert_eq!(verdict(&going, FleetGoal::Synced, now()), Verdict::Going);
    failed.spec.retry = "now".to_owned();
    let stuck = [FleetStatus::of(&fleet("ClustersFailed", 3), [&failed], &[])];
    assert!(matches!(
        verdict(&stuck, FleetGoal::Synced, now()),
        Verdict::Stuck { .. }
    ));
}

#[test]
fn advice_names_what_to_do_next() {
    let objects = mixed();
    let failed = FleetStatus::of(&fleet("ClustersFailed", 3), &objects, &[]);
    assert_eq!(
        headline(&failed),
        "revision 3  1/4 clusters synced  1 failed"
    );
    let (message, hint) = advice(&failed).expect("advice");
    assert_eq!(message, "1 cluster failed: `clusters/m3`: why m3");
    assert_eq!(
        hint,
        "in that cluster `kubectl globalps check` names the cause; try it and its nodes again with `kubectl globalps fleet retry team-a -n clusters`, or go back with `kubectl globalps fleet undo team-a -n clusters`"
    );
    let mut away = fleet("Synced", 3);
    away.status.as_mut().expect("one").counts.unreachable = 1;
    let objects = [object("m1", ClusterPhase::Unreachable, 2)];
    let (message, _) = advice(&FleetStatus::of(&away, &objects, &[])).expect("advice");
    assert_eq!(message, "1 cluster unreachable: `clusters/m1`: why m1");
    let ready = FleetStatus::of(&fleet("Synced", 3), [], &[]);
    assert_eq!(advice(&ready), None);
}

#[test]
fn a_cluster_has_these_fields_in_json_in_this_order() {
    let status = FleetStatus::of(&fleet("Synced", 3), &mixed(), &["m1".to_owned()]);
    assert_eq!(
        serde_json::to_string(&status.clusters[0]).expect("JSON"),
        r#"{"name":"clusters/m1","fleet":"clusters/team-a","phase":"Synced","revision":3,"reason":"","message":"","nodes":{"total":2,"synced":1},"since":"2026-01-01T00:00:00Z"}"#
    );
}

#[test]
fn a_phase_has_its_color_its_place_and_its_count() {
    use ClusterPhase::{
        Blocked, Failed, Other, Pending, Removed, Removing, Synced, Syncing, Unreachable,
    };
    let (red, green, yellow) = (Some(Color::Red), Some(Color::Green), Some(Color::Yellow));
    let cases = [
        (Synced, green),
        (Removed, green),
        (Pending, None),
        (Other, None),
        (Syncing, yellow),
        (Removing, yellow),
        (Unreachable, Some(Color::Magenta)),
        (Blocked, red),
        (Failed, red),
    ];
    let row = |phase| ClusterRow {
        name: "m".to_owned(),
        phase,
        ..ClusterRow::default()
    };
    let mut status = FleetStatus::of(&fleet("RollingOut", 3), [], &[]);
    let colored = Layout {
        color: true,
        no_headers: true,
        ..Layout::default()
    };
    for (phase, color) in cases {
        status.clusters = vec![row(phase)];
        let cell = columns(&["PHASE"], &[vec![phase.to_string()]], None, |_, _| color);
        let (_, cell) = cell.split_once('\n').expect("a header and a row");
        let text = render(&status, now(), colored, None);
        let is_painted = text.contains('\x1b');
        assert!(text.contains(cell), "{phase}: {text:?}");
        assert_eq!(is_painted, color.is_some(), "{phase}: {text:?}");
    }
    status.clusters = cases.map(|(phase, _)| row(phase)).into();
    status.fleet.counts = count(&status.clusters);
    status.fleet.paused = true;
    let low = Layout {
        height: Some(5),
        ..Layout::default()
    };
    assert_eq!(
        render(&status, now(), low, None),
        "\
revision 3  1/9 clusters synced  1 failed  1 blocked  1 unreachable  paused
CLUSTER   PHASE    REVISION   NODES   AGE   REASON
m         Failed   0
... and 8 more: 1 Blocked, 1 Unreachable, 1 Other, 1 Removing, 1 Syncing, 1 Pending, 1 Removed, 1 Synced
"
    );
    let Counts {
        progressing,
        unsupported,
        ..
    } = status.fleet.counts;
    assert_eq!((progressing, unsupported), (3, 0));
}
