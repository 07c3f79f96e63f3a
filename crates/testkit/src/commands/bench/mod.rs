//! Measurements of time and cost, on real and simulated nodes and clusters.

mod clusters;
mod fleet;
mod namespaces;
mod nodes;
mod plugin;
mod provider;
mod race;
mod rotation;

use anyhow::Result;
use clap::Subcommand;

#[derive(Subcommand)]
pub enum Bench {
    /// Measure how fast a rotation is and what the programs use, on three real nodes
    Rotation,
    /// Measure rotations on real nodes: with two limits, beside virtual nodes, and with a node that fails
    Nodes(nodes::Args),
    /// Measure rotations of a simulated fleet
    Fleet(fleet::Args),
    /// Measure pull secrets in many namespaces
    Namespaces(namespaces::Args),
    /// Measure the hub with simulated clusters
    Clusters(clusters::Args),
    /// Measure the plugin's response times on a simulated fleet
    Plugin(plugin::Args),
    /// Measure how long a pull waits for the credential provider
    Provider(provider::Args),
    /// Create a namespace and a pod together, many times, and count the pods that run
    Race(race::Args),
}

pub fn run(bench: &Bench) -> Result<()> {
    match bench {
        Bench::Rotation => rotation::run(),
        Bench::Nodes(args) => nodes::run(args),
        Bench::Fleet(args) => fleet::run(args),
        Bench::Namespaces(args) => namespaces::run(args),
        Bench::Clusters(args) => clusters::run(args),
        Bench::Plugin(args) => plugin::run(args),
        Bench::Provider(args) => provider::run(args),
        Bench::Race(args) => race::run(args),
    }
}
