//! What the plugin prints and does while a rollout or a cleanup is blocked: on a real API server, with objects in the
//! state in which the controller and the nodes would leave them.

mod common;

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use common::{cluster, docker_config, install_crds, wait_refused};
use globalps_core::api::GlobalPullSecretSpec;
use globalps_core::state::{Configuration, State};
use globalps_testkit::product::{ADDITIONAL, CONFIG, Product};
use globalps_testkit::terminal::Terminal;
use globalps_testkit::{Cluster, wait};
use serde_json::{Value, json};

const PASSWORD: &str = "h0lds-s3cret";
const NAMESPACE: &str = "kube-system";
const SOON: Duration = globalps_testkit::DEADLINE;
const POLL: Duration = Duration::from_millis(200);

#[test]
fn the_plugin_names_what_holds_a_rollout_or_a_cleanup() {
    let cluster = cluster("plugin-holds", 1);
    let stage = Stage {
        cluster: &cluster,
        product: Product::attach(&cluster),
    };
    install_crds(&cluster);
    without_a_global_pull_secret_the_way_on_is_named_and_works(&stage);
    refused_or_stuck_pods_are_named_with_their_reason(&stage);
    a_cleanup_finishes_without_unreachable_nodes_when_asked(&stage);
    stage.product.assert_never_shown(&[PASSWORD]).unwrap();
}

struct Stage<'a> {
    cluster: &'a Cluster,
    product: Product<'a>,
}

impl Stage<'_> {
    fn kubectl(&self, line: &str) -> String {
        self.cluster.kubectl_line(line).unwrap()
    }

    fn apply(&self, object: &Value) {
        self.cluster
            .kubectl_with(
                &["apply", "--server-side", "-n", NAMESPACE, "-f", "-"],
                object,
            )
            .unwrap();
    }

    fn set_status(&self, object: &str, status: &Value) {
        let patch = json!({"status": status});
        let patched = self.cluster.patch_status(NAMESPACE, object, &patch);
        patched.unwrap();
    }

    /// Creates a node's object with this spec, and with this phase as its syncer would report it.
    fn node(&self, name: &str, spec: &Value, phase: &str) {
        self.apply(&json!({
            "apiVersion": "globalps.io/v1alpha1", "kind": "NodePullSecret", "metadata": {"name": name}, "spec": spec,
        }));
        let generation = self.product.get(&format!("nodepullsecret/{name}")).unwrap();
        let generation = generation["metadata"]["generation"].clone();
        let status = json!({"observedGeneration": generation, "revision": 1, "phase": phase});
        self.set_status(&format!("nodepullsecret/{name}"), &status);
    }

    /// Stdout and stderr of a command that exits with 1.
    fn says_no(&self, line: &str) -> (String, String) {
        let ran = self.product.types(line, "");
        assert_eq!(ran.code, Some(1), "{line}: {ran:?}");
        (ran.stdout, ran.stderr)
    }

    /// Message of the failed check with this name; `None` if it did not fail.
    fn failed_check(&self, name: &str) -> Option<String> {
        let report: Value = serde_json::from_str(&self.says_no("check -o json").0).unwrap();
        let checks = report["checks"].as_array().unwrap();
        let found = checks
            .iter()
            .find(|check| check["name"] == name && check["result"] == "failure")?;
        Some(found["message"].as_str().unwrap().to_owned())
    }

    fn apply_additional(&self) {
        let content = docker_config(&[("a.example.com", &format!("robot:{PASSWORD}"))]);
        self.product.apply(&content).unwrap();
    }
}

fn without_a_global_pull_secret_the_way_on_is_named_and_works(stage: &Stage<'_>) {
    stage.apply_additional();
    stage.node("node-1", &json!({"revision": 1}), "Synced");
    let said = "there is no GlobalPullSecret, so the controller changes no node";
    let (_, status) = stage.says_no("status");
    assert!(status.contains(said), "{status}");
    let (_, waited) = stage.says_no("status --wait --timeout 20s");
    assert!(waited.contains(said), "{waited}");
    let check = stage.failed_check("no-configuration");
    assert_eq!(check.as_deref(), Some(said));

    // The controller would have left it like this.
    let spec = GlobalPullSecretSpec {
        history_limit: 5,
        ..GlobalPullSecretSpec::default()
    };
    let remembered = State {
        configuration: Some(Configuration {
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            spec,
        }),
        ..State::default()
    };
    let mut secret = json!(remembered.secret());
    secret["apiVersion"] = json!("v1");
    secret["kind"] = json!("Secret");
    stage.apply(&secret);
    let way_on = status.split('`').nth(1).unwrap();
    let words = way_on.strip_prefix("kubectl globalps ").unwrap();
    let ran = stage.product.types(words, "");
    assert_eq!(ran.code, Some(0), "{way_on}: {ran:?}");
    let restored = stage.product.get(CONFIG).unwrap();
    assert_eq!(restored["spec"]["historyLimit"], 5, "{restored}");
    let (_, status) = stage.says_no("status");
    assert!(!status.contains(said), "{status}");
    assert_eq!(stage.failed_check("no-configuration"), None);
    // The controller's reaction to the Secret.
    let secret = stage.product.get(&format!("secret/{ADDITIONAL}")).unwrap();
    let version = &secret["metadata"]["resourceVersion"];
    let status = json!({"observedGeneration": 1, "observedAdditional": version, "revision": 1});
    stage.set_status(CONFIG, &status);
}

