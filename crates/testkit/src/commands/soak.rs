//! Makes random events until the time is over, and prints them.

use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::fleet::{delivery_soak, hub_soak};
use crate::{Cluster, soak::nodes};

#[derive(Subcommand)]
pub enum Soak {
    /// Run random events of every kind on a cluster of real nodes, and check its state at the end
    Nodes {
        /// Number of nodes
        #[arg(long, env, default_value_t = 6)]
        nodes: u8,
        #[command(flatten)]
        random: Random,
    },
    /// Run delivery into namespaces under random events, and check the result after each iteration
    Delivery(Random),
    /// Run two hubs under random events, and check every member after each iteration
    Hub(Random),
}

#[derive(Args)]
pub struct Random {
    /// Duration in minutes
    #[arg(long, env, default_value_t = 30)]
    minutes: u64,
    /// Determines which events happen and when; their outcome also depends on the machine
    #[arg(long, env, default_value_t = 1)]
    seed: u64,
}

pub fn run(soak: &Soak) -> Result<()> {
    let (Soak::Nodes { random, .. } | Soak::Delivery(random) | Soak::Hub(random)) = soak;
    let Random { minutes, seed } = random;
    println!("{minutes} minutes, seed {seed}");
    let time = Duration::from_mins(*minutes);
    match soak {
        Soak::Nodes { nodes, .. } => on_nodes(*nodes, time, *seed),
        Soak::Delivery(_) => delivery_soak::soak(time, *seed),
        Soak::Hub(_) => hub_soak::soak(time, *seed),
    }
}

fn on_nodes(nodes: u8, time: Duration, seed: u64) -> Result<()> {
    let cluster = Cluster::up_named("soak", nodes)?;
    let outcome = nodes::soak(&cluster, time, seed);
    if outcome.is_err() {
        // The cluster stays for an investigation; `testkit cluster down` stops it.
        let kubeconfig = cluster.kubeconfig();
        cluster.keep()?;
        eprintln!(
            "the cluster is left running: KUBECONFIG={}",
            kubeconfig.display()
        );
    }
    outcome
}
