//! Measures how long a user waits for the plugin, and compares the result with the goals.

use std::time::Duration;

use crate::fleet::plugin::{PluginFigures, measure, median};
use anyhow::Result;

/// Goals: times in milliseconds that users don't notice, and memory in MB that every machine has.
const HELP: u64 = 10;
const FIRST_REQUEST: u64 = 30;
const STATUS: u64 = 500;
const STATUS_MEMORY: f64 = 60.0;
const ADD: u64 = 300;
const CHANGE: u64 = 200;
const LIVE_MEMORY: f64 = 30.0;

#[derive(clap::Args)]
pub struct Args {
    /// Number of nodes
    #[arg(long, env, default_value_t = 5000)]
    nodes: usize,
    /// Runs of each command
    #[arg(long, default_value_t = 30)]
    runs: usize,
}

pub fn run(args: &Args) -> Result<()> {
    let figures = measure(args.nodes, args.runs)?;
    println!("{} nodes, median of {} runs", args.nodes, args.runs);
    print(&figures)
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn memory_line(kibibytes: u64, goal: f64) {
    let memory = kibibytes as f64 * 1024.0 / 1e6;
    println!("  memory at most           {memory:.1} MB (goal {goal} MB)");
}

fn print(figures: &PluginFigures) -> Result<()> {
    println!("size of the program        {} bytes", figures.size);
    line("--help", &figures.help, Some(HELP))?;
    line(
        "start to the first request",
        &figures.first_request,
        Some(FIRST_REQUEST),
    )?;
    for (format, times, memory) in &figures.status {
        let what = format!("status -o {format}");
        line(&what, times, Some(STATUS))?;
        memory_line(*memory, STATUS_MEMORY);
    }
    for live in &figures.live {
        println!("{}", live.line);
        line("  first picture", &live.first, Some(STATUS))?;
        line("  a change is shown", &live.change, Some(CHANGE))?;
        memory_line(live.memory, LIVE_MEMORY);
    }
    line("add, without live check", &figures.add, Some(ADD))?;
    line("completion of nodes", &figures.complete, None)
}

fn line(what: &str, times: &[Duration], goal: Option<u64>) -> Result<()> {
    let millis = |time: Option<&Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1000.0);
    let goal = goal.map_or(String::new(), |goal| format!(", goal {goal} ms"));
    println!(
        "{what:<26} {:.1} ms ({:.1} to {:.1}{goal})",
        millis(Some(&median(times)?)),
        millis(times.iter().min()),
        millis(times.iter().max()),
    );
    Ok(())
}
