//! `cargo xtask COMMAND`: what the recipes of the Makefile call.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use globalps_testkit::exit_code;
use globalps_testkit::kubernetes::workspace;
use xtask::pictures::dashboard;
use xtask::release::{command, dist};
use xtask::{book, generate, pictures};

/// Tasks of this repository
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Write the files that are generated from the code: manifests/, charts/ and pages in docs/
    Generate {
        /// Write nothing; fail if a file differs
        #[arg(long)]
        check: bool,
    },
    /// Write an archive of the plugin for every platform that was built, with checksums and the krew manifest
    Dist {
        /// Cargo's target directory
        #[arg(long, default_value = "target")]
        target: PathBuf,
        /// Directory to write to
        #[arg(long, default_value = "target/dist")]
        output: PathBuf,
    },
    /// Build a release of globalps from a commit
    #[command(subcommand)]
    Release(command::Action),
    /// Build the documentation as a book in target/book, and check every link in it
    Book {
        /// The program `mdbook`
        #[arg(long)]
        mdbook: PathBuf,
    },
    /// Take the pictures in docs/img: the plugin on a terminal, with real nodes, and the demo
    Pictures,
    /// Draw the Grafana dashboard from the metrics of a rollout on real nodes
    Dashboard(dashboard::Args),
}

fn main() -> ExitCode {
    exit_code(&run(Cli::parse().task))
}

fn run(task: Task) -> Result<()> {
    let root = workspace();
    match task {
        Task::Generate { check: true } => generate::check(&root),
        Task::Generate { check: false } => generate::write(&root),
        Task::Dist { target, output } => {
            let written = dist::write(&target, &output)?;
            for platform in dist::PLATFORMS {
                let name = platform.archive();
                let is_there = written.contains(&name);
                let word = if is_there { "written" } else { "not built" };
                println!("{name}: {word}");
            }
            Ok(())
        }
        Task::Release(action) => command::run(action),
        Task::Book { mdbook } => {
            let links = book::build(&root, &mdbook)?;
            println!("target/book: {links} links, each leads somewhere");
            Ok(())
        }
        Task::Pictures => pictures::take(),
        Task::Dashboard(args) => dashboard::draw(&args),
    }
}
