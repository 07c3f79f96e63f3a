//! The controller: cache -> plan -> write -> report. See `docs/architecture.md`.

#![cfg_attr(test, allow(clippy::panic, clippy::too_many_lines))]

mod cache;
mod content;
mod leader;
mod namespaces;
mod nodes;
mod objects;
mod operators;
mod report;
mod run;
mod targets;
mod telemetry;

use std::sync::Arc;

use anyhow::Context as _;
use clap::{Parser, Subcommand, ValueEnum};
use globalps_core::names;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, registry};

use telemetry::{client, health, http, metrics, probes};

#[derive(Parser)]
#[command(name = "globalps-controller", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Watch the pull secrets and roll them out, until a signal ends it
    Run(RunArgs),
}

#[derive(clap::Args)]
struct RunArgs {
    /// Namespace of the Secrets and of the syncer
    #[arg(long, default_value = names::NAMESPACE)]
    namespace: String,
    /// Image of the syncer that the nodes run
    #[arg(long)]
    syncer_image: String,
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

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    keep_memory_private();
    let Command::Run(args) = Cli::parse().command;
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
    let health = Arc::new(health::Health::new());
    let metrics = Arc::new(metrics::Metrics::default());
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
    Box::pin(run::run(run::Setup {
        client: client::instrumented_client(&health, &metrics).await?,
        namespace: args.namespace,
        syncer_image: args.syncer_image,
        health,
        metrics,
    }))
    .await
}

/// Credentials in memory never reach a core dump or another process of the same user.
fn keep_memory_private() {
    use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    // Lowering a limit needs no right, and a kernel without it has nothing better to offer.
    let _ = setrlimit(Resource::Core, none);
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}
