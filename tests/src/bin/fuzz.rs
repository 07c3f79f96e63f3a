//! Generated credentials files and images, judged by the kubelet's and containers/image's own code, and pulls with the
//! credential provider, judged by the kubelet's: how many cases, of which kinds, and every disagreement.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use clap::Parser;
use globalps_tests::judge::judge;
use globalps_tests::provider_judge;

#[derive(Parser)]
struct Cli {
    /// How many cases
    #[arg(long, default_value_t = 1_000_000)]
    cases: u64,
    /// How many pulls with the credential provider, each of which runs it twice
    #[arg(long, default_value_t = 100_000)]
    provider_cases: u64,
    /// Number of the first case
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> Result<ExitCode> {
    let cli = Cli::parse();
    let start = Instant::now();
    let report = judge(cli.seed, cli.cases)?;
    print!("{}", report.kinds);
    println!("{:>10}  files that the kubelet reads", report.accepted);
    println!(
        "{:>10}  images that the kubelet has a credential for",
        report.tried
    );
    println!("{:>10}  images that CRI-O has one for", report.sent);
    conclude("cases", report.cases, &cli, start, &report.disagreements);
    let start = Instant::now();
    let pulls = provider_judge::judge(cli.seed, cli.provider_cases)?;
    print!("\n{pulls}");
    conclude("pulls", pulls.pulls, &cli, start, &pulls.disagreements);
    let agree = report.disagreements.is_empty() && pulls.disagreements.is_empty();
    Ok(ExitCode::from(u8::from(!agree)))
}

fn conclude(what: &str, number: u64, cli: &Cli, start: Instant, disagreements: &[String]) {
    println!(
        "{number} {what} from seed {} in {:.0} s, {} disagreements",
        cli.seed,
        start.elapsed().as_secs_f64(),
        disagreements.len()
    );
    for disagreement in disagreements {
        println!("\n{disagreement}");
    }
}
