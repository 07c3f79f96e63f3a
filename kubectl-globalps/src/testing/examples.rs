//! Output of commands with `-o json` for a sample cluster, for `docs/cli.md`.

use globalps_core::api::ClusterPhase;
use globalps_core::names;
use globalps_provider::{Delivery, ProviderConfig, ScopedConfig, render_scoped};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::fake_api::{CommandLine as _, FakeApi, path};
use super::fake_objects::{config, deployment, kept, secret};
use super::fake_registry::{archives, registry};
use crate::view::fleet::tests::{fleet, object};

/// `robot:p` and `robot:q`.
const AUTH: &str = "cm9ib3Q6cA==";
const OTHER_AUTH: &str = "cm9ib3Q6cQ==";
/// The id of each revision.
const ID: &str = "8d1c0f3b6a2e4975";
const SOURCE: &str = "team-a-pull-secret";

/// Each command, its line as documented, and the line to execute if it differs.
const LINES: [(&str, &str, &str); 17] = [
    (
        "add",
        "add quay.io -u robot --password-stdin -o json",
        "add quay.io -u robot -p r --skip-check -o json",
    ),
    ("status", "status -o json", ""),
    ("status", "status --namespaces -o json", ""),
    ("list", "list -o json", ""),
    ("diff", "diff -o json", ""),
    ("check", "check -o json", ""),
    ("history", "history -o json", ""),
    ("fleet status", "fleet status -A -o json", ""),
    (
        "fleet status",
        "fleet status team-a -n clusters -o json",
        "",
    ),
    (
        "fleet add",
        "fleet add team-a -n clusters --registry quay.io -u robot --password-stdin -o json",
        "fleet add team-a -n clusters --registry quay.io -u robot -p r --skip-check -o json",
    ),
    ("fleet diff", "fleet diff team-a -n clusters -o json", ""),
    (
        "images push",
        "images push registry.example.com/tools -o json",
        "images push REGISTRY/tools --dir DIRECTORY --authfile EMPTY --insecure -o json",
    ),
    (
        "validate",
        "validate config.json -o json",
        "validate FILE -o json",
    ),
    ("explain", "explain quay.io/org/app:1 -o json", ""),
    ("why", "why team-a/app-7d4f --no-ask -o json", ""),
    ("why", "why -A --no-ask -o json", ""),
    ("version", "version -o json", ""),
];

/// The lines of a command and their output.
pub(crate) fn of(command: &str) -> Vec<(&'static str, String)> {
    let lines = LINES.iter().filter(|(of, ..)| *of == command);
    lines
        .map(|(_, shown, run)| {
            let run = if run.is_empty() { shown } else { run };
            (*shown, printed(run))
        })
        .collect()
}

fn printed(line: &str) -> String {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), r#"{"auths":{"quay.io":{"auth":"broken"}}}"#).expect("written");
    let line = line.replace("FILE", &file.path().to_string_lossy());
    let directory = tempfile::tempdir().expect("a directory");
    archives(directory.path());
    let empty = directory.path().join("config.json");
    std::fs::write(&empty, "{}").expect("written");
    let registry = registry();
    let line = line
        .replace("REGISTRY", &registry)
        .replace("DIRECTORY", &directory.path().to_string_lossy())
        .replace("EMPTY", &empty.to_string_lossy());
    let (ran, [out, _]) = sample().printed(&line);
    assert!(ran.is_ok(), "{line}: {ran:?}");
    let out = out.replace(&registry, "registry.example.com");
    let version = env!("CARGO_PKG_VERSION");
    let out = out.replace(
        &format!(r#""version": "{version}""#),
        r#""version": "1.0.0""#,
    );
    let value: Value = serde_json::from_str(&out).expect("JSON");
    if value.get("checks").is_some() {
        folded(&format!("{:#}", shortened(value)))
    } else {
        folded(&out)
    }
}

/// Keeps the first finding of each result, because there are many.
fn shortened(mut report: Value) -> Value {
    let mut known: Vec<Value> = Vec::new();
    if let Some(checks) = report["checks"].as_array_mut() {
        checks.retain(|check| {
            let is_new = !known.contains(&check["result"]);
            known.push(check["result"].clone());
            is_new
        });
    }
    report
}

/// Puts objects and lists that fit on one line.
fn folded(text: &str) -> String {
    const WIDTH: usize = 120;
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        lines.push(line.to_owned());
        let opens = |found: &String| {
            indent(found) == indent(line) && (found.ends_with('{') || found.ends_with('['))
        };
        if !line.trim_start().starts_with(['}', ']']) {
            continue;
        }
        let start = lines.iter().rposition(opens).expect("an opening line");
        let [first, inner @ .., last] = &lines[start..] else {
            unreachable!("it has an end");
        };
        let inner: Vec<&str> = inner.iter().map(|line| line.trim()).collect();
        let one = format!("{first}{}{}", inner.join(" "), last.trim_start());
        if one.len() <= WIDTH {
            lines.truncate(start);
            lines.push(one);
        }
    }
    lines.join("\n")
}

fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": type_, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-02T00:00:00Z",
    })
}

fn gps() -> Value {
    json!({
        "apiVersion": "globalps.io/v1alpha1", "kind": "GlobalPullSecret", "metadata": {"generation": 1, "uid": "gps-1"},
        "spec": {
            "original": {"secretRef": {"namespace": "openshift-config", "name": "pull-secret"}},
            "sources": [{"name": SOURCE, "scope": {"namespaces": ["team-a", "team-a-*"]}}],
            "kubelet": {"delivery": "CredentialProvider"},
            "imagePullSecrets": {"enabled": true},
            "historyLimit": 3,
        },
        "status": {
            "observedGeneration": 1, "observedAdditional": "101", "revision": 3,
            "counts": {"total": 3, "synced": 2, "failed": 1},
            "sources": [{
                "name": SOURCE, "valid": true, "registries": ["ghcr.io"], "total": 1,
                "scope": "team-a, team-a-*", "delivery": "NodesAndNamespaces",
            }],
            "imagePullSecrets": {"secretName": names::GLOBAL_SECRET, "attach": "Admission", "total": 1, "synced": 1},
            "conditions": [
                condition("Ready", "False", "RolloutHalted", "1 of 3 nodes failed"),
                condition("Degraded", "True", "RolloutHalted", "node-3: the kubelet did not start"),
            ],
        },
    })
}

fn node(revision: i64, phase: &str, reason: &str, message: &str) -> Value {
    json!({
        "apiVersion": "globalps.io/v1alpha1", "kind": "NodePullSecret", "metadata": {"generation": 1},
        "spec": {"revision": 3, "kubeletVersion": "v1.34.0"},
        "status": {
            "observedGeneration": 1, "revision": revision, "phase": phase, "reason": reason, "message": message,
            "delivery": "CredentialProvider", "lastTransitionTime": "2026-01-02T00:00:00Z",
        },
    })
}

/// The content in force.
fn global() -> Value {
    let parse = |value: &Value| {
        let text: ByteString = serde_json::from_value(value.clone()).expect("bytes");
        globalps_dockerconfig::parse(&text.0).expect("credentials")
    };
    let scope = json!({"namespaces": ["team-a", "team-a-*"]});
    let of_source = config(&[("ghcr.io", OTHER_AUTH)]);
    let scoped = [ScopedConfig {
        source: SOURCE.to_owned(),
        scope: serde_json::from_value(scope).expect("a scope"),
        config: parse(&of_source),
    }];
    let provider = Delivery::CredentialProvider(ProviderConfig::default());
    let mut global = kept("3", &[("docker.io", AUTH), ("quay.io", AUTH)]);
    let data = &mut global["data"];
    data[names::LAST_ADDITIONAL_KEY] = config(&[("quay.io", AUTH)]);
    data[names::LAST_ORIGINAL_KEY] = config(&[("docker.io", AUTH)]);
    data[format!("{}{SOURCE}", names::LAST_SOURCE_KEY_PREFIX)] = of_source;
    data[names::SCOPED_KEY] = json!(ByteString(render_scoped(&scoped)));
    let annotations = &mut global["metadata"]["annotations"];
    let since = json!({"": format!("3-{ID}"), SOURCE: format!("2-{ID}")}).to_string();
    annotations[names::CONTENT_SINCE_ANNOTATION] = json!(since);
    annotations[names::DELIVERY_ANNOTATION] = json!(json!(provider).to_string());
    // The revision is not on every node yet.
    let annotations = annotations.as_object_mut();
    annotations.map(|all| all.remove(names::ROLLED_OUT_ANNOTATION));
    global
}

/// The pull secret of a namespace, written by the controller.
fn of_namespace() -> Value {
    json!({
        "metadata": {
            "labels": {names::IMAGE_PULL_SECRET_LABEL: "true"},
            "annotations": {names::CONTENT_ANNOTATION: format!("3-{ID},{SOURCE}@2-{ID}")},
            "managedFields": [{
                "manager": "globalps-controller", "operation": "Apply", "time": "2026-01-02T00:00:00Z",
            }],
        },
    })
}

/// Replaces messages by those that the hub writes.
fn worded(mut object: Value) -> Value {
    if let Some(counts) = object.pointer_mut("/status/counts") {
        *counts = json!({"total": 2, "synced": 1, "failed": 1, "unreachable": 0});
    }
    let text = object.to_string();
    let text = text.replace("a sentence", "1 of 2 clusters failed");
    serde_json::from_str(&text.replace("why m2", "node-1: KubeletDown")).expect("JSON")
}

fn waiting_pod() -> Value {
    let message = "failed to pull and unpack image: 401 Unauthorized";
    json!({
        "metadata": {
            "namespace": "team-a", "uid": "app-7d4f",
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "app", "uid": "app", "controller": true,
            }],
        },
        "spec": {
            "nodeName": "node-1", "serviceAccountName": "default",
            "containers": [{"name": "app", "image": "registry.example.com/team-a/app:1"}],
        },
        "status": {"phase": "Pending", "containerStatuses": [{
            "name": "app", "image": "registry.example.com/team-a/app:1", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": "ErrImagePull", "message": message}},
        }]},
    })
}

