//! Helpers of the tests on real clusters.
#![allow(dead_code, reason = "not every test file needs all of it")]

pub mod admin;
pub mod delivery;
pub mod desk;
pub mod objects;
pub mod shared;
pub mod unrun;
pub mod upgrade;

use std::time::Duration;

use globalps_testkit::product::Product;
use globalps_testkit::{Cluster, Node, config_file, secrecy, wait};
use serde_json::json;

const POLL: Duration = Duration::from_millis(100);

/// A cluster for this test file, removed when it is dropped, and also if the test is killed.
pub fn cluster(name: &str, nodes: u8) -> Cluster {
    Cluster::up_named(name, nodes).unwrap_or_else(|error| panic!("no cluster: {error:#}"))
}

/// Installs only the definitions of the nodes' resources, so that objects stay as the test writes them.
pub fn install_crds(cluster: &Cluster) {
    let crds = concat!(env!("CARGO_MANIFEST_DIR"), "/../manifests/crds.yaml");
    cluster.kubectl(&["apply", "-f", crds]).unwrap();
    for crd in ["globalpullsecrets", "nodepullsecrets"] {
        let line = format!("wait --for=condition=Established crd/{crd}.globalps.io");
        cluster.kubectl_line(&line).unwrap();
    }
}

/// A credentials file with these pairs of registry and `user:password`.
pub fn docker_config(entries: &[(&str, &str)]) -> String {
    for (_, pair) in entries {
        let (user, password) = pair.split_once(':').unwrap_or_default();
        secrecy::remember_login(user, password);
    }
    let auths: serde_json::Map<String, serde_json::Value> = entries
        .iter()
        .map(|(registry, pair)| ((*registry).to_owned(), json!({"auth": base64(pair)})))
        .collect();
    json!({"auths": auths}).to_string()
}

/// Writes the additional Secret, with these pairs of registry and `user:password`.
pub fn write(product: &Product, entries: &[(&str, &str)]) {
    product.apply(&docker_config(entries)).unwrap();
}

/// Like [`write`], and waits until every node has the content.
pub fn roll_out(product: &Product, entries: &[(&str, &str)]) {
    write(product, entries);
    product.wait_synced().unwrap();
}

pub fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::prelude::BASE64_STANDARD.encode(text)
}

pub fn decode(text: &str) -> Vec<u8> {
    use base64::Engine as _;
    base64::prelude::BASE64_STANDARD.decode(text).unwrap()
}

/// Returns when this many controllers run and all of them are ready.
pub fn scale_controllers(cluster: &Cluster, replicas: u8) {
    let flag = format!("--replicas={replicas}");
    cluster.types(&format!(
        "scale deployment/globalps-controller -n globalps-system {flag}"
    ));
    wait("the number of controllers", POLL, || {
        let deployment = cluster.get("globalps-system", "deployment/globalps-controller")?;
        anyhow::ensure!(!deployment.is_null(), "there is no controller");
        let status = &deployment["status"];
        let number = |field: &str| status[field].as_u64().unwrap_or_default();
        let pods = cluster.kubectl(&["get", "pods", "-n", "globalps-system", "-o", "name"])?;
        let there = pods.lines().count() as u64;
        let wanted = u64::from(replicas);
        Ok((number("readyReplicas") == wanted && there == wanted).then_some(()))
    });
}

/// Waits until the API server refuses this line of kubectl with a message that contains this text. Policies, quotas and
/// permissions take effect a moment after they are written.
pub fn wait_refused(cluster: &Cluster, line: &str, reason: &str) {
    wait(&format!("`{line}` to be refused"), POLL, || {
        let refused = cluster.kubectl_line(line).err();
        let refused = refused.filter(|error| format!("{error:#}").contains(reason));
        Ok(refused.map(drop))
    });
}

/// Waits until every node's file has this pair of user and password for the registry; `None`: no entry.
pub fn wait_auth(nodes: &[Node], registry: &str, pair: Option<&str>) {
    let wanted = pair.map(base64);
    let what = format!("the expected entry for {registry} on every node");
    wait(&what, POLL, || {
        let mut auths = nodes.iter().map(|node| config_file::auth(node, registry));
        let all = auths.all(|auth| auth.unwrap() == wanted);
        Ok(all.then_some(()))
    });
}
