//! Random events until the time is over, and what happened.

use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::fleet::{delivery_soak, hub_soak};
use crate::{Cluster, soak};

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

impl Random {
    fn time(&self) -> Duration {
        Duration::from_mins(self.minutes)
    }
}

pub fn run(soak: &Soak) -> Result<()> {
    match soak {
        Soak::Nodes { nodes, random } => on_nodes(*nodes, random),
        Soak::Delivery(random) => {
            let done = delivery_soak::soak(random.time(), random.seed)?;
            println!(
                "seed {}: {} iterations, {} events, {} controllers killed; the expected state was reached within {:.1} s at most",
                random.seed,
                done.rounds,
                done.events,
                done.kills,
                done.slowest.as_secs_f32(),
            );
            Ok(())
        }
        Soak::Hub(random) => {
            let done = hub_soak::soak(random.time(), random.seed)?;
            println!(
                "seed {}: {} iterations, {} events, {} hubs killed, {} members unreachable, {} times for long, the management cluster's API server frozen {} times, \
                 {} odd values, {} false identities or kubeconfigs, writes refused {} times, {} attacks of a tenant; \
                 at most {} KiB for a hub, \
                 at most {} in flight; the expected state was reached within {:.1} s at most",
                random.seed,
                done.rounds,
                done.events,
                done.kills,
                done.outages,
                done.waits,
                done.freezes,
                done.odd_values,
                done.lies,
                done.refusals,
                done.attacks,
                done.memory,
                done.most_in_flight,
                done.slowest.as_secs_f32(),
            );
            Ok(())
        }
    }
}

fn on_nodes(nodes: u8, random: &Random) -> Result<()> {
    let cluster = Cluster::up_named("soak", nodes)?;
    println!(
        "{nodes} nodes, {} minutes, seed {}",
        random.minutes, random.seed
    );
    let outcome = soak::soak(&cluster, random.time(), random.seed);
    if outcome.is_err() {
        // The cluster stays for an investigation: `testkit cluster down` stops it.
        let kubeconfig = cluster.kubeconfig();
        cluster.keep()?;
        eprintln!(
            "the cluster is left running: KUBECONFIG={}",
            kubeconfig.display()
        );
    }
    outcome
}
