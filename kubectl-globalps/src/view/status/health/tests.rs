use super::*;
use crate::cluster::installed::{LeaseSeen, Workload};
use serde_json::json;

fn workload(wanted: i32, ready: i32) -> Sight<Workload> {
    Sight::Here(Workload {
        wanted,
        ready,
        image: "image:1".to_owned(),
        ours: true,
    })
}

fn lease(holder: &str, renewed: &str) -> Sight<LeaseSeen> {
    Sight::Here(LeaseSeen {
        holder: holder.to_owned(),
        renewed: renewed.parse().ok(),
        seconds: 15,
    })
}

fn running() -> Installed {
    Installed {
        crds: Sight::Here(()),
        controller: workload(2, 2),
        stopped: None,
        start: None,
        lease: lease("pod-a", "2026-01-01T00:09:55Z"),
        syncer: workload(3, 3),
        pod_errors: Vec::new(),
        nodes_not_ready: 0,
        needs_syncers: false,
    }
}

#[test]
fn one_line_each_with_a_reason_where_something_does_not_run() {
    type Case = (fn(&mut Installed), &'static str, &'static str);
    const WELL: [&str; 2] = [
        "Controller   running, 2/2 replicas, leader pod-a",
        "Syncers      3/3 ready",
    ];
    let now = "2026-01-01T00:10:00Z".parse().expect("a time");
    let cases: [Case; 11] = [
        (|_| {}, WELL[0], WELL[1]),
        (
            |seen| {
                seen.controller = workload(2, 1);
                seen.lease = Sight::Hidden;
            },
            "Controller   running, 1/2 replicas",
            WELL[1],
        ),
        (
            |seen| {
                seen.controller = workload(0, 0);
                seen.stopped = Some("Deployment `d` has 0 replicas".to_owned());
            },
            "Controller   not running: Deployment `d` has 0 replicas",
            WELL[1],
        ),
        (
            |seen| seen.controller = workload(2, 0),
            "Controller   not running: 0 of 2 pods are ready",
            WELL[1],
        ),
        (
            |seen| seen.lease = lease("pod-a", "2026-01-01T00:08:00Z"),
            "Controller   not running: no pod leads: its Lease is not renewed",
            WELL[1],
        ),
        (
            |seen| seen.lease = lease("", "2026-01-01T00:09:55Z"),
            "Controller   not running: no pod leads: its Lease is not renewed",
            WELL[1],
        ),
        (
            |seen| {
                seen.controller = Sight::Hidden;
                seen.syncer = Sight::Hidden;
            },
            "Controller   unknown: this user may not get its Deployment",
            "Syncers      unknown: this user may not get their DaemonSet",
        ),
        (
            |seen| {
                seen.controller = Sight::Absent;
                seen.stopped = Some("Deployment `d` does not exist".to_owned());
                seen.syncer = Sight::Absent;
            },
            "Controller   not running: Deployment `d` does not exist",
            "Syncers      none: there is nothing to sync to nodes",
        ),
        (
            |seen| {
                seen.syncer = Sight::Absent;
                seen.needs_syncers = true;
            },
            WELL[0],
            "Syncers      0/0 ready: DaemonSet `global-pull-secret-syncer` does not exist",
        ),
        (
            |seen| seen.syncer = workload(3, 2),
            WELL[0],
            "Syncers      2/3 ready: the others are starting",
        ),
        (
            |seen| {
                seen.syncer = workload(3, 2);
                seen.pod_errors = vec![PodError::NotRunning {
                    daemon_set: "d".to_owned(),
                    reason: "CrashLoopBackOff".to_owned(),
                    nodes: vec!["node-1".to_owned()],
                }];
            },
            WELL[0],
            "Syncers      2/3 ready: pods of DaemonSet `d` don't run: CrashLoopBackOff on node-1",
        ),
    ];
    for (change, controller, syncers) in cases {
        let mut seen = running();
        change(&mut seen);
        let health = Health::of(&seen, now);
        assert_eq!(health.lines(true), [controller, syncers]);
        let has_reason = [controller, syncers]
            .iter()
            .any(|line| line.contains("not running") || line.contains(" ready:"));
        assert_eq!(health.is_well(), !has_reason, "{controller} {syncers}");
    }
    assert_eq!(
        json!(Health::of(&running(), now)),
        json!({
            "controller": {"state": "Healthy", "ready": 2, "replicas": 2, "leader": "pod-a", "message": ""},
            "syncers": {"state": "Healthy", "ready": 3, "desired": 3, "message": ""},
        })
    );
}

/// Pods that are not ready yet are no reason to fail a script.
#[test]
fn what_was_deleted_changes_nothing_any_more() {
    type Case = (fn(&mut Installed), Option<&'static str>);
    let cases: [Case; 5] = [
        (|_| {}, None),
        (|seen| seen.controller = workload(2, 0), None),
        (|seen| seen.controller = Sight::Hidden, None),
        (
            |seen| {
                seen.controller = workload(0, 0);
                seen.stopped = Some("Deployment `d` has 0 replicas".to_owned());
            },
            Some("Deployment `d` has 0 replicas"),
        ),
        (
            |seen| {
                seen.syncer = Sight::Absent;
                seen.needs_syncers = true;
            },
            Some("DaemonSet `global-pull-secret-syncer` does not exist"),
        ),
    ];
    let now = "2026-01-01T00:10:00Z".parse().expect("a time");
    for (change, expected) in cases {
        let mut seen = running();
        change(&mut seen);
        let health = Health::of(&seen, now);
        assert_eq!(health.is_gone().map(|(why, _)| why), expected);
    }
}

#[test]
fn the_leader_is_shown_on_request() {
    let now = "2026-01-01T00:10:00Z".parse().expect("a time");
    let short = Health::of(&running(), now).lines(false);
    assert_eq!(short[0], "Controller   running, 2/2 replicas");
}

#[test]
fn a_syncer_of_a_node_that_is_not_ready_is_not_starting() {
    for (ready, nodes_not_ready, expected) in [
        (2, 1, "2/3 ready: 1 node is not Ready"),
        (
            0,
            2,
            "0/3 ready: 2 nodes are not Ready, the others are starting",
        ),
        // Its pod is not known to be lost yet.
        (3, 1, "3/3 ready"),
    ] {
        let seen = Installed {
            syncer: workload(3, ready),
            nodes_not_ready,
            ..running()
        };
        let line = syncers(&seen).line();
        assert_eq!(line, format!("Syncers      {expected}"));
    }
}
