//! Runs delivery into namespaces under random events, on a real API server, with two controllers that are killed.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use globalps_testkit::fleet::delivery_soak::soak;

/// Run delivery into namespaces under random events, and check the result after each iteration
#[derive(Parser)]
struct Args {
    /// Duration in minutes
    #[arg(long, default_value_t = 30)]
    minutes: u64,
    /// Seed of the random events
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    globalps_testkit::exit_code(&run(&Args::parse()))
}

fn run(args: &Args) -> Result<()> {
    let done = soak(Duration::from_mins(args.minutes), args.seed)?;
    println!(
        "seed {}: {} iterations, {} events, {} controllers killed; the expected state was reached within {:.1} s at most",
        args.seed,
        done.rounds,
        done.events,
        done.kills,
        done.slowest.as_secs_f32(),
    );
    Ok(())
}
