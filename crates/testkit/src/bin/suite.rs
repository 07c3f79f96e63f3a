//! Runs the test programs of this package in parallel: what `make test` does after the unit tests.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser;
use globalps_testkit::exit_code;
use globalps_testkit::suite::{self, Capacity};

/// Run the test files in parallel
#[derive(Parser)]
struct Cli {
    /// Load that runs at the same time: a cluster counts one for its control plane and one for each node
    #[arg(long, default_value_t = 9)]
    capacity: u32,
    /// The same while a quarter of the processors' time is idle
    #[arg(long, default_value_t = 22)]
    idle_capacity: u32,
    /// Kill a test program after this many minutes
    #[arg(long, default_value_t = 20)]
    minutes: u64,
    /// Test files to run, as named for `cargo test --test` [default: all]
    files: Vec<String>,
}

fn main() -> ExitCode {
    exit_code(&run(&Cli::parse()))
}

fn run(cli: &Cli) -> Result<()> {
    let programs = suite::build(&cli.files)?;
    let begun = Instant::now();
    let limit = Duration::from_mins(cli.minutes);
    let capacity = Capacity {
        busy: cli.capacity,
        idle: cli.idle_capacity.max(cli.capacity),
    };
    let outcomes = suite::run(programs, capacity, limit, &[])?;
    println!("\n===== {} s in all", begun.elapsed().as_secs());
    for outcome in &outcomes {
        let word = if outcome.passed { "ok" } else { "FAILED" };
        println!("{:>5} s  {word:<6}  {}", outcome.seconds, outcome.name);
    }
    suite::print_failed(&outcomes)?;
    suite::verdict(&outcomes)
}
