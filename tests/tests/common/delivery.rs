//! Delivery to namespaces, on a cluster whose nodes get no credentials.

use std::time::Duration;

use globalps_testkit::product::{DEADLINE, Product};
use globalps_testkit::{Cluster, until};
use serde_json::{Value, json};

use super::objects::{get, registries_of};

const POLL: Duration = Duration::from_millis(50);
/// Name of the Secret in each namespace.
pub const NAME: &str = "global-pull-secret";

/// Flags of `install` for a cluster whose nodes get no credentials.
pub const FLAGS: [&str; 3] = ["--deliver-to-namespaces", "--delivery", "none"];

/// Installs globalps without delivery to nodes.
pub fn install<'a>(cluster: &'a Cluster, attach: &str) -> Product<'a> {
    let flags = [&FLAGS[..], &["--attach", attach]].concat();
    Product::install_with(cluster, &flags).unwrap()
}

/// The registries in the Secret's content; empty if the Secret does not exist.
pub fn registries(cluster: &Cluster, namespace: &str) -> Vec<String> {
    registries_of(cluster, namespace, NAME)
}

pub fn wait_registries(cluster: &Cluster, namespace: &str, wanted: &[&str]) {
    until(
        &format!("{wanted:?} in {namespace}"),
        DEADLINE,
        POLL,
        || Ok((registries(cluster, namespace) == wanted).then_some(())),
    )
    .unwrap_or_else(|error| panic!("{error:#}: {:?}", registries(cluster, namespace)));
}

/// Waits until `NamespacesSynced` has this reason; returns its message.
pub fn wait_reason(product: &Product, reason: &str) -> String {
    product.wait_reason("NamespacesSynced", reason).unwrap()
}

/// Waits until the status has failures of exactly these namespaces, each with its reason; returns the first one's message.
pub fn wait_failures(product: &Product, wanted: &[(&str, &str)]) -> String {
    let failures = || {
        product
            .status()
            .map(|s| s["imagePullSecrets"]["failures"].clone())
    };
    let what = format!("failures of namespaces: {wanted:?}");
    let expected = json!(wanted);
    let brief = |failures: &Value| {
        let all = failures.as_array().into_iter().flatten();
        let pairs: Vec<_> = all
            .map(|one| json!([one["namespace"], one["reason"]]))
            .collect();
        json!(pairs)
    };
    until(&what, DEADLINE, POLL, || {
        let failures = failures()?;
        let message = failures[0]["message"].as_str().unwrap_or_default();
        Ok((brief(&failures) == expected).then(|| message.to_owned()))
    })
    .unwrap_or_else(|error| panic!("{error:#}: {:?}", failures()))
}

/// The Secret's resourceVersion, which changes with every write.
pub fn version(cluster: &Cluster, namespace: &str) -> Value {
    get(cluster, namespace, &format!("secret/{NAME}"))["metadata"]["resourceVersion"].clone()
}
