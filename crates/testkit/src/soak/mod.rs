//! Runs random events of every kind on a cluster for a while, then checks that everything is in the expected state.

mod chaos;
mod files;
mod kubectl;
mod limits;
mod oddities;
mod power;
mod refusals;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use jiff::Timestamp;
use serde_json::json;

use chaos::Chaos;
pub use chaos::REGISTRY;

use crate::product::{NAMESPACE, Product};
use crate::{Cluster, Node, config_file, until};

/// Maximum number of nodes that change at the same time, as set in the `GlobalPullSecret`.
pub const MAX_UNAVAILABLE: usize = 2;
/// The delivery at the start and at the end, when the nodes' files are read.
const CONFIG_FILE: &str = "ConfigFile";
const POLL: Duration = Duration::from_millis(500);
/// The controller revokes assignments without response after two minutes, those of an unreachable node after five.
const CALM: Duration = Duration::from_mins(8);

/// Runs random events on a running cluster.
pub fn soak(cluster: &Cluster, length: Duration, seed: u64) -> Result<()> {
    let begun = Instant::now();
    let product = Product::install(cluster)?;
    let nodes = cluster.nodes()?;
    let mut chaos = Chaos::new(cluster, &product, &nodes, seed)?;
    product.apply(&content(&chaos.password()))?;
    limit(cluster, CONFIG_FILE)?;
    product.wait_synced()?;
    println!(
        "{:7.1} s  first rollout done",
        begun.elapsed().as_secs_f32()
    );

    while begun.elapsed() < length {
        let (what, outcome) = chaos.step();
        let outcome = match &outcome {
            Ok(()) => String::new(),
            Err(error) => {
                let text = format!("{error:#}");
                format!(" (failed: {})", text.lines().last().unwrap_or_default())
            }
        };
        println!("{:7.1} s  {what}{outcome}", begun.elapsed().as_secs_f32());
        chaos.rest();
    }
    println!("{:7.1} s  calm", begun.elapsed().as_secs_f32());
    chaos.calm()?;
    for node in &nodes {
        node.wait_ready(Duration::from_mins(3))?;
    }
    let last = chaos.password();
    let calm = Instant::now();
    until("the last content to be accepted", CALM, POLL, || {
        Ok(product.apply(&content(&last)).ok())
    })?;
    let synced = until("every node to have the last content", CALM, POLL, || {
        let (ready, ..) = product.condition("Ready")?;
        Ok((ready == "True" && all_have(&nodes, &last)?).then_some(()))
    });
    if let Err(error) = synced {
        let objects = cluster.kubectl(&["get", "nodepullsecrets", "-n", NAMESPACE, "-o", "wide"]);
        let status = product.status().unwrap_or_default();
        return Err(error.context(format!("{status}\n{}", objects.unwrap_or_default())));
    }
    let seconds = calm.elapsed().as_secs_f32();
    println!(
        "{:7.1} s  every node has the last content, {seconds:.1} s after it was applied",
        begun.elapsed().as_secs_f32()
    );
    check(cluster, &product, &nodes, &chaos)?;
    println!(
        "{:7.1} s  everything is in the expected state",
        begun.elapsed().as_secs_f32()
    );
    Ok(())
}

/// Credentials with this password.
fn content(password: &str) -> String {
    let auth = base64::prelude::BASE64_STANDARD.encode(format!("soak:{password}"));
    json!({"auths": {REGISTRY: {"auth": auth}}}).to_string()
}

/// Applies the user's configuration: an event may have changed or deleted it.
fn limit(cluster: &Cluster, delivery: &str) -> Result<()> {
    let config = json!({
        "apiVersion": "globalps.io/v1alpha1",
        "kind": "GlobalPullSecret",
        "metadata": {"name": "global-pull-secret", "namespace": NAMESPACE},
        "spec": {
            "kubelet": {"delivery": delivery},
            "rollout": {"maxUnavailable": MAX_UNAVAILABLE, "paused": false},
        },
    });
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

fn check(cluster: &Cluster, product: &Product, nodes: &[Node], chaos: &Chaos) -> Result<()> {
    for (node, registry, auth) in chaos.foreign() {
        let node = cluster.node(node)?;
        let found = config_file::auth(&node, registry)?;
        ensure!(
            found.as_deref() == Some(auth),
            "{}: another process's entry for {registry} is lost",
            node.name()
        );
    }
    println!(
        "entries of other processes   {}, all of them intact",
        chaos.foreign().count()
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
    let passwords: Vec<&str> = chaos.passwords().collect();
    product.assert_never_shown(&passwords)?;
    println!(
        "passwords                    {}, none of them found anywhere",
        passwords.len()
    );
    let mut starts = BTreeMap::new();
    for node in nodes {
        starts.insert(node.name(), kubelet_starts(node)?);
    }
    println!("kubelet starts               {starts:?}");
    let mut restarts = Vec::new();
    for node in nodes {
        restarts.push(
            product.node_status(node.name())?["restarts"]
                .as_i64()
                .unwrap_or_default(),
        );
    }
    println!(
        "of them for globalps         {restarts:?}, as reported by the nodes since their objects were created"
    );
    println!(
        "revision                     {}",
        product.status()?["revision"]
    );
    for (what, (done, failed)) in chaos.counts() {
        println!("{what:<28} {done}, and {failed} that failed");
    }
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
