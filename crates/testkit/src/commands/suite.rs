//! Runs the test programs in parallel. `make test` does this after the unit tests.

use std::time::{Duration, Instant};

use crate::map;
use crate::suite::{self, Capacity};
use anyhow::Result;

#[derive(clap::Args)]
pub struct Args {
    /// Load that runs at the same time: a cluster counts one for its control plane and one for each node
    #[arg(long, default_value_t = 9)]
    capacity: u32,
    /// The same while 15 % of the processors' time is idle
    #[arg(long, default_value_t = 26)]
    idle_capacity: u32,
    /// Kill a test program after this many minutes
    #[arg(long, default_value_t = 20)]
    minutes: u64,
    /// Instead run the files beside other projects' own programs
    #[arg(long, conflicts_with = "files")]
    companions: bool,
    /// Test files to run, as named for `cargo test --test` [default: all that need nothing but this repository]
    files: Vec<String>,
}

pub fn run(args: &Args) -> Result<()> {
    let companions = || map::companions().map(str::to_owned).collect();
    let files = if args.companions {
        companions()
    } else {
        args.files.clone()
    };
    let programs = suite::build(&files)?;
    let begun = Instant::now();
    let limit = Duration::from_mins(args.minutes);
    let capacity = Capacity {
        busy: args.capacity,
        idle: args.idle_capacity.max(args.capacity),
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
