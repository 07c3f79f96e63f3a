//! The agent on each node: delivers the assigned registry credentials to the kubelet.

#![cfg_attr(
    test,
    expect(
        clippy::disallowed_methods,
        clippy::large_stack_arrays,
        clippy::too_many_lines,
        clippy::type_complexity,
        reason = "tests are not shipped"
    )
)]

mod agent;
mod cluster;
mod delivery;
mod node;
mod observer;
mod report;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use globalps_core::names;
use globalps_runtime::memory::keep_private;
use globalps_runtime::process::{LogFormat, Stop};

use agent::restore::{Restore, Restored};
use node::kubelet::KubeletUnit;
use node::provider::{HostPath, Provider};
use node::state::NodeError;
use node::systemd::Systemd;

#[derive(Parser)]
#[command(name = "globalps-syncer", version, about)]
struct SyncerCli {
    #[command(subcommand)]
    command: SyncerCommand,
}

#[derive(Subcommand)]
enum SyncerCommand {
    /// Run the syncer for this node until a signal
    Run(RunArgs),
    /// Report what the credentials file of this node has until a signal, and change nothing
    Observe(ObserveArgs),
    /// Exit with 0 if this syncer works: it knows the node's state, and the API server has responded
    Ready {
        #[arg(long)]
        ready_file: PathBuf,
    },
    /// Restore this node manually, without a cluster: the credentials file from before globalps, and the kubelet with it
    ///
    /// Stop the syncer's pod first. A syncer that runs later applies the cluster's assignment again.
    /// Exit status: 0 restored, or nothing to restore; 1 the kubelet does not start with the restored file; 2 error.
    Restore(NodeArgs),
}

#[derive(clap::Args)]
struct RunArgs {
    /// Name of this node
    #[arg(long, env = "NODE_NAME")]
    node_name: String,
    /// Namespace of the Secrets
    #[arg(long, env = "NAMESPACE", default_value = names::NAMESPACE)]
    namespace: String,
    #[command(flatten)]
    node: NodeArgs,
    /// Restore the node when it is assigned, and never fetch content
    #[arg(long)]
    restore_only: bool,
    /// File that exists while this syncer works
    #[arg(long, default_value = "/run/globalps/ready")]
    ready_file: PathBuf,
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

#[derive(clap::Args)]
struct ObserveArgs {
    /// Name of this node
    #[arg(long, env = "NODE_NAME")]
    node_name: String,
    /// Namespace of the Secret
    #[arg(long, env = "NAMESPACE", default_value = names::NAMESPACE)]
    namespace: String,
    /// The kubelet's credentials file, as this program sees it
    #[arg(long, default_value = names::CONFIG_FILE)]
    config_file: PathBuf,
    /// File that exists while this program works
    #[arg(long, default_value = "/run/globalps/ready")]
    ready_file: PathBuf,
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

#[derive(clap::Args)]
struct NodeArgs {
    /// The kubelet's credentials file, as this program sees it
    #[arg(long, default_value = names::CONFIG_FILE)]
    config_file: PathBuf,
    /// systemd unit of the kubelet; `Auto`: detect it
    #[arg(long, default_value = names::KUBELET_UNIT_AUTO)]
    unit: String,
    /// Whether the kubelet is restarted after a change
    #[arg(long, value_enum, ignore_case = true, default_value_t = Restart::Always)]
    restart: Restart,
    /// Path of the credentials file on the node; default: the same
    #[arg(long, env = "HOST_CONFIG_FILE")]
    host_config_file: Option<PathBuf>,
    /// Credential provider configuration in the kubelet's flags: a file with `.yaml`, `.yml` or `.json`, or a directory of such
    /// files; without it, flags are added to kubeadm's file
    #[arg(long, env = "PROVIDER_CONFIG", requires_all = ["host_provider_config", "provider_bin_dir", "host_provider_bin_dir"])]
    provider_config: Option<PathBuf>,
    /// The same, as a path on the node
    #[arg(long, env = "HOST_PROVIDER_CONFIG", requires = "provider_config")]
    host_provider_config: Option<PathBuf>,
    /// Directory of credential provider binaries in the kubelet's flags
    #[arg(long, env = "PROVIDER_BIN_DIR", requires = "provider_config")]
    provider_bin_dir: Option<PathBuf>,
    /// The same, as a path on the node
    #[arg(long, env = "HOST_PROVIDER_BIN_DIR", requires = "provider_config")]
    host_provider_bin_dir: Option<PathBuf>,
    /// The credential provider's program to copy to the node
    #[arg(long, default_value = PROVIDER_PROGRAM)]
    provider_program: PathBuf,
    /// Socket of the node's system bus
    #[arg(long, default_value = "/run/dbus/system_bus_socket")]
    bus: PathBuf,
}

/// Path of the credential provider in the syncer's image.
const PROVIDER_PROGRAM: &str = "/globalps-credential-provider";

impl NodeArgs {
    fn provider(&self) -> Provider {
        let path = |here: &PathBuf, host: &PathBuf| HostPath {
            here: here.clone(),
            host: host.clone(),
        };
        let host = self.host_config_file.as_ref().unwrap_or(&self.config_file);
        let config = self
            .provider_config
            .as_ref()
            .zip(self.host_provider_config.as_ref());
        let bin_dir = self
            .provider_bin_dir
            .as_ref()
            .zip(self.host_provider_bin_dir.as_ref());
        let set_up = config
            .zip(bin_dir)
            .map(|((config, host_config), (bin_dir, host_bin_dir))| {
                (path(config, host_config), path(bin_dir, host_bin_dir))
            });
        let config_file = path(&self.config_file, host);
        Provider::new(self.provider_program.clone(), &config_file, set_up)
    }

