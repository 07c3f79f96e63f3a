//! A real Kubernetes cluster on this machine for developers: starts and stops it, and reboots, kills and adds nodes.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::{Access, Cluster, Node, Options, default_dir, kubernetes, preflight, reap};
use anyhow::Result;
use clap::{Args, Subcommand};

#[derive(Args)]
pub struct At {
    /// Directory of the cluster [default: target/cluster]
    #[arg(long)]
    dir: Option<PathBuf>,
}

#[derive(Args)]
pub struct OneNode {
    node: String,
    #[command(flatten)]
    at: At,
}

#[derive(Subcommand)]
pub enum Action {
    /// Start a cluster and leave it running
    Up {
        /// Number of nodes
        #[arg(long, default_value_t = 3)]
        nodes: u8,
        #[command(flatten)]
        at: At,
    },
    /// Stop the cluster and remove everything that it added to the machine
    Down {
        #[command(flatten)]
        at: At,
    },
    /// Show the cluster's addresses, components and nodes
    Status {
        #[command(flatten)]
        at: At,
    },
    /// Run a command on a node
    Exec {
        #[command(flatten)]
        node: OneNode,
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Reboot a node and wait until it is Ready
    Reboot(OneNode),
    /// Cut a node's power; the node stays down
    Kill(OneNode),
    /// Boot a node that is down and wait until it is Ready
    Boot(OneNode),
    /// Add a node and wait until it is Ready
    AddNode {
        #[command(flatten)]
        at: At,
    },
    /// Build the Kubernetes programs that are missing
    Build,
    /// Check whether this machine can run a test cluster
    Preflight {
        /// Install what is missing; needs root and Debian
        #[arg(long)]
        install: bool,
    },
    /// Stop a cluster when standard input ends
    #[command(hide = true)]
    Reap { dir: PathBuf },
}

pub fn run(action: Action) -> Result<ExitCode> {
    let start = Instant::now();
    let said = |what: &str| eprintln!("{what} ({:.1} s)", start.elapsed().as_secs_f32());
    match action {
        Action::Up { nodes, at } => up(nodes, &at)?,
        Action::Down { at } => {
            let dir = at.path();
            Cluster::down_at(&dir)?;
            said(&format!("no cluster runs in `{}` any more", dir.display()));
        }
        Action::Status { at } => status(&at.attach()?)?,
        Action::Exec { node, command } => {
            let status = node.find()?.command(&command)?.status()?;
            return Ok(exit_code(status));
        }
        Action::Reboot(node) => {
            let node = node.find()?;
            node.reboot()?;
            said(&format!("{} booted", node.name()));
            ready(&node, &said)?;
        }
        Action::Kill(node) => {
            let node = node.find()?;
            node.power_cut()?;
            said(&format!("{} is down", node.name()));
        }
        Action::Boot(node) => {
            let node = node.find()?;
            node.boot()?;
            ready(&node, &said)?;
        }
        Action::AddNode { at } => ready(&at.attach()?.add_node()?, &said)?,
        Action::Build => kubernetes::build()?,
        Action::Preflight { install } => {
            if install {
                preflight::install()?;
            }
            preflight::check(&default_dir())?;
            said("this machine can run a test cluster");
        }
        Action::Reap { dir } => reap(&dir)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn up(nodes: u8, at: &At) -> Result<()> {
    let dir = at.path();
    if let Some(cluster) = Cluster::running_at(&dir)? {
        eprintln!("a cluster is already running in `{}`", dir.display());
        return hints(&cluster, &dir);
    }
    let cluster = Cluster::up(&Options {
        dir: dir.clone(),
        nodes,
    })?;
    hints(&cluster, &dir)?;
    cluster.keep()
}

fn hints(cluster: &Cluster, dir: &Path) -> Result<()> {
    let registry = cluster.registry();
    eprintln!(
        "registries: {} (open), {} (private)",
        registry.address(Access::Open),
        registry.address(Access::Private)
    );
    eprintln!(
        "kubectl:    {}/kubectl",
        std::path::absolute(kubernetes::bin_dir())?.display()
    );
    eprintln!("stop it:    testkit cluster down --dir {}", dir.display());
    // The only line on stdout, so that a shell can evaluate it.
    println!("export KUBECONFIG={}", cluster.kubeconfig().display());
    Ok(())
}

fn status(cluster: &Cluster) -> Result<()> {
    println!("api        {}", cluster.api_url());
    println!("kubeconfig {}", cluster.kubeconfig().display());
    println!("logs       {}", cluster.logs().display());
    println!("running    {}", cluster.components()?.join(" "));
    for node in cluster.nodes()? {
        let state = match (node.is_running()?, node.is_ready()) {
            (false, _) => "down",
            (true, Ok(true)) => "Ready",
            (true, Ok(false)) => "not Ready",
            (true, Err(_)) => "running, but the API server does not answer",
        };
        println!("{:<10} {:<14} {state}", node.name(), node.ip());
    }
    Ok(())
}

fn ready(node: &Node, said: &impl Fn(&str)) -> Result<()> {
    node.wait_ready(Duration::from_mins(2))?;
    said(&format!("{} is Ready", node.name()));
    Ok(())
}

/// The command's exit code, or 128 plus the signal's number, as in a shell.
fn exit_code(status: std::process::ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let code = status
        .code()
        .or(status.signal().map(|signal| 128 + signal))
        .unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

impl At {
    fn path(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(default_dir)
    }

    fn attach(&self) -> Result<Cluster> {
        Cluster::attach(&self.path())
    }
}

impl OneNode {
    fn find(&self) -> Result<Node> {
        self.at.attach()?.node(&self.node)
    }
}