fn refused_or_stuck_pods_are_named_with_their_reason(stage: &Stage<'_>) {
    let daemon_set = |name: &str| {
        stage.apply(&json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": "globalps"}},
            "spec": {
                "selector": {"matchLabels": {"name": name}},
                "template": {
                    "metadata": {"labels": {"name": name}},
                    "spec": {
                        "volumes": [{"name": "run", "hostPath": {"path": "/run"}}],
                        "containers": [{"name": "c", "image": "Not/Valid:1"}],
                    },
                },
            },
        }));
    };
    let check = |name: &str| {
        let what = format!("check `{name}`");
        wait(&what, POLL, || Ok(stage.failed_check(name)))
    };
    let enforce = "label namespace kube-system pod-security.kubernetes.io/enforce";
    stage.kubectl(&format!("{enforce}=baseline"));
    let pod = "run tried -n kube-system --image=tried --dry-run=server --overrides={\"spec\":{\"hostPID\":true}}";
    wait_refused(stage.cluster, pod, "violates PodSecurity");
    daemon_set("global-pull-secret-syncer");
    let refused = "pods of DaemonSet `global-pull-secret-syncer` can't be created for 1 node: ";
    let message = check("syncer-not-created");
    assert!(message.starts_with(refused), "{message}");
    assert!(message.contains("violates PodSecurity"), "{message}");
    for line in ["status", "status --wait --timeout 5s"] {
        let (_, said) = stage.says_no(line);
        assert!(said.contains(refused), "{line}: {said}");
        assert!(said.contains("kubectl label namespace"), "{line}: {said}");
    }

    stage.kubectl(&format!("{enforce}-"));
    stage.kubectl("delete daemonset global-pull-secret-syncer -n kube-system");
    daemon_set("global-pull-secret-restorer");
    let message = check("syncer-image");
    let waits = "pods of DaemonSet `global-pull-secret-restorer` don't run: ";
    assert!(message.starts_with(waits), "{message}");
    assert!(message.ends_with(" on node-1"), "{message}");
    let (_, said) = stage.says_no("status");
    assert!(said.contains(waits), "{said}");
    stage.kubectl("delete daemonset global-pull-secret-restorer -n kube-system");
}

fn a_cleanup_finishes_without_unreachable_nodes_when_asked(stage: &Stage<'_>) {
    stage.apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gone-1"}}));
    let ready =
        json!({"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    stage.set_status("node/gone-1", &json!({"conditions": [ready]}));
    let restore = json!({"revision": 1, "restore": true});
    stage.node("gone-1", &restore, "Synced");
    stage.node("node-1", &restore, "Restored");

    let (_, said) = stage.says_no("remove --all --yes --wait --timeout 6s");
    let only = "only unreachable nodes are left to restore: `gone-1`";
    assert!(
        said.contains(&format!("not done within 6 s: {only}")),
        "{said}"
    );
    assert!(said.contains("`--skip-unreachable`"), "{said}");
    let annotation = |node: &str| {
        let object = stage
            .product
            .get(&format!("nodepullsecret/{node}"))
            .unwrap();
        object["metadata"]["annotations"]["globalps.io/abandon"].clone()
    };
    assert_eq!(annotation("gone-1"), Value::Null, "no user requested it");

    // The Secret is deleted first, like in every cleanup. On a terminal the answer "no" changes nothing.
    let terminal = |line: &str| {
        let mut command = Command::new(Product::plugin_path());
        command
            .args(line.split_whitespace())
            .env("KUBECONFIG", stage.cluster.kubeconfig());
        Terminal::start(&command, 300, 24).unwrap()
    };
    let line = "remove --all --skip-unreachable --wait --timeout 1m";
    let question = "Finish without the nodes that can't be restored?";
    let mut refused = terminal(line);
    let shown = refused.wait_for(question, SOON).unwrap();
    let stays = "`gone-1`; the managed entries of `/var/lib/kubelet/config.json` and the directory `/var/lib/kubelet/.globalps` stay";
    let announced = format!("nodes that can't be restored will be skipped: {stays}");
    assert!(shown.contains(&announced), "{shown}");
    refused.press("n\n").unwrap();
    assert_eq!(refused.end(SOON).unwrap().0, Some(1));
    assert_eq!(
        annotation("gone-1"),
        Value::Null,
        "without a yes nothing changes"
    );

    let mut agreed = terminal(line);
    agreed.wait_for(question, SOON).unwrap();
    agreed.press("y\n").unwrap();
    wait("the annotation", POLL, || {
        Ok((annotation("gone-1") == "true").then_some(()))
    });
    assert_eq!(annotation("node-1"), Value::Null, "it is restored");
    // The controller's last step of a cleanup.
    stage.kubectl("delete nodepullsecret -n kube-system gone-1 node-1");
    let (code, shown) = agreed.end(SOON).unwrap();
    assert_eq!(code, Some(0), "{shown}");
    assert!(
        shown.contains(&format!(
            "nodes were skipped and keep their credentials: {stays}"
        )),
        "{shown}"
    );
    assert!(shown.contains("`globalps-syncer restore`"), "{shown}");

    // The same in one command, without a terminal and without `--wait`.
    stage.apply_additional();
    stage.node("gone-1", &json!({"revision": 1}), "Synced");
    let ran = stage
        .product
        .types("remove --all --skip-unreachable --yes", "");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.stdout.contains(&format!("secret/{ADDITIONAL} deleted")),
        "{ran:?}"
    );
    assert!(
        ran.stderr
            .contains("nodes were skipped and keep their credentials: `gone-1`"),
        "{ran:?}"
    );
    assert_eq!(annotation("gone-1"), "true");
    stage.kubectl("delete node gone-1");
}
