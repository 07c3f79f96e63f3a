//! Static pods belong to the kubelet: delivery to namespaces neither covers nor changes them.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use common::cluster;
use common::delivery::{NAME, install, wait_registries};
use common::objects::{apply, get, pod, wait_pod};
use globalps_testkit::product::DEADLINE;
use globalps_testkit::{Access, Node};
use serde_json::{Value, json};

const KUBELET_CONFIG: &str = "etc/kubernetes/kubelet.json";
/// kubeadm's directory of static pods.
const MANIFESTS: &str = "etc/kubernetes/manifests";

fn restart_kubelet(node: &Node) {
    let restart = ["systemctl", "restart", "kubelet.service"];
    node.exec(&restart).unwrap().ok().unwrap();
    node.wait_ready(DEADLINE).unwrap();
}

/// Makes the node's kubelet run the pods in that directory.
fn take_static_pods(node: &Node) {
    fs::create_dir_all(node.root().join(MANIFESTS)).unwrap();
    let path = node.root().join(KUBELET_CONFIG);
    let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    config["staticPodPath"] = json!(format!("/{MANIFESTS}"));
    fs::write(&path, config.to_string()).unwrap();
    restart_kubelet(node);
}

fn add_static_pod(node: &Node, name: &str, image: &str) {
    let path = node.root().join(MANIFESTS).join(format!("{name}.json"));
    let pod = pod("default", name, image, &json!({}));
    fs::write(path, pod.to_string()).unwrap();
}

#[test]
fn a_static_pod_is_not_covered_and_a_pod_beside_it_is() {
    let cluster = cluster("static-pods", 1);
    let registry = cluster.registry();
    let image = |access| registry.address(access);
    let private = format!("{}/team/app:1", image(Access::Private));
    let node = cluster.node("node-1").unwrap();
    take_static_pods(&node);
    let product = install(&cluster, "admission");
    product.apply(&registry.docker_config().unwrap()).unwrap();
    product.wait_synced().unwrap();
    wait_registries(&cluster, "default", &[&image(Access::Private)]);

    add_static_pod(&node, "static", &private);
    add_static_pod(
        &node,
        "static-open",
        &format!("{}/pause:1", image(Access::Open)),
    );
    apply(&cluster, &[pod("default", "normal", &private, &json!({}))]);
    wait_pod(&cluster, "default", "normal", false);
    wait_pod(&cluster, "default", "static-open-node-1", false);
    wait_pod(&cluster, "default", "static-node-1", true);
    let references = |name: &str| {
        let pod = get(&cluster, "default", &format!("pod/{name}"));
        pod["spec"]["imagePullSecrets"].clone()
    };
    assert_eq!(references("normal"), json!([{"name": NAME}]));
    assert_eq!(references("static-node-1"), Value::Null);

    // With the same credentials on the node the pod runs, so there is no other error.
    let config = node.kubelet_dir().join("config.json");
    assert!(!config.exists());
    fs::write(&config, registry.docker_config().unwrap()).unwrap();
    fs::set_permissions(&config, fs::Permissions::from_mode(0o600)).unwrap();
    restart_kubelet(&node);
    wait_pod(&cluster, "default", "static-node-1", false);
}
