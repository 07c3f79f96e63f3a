//! The syncer has no privilege that it does not need: without any one of them, something fails.

mod common;

use std::thread;
use std::time::{Duration, Instant};

use common::{base64, cluster, docker_config, scale_controllers};
use globalps_core::checksum::add_checksum;
use globalps_testkit::product::{NAMESPACE, Product, is_about_its_spec, merge, reconfigure};
use globalps_testkit::{Cluster, Node, wait};
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};

const POLL: Duration = Duration::from_millis(100);
const SYNCER: &str = "global-pull-secret-syncer";

/// The syncer's manifests without one privilege.
struct Without {
    what: &'static str,
    /// DaemonSet or Role.
    kind: &'static str,
    /// A JSON patch.
    patch: Value,
    sign: Sign,
}

/// The symptom of the missing privilege.
#[derive(Debug)]
enum Sign {
    /// The status has this phase and reason.
    Reported(&'static str, &'static str),
    /// The status does not change.
    Silent,
    /// The pod's log contains this text.
    Logged(&'static str),
    /// The pod never becomes ready.
    Unready,
}

fn table() -> Vec<Without> {
    let container = "/spec/template/spec/containers/0";
    let mount =
        |at: usize| json!([{"op": "remove", "path": format!("{container}/volumeMounts/{at}")}]);
    let verbs = |rule: usize, verbs: Value| json!([{"op": "replace", "path": format!("/rules/{rule}/verbs"), "value": verbs}]);
    vec![
        Without {
            what: "the kubelet's directory",
            kind: "daemonset",
            patch: mount(0),
            sign: Sign::Reported("Failed", "NoDirectory"),
        },
        Without {
            what: "the bus",
            kind: "daemonset",
            patch: mount(1),
            sign: Sign::Reported("Synced", "RestartNotPossible"),
        },
        Without {
            what: "the directory for the readiness file",
            kind: "daemonset",
            patch: mount(2),
            sign: Sign::Unready,
        },
        Without {
            what: "uid 0",
            kind: "daemonset",
            patch: json!([{"op": "replace", "path": format!("{container}/securityContext/runAsUser"), "value": 65532}]),
            sign: Sign::Reported("Failed", "NotPermitted"),
        },
        Without {
            what: "the right to get the Secret",
            kind: "role",
            patch: verbs(0, json!(["list"])),
            sign: Sign::Reported("Syncing", "SecretNotRead"),
        },
        Without {
            what: "the right to list its object",
            kind: "role",
            patch: verbs(1, json!(["watch"])),
            sign: Sign::Silent,
        },
        Without {
            what: "the right to watch its object",
            kind: "role",
            patch: verbs(1, json!(["list"])),
            // It still works, by listing repeatedly.
            sign: Sign::Logged("the watch failed"),
        },
        Without {
            what: "the right to patch its status",
            kind: "role",
            patch: verbs(2, json!(["get"])),
            sign: Sign::Silent,
        },
    ]
}

#[test]
fn without_any_one_of_the_syncers_rights_something_fails() {
    let cluster = cluster("privileges", 1);
    let product = Product::install(&cluster).unwrap();
    let node = &cluster.nodes().unwrap()[0];
    product.apply(&content(1)).unwrap();
    product.wait_synced().unwrap();
    without_restarts_there_is_no_bus(&cluster, &product, node);
    // From here on the test assigns revisions, and no controller reverts its changes.
    scale_controllers(&cluster, 0);
    the_container_has_no_capability_and_sees_mounts_go(&cluster, node);

    let mut revision = 2;
    for row in table() {
        let whole = product.get(&format!("{}/{SYNCER}", row.kind)).unwrap();
        patch(&cluster, row.kind, &row.patch);
        restart(&cluster, node);
        revision += 1;
        assign(&cluster, node, revision);
        shows(&cluster, &product, node, &row, revision);
        // Once the privilege is restored, the syncer completes the assignment.
        let field = if row.kind == "role" { "rules" } else { "spec" };
        let back = json!([{"op": "replace", "path": format!("/{field}"), "value": whole[field]}]);
        patch(&cluster, row.kind, &back);
        restart(&cluster, node);
        wait(&format!("Synced with {}", row.what), POLL, || {
            let status = product.node_status(node.name())?;
            Ok((status["phase"] == "Synced"
                && status["revision"] == revision
                && is_ready(&cluster)?)
            .then_some(()))
        });
    }
}

/// Stops the bus, rotates, and starts the bus again.
fn without_restarts_there_is_no_bus(cluster: &Cluster, product: &Product, node: &Node) {
    let configure = |restart: &str, buses: &str| {
        reconfigure(cluster, &json!({"kubelet": {"restart": restart}})).unwrap();
        wait(&format!("{buses} buses with {restart}"), POLL, || {
            let mounts = "grep -c /host/run/dbus /proc/$(pgrep -x globalps-syncer)/mountinfo";
            let found = node.exec(&["sh", "-c", mounts])?;
            Ok((found.stdout.trim() == buses).then_some(()))
        });
    };
    let starts = product.kubelet_starts(node).unwrap();
    configure("Never", "0");
    product.apply(&content(2)).unwrap();
    product.wait_synced().unwrap();
    let status = product.node_status(node.name()).unwrap();
    assert_eq!(
        (&status["reason"], &status["revision"]),
        (&json!("RestartNever"), &json!(2))
    );
    assert_eq!(product.kubelet_starts(node).unwrap(), starts);
    configure("Always", "1");
    product.wait_synced().unwrap();
}

fn content(revision: u32) -> String {
    docker_config(&[("privileges.example.com", &format!("u:{revision}"))])
}

fn patch(cluster: &Cluster, kind: &str, patch: &Value) {
    cluster
        .kubectl(&[
            "patch",
            kind,
            SYNCER,
            "-n",
            NAMESPACE,
            "--type=json",
            "-p",
            &patch.to_string(),
        ])
        .unwrap();
}

/// Replaces the pod, because a change of permissions does not end an open watch. Returns when the old pod is gone.
fn restart(cluster: &Cluster, node: &Node) {
    wait("the new pod template to be known", POLL, || {
        let daemon_set = cluster.get(NAMESPACE, &format!("daemonset/{SYNCER}"))?;
        Ok(is_about_its_spec(&daemon_set).then_some(()))
    });
    let processes = || -> anyhow::Result<Vec<String>> {
        let found = node.exec(&["pgrep", "-x", "globalps-syncer"])?;
        Ok(found.stdout.lines().map(str::to_owned).collect())
    };
    let before = processes().unwrap();
    let selector = format!("name={SYNCER}");
    cluster.types(&format!(
        "delete pod -n {NAMESPACE} -l {selector} --force --grace-period=0"
    ));
    wait("the old syncer to exit", POLL, || {
        let left = processes()?;
        Ok((!left.iter().any(|pid| before.contains(pid))).then_some(()))
    });
}

/// Makes an assignment like the controller.
fn assign(cluster: &Cluster, node: &Node, revision: u32) {
    let id = format!("{revision:016x}");
    let name = "secret/global-pull-secret";
    let found = cluster.types(&format!("get {name} -n {NAMESPACE} -o json"));
    let mut secret: Value = serde_json::from_str(&found).unwrap();
    secret["metadata"]["annotations"]["globalps.io/revision"] = revision.to_string().into();
    secret["metadata"]["annotations"]["globalps.io/revision-id"] = id.clone().into();
    secret["data"][".dockerconfigjson"] = base64(&content(revision)).into();
    let mut secret: Secret = serde_json::from_value(secret).unwrap();
    add_checksum(&mut secret, &[]);
    let secret = json!({
        "metadata": {"annotations": secret.metadata.annotations}, "data": secret.data,
    });
    for (what, patch) in [
        (name.to_owned(), secret),
        (
            format!("nodepullsecret/{}", node.name()),
            json!({"spec": {"revision": revision, "revisionId": id}}),
        ),
    ] {
        merge(cluster, &what, &patch).unwrap();
    }
}

fn is_ready(cluster: &Cluster) -> anyhow::Result<bool> {
    let selector = format!("name={SYNCER}");
    let pods: Value = serde_json::from_str(&cluster.kubectl(&[
        "get", "pods", "-n", NAMESPACE, "-l", &selector, "-o", "json",
    ])?)?;
    let pods = pods["items"].as_array().cloned().unwrap_or_default();
    Ok(pods.len() == 1 && pods[0]["status"]["containerStatuses"][0]["ready"] == true)
}

fn shows(cluster: &Cluster, product: &Product, node: &Node, row: &Without, revision: u32) {
    let status = || product.node_status(node.name()).unwrap();
    match row.sign {
        Sign::Reported(phase, reason) => {
            wait(
                &format!("{phase}, {reason} without {}", row.what),
                POLL,
                || {
                    let status = status();
                    let is_of_it = phase != "Synced" || status["revision"] == revision;
                    Ok(
                        (status["phase"] == phase && status["reason"] == reason && is_of_it)
                            .then_some(()),
                    )
                },
            );
        }
        Sign::Silent => {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(12) {
                assert_eq!(status()["revision"], revision - 1, "without {}", row.what);
                thread::sleep(POLL);
            }
        }
        Sign::Logged(words) => {
            let selector = format!("name={SYNCER}");
            wait(&format!("{words} without {}", row.what), POLL, || {
                // A pod that does not exist yet has no log.
                let log = cluster.kubectl(&["logs", "-n", NAMESPACE, "-l", &selector, "--tail=-1"]);
                Ok(log.unwrap_or_default().contains(words).then_some(()))
            });
        }
        Sign::Unready => {
            wait("the change", POLL, || {
                Ok((status()["revision"] == revision).then_some(()))
            });
            thread::sleep(Duration::from_secs(12));
            let ready = product.get("daemonset/global-pull-secret-syncer").unwrap()["status"]["numberReady"].clone();
            assert_eq!(ready, 0, "without {}", row.what);
        }
    }
}

fn the_container_has_no_capability_and_sees_mounts_go(cluster: &Cluster, node: &Node) {
    let shell = |script: &str| node.exec(&["sh", "-c", script]).unwrap().ok().unwrap();
    // The oldest process is the syncer; a readiness probe is a short-lived, younger process of the same name.
    let status = shell("cat /proc/$(pgrep -x -o globalps-syncer)/status");
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        let line = status.lines().find(|line| line.starts_with(set)).unwrap();
        assert_eq!(
            line.split_whitespace().nth(1),
            Some("0000000000000000"),
            "{line}"
        );
    }
    assert!(
        status.contains("NoNewPrivs:\t1") && status.contains("Seccomp:\t2"),
        "{status}"
    );

    // The syncer does not keep a mount alive that existed when it started.
    shell("mkdir -p /var/lib/kubelet/mounted && mount -t tmpfs none /var/lib/kubelet/mounted");
    restart(cluster, node);
    wait("a ready syncer", POLL, || {
        Ok(is_ready(cluster)?.then_some(()))
    });
    let seen = "grep -c /mounted /proc/$(pgrep -x -o globalps-syncer)/mountinfo || true";
    assert_eq!(shell(seen).trim(), "1");
    shell("umount /var/lib/kubelet/mounted && rmdir /var/lib/kubelet/mounted");
    assert_eq!(shell(seen).trim(), "0");
}
