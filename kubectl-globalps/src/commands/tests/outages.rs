//! `--watch` and `--wait` while the login or the connection changes.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::Parser as _;
use futures::StreamExt as _;
use globalps_core::names;
use serde_json::{Value, json};

use super::{AUTH, act, refused, rolled_out, secret};
use crate::cli::Cli;
use crate::cluster::client::Cluster;
use crate::cluster::facts::{Facts, Lost, NodeFacts, Signal};
use crate::cluster::runtime::block_on;
use crate::error::{Exit, Result};
use crate::terminal::printer::Printer;
use crate::testing::fake_api::{CommandLine as _, FakeApi, Fault, Objects, failure, path, run};

/// Runs the plugin with a login program that prints the file `credential`, and fails if the file is missing.
fn with_program(api: &FakeApi, directory: &Path, line: &str) -> Result<Exit> {
    let script = "#!/bin/sh\nexec cat \"$(dirname \"$0\")/credential\" 2> /dev/null\n";
    let program = directory.join("login");
    fs::write(&program, script).expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).expect("executable");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": api.address()}}],
        "users": [{"name": "u", "user": {"exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "command": program, "interactiveMode": "Never",
        }}}],
    });
    let kubeconfig = directory.join("config");
    fs::write(&kubeconfig, config.to_string()).expect("written");
    let kubeconfig = kubeconfig.display().to_string();
    run(line.split_whitespace().chain(["--kubeconfig", &kubeconfig]))
}

fn credential(token: &str) -> String {
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "status": {"token": token},
    });
    credential.to_string()
}

#[test]
fn a_login_that_expires_in_a_wait_is_renewed_or_named_soon() {
    let line = "status --wait --timeout 30s";
    for (next, expected) in [
        (Some("two"), None),
        (Some("one"), Some("the API server rejected your login")),
        (
            None,
            Some("the login program of the kubeconfig failed (exit status: 1)"),
        ),
    ] {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("credential");
        fs::write(&file, credential("one")).expect("written");
        let renew = move || match next {
            Some(token) => fs::write(&file, credential(token)),
            None => fs::remove_file(&file),
        };
        let mut token = "Bearer one";
        let api = rolled_out()
            .with_controller(act)
            .with_rule(move |request, _| {
                let given = request.headers.get("authorization");
                if given.is_none_or(|given| given != token) {
                    return Some(failure(401, "Unauthorized", "Unauthorized"));
                }
                if request.is_watch() && token == "Bearer one" {
                    token = "Bearer two";
                    renew().expect("a new credential");
                }
                None
            });
        let start = Instant::now();
        let ran = with_program(&api, directory.path(), line);
        match expected {
            None => assert_eq!(ran, Ok(Exit::Done)),
            Some(expected) => {
                let failure = refused(ran);
                assert!(failure.message.ends_with(expected), "{failure:?}");
                assert_eq!(failure.exit, Exit::Failed);
            }
        }
        assert!(start.elapsed() < Duration::from_secs(15), "{next:?}");
    }
}

#[test]
fn a_wait_outlasts_an_outage_and_names_one_that_lasts() {
    let line = "status --wait --timeout 30s";
    let ends = |fault| {
        let api = rolled_out()
            .with_controller(act)
            .with_fault("watch ", fault, 7);
        let ran = api.run(&format!("{line} --request-timeout 1s"));
        assert_eq!(ran, Ok(Exit::Done), "{fault:?}");
    };
    let lasts = |fault, expected: &str| {
        let api = rolled_out().with_fault("watch", fault, usize::MAX);
        let failure = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !api.requests().iter().any(|it| it.starts_with("watch ")) {
                    std::thread::sleep(Duration::from_millis(10));
                }
                api.fail("list", fault);
            });
            refused(api.run("status --wait --timeout 8s --request-timeout 1s"))
        });
        let begin = "not done within 8 s: the cluster can't be reached since ";
        assert!(failure.message.starts_with(begin), "{failure:?}");
        assert!(failure.message.contains(expected), "{failure:?}");
        assert_eq!(failure.exit, Exit::Failed);
    };
    let rejects = |code| {
        let start = Instant::now();
        let api = rolled_out().with_fault("watch ", Fault::Code(code), usize::MAX);
        let failure = refused(api.run(line));
        assert!(failure.is(code), "{failure:?}");
        assert!(start.elapsed() < Duration::from_secs(5), "{code}");
    };
    // Each takes seconds.
    std::thread::scope(|scope| {
        for fault in [Fault::Code(500), Fault::Code(410), Fault::Silence] {
            scope.spawn(move || ends(fault));
        }
        for (fault, expected) in [(Fault::Code(500), "broken"), (Fault::Silence, "within 1 s")] {
            scope.spawn(move || lasts(fault, expected));
        }
        for code in [401, 403] {
            scope.spawn(move || rejects(code));
        }
    });
}

