//! Writes the plugin's archives and the krew manifest.

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use globalps_tests::dist::{PLATFORMS, write};

/// Write an archive of the plugin for every platform that was built, with checksums and the krew manifest
#[derive(Parser)]
struct Cli {
    /// Cargo's target directory
    #[arg(long, default_value = "target")]
    target: PathBuf,
    /// Directory to write to
    #[arg(long, default_value = "target/dist")]
    output: PathBuf,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let written = write(&cli.target, &cli.output)?;
    for platform in PLATFORMS {
        let name = platform.archive();
        let word = if written.contains(&name) {
            "written"
        } else {
            "not built"
        };
        println!("{name}: {word}");
    }
    Ok(())
}
