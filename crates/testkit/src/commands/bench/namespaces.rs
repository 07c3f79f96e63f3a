//! Measures pull secrets in many namespaces, and compares the result with the maximum of the API server.

use std::time::Duration;

use crate::fleet::namespaces::{Step, measure};
use anyhow::Result;

#[derive(clap::Args)]
pub struct Args {
    /// Number of namespaces; several with commas
    #[arg(long, env, value_delimiter = ',', default_value = "1000")]
    namespaces: Vec<usize>,
    /// Seconds to measure without any change
    #[arg(long, default_value_t = 60)]
    idle: u64,
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
pub fn run(args: &Args) -> Result<()> {
    for namespaces in &args.namespaces {
        let figures = measure(*namespaces, Duration::from_secs(args.idle))?;
        println!("{} namespaces", figures.namespaces);
        println!("capacity       {:.0} writes/s", figures.capacity);
        let least = *namespaces as f64 / figures.capacity;
        let line = |what: &str, step: Step| {
            let seconds = step.time.as_secs_f64();
            println!(
                "{what:<14} {seconds:.2} s, {} writes of Secrets, {:.2} x the limit",
                step.writes,
                seconds / least
            );
        };
        line("first fill", figures.fill);
        line("rotation", figures.rotation);
        line("removal", figures.removal);
        let millis = |at: usize| {
            figures
                .new
                .get(at)
                .map_or(0.0, |time| time.as_secs_f64() * 1e3)
        };
        let most = figures.new.len() - 1;
        println!(
            "new namespace  {:.0} ms (median), {:.0} ms at most",
            millis(most / 2),
            millis(most)
        );
        println!("idle           {} s: {:?}", args.idle, figures.idle);
        let megabytes = |kib: u64| kib as f64 * 1024.0 / 1e6;
        println!(
            "controller     {:.1} MB before, {:.1} MB after, {:.1} MB at most",
            megabytes(figures.fresh.resident),
            megabytes(figures.last.resident),
            megabytes(figures.last.most_resident)
        );
    }
    Ok(())
}
