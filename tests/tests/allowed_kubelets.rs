//! The API server's own validation lets an editor of the `GlobalPullSecret` configure only kubelets. `install` extends
//! the lists, and an object from before the lists stays valid.

mod common;

use std::time::Duration;

use common::cluster;
use globalps_core::api::GlobalPullSecret;
use globalps_manifests::{Allowed, Manifests};
use globalps_testkit::product::{NAMESPACE, Ran, configuration, run};
use globalps_testkit::{Cluster, wait};
use kube::CustomResourceExt as _;
use serde_json::{Value, json};

const CRD: &str = "crd/globalpullsecrets.globalps.io";
const POLL: Duration = Duration::from_millis(100);

#[test]
fn only_kubelets_can_be_named_unless_install_says_otherwise() {
    let cluster = cluster("allowed-kubelets", 0);
    // The CRD of the previous release.
    apply(&cluster, &json!(GlobalPullSecret::crd())).taken("the definition from before");
    cluster.types(&format!("wait --for=condition=Established {CRD}"));
    let old =
        json!({"kubelet": {"unit": "systemd-poweroff.service", "configFile": "/etc/shadow.d/x"}});
    wait("an object of the previous release", POLL, || {
        Ok((apply(&cluster, &configuration(&old)).code == Some(0)).then_some(()))
    });
    define(&cluster, Allowed::default(), "my-kubelet.service");

    // It keeps its value: its status and its other fields can still be written.
    let status = json!({"status": {"revision": 3}}).to_string();
    patch(
        &cluster,
        &["--subresource=status", "--type=merge", "-p", &status],
    )
    .taken("its status");
    #[rustfmt::skip]
    let cases = [
        ("another field", json!({"rollout": {"paused": true}}), None),
        ("the same unit", json!({"kubelet": {"unit": "systemd-poweroff.service"}}), None),
        ("another one", json!({"kubelet": {"unit": "systemd-reboot.service"}}), Some("--allow-unit")),
        ("a kubelet's", json!({"kubelet": {"unit": "k3s-agent.service"}}), None),
        ("no way back to the old value", json!({"kubelet": {"unit": "systemd-poweroff.service"}}), Some("--allow-unit")),
    ];
    for (sentence, spec, expected) in cases {
        let spec = json!({"spec": spec}).to_string();
        patch(&cluster, &["--type=merge", "-p", &spec]).is(sentence, expected);
    }

    let microk8s = "/var/snap/microk8s/common/var/lib/kubelet/config.json";
    #[rustfmt::skip]
    let rows = [
        ("unit", "Auto", None),
        ("unit", "kubelet.service", None),
        ("unit", "k0sworker.service", None),
        ("unit", "snap.microk8s.daemon-kubelite.service", None),
        ("unit", "systemd-poweroff.service", Some("unit must be one of Auto, kubelet.service")),
        ("unit", "kubelet.service.evil.service", Some("--allow-unit")),
        ("unit", "my-kubelet.service", Some("--allow-unit")),
        ("configFile", "/var/lib/kubelet/config.json", None),
        ("configFile", "/var/lib/k0s/kubelet/config.json", None),
        ("configFile", microk8s, None),
        ("configFile", "/etc/passwd", Some("configFile must be one of /var/lib/kubelet/config.json")),
        ("configFile", "/var/lib/kubelet/../../etc/config.json", Some("--allow-config-file")),
        ("configFile", "/var/lib/kubelet/kubeconfig", Some("--allow-config-file")),
        ("configFile", "/data/kubelet/config.json", Some("--allow-config-file")),
    ];
    for (field, value, expected) in rows {
        create(&cluster, field, value).is(value, expected);
    }
    // The field's format allows some values that the lists forbid.
    define(
        &cluster,
        Allowed::with(
            &["my-kubelet.service".to_owned()],
            &["/data/kubelet/config.json".to_owned()],
            &[],
        ),
        "other.service",
    );
    #[rustfmt::skip]
    let table = [
        ("unit", "my-kubelet.service", None),
        ("unit", "kubelet.service", None),
        ("unit", "systemd-poweroff.service", Some("my-kubelet.service")),
        ("configFile", "/data/kubelet/config.json", None),
        ("configFile", "/data/other/config.json", Some("--allow-config-file")),
    ];
    for (field, value, expected) in table {
        create(&cluster, field, value).is(value, expected);
    }
}

/// Applies the CRD with these lists; returns when the API server rejects `refused` as a unit.
fn define(cluster: &Cluster, allowed: Allowed, refused: &str) {
    let install = Manifests {
        allowed: allowed.clone(),
        ..Manifests::of_images("c", "s")
    };
    let crds = install.objects().into_iter();
    for crd in crds.filter(|object| object["kind"] == "CustomResourceDefinition") {
        apply(cluster, &crd).taken("the definition");
    }
    let last = allowed.units().last().cloned().unwrap_or_default();
    wait("the CRD to take effect", POLL, || {
        let is_refused = create(cluster, "unit", refused).code != Some(0);
        let is_taken = create(cluster, "unit", &last).code == Some(0);
        Ok((is_refused && is_taken).then_some(()))
    });
}

/// Validates a new object with a dry run.
fn create(cluster: &Cluster, field: &str, value: &str) -> Answer {
    let mut object = configuration(&json!({"kubelet": {field: value}}));
    object["metadata"]["name"] = json!("another");
    let mut kubectl = cluster.kubectl_command();
    kubectl.args(["create", "--dry-run=server", "-f", "-"]);
    Answer(run(&mut kubectl, &object.to_string()).unwrap())
}

fn apply(cluster: &Cluster, object: &Value) -> Answer {
    let mut kubectl = cluster.kubectl_command();
    kubectl.args(["apply", "--server-side", "--force-conflicts", "-f", "-"]);
    Answer(run(&mut kubectl, &object.to_string()).unwrap())
}

fn patch(cluster: &Cluster, args: &[&str]) -> Answer {
    let mut kubectl = cluster.kubectl_command();
    kubectl.args([
        "patch",
        "globalpullsecret/global-pull-secret",
        "-n",
        NAMESPACE,
    ]);
    Answer(run(kubectl.args(args), "").unwrap())
}

/// The API server's response.
struct Answer(Ran);

impl std::ops::Deref for Answer {
    type Target = Ran;

    fn deref(&self) -> &Ran {
        &self.0
    }
}

impl Answer {
    fn taken(&self, sentence: &str) {
        self.is(sentence, None);
    }

    /// `expected`: part of the message; `None`: the object is accepted.
    fn is(&self, sentence: &str, expected: Option<&str>) {
        match expected {
            None => assert_eq!(self.code, Some(0), "{sentence}: {:?}", self.0),
            Some(message) => {
                assert_ne!(self.code, Some(0), "{sentence} is accepted");
                assert!(self.stderr.contains(message), "{sentence}: {:?}", self.0);
            }
        }
    }
}
