//! `bundle`, against a fake API server.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read as _;
use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flate2::read::GzDecoder;
use globalps_core::names;
use serde_json::{Value, json};

use super::super::bundle::run_within;
use super::{config, deployment, gps, in_force, kept, node, refused, right, secret};
use crate::cli::{Cli, Command, Span};
use crate::cluster::runtime::block_on;
use crate::diagnose::check::permissions_of_commands;
use crate::error::Exit;
use crate::terminal::printer::Printer;
use crate::testing::fake_api::{CommandLine as _, FakeApi, Fault, path};

const PASSWORD: &str = "bundle-s3cret";

/// Everything that a bundle reads. `event`: its message.
fn cluster(event: &str) -> FakeApi {
    let auth = BASE64_STANDARD.encode(format!("robot:{PASSWORD}"));
    let mut additional = secret(&[("quay.io", &auth)]);
    additional["metadata"] = json!({
        "namespace": "kube-system",
        "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": config(&[("quay.io", &auth)]).to_string(),
            "note": PASSWORD,
        },
    });
    let involved =
        json!({"apiVersion": "globalps.io/v1alpha1", "kind": "NodePullSecret", "name": "node-1"});
    let pod = json!({
        "metadata": {"namespace": "kube-system", "annotations": {"note": PASSWORD}},
        "spec": {"containers": [
            {"name": "syncer", "image": "r/s:1", "env": [{"name": "A", "value": PASSWORD}]},
            {"name": "sidecar", "image": "other", "args": [PASSWORD]},
        ]},
        "status": {"containerStatuses": [{"name": "syncer", "ready": true, "restartCount": 1}]},
    });
    let pods = "/api/v1/namespaces/kube-system/pods/global-pull-secret-syncer-a";
    let objects = [
        (path("secrets", names::ADDITIONAL_SECRET), additional),
        (
            path("secrets", names::GLOBAL_SECRET),
            in_force(&[("quay.io", &auth)], &[]),
        ),
        (
            path("secrets", names::ROLLED_OUT_SECRET),
            kept("2", &[("quay.io", &auth)]),
        ),
        (
            path("globalpullsecrets", names::GLOBAL_SECRET),
            gps("101", &json!({}), &[("Ready", "True", "Synced")]),
        ),
        (path("nodepullsecrets", "node-1"), node("Synced")),
        (
            path("nodes", "node-1"),
            json!({"metadata": {}, "status": {"nodeInfo": {"kubeletVersion": "v1.34.0"}}}),
        ),
        (
            path("deployments", names::CONTROLLER),
            deployment(names::NAMESPACE, 1, 1),
        ),
        (pods.to_owned(), pod),
        (
            format!("{pods}/log"),
            json!({"level": "INFO", "message": "delivered"}),
        ),
        (
            "/api/v1/namespaces/kube-system/events/e".to_owned(),
            json!({"metadata": {}, "involvedObject": involved, "reason": "Synced", "message": event}),
        ),
    ];
    let objects: Vec<(&str, Value)> = objects
        .iter()
        .map(|(path, object)| (path.as_str(), object.clone()))
        .collect();
    FakeApi::new(&objects)
}

/// The files of an archive by path, relative to its top-level directory.
fn files(archive: &Path) -> BTreeMap<String, String> {
    let packed = std::fs::File::open(archive).expect("an archive");
    let mut archive = tar::Archive::new(GzDecoder::new(packed));
    let entries = archive.entries().expect("entries").map(|entry| {
        let mut entry = entry.expect("an entry");
        let path = entry.path().expect("a path").display().to_string();
        assert_eq!(entry.header().mode().expect("a mode"), 0o600, "{path}");
        let mut text = String::new();
        entry.read_to_string(&mut text).expect("text");
        let (_, path) = path.split_once('/').expect("a directory");
        (path.to_owned(), text)
    });
    entries.collect()
}

