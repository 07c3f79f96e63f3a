//! The loop of the leader: wait for events, plan, write, report.

mod assigning;
mod clock;
mod cluster_secret;
#[cfg(test)]
mod cluster_secret_tests;
mod confirming;
mod content;
mod delivering;
mod known;
mod managing;
mod namespaces;
mod openshift;
mod operators;
mod reconcile;
#[cfg(test)]
mod refused_tests;
mod state;
#[cfg(test)]
mod state_properties;
mod status;
mod verification;
mod watches;

use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, Subcommand};
use futures::StreamExt as _;
use globalps_core::names::{self, LEADER, LEASE};
use kube::Client;
use tokio::time::{Instant, sleep_until};

use delivering::DeliveryCache;
use known::{Agents, EarlierContent, ForClusterSecret, ForNamespaces, ForOperators, Reported};
use openshift::OpenshiftOriginal;
use verification::Verification;

use crate::cache::{Cache, Watches};
use crate::leader::election::identity;
use crate::leader::fencing::{FencingToken, fenced_client};
use crate::leader::leads::leads;
use crate::leader::reconciling::{Reconciles, reconciling};
use crate::leader::terms::Terms;
use crate::objects::apply::Applier;
use crate::objects::helm::HelmRelease;
use crate::objects::refusals::Refusals;
use crate::process::{self, Process, ProcessArgs};
use crate::report::events::EventRecorder;
use crate::telemetry::metrics::Metrics;

/// Pause after each reconcile: this multiple of the planning time, up to the maximum. With thousands of nodes, more events then
/// share a plan.
const PAUSE: (u32, Duration) = (2, Duration::from_millis(100));

#[derive(Parser)]
#[command(name = "globalps-controller", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Watch the pull secrets and roll them out until a signal
    Run(RunArgs),
    /// Wait until a controller leads, at most 30 seconds
    Leads(ProcessArgs),
}

#[derive(clap::Args)]
struct RunArgs {
    /// Namespace of the Secrets and of the syncer
    #[arg(long, default_value = names::NAMESPACE)]
    namespace: String,
    /// Image of the syncer for the nodes
    #[arg(long)]
    syncer_image: String,
    /// Helm release that installed this controller, as NAMESPACE/NAME: the configuration that the controller creates belongs to it
    #[arg(long)]
    helm_release: Option<HelmRelease>,
    #[command(flatten)]
    process: ProcessArgs,
}

/// Runs the controller.
pub(crate) async fn main() -> anyhow::Result<()> {
    let args = match Cli::parse().command {
        Command::Run(args) => args,
        Command::Leads(args) => {
            let process = process::start(&args).await?;
            let leader = leads(process.client, LEASE).await?;
            tracing::info!(leader, "a controller leads");
            return Ok(());
        }
    };
    let process = process::start(&args.process).await?;
    let me = identity();
    tracing::info!(me, namespace = args.namespace, "started");
    let terms = Terms {
        client: &process.client,
        health: &process.health,
        metrics: &process.metrics,
        lease: LEASE,
        record: Some(LEADER),
        me: &me,
    };
    // Every watch starts again with each term, so that no plan uses objects from before the Lease was taken: the caches must have
    // the assignments of the previous leader.
    terms
        .lead(async |token| {
            let mut controller = Controller::new(&process, &args, &me, &token);
            Box::pin(reconciling(&mut controller, &process.health)).await
        })
        .await
}

struct Controller {
    client: Client,
    namespace: String,
    metrics: Arc<Metrics>,
    watches: Watches,
    cache: Cache,
    applier: Arc<Applier>,
    refusals: Refusals,
    recorder: EventRecorder,
    openshift: OpenshiftOriginal,
    verification: Verification,
    earlier: EarlierContent,
    agents: Agents,
    namespaces: ForNamespaces,
    operators: ForOperators,
    cluster_secret: ForClusterSecret,
    reported: Reported,
    /// This reconcile wrote something that the next plan depends on.
    wrote: bool,
    /// Duration of planning in the last reconcile.
    planning: Duration,
}

impl Controller {
    fn new(process: &Process, args: &RunArgs, me: &str, token: &Arc<FencingToken>) -> Self {
        let client = fenced_client(&process.client, token, &process.health);
        let namespace = &args.namespace;
        Self {
            watches: Watches::new(&client, namespace),
            cache: Cache::default(),
            applier: Arc::new(Applier::new(
                client.clone(),
                namespace,
                &args.syncer_image,
                me,
                args.helm_release.clone(),
            )),
            refusals: Refusals::default(),
            recorder: EventRecorder::new(client.clone(), namespace),
            openshift: OpenshiftOriginal::default(),
            verification: Verification::default(),
            earlier: EarlierContent::default(),
            agents: Agents::default(),
            namespaces: ForNamespaces::default(),
            operators: ForOperators::default(),
            cluster_secret: ForClusterSecret::default(),
            reported: Reported::default(),
            wrote: false,
            planning: Duration::ZERO,
            client,
            namespace: namespace.clone(),
            metrics: Arc::clone(&process.metrics),
        }
    }
}

impl Reconciles for Controller {
    const BATCH: Duration = Duration::from_millis(100);

    fn is_synced(&self) -> bool {
        self.cache.caches_synced()
    }

    async fn event(&mut self) -> Option<bool> {
        let settles_at = self.cache.settles_at();
        let settles = sleep_until(settles_at.unwrap_or_else(Instant::now));
        tokio::select! {
            event = self.watches.next() => {
                event.map(|event| self.cache.handle(event, Instant::now()))
            },
            Some(done) = self.namespaces.executor.pending.next() => {
                let mut cache = DeliveryCache::Namespaces(&mut self.cache.pull_secrets);
                self.namespaces.executor.settle(&mut cache, done);
                Some(true)
            }
            Some(done) = self.operators.executor.pending.next() => {
                let mut cache = DeliveryCache::Operators(&mut self.cache.operators);
                self.operators.executor.settle(&mut cache, done);
                Some(true)
            }
            () = self.verification.changed() => Some(true),
            () = settles, if settles_at.is_some() => Some(self.cache.settle(Instant::now())),
        }
    }

    async fn respond(&mut self) -> Duration {
        if let Some(additional) = self.cache.additional() {
            self.recorder.set_regarding(additional);
        }
        self.planning = Duration::ZERO;
        let pause = Box::pin(self.reconcile()).await;
        self.metrics.reconciled(self.refusals.is_clean());
        let rest = (self.planning * PAUSE.0).min(PAUSE.1);
        tokio::time::sleep(rest).await;
        pause.saturating_sub(rest)
    }
}
