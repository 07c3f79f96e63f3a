//! The subcommands of the program `testkit`.

mod bench;
mod cluster;
mod demo;
mod fuzz;
mod matrix;
mod matrix_kubeadm;
mod soak;
mod suite;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::image;

/// Clusters of real nodes on one machine, and what runs on them: the suite, soaks, benches and the demo
#[derive(Parser)]
#[command(name = "testkit")]
struct Cli {
    #[command(subcommand)]
    command: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Start and stop a real Kubernetes cluster whose nodes are systemd-nspawn machines; reboot, kill and add nodes
    #[command(subcommand)]
    Cluster(cluster::Action),
    /// Run the test files in parallel
    Suite(suite::Args),
    /// Run random events for a while, and check that everything is in the expected state
    #[command(subcommand)]
    Soak(soak::Soak),
    /// Measure time and memory
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Run tests on clusters of several releases of Kubernetes
    Matrix(matrix::Args),
    /// Run the test of kubeadm upgrades with several releases of kubeadm
    MatrixKubeadm(matrix_kubeadm::Args),
    /// Compare globalps with the kubelet's and CRI-O's own code on generated cases
    Fuzz(fuzz::Args),
    /// Roll out a private registry's password to three real nodes
    Demo,
    /// Write a reproducible OCI archive of each image; print the digests of the manifests and the sizes of the images in
    /// bytes
    Images {
        /// Directory with the static programs
        programs: PathBuf,
        /// Directory of the archives
        output: PathBuf,
    },
}

/// The whole program: runs the subcommand in this process's arguments.
pub fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Action::Cluster(action) => match cluster::run(action) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Action::Suite(args) => suite::run(&args),
        Action::Soak(soak) => soak::run(&soak),
        Action::Bench(bench) => bench::run(&bench),
        Action::Matrix(args) => matrix::run(&args),
        Action::MatrixKubeadm(args) => matrix_kubeadm::run(&args),
        Action::Fuzz(args) => fuzz::run(&args),
        Action::Demo => demo::run(),
        Action::Images { programs, output } => image::write_all(&programs, &output),
    };
    crate::exit_code(&result)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use clap::error::ErrorKind;

    use super::*;

    /// The arguments of every subcommand without subcommands.
    fn leaves(command: &clap::Command, path: &[String]) -> Vec<Vec<String>> {
        let mut found = Vec::new();
        for sub in command.get_subcommands() {
            let path = [path, &[sub.get_name().to_owned()]].concat();
            found.extend(leaves(sub, &path));
        }
        if found.is_empty() {
            found.push(path.to_vec());
        }
        found
    }

    #[test]
    fn help_runs_no_subcommand() {
        let command = Cli::command();
        command.clone().debug_assert();
        let all = leaves(&command, &["testkit".to_owned()]);
        assert!(all.len() > 20, "{all:?}");
        for path in all {
            let words = path.iter().map(String::as_str).chain(["--help"]);
            let error = Cli::try_parse_from(words).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::DisplayHelp, "{path:?}");
        }
    }
}
