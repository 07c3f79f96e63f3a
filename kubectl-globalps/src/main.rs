//! `kubectl globalps`: registry credentials for every node of a cluster.

#![cfg_attr(
    test,
    expect(clippy::disallowed_methods, reason = "tests are not shipped")
)]

mod change;
mod cli;
mod cluster;
mod commands;
mod credentials;
mod diagnose;
mod error;
mod follow;
mod format;
mod install;
mod platform;
mod registry;
mod secret;
mod target;
mod terminal;
#[cfg(test)]
mod testing;
mod view;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::cli::{Cli, Color};
use crate::error::Exit;
use crate::terminal::printer::Printer;

/// kubectl runs the plugin under these names to complete a command line. The second applies if the plugin is linked as
/// `kubectl global-pull-secret`.
const COMPLETE: [&str; 2] = [
    "kubectl_complete-globalps",
    "kubectl_complete-global_pull_secret",
];

fn main() -> ExitCode {
    globalps_runtime::memory::keep_private();
    let mut words = std::env::args_os();
    let program = words.next().map(PathBuf::from).unwrap_or_default();
    if COMPLETE
        .iter()
        .any(|name| program.file_stem() == Some(OsStr::new(name)))
    {
        let words: Vec<String> = words
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        commands::completion::answer(&words);
        return Exit::Done.into();
    }
    let cli = match Cli::of(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => {
            match cli::message(&error) {
                Some(text) => Printer::new(Color::Auto, 0).error(&text),
                // A closed stdout is not an error.
                None => drop(error.print()),
            }
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(Exit::Failed as u8));
        }
    };
    let printer = Printer::new(cli.color, cli.verbosity);
    let exit = commands::run(&cli, &printer).unwrap_or_else(|failure| {
        printer.failure(&failure);
        failure.exit
    });
    exit.into()
}
