//! The cluster's own pull secret: globalps merges it, follows its changes, and never lets it block the additional one.

mod common;

use std::time::Duration;

use common::{base64, cluster, docker_config, roll_out};
use globalps_testkit::product::{Product, reconfigure};
use globalps_testkit::{Cluster, Node, config_file, wait};
use serde_json::json;

const POLL: Duration = Duration::from_millis(100);
const SHARED: &str = "shared.example.com";

#[test]
fn original_and_additional_secret_never_delay_each_other() {
    let cluster = cluster("originals", 1);
    cluster.types("create namespace shared");
    original(
        &cluster,
        &docker_config(&[("original.example.com", "o:one"), (SHARED, "o:one")]),
    );
    let product = Product::install_with(&cluster, &["--original", "shared/pull-secret"]).unwrap();
    let nodes = cluster.nodes().unwrap();
    let node = &nodes[0];

    roll_out(&product, &[("r.example.com", "a:one"), (SHARED, "a:one")]);
    in_force(
        node,
        &[
            ("original.example.com", "o:one"),
            ("r.example.com", "a:one"),
            (SHARED, "a:one"),
        ],
    );
    let conflicts = product.status().unwrap()["conflicts"].clone();
    assert_eq!(
        conflicts,
        json!([{"registry": SHARED, "effective": "Additional"}])
    );

    // While the additional Secret is invalid, changes of the original are still rolled out.
    product.apply("{}").unwrap();
    product.wait_condition("AdditionalValid", "False").unwrap();
    original(
        &cluster,
        &docker_config(&[("original.example.com", "o:two")]),
    );
    in_force(
        node,
        &[
            ("original.example.com", "o:two"),
            ("r.example.com", "a:one"),
            (SHARED, "a:one"),
        ],
    );

    // The reverse also holds; the last valid content stays.
    original(&cluster, "no credentials");
    product.wait_condition("OriginalValid", "False").unwrap();
    roll_out(&product, &[("r.example.com", "a:two")]);
    in_force(
        node,
        &[
            ("original.example.com", "o:two"),
            ("r.example.com", "a:two"),
        ],
    );

    // If the original has one invalid entry, the others are used.
    original(
        &cluster,
        &json!({"auths": {"good.example.com": {"auth": base64("o:good")}, "bad.example.com": {"auth": "!"}}}).to_string(),
    );
    in_force(
        node,
        &[("good.example.com", "o:good"), ("r.example.com", "a:two")],
    );
    let message = product.wait_reason("OriginalValid", "BadEntries").unwrap();
    assert!(message.contains("`bad.example.com`"), "{message}");

    // The user can reverse the order of precedence.
    original(&cluster, &docker_config(&[("r.example.com", "o:three")]));
    in_force(node, &[("r.example.com", "a:two")]);
    reconfigure(&cluster, &json!({"precedence": "Original"})).unwrap();
    in_force(node, &[("r.example.com", "o:three")]);

    product.delete().unwrap();
    product.wait_clean().unwrap();
    assert_eq!(config_file::read(node).unwrap(), None);
}

fn original(cluster: &Cluster, content: &str) {
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "pull-secret", "namespace": "shared"},
        "type": "Opaque",
        "stringData": {".dockerconfigjson": content},
    });
    cluster.apply(secret).unwrap();
}

/// Waits until the node has exactly these registries and credentials.
fn in_force(node: &Node, entries: &[(&str, &str)]) {
    let wanted = docker_config(entries);
    let wanted: serde_json::Value = serde_json::from_str(&wanted).unwrap();
    wait("the credentials on the node", POLL, || {
        let bytes = config_file::read(node)?.map(|file| file.bytes);
        let found: serde_json::Value =
            serde_json::from_slice(&bytes.unwrap_or_default()).unwrap_or_default();
        Ok((found == wanted).then_some(()))
    });
}
