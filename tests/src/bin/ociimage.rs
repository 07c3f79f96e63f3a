//! Writes an OCI image archive that holds static programs.

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use globalps_tests::image::{Image, write};

/// Write a reproducible OCI image archive of static programs; print the manifest's digest and the
/// image's size in bytes
#[derive(Parser)]
struct Cli {
    /// The program, a static ELF file
    #[arg(long)]
    binary: PathBuf,
    /// Its name in the image, where it is `/NAME` and the entrypoint
    #[arg(long)]
    name: String,
    /// Another program, which is in the image by its file name
    #[arg(long)]
    beside: Vec<PathBuf>,
    /// User and group the image runs as, `UID:GID`
    #[arg(long)]
    user: String,
    /// Name and tag in the archive's index [default: NAME:latest]
    #[arg(long)]
    reference: Option<String>,
    /// The archive to write
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
