//! How fast a rotation is, and how lean what runs: figures, not a test.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use globalps_tests::product::Product;
use globalps_tests::watch::Watch;
use globalps_tests::{Cluster, Options, kubernetes};
use serde_json::json;

const NODES: u8 = 3;
const ROTATIONS: i64 = 20;

fn main() -> ExitCode {
    match bench() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn bench() -> Result<()> {
    let dir = kubernetes::target_dir().join("clusters/bench");
    let cluster = Cluster::up(&Options { dir, nodes: NODES })?;
    let product = Product::install(&cluster)?;
    let nodes = cluster.nodes()?;
    product.apply(&content(0))?;
    product.wait_synced()?;
    let before: usize = nodes
        .iter()
        .map(|node| product.kubelet_starts(node))
        .sum::<Result<usize>>()?;

    let (mut first_file, mut all_synced) = (Vec::new(), Vec::new());
    for round in 1..=ROTATIONS {
        let watch = Watch::start(&cluster, nodes.len())?;
        let begun = SystemTime::now();
        product.apply(&content(round))?;
        let synced = watch.all_synced(round + 1)?;
        let mut written = Vec::new();
        for node in &nodes {
            written.push(std::fs::metadata(node.kubelet_dir().join("config.json"))?.modified()?);
        }
        first_file.push(
            written
                .into_iter()
                .min()
                .context("no nodes")?
                .duration_since(begun)?,
        );
        all_synced.push(synced.duration_since(begun)?);
        product.wait_synced()?;
    }
    let after: usize = nodes
        .iter()
        .map(|node| product.kubelet_starts(node))
        .sum::<Result<usize>>()?;
    let rotations = usize::try_from(ROTATIONS)?;

    println!(
        "{NODES} nodes, {ROTATIONS} rotations, one node at a time, each verified; from the start of `kubectl apply`"
    );
    println!("first node's file written   {}", spread(&mut first_file));
    println!("every node Synced           {}", spread(&mut all_synced));
    println!(
        "kubelet starts              {} in {} changes of a node",
        after - before,
        rotations * nodes.len()
    );
    for node in &nodes {
        for program in ["globalps-controller", "globalps-syncer"] {
            let script = format!(
                "for p in $(pgrep -x {}); do grep VmRSS /proc/$p/status; done",
                &program[..15]
            );
            for line in node.exec(&["sh", "-c", &script])?.ok()?.lines() {
                println!(
                    "resident memory             {} {program} on {}",
                    line.trim_start_matches("VmRSS:").trim(),
                    node.name()
                );
            }
        }
    }
    for image in ["globalps-controller", "globalps-syncer"] {
        let size =
            std::fs::metadata(kubernetes::target_dir().join(format!("images/{image}.tar")))?.len();
        println!("image                       {size} bytes {image}");
    }
    Ok(())
}

fn content(round: i64) -> String {
    json!({"auths": {"bench.example.com": {"username": "bench", "password": round.to_string()}}})
        .to_string()
}

/// Median, least and most.
fn spread(times: &mut [Duration]) -> String {
    times.sort();
    let seconds = |at: usize| times[at].as_secs_f64();
    format!(
        "{:.3} s median ({:.3} to {:.3})",
        seconds(times.len() / 2),
        seconds(0),
        seconds(times.len() - 1)
    )
}
