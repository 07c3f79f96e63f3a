//! Runs two hubs under random events, in front of real and simulated members that die, freeze, fail and are changed by
//! other clients.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use globalps_testkit::fleet::hub_soak::soak;

/// Run two hubs under random events, and check every member after each iteration
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
        "seed {}: {} iterations, {} events, {} hubs killed, {} members unreachable, {} times for long, the management cluster's API server frozen {} times, \
         {} odd values, {} false identities or kubeconfigs, writes refused {} times, {} attacks of a tenant; \
         at most {} KiB for a hub, \
         at most {} in flight; the expected state was reached within {:.1} s at most",
        args.seed,
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
