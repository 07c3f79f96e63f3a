//! Writes an OCI image archive with static programs.

use std::path::PathBuf;

use crate::image::{Image, write};
use anyhow::Result;

#[derive(clap::Args)]
pub struct Args {
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

pub fn run(args: &Args) -> Result<()> {
    let latest = || format!("{}:latest", args.name);
    let reference = args.reference.clone().unwrap_or_else(latest);
    let image = Image {
        binary: &args.binary,
        name: &args.name,
        beside: &args.beside,
        user: &args.user,
        reference: &reference,
    };
    let written = write(&image, &args.output)?;
    println!("{} {}", written.digest, written.size);
    Ok(())
}
