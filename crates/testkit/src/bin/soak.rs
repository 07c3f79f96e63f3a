//! Runs random events of every kind on real nodes.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use globalps_testkit::{Cluster, Options, kubernetes, soak};

/// Run random events of every kind on a cluster of real nodes, and check its state at the end
#[derive(Parser)]
struct Args {
    /// Duration in minutes
    #[arg(long, default_value_t = 30)]
    minutes: u64,
    /// Number of nodes
    #[arg(long, default_value_t = 6)]
    nodes: u8,
    /// Determines which events happen and when; their outcome also depends on the machine
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    globalps_testkit::exit_code(&run(&Args::parse()))
}

fn run(args: &Args) -> Result<()> {
    let dir = kubernetes::target_dir().join("clusters/soak");
    let nodes = args.nodes;
    let cluster = Cluster::up(&Options { dir, nodes })?;
    println!(
        "{nodes} nodes, {} minutes, seed {}",
        args.minutes, args.seed
    );
    let outcome = soak::soak(&cluster, Duration::from_mins(args.minutes), args.seed);
    if outcome.is_err() {
        // The cluster stays for an investigation: `testcluster down` stops it.
        let kubeconfig = cluster.kubeconfig();
        cluster.keep()?;
        eprintln!(
            "the cluster is left running: KUBECONFIG={}",
            kubeconfig.display()
        );
    }
    outcome
}
