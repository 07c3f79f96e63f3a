//! Generated credentials files and images, judged by the kubelet's and containers/image's own code: how many cases, of
//! which kinds, and every disagreement.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use clap::Parser;
use globalps_tests::judge::judge;

#[derive(Parser)]
struct Cli {
    /// How many cases
    #[arg(long, default_value_t = 1_000_000)]
    cases: u64,
    /// Number of the first case
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> Result<ExitCode> {
    let cli = Cli::parse();
    let start = Instant::now();
    let report = judge(cli.seed, cli.cases)?;
    let seconds = start.elapsed().as_secs_f64();
    print!("{}", report.kinds);
    println!("{:>10}  files that the kubelet reads", report.accepted);
    println!(
        "{:>10}  images that the kubelet has a credential for",
        report.tried
    );
    println!("{:>10}  images that CRI-O has one for", report.sent);
    println!(
        "{} cases from seed {} in {seconds:.0} s, {} disagreements",
        report.cases,
        cli.seed,
        report.disagreements.len()
    );
    for disagreement in &report.disagreements {
        println!("\n{disagreement}");
    }
    Ok(if report.disagreements.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
