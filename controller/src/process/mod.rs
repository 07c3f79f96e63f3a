//! The process of each control-plane program: its log, ports and client.

use std::sync::Arc;

use anyhow::Context as _;
use globalps_core::names;
use globalps_runtime::memory::keep_private;
use globalps_runtime::process::LogFormat;
use kube::Client;

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

/// What every program creates at its start.
pub(crate) struct Process {
    pub(crate) client: Client,
    pub(crate) health: Arc<Health>,
    pub(crate) metrics: Arc<Metrics>,
}

/// Sets up the log, serves the ports and creates the client of this cluster.
pub(crate) async fn start(args: &ProcessArgs) -> anyhow::Result<Process> {
    keep_private();
    args.log_format.start("globalps_controller");
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