    fn systemd(&self) -> Systemd {
        let directory = self.config_file.parent().unwrap_or(Path::new("/"));
        Systemd {
            bus: self.bus.clone(),
            unit: self.unit.clone(),
            socket: directory.join("pod-resources/kubelet.sock"),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Restart {
    Always,
    Never,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<ExitCode> {
    keep_private();
    match SyncerCli::parse().command {
        SyncerCommand::Ready { ready_file } => Ok(ExitCode::from(u8::from(!ready_file.exists()))),
        SyncerCommand::Run(args) => Box::pin(run(args)).await,
        SyncerCommand::Observe(args) => Box::pin(observe(args)).await,
        SyncerCommand::Restore(args) => restore(&args).await,
    }
}

async fn restore(args: &NodeArgs) -> anyhow::Result<ExitCode> {
    let mut output = std::io::stdout();
    let mut say = |sentence: &str| {
        // A closed output does not stop the restore.
        let _ = writeln!(output, "{sentence}");
    };
    let unit = KubeletUnit::new(args.systemd());
    let is_restarted = args.restart == Restart::Always;
    let mut restore = Restore::new(&args.config_file, args.provider(), unit, is_restarted);
    Ok(match restore.run(&mut say).await {
        Ok(Restored::Nothing) => ExitCode::SUCCESS,
        Ok(Restored::Done) => {
            say("this node is restored: its credentials file has no entries of globalps");
            ExitCode::SUCCESS
        }
        Ok(Restored::KubeletDown(failure)) => {
            say(&format!(
                "this node is not restored: the kubelet did not start with the restored file ({}); see `journalctl -u kubelet`. \
                 `--restart=never` restores the file without it",
                failure.error
            ));
            ExitCode::from(1)
        }
        Err(NodeError::Locked { .. }) => {
            say("this node is not restored: a syncer is running on it; stop its container first");
            ExitCode::from(2)
        }
        Err(error) => {
            say(&format!("this node is not restored: {error}"));
            ExitCode::from(2)
        }
    })
}

async fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    args.log_format.start("globalps_syncer");
    let mut stop = Stop::new()?;
    // Never a kubeconfig: as root, it would be one that a pod's volume or variable brings.
    let client = kube::Client::try_from(kube::Config::incluster()?)?;
    let cluster = cluster::Cluster::new(client, &args.namespace, &args.node_name);
    let options = agent::Options {
        config_file: args.node.config_file.clone(),
        provider: args.node.provider(),
        ready_file: args.ready_file,
        restart: args.node.restart == Restart::Always,
        restores_only: args.restore_only,
    };
    tracing::info!(node = args.node_name, file = %args.node.config_file.display(), "started");
    let mut agent = agent::Agent::new(options, cluster, args.node.systemd());
    // File writes are never interrupted: they contain no await.
    until_stopped(&mut stop, agent.run()).await
}

async fn observe(args: ObserveArgs) -> anyhow::Result<ExitCode> {
    args.log_format.start("globalps_syncer");
    let mut stop = Stop::new()?;
    let client = kube::Client::try_from(kube::Config::incluster()?)?;
    let cluster = cluster::Cluster::new(client, &args.namespace, &args.node_name);
    tracing::info!(node = args.node_name, file = %args.config_file.display(), "observing");
    let mut observer = observer::Observer::new(args.config_file, args.ready_file, cluster);
    until_stopped(&mut stop, observer.run()).await
}

/// `work` ends when the API server no longer accepts this pod.
async fn until_stopped(
    stop: &mut Stop,
    work: impl Future<Output = ()>,
) -> anyhow::Result<ExitCode> {
    tokio::select! {
        () = stop.wait() => {}
        () = work => anyhow::bail!(
            "the API server no longer accepts this pod's token: the pod or its ServiceAccount was deleted. Exiting, so that \
             a newer syncer can take over the node"
        ),
    }
    tracing::info!("stopped by a signal");
    Ok(ExitCode::SUCCESS)
}
