//! Compares our code with the kubelet's and containers/image's own code, on generated credentials files and images, and
//! the credential provider with the kubelet's. Prints how many cases of which kind ran, and every disagreement.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use clap::Parser;
use globalps_testkit::judge::judge;
use globalps_testkit::{judge_merges, provider_judge};

/// Compare globalps with the kubelet's and CRI-O's own code on generated cases
#[derive(Parser)]
struct Cli {
    /// Number of credentials files to generate
    #[arg(long, default_value_t = 1_000_000)]
    cases: u64,
    /// Number of pulls with the credential provider; each runs it twice
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
    println!("{:>10}  files that the kubelet accepts", report.accepted);
    println!(
        "{:>10}  images for which the kubelet has a credential",
        report.tried
    );
    println!(
        "{:>10}  images for which CRI-O has a credential",
        report.sent
    );
    conclude("cases", report.cases, &cli, start, &report.disagreements);
    let start = Instant::now();
    let pulls = provider_judge::judge(cli.seed, cli.provider_cases)?;
    print!("\n{pulls}");
    conclude("pulls", pulls.pulls, &cli, start, &pulls.disagreements);
    let start = Instant::now();
    let merges = judge_merges::judge(cli.seed, cli.cases / 10)?;
    println!(
        "\n{:>10}  images for which the kubelet had a credential",
        merges.tried
    );
    println!(
        "{:>10}  images for which CRI-O had a credential",
        merges.sent
    );
    conclude("merges", merges.merges, &cli, start, &merges.failures);
    let all = [
        &report.disagreements,
        &pulls.disagreements,
        &merges.failures,
    ];
    let agree = all.iter().all(|found| found.is_empty());
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