fn missing(files: &BTreeMap<String, String>) -> Vec<String> {
    let manifest: Value = serde_json::from_str(&files["manifest.json"]).expect("JSON");
    let listed = manifest["files"].as_array().expect("a list").len();
    assert_eq!(listed + 1, files.len(), "{manifest}");
    let missing = manifest["missing"].as_array().expect("a list").iter();
    missing
        .map(|it| format!("{}: {}", it["what"], it["reason"]).replace('"', ""))
        .collect()
}

fn shows_no_credential(files: &BTreeMap<String, String>) {
    let auth = BASE64_STANDARD.encode(format!("robot:{PASSWORD}"));
    for (path, text) in files {
        for shown in [
            PASSWORD,
            auth.trim_end_matches('='),
            "last-applied",
            "sidecar.log",
        ] {
            assert!(
                !text.contains(shown) && !path.contains(shown),
                "{path}: {text}"
            );
        }
    }
}

#[test]
fn a_bundle_has_what_helps_and_no_credential() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("b.tar.gz");
    let api = cluster("delivered");
    let line = format!("bundle --file {}", file.display());
    assert_eq!(api.run(&line), Ok(Exit::Done));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = file.metadata().expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let files = files(&file);
    let paths: Vec<&str> = files.keys().map(String::as_str).collect();
    let expected = [
        "check.json",
        "check.txt",
        "events.json",
        "logs/kube-system/global-pull-secret-syncer-a/syncer.log",
        "logs/kube-system/global-pull-secret-syncer-a/syncer.previous.log",
        "manifest.json",
        "nodes.json",
        "objects/daemonsets.json",
        "objects/deployments.json",
        "objects/globalpullsecrets.json",
        "objects/nodepullsecrets.json",
        "objects/pods.json",
        "objects/secrets.json",
        "status.json",
        "status.txt",
        "versions.json",
    ];
    assert_eq!(paths, expected);
    assert_eq!(missing(&files), [""; 0]);
    shows_no_credential(&files);
    let secrets: Value = serde_json::from_str(&files["objects/secrets.json"]).expect("JSON");
    assert_eq!(secrets.as_array().map(Vec::len), Some(3), "{secrets}");
    assert!(
        secrets[0]["sizes"][names::DATA_KEY].as_u64() > Some(20),
        "{secrets}"
    );
    assert!(files["nodes.json"].contains("v1.34.0"));
    assert!(
        api.writes().iter().all(|it| it.ends_with("reviews")),
        "{:?}",
        api.writes()
    );
}

#[test]
fn a_file_with_a_credential_is_omitted() {
    let auth = BASE64_STANDARD.encode(format!("robot:{PASSWORD}"));
    for event in [
        format!("wrong password {PASSWORD}"),
        format!("Basic {auth}"),
    ] {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("b.tar.gz");
        let ran = cluster(&event).run(&format!("bundle --file {}", file.display()));
        assert_eq!(ran, Ok(Exit::No), "{event}");
        let files = files(&file);
        shows_no_credential(&files);
        assert!(!files.contains_key("events.json"));
        let expected = "events.json: it contains a credential of a Secret";
        assert_eq!(missing(&files), [expected]);
    }
}

