//! The controller: observe -> plan -> apply -> report. `plan` and `report` are pure.

#![cfg_attr(test, allow(clippy::panic, clippy::too_many_lines))]

mod apply;
mod cache;
mod fleet;
mod history;
mod observe;
mod plan;
#[cfg(test)]
mod plan_properties;
mod report;
mod run;
mod sources;
mod told;

use clap::{Parser, Subcommand, ValueEnum};
use globalps_core::names;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, registry};

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
    let Command::Run(args) = Cli::parse().command;
    // Of this program alone: kube's client would log the whole of an answer that it can't read.
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
    let client = kube::Client::try_default().await?;
    run::run(client, &args.namespace, &args.syncer_image).await
}
