//! Measures how the time and the cost of a rotation grow with the number of nodes.

use std::time::Duration;

use crate::fleet::{Figures, Options, fit, measure};
use anyhow::Result;

#[derive(clap::Args)]
pub struct Args {
    /// Numbers of nodes; several with commas
    #[arg(long, env, value_delimiter = ',', default_value = "100,1000,5000")]
    nodes: Vec<usize>,
    /// Seconds to measure without any change
    #[arg(long, default_value_t = 180)]
    idle: u64,
    /// Seconds to watch a rotation of one node at a time
    #[arg(long, default_value_t = 90)]
    one_at_a_time: u64,
}

pub fn run(args: &Args) -> Result<()> {
    let mut all = Vec::new();
    for &nodes in &args.nodes {
        let figures = measure(&Options {
            nodes,
            idle: Duration::from_secs(args.idle),
            one_at_a_time: Duration::from_secs(args.one_at_a_time),
        })?;
        print(&figures);
        all.push(figures);
    }
    if all.len() > 2 {
        print_fits(&all);
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn print(figures: &Figures) {
    let nodes = figures.nodes;
    println!("{nodes} nodes");
    println!(
        "  API server, with all watches open     {:.0} requests/s of a rotation's mix",
        figures.capacity
    );
    for (what, rotation) in [
        ("first rollout", &figures.first),
        ("rotation, 10% at a time", &figures.tenth),
        ("rotation in place", &figures.in_place),
    ] {
        let (time, floor) = (
            rotation.time.as_secs_f64(),
            figures.floor(rotation).as_secs_f64(),
        );
        println!(
            "  {what:<37} {time:.1} s, {:.2} x the limit of {floor:.1} s ({} waves of 0.5 s, {} requests)",
            time / floor,
            rotation.waves,
            rotation.requests.of_rotation()
        );
        println!(
            "    per node                            {:.2} requests, {:.0} bytes, {:.2} ms of the controller's CPU",
            rotation.requests.of_rotation() as f64 / nodes as f64,
            rotation.requests.bytes / nodes as f64,
            rotation.processor.as_secs_f64() * 1000.0 / nodes as f64
        );
        for (request, count) in &rotation.requests.counts {
            println!("    {request:<35} {count}");
        }
    }
    let (each, seen) = figures.one_at_a_time;
    let whole = each.as_secs_f64() * nodes as f64;
    let how = if seen == nodes {
        "measured"
    } else {
        "computed"
    };
    println!(
        "  rotation, one node at a time          {:.3} s per node on {seen} nodes: {whole:.0} s for all, {how}",
        each.as_secs_f64()
    );
    println!(
        "  controller's memory                   {:.1} MB after its start, {:.1} MB at the end, {:.1} MB at most",
        megabytes(figures.fresh.resident),
        megabytes(figures.last.resident),
        megabytes(figures.last.most_resident)
    );
    let (requests, minutes) = &figures.idle;
    let requests: Vec<_> = requests
        .iter()
        .map(|(request, count)| format!("{count} {request}"))
        .collect();
    println!(
        "  controller, {minutes:.1} idle minutes          {} ms of CPU; requests: {}",
        figures.idle_processor.as_millis(),
        if requests.is_empty() {
            "none".to_owned()
        } else {
            requests.join(", ")
        }
    );
}

/// KiB in MB of 1,000,000 bytes.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn megabytes(kib: u64) -> f64 {
    kib as f64 * 1024.0 / 1e6
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn print_fits(all: &[Figures]) {
    type Cost = fn(&Figures) -> f64;
    println!("cost of N nodes, linear fit");
    #[rustfmt::skip]
    let costs: [(&str, Cost); 4] = [
        ("requests of a rotation", |figures| { figures.tenth.requests.of_rotation() as f64 }),
        ("controller's CPU, s per rotation", |figures| { figures.tenth.processor.as_secs_f64() }),
        ("controller's memory at the end, MB", |figures| { megabytes(figures.last.resident) }),
        ("controller's memory at most, MB", |figures| { megabytes(figures.last.most_resident) }),
    ];
    for (what, of) in costs {
        let points: Vec<_> = all
            .iter()
            .map(|figures| (figures.nodes as f64, of(figures)))
            .collect();
        let line = fit::line(&points);
        println!(
            "  {what:<37} {:.3} + {:.5} N (R2 {:.4})",
            line.at_zero, line.slope, line.r2
        );
    }
}