#[test]
fn what_may_not_be_read_is_missing_and_no_error() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("b.tar.gz");
    let line = format!("bundle --force --file {}", file.display());
    let all = permissions_of_commands(2);
    let of_bundle: Vec<_> = all.iter().filter(|it| it.is_for("bundle")).collect();
    assert!(of_bundle.len() > 15, "{of_bundle:?}");
    let run = |rights: Vec<_>| {
        let ran = cluster("delivered").allow_only(rights).run(&line);
        assert_eq!(ran, Ok(Exit::Done));
        let files = files(&file);
        shows_no_credential(&files);
        (missing(&files), files)
    };
    let (nothing, _) = run(of_bundle.iter().map(|it| right(it)).collect());
    // Only `check` and `status` need further permissions.
    let others = |it: &&String| !it.starts_with("check: ") && !it.starts_with("status: ");
    assert_eq!(nothing.iter().filter(others).count(), 0, "{nothing:?}");
    for permission in &of_bundle {
        let rights = of_bundle.iter().filter(|it| *it != permission);
        let rights = rights.map(|it| right(it));
        let (missing, _) = run(rights.collect());
        let (resource, _) = permission
            .resource
            .split_once('/')
            .unwrap_or((permission.resource, ""));
        let is_named = |it: &String| it.contains("not allowed to") && it.contains(resource);
        let has_none = permission.resource == "pods/log"
            && permission.place == crate::diagnose::check::PermissionScope::Controller;
        assert!(
            has_none || missing.iter().any(is_named),
            "{permission:?}: {missing:?}"
        );
    }
    let (missing, files) = run(Vec::new());
    assert!(missing.len() > 10, "{missing:?}");
    assert!(files.contains_key("versions.json"));
}

#[test]
fn a_log_that_never_ends_is_missing_at_the_time_limit() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("b.tar.gz");
    let logs = "get /api/v1/namespaces/kube-system/pods/global-pull-secret-syncer-a/log";
    let api = cluster("delivered").with_fault(logs, Fault::Silence, usize::MAX);
    let (server, path) = (api.address(), file.display().to_string());
    let flags = ["--kubeconfig", "/dev/null", "--server", &server];
    let words = ["kubectl-globalps", "bundle", "--request-timeout=0"];
    let words = words.into_iter().chain(["--file", &path]).chain(flags);
    let cli = Cli::of(words.map(OsString::from)).expect("flags");
    let Command::Bundle(args) = &cli.command else {
        unreachable!("another command");
    };
    let start = Instant::now();
    let limit = Span(Duration::from_secs(3));
    let printer = Printer::capturing();
    let ran = block_on(run_within(args, &cli.connection, &printer, limit));
    assert_eq!(ran, Ok(Exit::Done));
    assert!(start.elapsed() < Duration::from_secs(20));
    let files = files(&file);
    shows_no_credential(&files);
    assert!(files.contains_key("objects/pods.json"));
    let missing = missing(&files);
    let is_late = |it: &&String| it.ends_with("the time limit of the command was reached");
    assert_eq!(missing.iter().filter(is_late).count(), 2, "{missing:?}");
}

#[test]
fn a_kind_that_the_cluster_lacks_is_in_the_manifest_only() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("b.tar.gz");
    let hub = "list /apis/globalps.io/v1alpha1/fleetpullsecrets";
    let api = cluster("delivered").with_fault(hub, Fault::Code(404), usize::MAX);
    let (ran, [_, errors]) = api.printed(&format!("bundle --file {}", file.display()));
    assert_eq!(ran, Ok(Exit::Done));
    assert!(!errors.contains("fleetpullsecrets"), "{errors}");
    let missing = missing(&files(&file));
    let expected = "fleetpullsecrets: the cluster does not have this kind".to_owned();
    assert!(missing.contains(&expected), "{missing:?}");
}

#[test]
fn a_file_is_overwritten_only_by_force() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("b.tar.gz");
    std::fs::write(&file, "mine").expect("a file");
    let api = cluster("delivered");
    let line = format!("bundle --file {}", file.display());
    let failure = refused(api.run(&line));
    assert!(failure.message.ends_with("exists already"), "{failure:?}");
    assert_eq!(api.requests(), [""; 0], "before any request");
    assert_eq!(std::fs::read(&file).expect("a file"), b"mine");
    assert_eq!(api.run(&format!("{line} --force")), Ok(Exit::Done));
    assert!(files(&file).len() > 10);
    let failure = refused(api.run("bundle --file /nowhere/b.tar.gz"));
    assert_eq!(
        failure.message,
        "`/nowhere/b.tar.gz` could not be written: No such file or directory (os error 2)"
    );
}
