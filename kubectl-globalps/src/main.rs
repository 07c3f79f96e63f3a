//! `kubectl globalps`: registry credentials for every node of a cluster.

mod additional;
mod auth_file;
mod changes;
mod cli;
mod client;
mod commands;
mod credential_helper;
mod error;
mod facts;
mod follow;
mod manifest;
mod password;
mod printer;
mod prompt;
mod registry;
mod registry_name;
mod source;
mod status;
mod table;
mod usage;

use std::process::ExitCode;

use clap::Parser as _;

use crate::cli::{Cli, Color};
use crate::error::Exit;
use crate::printer::Printer;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            match usage::failure(&error) {
                Some(failure) => Printer::new(Color::Auto, 0).failure(&failure),
                None => {
                    // Nobody left to read help or version is no error.
                    let _ = error.print();
                }
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
