//! Runs the test of kubeadm upgrades with several releases of kubeadm, and writes their part of `docs/compatibility.md`.

use std::path::{Path, PathBuf};

use anyhow::Result;
use jiff::Zoned;

use super::matrix::{CAPACITY, LIMIT, verdict, words, write};
use crate::compatibility::with_kubeadm;
use crate::suite;

/// Releases whose kubeadm treats the kubelet's flags differently at an upgrade.
pub(super) const RELEASES: [&str; 3] = ["v1.35.4", "v1.36.3", "v1.37.2"];

#[derive(clap::Args)]
pub struct Args {
    /// Releases of kubeadm, such as `v1.37.2`
    #[arg(long, env = "VERSIONS", value_delimiter = ',', default_values = RELEASES)]
    releases: Vec<String>,
    /// Write the result to this file, whose other parts stay
    #[arg(long)]
    output: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<()> {
    let failed = test(&words(&args.releases), args.output.as_deref())?;
    verdict(&failed)
}

/// Returns the releases of kubeadm with which the test program failed.
pub(super) fn test(chosen: &[&str], output: Option<&Path>) -> Result<Vec<String>> {
    let mut releases = Vec::new();
    for &version in chosen {
        println!("\n##### kubeadm {version}");
        let programs = suite::build(&["kubeadm".to_owned()])?;
        let outcomes = suite::run(programs, CAPACITY, LIMIT, &[("KUBERNETES", version)])?;
        let passed = suite::verdict(&outcomes).is_ok();
        releases.push((version.to_owned(), passed));
        write(output, |old| {
            with_kubeadm(old, &releases, Zoned::now().date())
        })?;
    }
    let broken = releases.iter().filter(|(_, passed)| !passed);
    Ok(broken.map(|(version, _)| version.clone()).collect())
}
