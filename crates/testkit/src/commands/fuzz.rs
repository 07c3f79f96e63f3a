//! Compares our code with the kubelet's and containers/image's own code, on generated credentials files and images, and
//! the credential provider with the kubelet's. Prints how many cases of which kind ran, and every disagreement.

use std::time::Instant;

use crate::judge::judge;
use crate::{judge_merges, provider_judge};
use anyhow::{Result, ensure};

#[derive(clap::Args)]
pub struct Args {
    /// Number of credentials files to generate
    #[arg(long, env, default_value_t = 1_000_000)]
    cases: u64,
    /// Number of pulls with the credential provider; each runs it twice
    #[arg(long, env = "PULLS", default_value_t = 100_000)]
    provider_cases: u64,
    /// Number of the first case
    #[arg(long, env, default_value_t = 1)]
    seed: u64,
}

pub fn run(args: &Args) -> Result<()> {
    let start = Instant::now();
    let report = judge(args.seed, args.cases)?;
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
    conclude("cases", report.cases, args, start, &report.disagreements);
    let start = Instant::now();
    let pulls = provider_judge::judge(args.seed, args.provider_cases)?;
    print!("\n{pulls}");
    conclude("pulls", pulls.pulls, args, start, &pulls.disagreements);
    let start = Instant::now();
    let merges = judge_merges::judge(args.seed, args.cases / 10)?;
    println!(
        "\n{:>10}  images for which the kubelet had a credential",
        merges.tried
    );
    println!(
        "{:>10}  images for which CRI-O had a credential",
        merges.sent
    );
    conclude("merges", merges.merges, args, start, &merges.failures);
    let all = [
        &report.disagreements,
        &pulls.disagreements,
        &merges.failures,
    ];
    let agree = all.iter().all(|found| found.is_empty());
    ensure!(agree, "there are disagreements");
    Ok(())
}

fn conclude(what: &str, number: u64, args: &Args, start: Instant, disagreements: &[String]) {
    println!(
        "{number} {what} from seed {} in {:.0} s, {} disagreements",
        args.seed,
        start.elapsed().as_secs_f64(),
        disagreements.len()
    );
    for disagreement in disagreements {
        println!("\n{disagreement}");
    }
}
