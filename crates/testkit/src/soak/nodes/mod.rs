//! Runs random events of every kind on a cluster for a while, then checks that everything is in the expected state.

mod chaos;
mod files;
mod kubectl;
mod limits;
mod oddities;
mod power;
mod refusals;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use jiff::Timestamp;
use serde_json::json;

use crate::fleet::block_on;
use chaos::Chaos;

use crate::product::{NAMESPACE, Product, configuration};
use crate::{Cluster, Node, config_file, until};

const REGISTRY: &str = "soak.example.com";
/// Maximum number of nodes that change at the same time, as set in the `GlobalPullSecret`.
pub const MAX_UNAVAILABLE: usize = 2;
/// The delivery at the start and at the end, when the nodes' files are read.
const CONFIG_FILE: &str = "ConfigFile";
const POLL: Duration = Duration::from_millis(500);
/// The controller revokes an assignment without response after two minutes, that of an unreachable node after five.
const CALM: Duration = Duration::from_mins(8);

/// Runs random events on a running cluster.
pub fn soak(cluster: &Cluster, time: Duration, seed: u64) -> Result<()> {
    let product = Product::install(cluster)?;
    let nodes = cluster.nodes()?;
    let mut chaos = Chaos::new(cluster, &product, &nodes, seed)?;
    product.apply(&content(&chaos.password()))?;
    limit(cluster, CONFIG_FILE)?;
    product.wait_synced()?;
    block_on(super::soak(&mut chaos, time)).with_context(|| {
        let objects = cluster.kubectl(&["get", "nodepullsecrets", "-n", NAMESPACE, "-o", "wide"]);
        let status = product.status().unwrap_or_default();
        format!("{status}\n{}", objects.unwrap_or_default())
    })
}

/// A credentials file with this password.
fn content(password: &str) -> String {
    let auth = base64::prelude::BASE64_STANDARD.encode(format!("soak:{password}"));
    json!({"auths": {REGISTRY: {"auth": auth}}}).to_string()
}

/// Applies the user's configuration, because an event may have changed or deleted it.
fn limit(cluster: &Cluster, delivery: &str) -> Result<()> {
    let config = configuration(&json!({
        "kubelet": {"delivery": delivery},
        "rollout": {"maxUnavailable": MAX_UNAVAILABLE, "paused": false},
    }));
    until("the configuration", Duration::from_mins(1), POLL, || {
        Ok(kubectl::apply(cluster, &config).ok())
    })
}

fn all_have(nodes: &[Node], password: &str) -> Result<bool> {
    let auth = base64::prelude::BASE64_STANDARD.encode(format!("soak:{password}"));
    for node in nodes {
        if config_file::auth(node, REGISTRY)?.as_deref() != Some(&auth) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn check(chaos: &Chaos) -> Result<()> {
    let (cluster, product, nodes) = (chaos.cluster, chaos.product, chaos.nodes);
    for (node, registry, auth) in chaos.files.foreign() {
        let found = config_file::auth(&cluster.node(node)?, registry)?;
        ensure!(
            found.as_deref() == Some(auth),
            "{node}: another process's entry for {registry} is lost"
        );
    }
    println!(
        "entries of other processes   {}, all of them intact",
        chaos.files.foreign().count()
    );
    let limits = limits::read(&cluster.audit_log(), &created(cluster)?)?;
    println!(
        "nodes in flight at once      at most {} of {MAX_UNAVAILABLE}, in {} assignments and {} statuses",
        limits.most, limits.assignments, limits.statuses
    );
    ensure!(
        limits.most <= MAX_UNAVAILABLE,
        "{} at {}: more than {MAX_UNAVAILABLE} nodes at once",
        limits.at.0.join(", "),
        limits.at.1
    );
    let passwords: Vec<&str> = chaos.passwords.iter().map(String::as_str).collect();
    product.assert_never_shown(&passwords)?;
    println!(
        "passwords                    {}, none of them found anywhere",
        passwords.len()
    );
    let (mut starts, mut restarts) = (BTreeMap::new(), Vec::new());
    for node in nodes {
        starts.insert(node.name(), kubelet_starts(node)?);
        let status = product.node_status(node.name())?;
        restarts.push(status["restarts"].as_i64().unwrap_or_default());
    }
    println!("kubelet starts               {starts:?}");
    println!(
        "of them for globalps         {restarts:?}, as reported by the nodes since their objects were created"
    );
    println!(
        "revision                     {}",
        product.status()?["revision"]
    );
    Ok(())
}

/// When each Node was created.
fn created(cluster: &Cluster) -> Result<BTreeMap<String, Timestamp>> {
    let nodes = cluster.get("", "nodes")?;
    let nodes = nodes["items"].as_array().context("no list")?.iter();
    nodes
        .map(|node| {
            let text = |field: &str| node["metadata"][field].as_str().unwrap_or_default();
            Ok((text("name").to_owned(), text("creationTimestamp").parse()?))
        })
        .collect()
}

/// Kubelet starts since the node's first boot.
fn kubelet_starts(node: &Node) -> Result<usize> {
    let log = std::fs::read(node.log()).with_context(|| format!("{}", node.log().display()))?;
    let log = String::from_utf8_lossy(&log);
    // At boot the console also logs the start in another format, which does not match.
    Ok(log.matches("systemd[1]: Started kubelet.service").count())
}
