//! Writes an OCI image archive with static programs.

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use globalps_testkit::image::{Image, write};

/// Write a reproducible OCI image archive of static programs; print the digest of the manifest and the size of the
/// image in bytes
#[derive(Parser)]
struct Cli {
    /// Static ELF program that is the entrypoint
    #[arg(long)]
    binary: PathBuf,
    /// Name of the entrypoint; its path in the image is `/NAME`
    #[arg(long)]
    name: String,
    /// Additional program, stored under its own file name; can be repeated
    #[arg(long)]
    beside: Vec<PathBuf>,
    /// User and group of the image, `UID:GID`
    #[arg(long)]
    user: String,
    /// Name and tag in the archive's index [default: NAME:latest]
    #[arg(long)]
    reference: Option<String>,
    /// Archive to write
    #[arg(long)]
    output: PathBuf,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let reference = cli
        .reference
        .unwrap_or_else(|| format!("{}:latest", cli.name));
    let image = Image {
        binary: &cli.binary,
        name: &cli.name,
        beside: &cli.beside,
        user: &cli.user,
        reference: &reference,
    };
    let written = write(&image, &cli.output)?;
    println!("{} {}", written.digest, written.size);
    Ok(())
}
