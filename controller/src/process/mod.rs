//! The process of each control-plane program: its log, ports and signals, and memory protection.

use std::sync::Arc;

use anyhow::Context as _;
use clap::ValueEnum;
use globalps_core::names;
use kube::Client;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, registry};

use crate::telemetry::health::Health;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::{client, http, probes};

#[derive(clap::Args)]
pub(crate) struct ProcessArgs {
    /// Port of `/metrics`
    #[arg(long, default_value_t = names::METRICS_PORT)]
    port: u16,
    /// Port of `/livez` and `/readyz`
    #[arg(long, default_value_t = names::PROBES_PORT)]
    probes_port: u16,
    #[arg(long, value_enum, default_value_t = LogFormat::Json)]
    log_format: LogFormat,
}

#[derive(Clone, Copy, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

/// What every program has from its start.
pub(crate) struct Process {
    pub(crate) client: Client,
    pub(crate) health: Arc<Health>,
    pub(crate) metrics: Arc<Metrics>,
}

/// Sets up the log, serves the ports and creates the client of this cluster.
pub(crate) async fn start(args: &ProcessArgs) -> anyhow::Result<Process> {
    keep_memory_private();
    // Only this program's targets: kube's client logs the whole body of an unparsable response.
    let filter = Targets::new().with_target("globalps_controller", tracing::Level::INFO);
    let log = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    match args.log_format {
        LogFormat::Text => registry()
            .with(log.with_ansi(false).with_filter(filter))
            .init(),
        LogFormat::Json => registry()
            .with(log.json().flatten_event(true).with_filter(filter))
            .init(),
    }
    let health = Arc::new(Health::new());
    let metrics = Arc::new(Metrics::default());
    for (port, flag, deadline, pages) in [
        (
            args.probes_port,
            "--probes-port",
            probes::PROBE,
            probes::probes(Arc::clone(&health)),
        ),
        (
            args.port,
            "--port",
            probes::SCRAPE,
            probes::metrics(Arc::clone(&metrics)),
        ),
    ] {
        let listener = http::listen(port)
            .await
            .with_context(|| format!("could not listen on port {port}; `{flag}` sets another"))?;
        tokio::spawn(http::serve(listener, deadline, pages));
    }
    Ok(Process {
        client: client::instrumented_client(&health, &metrics).await?,
        health,
        metrics,
    })
}

/// The signals that stop a program.
pub(crate) struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    pub(crate) fn new() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    pub(crate) async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Keeps credentials in memory out of core dumps and away from other processes of the same user.
fn keep_memory_private() {
    use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    // Lowering a limit needs no privilege, and there is no fallback if it fails.
    let _ = setrlimit(Resource::Core, none);
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}
