//! Builds the documentation as a book and checks its links: what `make book` does.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use globalps_tests::book::build;

/// Build the documentation as a book in target/book, and check every link in it
#[derive(Parser)]
struct Cli {
    /// The program `mdbook`
    #[arg(long)]
    mdbook: PathBuf,
}

fn main() -> ExitCode {
    let built = build(".".as_ref(), &Cli::parse().mdbook);
    globalps_tests::exit_code(
        &built.map(|links| println!("target/book: {links} links, each leads somewhere")),
    )
}