const FIRST_LOOK: &str = "list /apis/globalps.io/v1alpha1/namespaces/kube-system/nodepullsecrets";

/// After this many failed attempts, the outage is reported.
fn outlasts(line: &str, fault: Fault, times: usize) {
    let api = rolled_out().with_controller(act);
    let api = api.with_fault(FIRST_LOOK, fault, times);
    let (ran, [_, err]) = api.printed(&format!("{line} --request-timeout 1s"));
    assert_eq!(ran, Ok(Exit::Done), "{line} {fault:?}");
    for part in [
        "the cluster can't be reached since ",
        "the cluster can be reached again",
    ] {
        assert_eq!(err.matches(part).count(), 1, "{line} {fault:?}: {err}");
    }
}

/// The command ends at the deadline, or at once if only a user can help.
fn ends(line: &str) {
    let api = rolled_out().with_fault(FIRST_LOOK, Fault::Code(500), usize::MAX);
    let start = Instant::now();
    let failure = refused(api.run(&line.replace("30s", "4s")));
    let begin = "not done within 4 s: the cluster can't be reached since ";
    assert!(failure.message.starts_with(begin), "{line}: {failure:?}");
    assert_eq!(failure.exit, Exit::Failed);
    assert!(start.elapsed() < Duration::from_secs(10), "{line}");
    for code in [401, 403] {
        let api = rolled_out().with_fault(FIRST_LOOK, Fault::Code(code), usize::MAX);
        let start = Instant::now();
        let failure = refused(api.run(line));
        assert!(failure.is(code), "{line}: {failure:?}");
        assert!(start.elapsed() < Duration::from_secs(5), "{line} {code}");
    }
}

#[test]
fn the_first_look_of_a_wait_outlasts_an_outage_too() {
    let fleets = format!("/apis/{}/{}/namespaces", names::GROUP, names::VERSION);
    let fleet = format!("{fleets}/kube-system/fleetpullsecrets/team-a");
    let object = json!({
        "metadata": {"generation": 1}, "spec": {"secretRef": {"name": "team-a"}},
        "status": {"observedGeneration": 1, "conditions": [{
            "type": "Ready", "status": "True", "reason": "Synced", "message": "", "lastTransitionTime": SINCE,
        }]},
    });
    let waits = [
        "status --wait --timeout 30s",
        "remove quay.io --yes --wait --timeout 30s",
        "add docker.io -u robot -p t --skip-check --wait --timeout 30s",
    ];
    std::thread::scope(|scope| {
        for line in waits {
            scope.spawn(|| outlasts(line, Fault::Code(500), 4));
            scope.spawn(|| outlasts(line, Fault::Silence, 3));
            scope.spawn(|| ends(line));
        }
        let api = FakeApi::new(&[(&fleet, object)]).with_fault(
            "get /apis/globalps.io/v1alpha1/namespaces/kube-system/fleetpullsecrets",
            Fault::Code(500),
            3,
        );
        let ran = api.run("fleet status team-a -n kube-system --wait --timeout 30s");
        assert_eq!(ran, Ok(Exit::Done));
    });
    // A watch has no deadline, so it reports an initial failure at once.
    let api = rolled_out().with_fault(FIRST_LOOK, Fault::Code(500), usize::MAX);
    let failure = refused(api.run("status --watch"));
    assert!(failure.is(500), "{failure:?}");
}

const SINCE: &str = "2026-01-01T00:00:00Z";

fn lose(objects: &mut Objects) {
    let node = |name: &str, status: Value, version: &str| {
        json!({
            "metadata": {"name": name, "resourceVersion": version, "labels": {names::EXCLUDE_LABEL: "true"}},
            "status": {"conditions": [{"type": "Ready", "status": status, "lastTransitionTime": SINCE}]},
        })
    };
    objects.insert(path("nodes", "new"), node("new", json!("True"), "201"));
    objects.insert(
        path("nodes", "node-1"),
        node("node-1", json!("Unknown"), "202"),
    );
    objects.remove(&path("nodes", "gone"));
}

