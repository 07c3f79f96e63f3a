//! Measures rotations on real nodes: with the default limit, with a quarter of the nodes at once, with virtual nodes beside them,
//! with a node that fails, and with the credential provider.

use std::thread::sleep;
use std::time::{Duration, SystemTime};

use crate::broken_kubelet::break_kubelet;
use crate::product::{CONFIG, DEADLINE, Product, merge};
use crate::watch::{Watch, median};
use crate::{Cluster, Node, config_file, until, virtual_nodes};
use anyhow::{Context, Result, ensure};
use serde_json::json;

/// The syncer waits before it restarts the same kubelet again; this wait must not count.
const RESTART_INTERVAL: Duration = Duration::from_secs(11);
const ROTATIONS: usize = 3;
const POLL: Duration = Duration::from_millis(100);
const IN_PLACE: usize = 20;
const WORSE: &str = "worse.example.com";

#[derive(clap::Args)]
pub struct Args {
    /// Number of nodes
    #[arg(long, env, default_value_t = 12)]
    nodes: u8,
}

pub fn run(args: &Args) -> Result<()> {
    let cluster = Cluster::up_named("rotation", args.nodes)?;
    let product = Product::install(&cluster)?;
    let nodes = cluster.nodes()?;
    product.apply(&content("rotation.example.com", 0))?;
    product.wait_synced()?;
    println!(
        "{} nodes; times from the start of `kubectl apply`",
        nodes.len()
    );
    let mut round = 0;
    let mut rotate_all = || -> Result<Vec<f32>> {
        let mut medians = Vec::new();
        for limit in ["10%", "25%"] {
            set_limit(&cluster, limit)?;
            let mut seconds = Vec::new();
            for _ in 0..ROTATIONS {
                round += 1;
                seconds.push(rotate(&cluster, &product, &nodes, limit, round)?);
            }
            medians.push(median(seconds));
        }
        Ok(medians)
    };
    let alone = rotate_all()?;
    let beside = virtual_nodes::with_two(&cluster, || {
        println!("with two virtual nodes beside them");
        until("two unsupported nodes", DEADLINE, POLL, || {
            Ok((product.status()?["counts"]["unsupported"] == 2).then_some(()))
        })?;
        let seconds = rotate_all()?;
        let gone = virtual_nodes::NAMES.map(|name| format!("node/{name}"));
        cluster.kubectl(&["delete", &gone[0], &gone[1]])?;
        Ok(seconds)
    })?;
    println!(
        "medians                     {alone:.2?} s alone, {beside:.2?} s beside virtual nodes"
    );
    in_place(&cluster, &product, &nodes, round)?;
    with_one_that_fails(&cluster, &product, &nodes)
}

/// With the credential provider: no kubelet restarts.
fn in_place(cluster: &Cluster, product: &Product, nodes: &[Node], rounds: i64) -> Result<()> {
    let deliver = |delivery: &str| -> Result<()> {
        let patch = json!({"spec": {"kubelet": {"delivery": delivery}}});
        merge(cluster, CONFIG, &patch)?;
        product.wait_delivered(nodes, delivery)
    };
    deliver("CredentialProvider")?;
    let before = product.starts(nodes)?;
    let mut seconds: [Vec<f32>; 3] = Default::default();
    for round in 1..=IN_PLACE {
        let revision = product.revision()? + 1;
        let watch = Watch::start(cluster, nodes.len())?;
        let begun = SystemTime::now();
        product.apply(&content(
            "rotation.example.com",
            rounds + i64::try_from(round)?,
        ))?;
        let synced = watch.all_synced(revision)?;
        product.wait_synced()?;
        let mut written = Vec::new();
        for node in nodes {
            let data = node.kubelet_dir().join(".globalps/credentials.json");
            written.push(data.metadata()?.modified()?);
        }
        let first = written.iter().min().context("no nodes")?;
        let last = written.iter().max().context("no nodes")?;
        let synced = synced.values().max().context("no nodes")?;
        for (all, time) in seconds.iter_mut().zip([first, last, synced]) {
            all.push(time.duration_since(begun)?.as_secs_f32());
        }
    }
    let after = product.starts(nodes)?;
    println!(
        "with the credential provider, {IN_PLACE} rotations; times from the start of `kubectl apply`"
    );
    for (what, mut all) in ["first node's data", "last node's data", "every node Synced"]
        .into_iter()
        .zip(seconds)
    {
        all.sort_by(f32::total_cmp);
        let middle = all[all.len() / 2];
        let (least, most) = (all[0], all[all.len() - 1]);
        println!("{what:<27} {middle:.2} s median ({least:.2} to {most:.2})");
    }
    println!(
        "kubelet starts              {:?}",
        after
            .iter()
            .zip(&before)
            .map(|(a, b)| a - b)
            .collect::<Vec<_>>()
    );
    ensure!(after == before, "a kubelet was restarted");
    deliver("ConfigFile")
}

