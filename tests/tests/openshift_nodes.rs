//! `delivery: OpenShift` with real nodes: the Machine Config Operator, played by the test, brings the cluster's pull secret to the
//! nodes, and a pod pulls with the new password. Each node's reason says what it waits for.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use common::{base64, cluster, decode};
use globalps_core::names::MACHINE_CONFIG_GROUP;
use globalps_testkit::product::{DEADLINE, Product};
use globalps_testkit::{Access, Cluster, Node, kubernetes, until};
use serde_json::{Value, json};

const POLL: Duration = Duration::from_millis(100);
const NAMESPACE: &str = "openshift-config";
const SECRET: &str = "secret/pull-secret";
/// With the spaces and the order of another editor.
const PLATFORM: &str = "{\n  \"auths\": {\n    \"quay.io\": { \"email\": \"a@b\", \"auth\": \"b3duOnBsYXRmb3Jt\" }\n  }\n}\n";

#[test]
fn the_operator_brings_the_pull_secret_and_pods_pull_with_it() {
    let cluster = cluster("openshift-nodes", 2);
    let operator = Operator::start(&cluster);
    let [first, second] = &operator.nodes[..] else {
        panic!("two nodes")
    };
    let product = Product::install(&cluster).unwrap();
    let configuration = product.get("globalpullsecret/global-pull-secret").unwrap();
    assert_eq!(
        configuration["spec"]["kubelet"]["delivery"], "OpenShift",
        "`install` recognises the cluster"
    );
    let registry = cluster.registry();
    let image = format!("{}/team/app:1", registry.address(Access::Private));
    product.start_pod("before", &image, first.name()).unwrap();
    product.wait_pod("before", true).unwrap();
    product.delete_pod("before").unwrap();
    let starts = product.starts(&operator.nodes).unwrap();

    product.apply(&registry.docker_config().unwrap()).unwrap();
    until("the entries", DEADLINE, POLL, || {
        Ok((operator.document() != PLATFORM).then_some(()))
    })
    .unwrap();
    let inner = "\"quay.io\": { \"email\": \"a@b\", \"auth\": \"b3duOnBsYXRmb3Jt\" }";
    assert!(
        operator.document().contains(inner),
        "the platform's entry is the same, byte for byte"
    );
    wait_reason(&product, first, "WaitingForMachineConfig");
    operator.pause(true);
    wait_reason(&product, first, "PoolPaused");
    operator.pause(false);
    operator.annotate(
        second,
        &json!({"state": "Degraded", "reason": "on-disk state"}),
    );
    wait_reason(&product, second, "NodeDegraded");
    let checked = product.plugin(&["check"], "").unwrap();
    assert!(
        checked.stdout.contains("node-machine-config"),
        "{checked:?}"
    );
    operator.bring(first, "1");
    wait_reason(&product, first, "InForceWithinFiveMinutes");
    operator.bring(second, "1");
    product.ends("status --wait --timeout 1m", 0);
    assert_eq!(
        product.more_starts(&operator.nodes, &starts).unwrap(),
        [0, 0],
        "nothing restarts a kubelet"
    );
    for node in &operator.nodes {
        // As after the five minutes for which a kubelet keeps what it has read.
        node.exec(&["systemctl", "restart", "kubelet.service"])
            .unwrap()
            .ok()
            .unwrap();
        let name = format!("on-{}", node.name());
        product.start_pod(&name, &image, node.name()).unwrap();
        product.wait_pod(&name, false).unwrap();
    }

    product.delete().unwrap();
    until("the document as it was", DEADLINE, POLL, || {
        Ok((operator.document() == PLATFORM).then_some(()))
    })
    .unwrap();
    wait_reason(&product, first, "WaitingForMachineConfig");
    for node in &operator.nodes {
        operator.bring(node, "2");
    }
    product.wait_clean().unwrap();
    let record = product.get("secret/global-pull-secret-applied").unwrap();
    assert!(record.is_null(), "nothing of globalps is left");
}

fn wait_reason(product: &Product, node: &Node, reason: &str) {
    until(reason, DEADLINE, POLL, || {
        let status = product.node_status(node.name())?;
        Ok((status["reason"] == reason).then_some(()))
    })
    .unwrap_or_else(|error| panic!("{error:#}: {:?}", product.node_status(node.name())));
}

/// The Machine Config Operator of one pool.
struct Operator<'a> {
    cluster: &'a Cluster,
    nodes: Vec<Node>,
}

impl<'a> Operator<'a> {
    fn start(cluster: &'a Cluster) -> Self {
        for file in kubernetes::openshift_crds().unwrap() {
            let file = file.to_str().unwrap();
            cluster
                .kubectl(&["apply", "--server-side", "-f", file])
                .unwrap();
        }
        cluster.types(&format!(
            "wait --for=condition=Established crd/machineconfigpools.{MACHINE_CONFIG_GROUP}"
        ));
        let labels = json!({"matchLabels": {"node-role.kubernetes.io/worker": ""}});
        let pool = json!({
            "apiVersion": format!("{MACHINE_CONFIG_GROUP}/v1"), "kind": "MachineConfigPool",
            "metadata": {"name": "worker"}, "spec": {"nodeSelector": labels, "paused": false},
        });
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
            "metadata": {"name": "pull-secret", "namespace": NAMESPACE},
            "data": {".dockerconfigjson": base64(PLATFORM)},
        });
        cluster.apply_all(&[namespace, secret, pool]).unwrap();
        let nodes = cluster.nodes().unwrap();
        let operator = Self { cluster, nodes };
        for node in &operator.nodes {
            operator.bring(node, "0");
        }
        operator
    }

    fn document(&self) -> String {
        let secret = self.cluster.get(NAMESPACE, SECRET).unwrap();
        let data = secret["data"][".dockerconfigjson"].as_str().unwrap();
        String::from_utf8(decode(data)).unwrap()
    }

    fn pause(&self, is_paused: bool) {
        let patch = json!({"spec": {"paused": is_paused}});
        let pool = format!("machineconfigpool.{MACHINE_CONFIG_GROUP}/worker");
        self.cluster.patch("default", &pool, patch).unwrap();
    }

    /// Writes the node's file as the operator does: a new file takes the place of the old one.
    fn bring(&self, node: &Node, hash: &str) {
        let name = format!("rendered-worker-{hash}");
        self.annotate(node, &json!({"desiredConfig": name, "state": "Working"}));
        let path = node.kubelet_dir().join("config.json");
        let temporary = path.with_file_name(".config.json.mcd");
        fs::write(&temporary, self.document()).unwrap();
        fs::set_permissions(&temporary, fs::Permissions::from_mode(0o600)).unwrap();
        fs::rename(&temporary, &path).unwrap();
        self.annotate(
            node,
            &json!({"currentConfig": name, "state": "Done", "reason": ""}),
        );
    }

    fn annotate(&self, node: &Node, annotations: &Value) {
        let annotations = annotations.as_object().into_iter().flatten();
        let named = annotations
            .map(|(name, value)| (format!("{MACHINE_CONFIG_GROUP}/{name}"), value.clone()));
        let named: serde_json::Map<String, Value> = named.collect();
        let patch = json!({"metadata": {"annotations": named}});
        let what = format!("node/{}", node.name());
        self.cluster.patch("default", &what, patch).unwrap();
    }
}