#[test]
fn a_watch_of_nodes_has_whole_nodes_only_if_not_ready() {
    let api = FakeApi::new(&[
        (&path("nodes", "node-1"), json!({"metadata": {}})),
        (&path("nodes", "node-2"), json!({"metadata": {}})),
        (&path("nodes", "gone"), json!({"metadata": {}})),
    ]);
    let api = api.with_controller(lose);
    let server = api.address();
    let words = [
        "kubectl-globalps",
        "version",
        "--kubeconfig",
        "/dev/null",
        "-s",
        &server,
    ];
    let flags = Cli::try_parse_from(words).expect("flags").connection;
    let printer = Printer::silent();
    let facts = block_on(async {
        let cluster = Cluster::connect(&flags, &printer)?;
        let mut facts = Facts::observe(&cluster).await?;
        let mut nodes = facts.nodes.clone().unwrap_or_default();
        let mut signals = facts.watch_nodes(&cluster).expect("visible nodes");
        let is_lost = |node: &NodeFacts| node.not_ready.is_some();
        while !nodes.get("node-1").is_some_and(is_lost) {
            match signals.next().await {
                Some(Signal::Changed(update)) => nodes.update(update),
                Some(Signal::Lost(failure)) => return Err(failure),
                None => break,
            }
        }
        drop(signals);
        facts.nodes = Some(nodes);
        Ok(facts)
    });
    let nodes = facts.ok().and_then(|facts| facts.nodes).unwrap_or_default();
    let lost = Some((SINCE.parse().expect("a time"), Lost::Yes));
    let found: Vec<_> = nodes
        .iter()
        .map(|(name, facts)| (name.as_str(), facts.excluded, facts.not_ready))
        .collect();
    let expected = [
        ("new", true, None),
        ("node-1", true, lost),
        ("node-2", false, None),
    ];
    assert_eq!(found, expected);
    let requests = api.requests();
    let of_nodes: Vec<&str> = requests
        .iter()
        .map(String::as_str)
        .filter(|request| request.contains("/nodes"))
        .collect();
    let listed = "list /api/v1/nodes as a table";
    let watched = "watch /api/v1/nodes as a table";
    // All nodes, and nodes with each label that excludes a node or marks a virtual one.
    let mut expected = vec![listed; 7];
    expected.extend([watched, "list /api/v1/nodes"]);
    assert_eq!(of_nodes, expected);
}

#[test]
fn a_wait_for_clusters_ends_with_a_reason_where_no_hub_runs() {
    let fleets = format!("/apis/{}/{}/namespaces", names::GROUP, names::VERSION);
    let fleet = format!("{fleets}/kube-system/fleetpullsecrets/team-a");
    let object = json!({
        "apiVersion": "globalps.io/v1alpha1", "kind": "FleetPullSecret",
        "metadata": {"namespace": "kube-system", "generation": 1},
        "spec": {"secretRef": {"name": "team-a"}},
    });
    let api = FakeApi::new(&[(&fleet, object.clone())]);
    let source = path("secrets", "team-a");
    let mut reported = object;
    reported["status"] = json!({
        "observedGeneration": 1, "observedSecret": "101", "revision": 1, "conditions": [{
            "type": "Ready", "status": "True", "reason": "Synced", "message": "", "lastTransitionTime": SINCE,
        }],
    });
    let stale = || {
        FakeApi::new(&[
            (&source, secret(&[("quay.io", AUTH)])),
            (&fleet, reported.clone()),
        ])
    };
    let status = "fleet status team-a -n kube-system --wait --timeout 30s";
    assert_eq!(stale().run(status), Ok(Exit::Done), "it has this version");
    let changed = stale().with_object(&source, secret(&[("ghcr.io", AUTH)]));
    let failure = refused(changed.run(status));
    assert!(
        failure.message.starts_with("the hub is not running"),
        "{failure:?}"
    );
    let add = "fleet add team-a -n kube-system --registry quay.io -u robot -p p --skip-check --wait --timeout 30s";
    let failure = refused(stale().run(add));
    assert!(
        failure.message.starts_with("the hub is not running"),
        "{failure:?}"
    );
    let start = Instant::now();
    let failure = refused(api.run("fleet status team-a -n kube-system --wait --timeout 30s"));
    let expected =
        "the hub is not running: Deployment `globalps-system/globalps-hub` does not exist";
    assert_eq!(failure.message, expected);
    assert_eq!(failure.exit, Exit::No);
    assert!(start.elapsed() < Duration::from_secs(5));
}