fn rotate(
    cluster: &Cluster,
    product: &Product,
    nodes: &[Node],
    limit: &str,
    round: i64,
) -> Result<f32> {
    sleep(RESTART_INTERVAL);
    let before = product.starts(nodes)?;
    let revision = product.revision()? + 1;
    let watch = Watch::start(cluster, nodes.len())?;
    let most = Watch::start(cluster, nodes.len())?;
    let begun = SystemTime::now();
    product.apply(&content("rotation.example.com", round))?;
    let synced = watch.all_synced(revision)?;
    let last = synced.into_values().max().context("no nodes")?;
    product.wait_synced()?;
    let after = product.starts(nodes)?;
    let each: Vec<usize> = after.iter().zip(before).map(|(a, b)| a - b).collect();
    let seconds = last.duration_since(begun)?.as_secs_f32();
    println!(
        "maxUnavailable {limit:<4} every node Synced after {seconds:.2} s; at most {} at once; kubelet starts of each node {each:?}",
        most.most_at_once(revision)?
    );
    ensure!(
        each.iter().all(|starts| *starts == 1),
        "more or fewer than one kubelet start on a node"
    );
    Ok(seconds)
}

/// The node in the middle fails: the nodes before it have the content, the nodes after it are never assigned it.
fn with_one_that_fails(cluster: &Cluster, product: &Product, nodes: &[Node]) -> Result<()> {
    sleep(RESTART_INTERVAL);
    set_limit(cluster, "10%")?;
    // Nodes are assigned in the order of their names.
    let mut names: Vec<&str> = nodes.iter().map(Node::name).collect();
    names.sort_unstable();
    let middle = names.len() / 2;
    let broken = cluster.node(names[middle])?;
    break_kubelet(&broken, WORSE)?;
    let before = product.starts(nodes)?;
    product.apply(&content(WORSE, 1))?;
    product.wait_condition("Degraded", "True")?;
    // Time for a wrong assignment to show.
    sleep(Duration::from_secs(5));
    let after = product.starts(nodes)?;
    let (mut have, mut untouched) = (Vec::new(), Vec::new());
    for (node, (before, after)) in nodes.iter().zip(before.iter().zip(after)) {
        if config_file::auth(node, WORSE)?.is_some() {
            have.push(node.name());
        } else if *before == after {
            untouched.push(node.name());
        }
    }
    println!(
        "{} fails: {} nodes had the content before, {} nodes are unchanged",
        broken.name(),
        have.len(),
        untouched.len()
    );
    let status = product.plugin(&["status"], "")?;
    println!(
        "$ kubectl globalps status\n{}{}",
        status.stdout, status.stderr
    );
    ensure!(have.len() == middle, "had it: {have:?}");
    ensure!(
        untouched.len() == nodes.len() - middle - 1,
        "untouched: {untouched:?}"
    );
    let failed = product.node_status(broken.name())?;
    ensure!(failed["phase"] == "RolledBack", "{failed}");
    until("its kubelet to run", DEADLINE, POLL, || {
        Ok(broken.is_ready()?.then_some(()))
    })
}

fn set_limit(cluster: &Cluster, limit: &str) -> Result<()> {
    let patch = json!({"spec": {"rollout": {"maxUnavailable": limit}}});
    merge(cluster, CONFIG, &patch)
}

fn content(registry: &str, round: i64) -> String {
    json!({"auths": {registry: {"username": "rotation", "password": round.to_string()}}})
        .to_string()
}
