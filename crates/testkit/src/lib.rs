//! A real Kubernetes cluster on one Linux machine: a control plane of ordinary processes, and nodes
//! that are systemd-nspawn machines with their own systemd, system bus, containerd and kubelet.
//!
//! [`Cluster::up`] starts one and takes it down again when the handle is dropped or its process dies;
//! [`Cluster::keep`] leaves it running for [`Cluster::attach`]. Everything it adds to the machine carries
//! the cluster's bridge name or lies below its directory, so [`Cluster::down`] needs no other record.

pub mod account;
pub mod audit;
pub mod bare_node;
pub mod broken_kubelet;
pub mod capi;
pub mod commands;
pub mod companions;
pub mod compatibility;
pub mod config_file;
pub mod containerd;
pub mod crio;
pub mod faults;
pub mod fleet;
pub mod fuzz;
pub mod hub;
pub mod image;
pub mod interrupted;
pub mod judge;
pub mod judge_merges;
pub mod kubeadm;
pub mod kubernetes;
pub mod lone_registry;
pub mod machine_config_daemon;
pub mod map;
mod older_release;
pub mod olm;
pub mod openapi;
pub mod oracle;
pub mod power_cut;
pub mod preflight;
pub mod printed;
pub mod product;
pub mod programs;
pub mod prometheus;
pub mod provider_judge;
pub mod reference_cases;
pub mod refuser;
pub mod release;
pub mod rights;
pub mod secrecy;
pub mod soak;
pub mod suite;
pub mod terminal;
pub mod virtual_nodes;
pub mod watch;
pub mod web;
pub mod webhook;

mod cgroup;
mod cluster;
mod control_plane;
mod instance;
mod kubectl;
mod layout;
mod mounts;
mod net;
mod node;
mod node_files;
mod objects;
mod pause;
mod pki;
mod process;
mod processors;
mod reaper;
mod registry;
pub mod run;
mod runtime;
mod state;
mod teardown;
mod wait;

pub use cluster::{Cluster, Options, default_dir};
pub use node::{Node, Output};
pub use reaper::reap;
pub use registry::{Access, Registry};
pub use wait::{DEADLINE, until, wait};

/// Exit code of a program. Prints an error, with its causes, to standard error.
pub fn exit_code(result: &anyhow::Result<()>) -> std::process::ExitCode {
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
