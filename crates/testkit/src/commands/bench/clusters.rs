//! Measures the hub with many simulated clusters, and compares the result with what its limits, the members and the API
//! server allow.

use std::time::Duration;

use crate::fleet::clusters::{Figures, Options, Step, measure};
use anyhow::Result;

#[derive(clap::Args)]
pub struct Args {
    /// Number of clusters; several with commas
    #[arg(long, env, value_delimiter = ',', default_value = "100,1000")]
    clusters: Vec<usize>,
    /// Milliseconds until each node of a cluster has a new Secret
    #[arg(long, env, default_value_t = 200)]
    time: u64,
    /// Hub processes that share the clusters
    #[arg(long, env, default_value_t = 1)]
    shards: u32,
    /// Let the clusters speak plain HTTP instead of TLS
    #[arg(long)]
    plain: bool,
    /// Seconds to measure without any change
    #[arg(long, default_value_t = 60)]
    idle: u64,
}

pub fn run(args: &Args) -> Result<()> {
    for clusters in &args.clusters {
        let figures = measure(&Options {
            clusters: *clusters,
            time: Duration::from_millis(args.time),
            has_tls: !args.plain,
            shards: args.shards,
            idle: Duration::from_secs(args.idle),
        })?;
        print(&figures);
    }
    Ok(())
}

fn print(figures: &Figures) {
    let time = figures.options.time;
    println!(
        "{} clusters, each finished after {} ms; the management API server takes {:.0} writes/s",
        figures.options.clusters,
        time.as_millis(),
        figures.capacity
    );
    println!(
        "{:<22} {:>8} {:>9} {:>7} {:>9} {:>7} {:>7} {:>10} {:>8}",
        "", "time", "by limits", "ratio", "by writes", "ratio", "writes", "reconciles", "CPU"
    );
    for (what, step) in [
        ("cold start", &figures.cold),
        ("rotation, 10 %", &figures.tenth),
        ("rotation, 100 %", &figures.all),
        ("third away, 10 %", &figures.away),
        ("third is back", &figures.back),
        ("restart, all watched", &figures.restart),
        ("the 10 s after it", &figures.settled),
        ("idle", &figures.idle),
    ] {
        line(what, step, time, figures.capacity);
    }
    for (what, step) in [
        ("rotation", &figures.tenth),
        ("restart", &figures.restart),
        ("the 10 s after it", &figures.settled),
        ("idle", &figures.idle),
    ] {
        println!("{what}: hub {:?}", step.requests);
        println!("{what}: members {:?}", step.at_members);
    }
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let megabytes = |kib: u64| kib as f64 * 1024.0 / 1e6;
    println!(
        "hub's memory: {:.1} MB without clusters, {:.1} MB after all, {:.1} MB at most, {:.1} MB of all {} shards; {} files open",
        megabytes(figures.fresh.resident),
        megabytes(figures.last.resident),
        megabytes(figures.last.most_resident),
        megabytes(figures.resident),
        figures.options.shards,
        figures.files
    );
}

fn line(what: &str, step: &Step, time: Duration, capacity: f64) {
    let took = step.time.as_secs_f64();
    let least = step.least(time).as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let by_writes = step.writes() as f64 / capacity;
    let ratio = |least: f64| {
        if least > 0.0 && step.waves > 0 {
            format!("{:.2}", took / least)
        } else {
            "-".to_owned()
        }
    };
    println!(
        "{what:<22} {took:>6.2} s {least:>7.2} s {:>7} {by_writes:>7.2} s {:>7} {:>7} {:>10} {:>6.2} s",
        ratio(least),
        ratio(by_writes),
        step.writes(),
        step.reconciles,
        step.processor.as_secs_f64()
    );
}