fn fleet_secret(revision: i64, auths: &[(&str, &str)]) -> Value {
    let mut secret = kept(&revision.to_string(), auths);
    secret["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "globalps.io/v1alpha1", "kind": "FleetPullSecret", "name": "team-a", "uid": "fleet-1",
    }]);
    secret
}

pub(crate) fn sample() -> FakeApi {
    let lease = json!({
        "metadata": {},
        "spec": {
            "holderIdentity": "globalps-controller-7d4b9c-x2x8p", "leaseDurationSeconds": 15,
            "renewTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(),
        },
    });
    let labels = json!({"app.kubernetes.io/managed-by": "globalps"});
    let daemon_set = json!({
        "metadata": {"labels": labels},
        "status": {
            "currentNumberScheduled": 3, "desiredNumberScheduled": 3, "numberMisscheduled": 0, "numberReady": 3,
        },
    });
    let system = names::CONTROLLER_NAMESPACE;
    let kinds = "/apis/globalps.io/v1alpha1/namespaces/clusters";
    let admission = |kind: &str| {
        let api = "/apis/admissionregistration.k8s.io/v1";
        let path = format!("{api}/{kind}/{}", names::IMAGE_PULL_SECRETS);
        (path, json!({}))
    };
    let of_hub = "/api/v1/namespaces/clusters/secrets";
    let objects = [
        (
            path("secrets", names::ADDITIONAL_SECRET),
            secret(&[("quay.io", AUTH)]),
        ),
        (path("secrets", names::GLOBAL_SECRET), global()),
        (
            path("secrets", &names::history_secret(0)),
            kept("2", &[("quay.io", OTHER_AUTH)]),
        ),
        (path("secrets", SOURCE), secret(&[("ghcr.io", OTHER_AUTH)])),
        (path("globalpullsecrets", names::GLOBAL_SECRET), gps()),
        (path("nodepullsecrets", "node-1"), node(3, "Synced", "", "")),
        (path("nodepullsecrets", "node-2"), node(3, "Synced", "", "")),
        (
            path("nodepullsecrets", "node-3"),
            node(2, "RolledBack", "KubeletDown", "the kubelet did not start"),
        ),
        (
            path("deployments", names::CONTROLLER),
            deployment(names::NAMESPACE, 2, 2),
        ),
        (
            format!(
                "/apis/coordination.k8s.io/v1/namespaces/{system}/leases/{}",
                names::LEASE
            ),
            lease,
        ),
        (
            format!(
                "/apis/apps/v1/namespaces/{}/daemonsets/{}",
                names::NAMESPACE,
                names::SYNCER
            ),
            daemon_set,
        ),
        ("/api/v1/namespaces/team-a".to_owned(), json!({})),
        (
            "/api/v1/namespaces/team-a/pods/app-7d4f".to_owned(),
            waiting_pod(),
        ),
        (
            format!("/api/v1/namespaces/team-a/secrets/{}", names::GLOBAL_SECRET),
            of_namespace(),
        ),
        admission("mutatingadmissionpolicies"),
        admission("mutatingadmissionpolicybindings"),
        (
            format!("{kinds}/fleetpullsecrets/team-a"),
            worded(json!(fleet("ClustersFailed", 3))),
        ),
        (
            format!("{kinds}/clusterpullsecrets/m1.clusters.team-a"),
            json!(object("m1", ClusterPhase::Synced, 3)),
        ),
        (
            format!("{kinds}/clusterpullsecrets/m2.clusters.team-a"),
            worded(json!(object("m2", ClusterPhase::Failed, 2))),
        ),
        (
            format!("{of_hub}/team-a-source"),
            secret(&[("quay.io", OTHER_AUTH)]),
        ),
        (
            format!("{of_hub}/{}", names::fleet_revision("team-a", 3)),
            fleet_secret(3, &[("quay.io", AUTH)]),
        ),
        (
            format!("{of_hub}/{}", names::fleet_revision("team-a", 2)),
            fleet_secret(2, &[("docker.io", AUTH)]),
        ),
    ];
    let objects = objects.each_ref();
    let objects = objects.map(|(path, object)| (path.as_str(), object.clone()));
    FakeApi::new(&objects)
}

#[test]
fn every_command_that_prints_json_has_an_example() {
    use clap::CommandFactory as _;
    fn with_output(command: &clap::Command, name: &str, found: &mut Vec<String>) {
        for sub in command.get_subcommands() {
            let name = format!("{name}{}", sub.get_name());
            // Manifests are long, and are not results.
            let is_install = sub.get_name() == "install";
            if !is_install && sub.get_arguments().any(|arg| arg.get_id() == "output") {
                found.push(name.clone());
            }
            with_output(sub, &format!("{name} "), found);
        }
    }
    let mut found = Vec::new();
    with_output(&crate::cli::Cli::command(), "", &mut found);
    for command in found {
        assert!(!of(&command).is_empty(), "{command}");
    }
}
