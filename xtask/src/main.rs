//! `cargo xtask COMMAND`: what the recipes of the Makefile call.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use globalps_testkit::exit_code;
use globalps_testkit::kubernetes::workspace;
use xtask::pictures::dashboard;
use xtask::release::{command, dist};
use xtask::{book, coverage, deny, generate, mutants, pictures, previous, tools};

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
    /// Build the plugin for other platforms. Write an archive of it for every platform, with checksums and the krew manifest, in target/dist
    Dist,
    /// Build a release of globalps from a commit
    #[command(subcommand)]
    Release(command::Action),
    /// Build the documentation as a book in target/book, and check every link in it
    Book,
    /// Check licences, versions, sources and advisories of all dependencies
    Deny {
        /// A clone of the RustSec database, in place of its own address
        #[arg(long, env)]
        advisories: Option<PathBuf>,
    },
    /// Change the code; a unit or property test must catch each change
    Mutants {
        /// Globs of the files to change; several with spaces [default: those with decisions]
        #[arg(long, env, value_delimiter = ' ')]
        files: Vec<String>,
    },
    /// Show which lines of a crate its own tests cover, per file
    Coverage {
        /// Directory in crates/
        #[arg(long = "crate", env = "CRATE", default_value = "dockerconfig")]
        name: String,
    },
    /// Build the images of the previous release in target/previous
    Previous(previous::Args),
    /// Install tools of the recipes, unless they are there
    Tool {
        #[arg(required = true)]
        names: Vec<String>,
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
        Task::Dist => dist::run(&root.join("target")),
        Task::Release(action) => command::run(action),
        Task::Book => {
            let links = book::build(&root)?;
            println!("target/book: {links} links, each leads somewhere");
            Ok(())
        }
        Task::Deny { advisories } => deny::check(&root, advisories.as_deref()),
        Task::Mutants { files } => mutants::test(&root, &files),
        Task::Coverage { name } => coverage::report(&root, &name),
        Task::Previous(args) => previous::build(&root, &args),
        Task::Tool { names } => names
            .iter()
            .try_for_each(|name| tools::install(name).map(drop)),
        Task::Pictures => pictures::take(),
        Task::Dashboard(args) => dashboard::draw(&args),
    }
}
