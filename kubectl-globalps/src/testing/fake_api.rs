//! Runs command lines of the plugin against a fake API server.

use std::ffi::OsString;

use globalps_core::names;

pub(crate) use globalps_fake_api::{FakeApi, Fault, Objects, Right, failure};

use crate::cli::Cli;
use crate::commands;
use crate::error::{Exit, Failure};
use crate::terminal::printer::Printer;

/// Runs command lines of the plugin against a server.
pub(crate) trait CommandLine {
    fn run(&self, line: &str) -> Result<Exit, Failure> {
        self.printed(line).0
    }

    /// Like [`Self::run`], and returns stdout and stderr.
    fn printed(&self, line: &str) -> (Result<Exit, Failure>, [String; 2]);
}

impl CommandLine for FakeApi {
    fn printed(&self, line: &str) -> (Result<Exit, Failure>, [String; 2]) {
        let server = self.address();
        let flags = ["--kubeconfig", "/dev/null", "--server", &server];
        let printer = Printer::capturing();
        let ran = run_with(line.split_whitespace().chain(flags), &printer);
        (ran, printer.captured())
    }
}

/// Runs a command line of the plugin.
pub(crate) fn run<'a>(words: impl Iterator<Item = &'a str>) -> Result<Exit, Failure> {
    run_with(words, &Printer::capturing())
}

fn run_with<'a>(words: impl Iterator<Item = &'a str>, printer: &Printer) -> Result<Exit, Failure> {
    let words = std::iter::once("kubectl-globalps").chain(words);
    let cli = Cli::of(words.map(OsString::from));
    commands::run(&cli.expect("flags"), printer)
}

/// Path of an object in the namespace of the pull secrets.
pub(crate) fn path(resource: &str, name: &str) -> String {
    let api = match resource {
        "secrets" => "/api/v1".to_owned(),
        "deployments" => {
            let namespace = names::CONTROLLER_NAMESPACE;
            return format!("/apis/apps/v1/namespaces/{namespace}/deployments/{name}");
        }
        "nodes" => return format!("/api/v1/nodes/{name}"),
        _ => format!("/apis/{}/{}", names::GROUP, names::VERSION),
    };
    format!("{api}/namespaces/{}/{resource}/{name}", names::NAMESPACE)
}
