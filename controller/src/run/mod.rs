//! The loop of the leader: wait for events, plan, write, report.

mod assigning;
mod clock;
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
use futures::{FutureExt as _, StreamExt as _};
use globalps_core::names::{self, LEADER, LEASE};
use kube::Client;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use delivering::Objects;
use known::{Agents, Copies, Reported};
use namespaces::ForNamespaces;
use openshift::OpenshiftOriginal;
use operators::ForOperators;
use verification::Verification;

use crate::cache::{Cache, Watches};
use crate::leader::election::identity;
use crate::leader::fencing::{FencingToken, fenced_client};
use crate::leader::leads::leads;
use crate::leader::terms::Terms;
use crate::objects::apply::Applier;
use crate::objects::helm::HelmRelease;
use crate::objects::refusals::Refusals;
use crate::process::{self, Process, ProcessArgs};
use crate::report::events::EventRecorder;
use crate::telemetry::health::Health;
use crate::telemetry::metrics::Metrics;

/// Interval between reconciles without an event.
const RESYNC: Duration = Duration::from_mins(10);
/// Events that arrive within this time share a reconcile.
const BATCH: Duration = Duration::from_millis(100);
/// Pause after each reconcile: this multiple of the planning time, up to the maximum. With thousands of nodes, more events then
/// share a plan.
const PAUSE: (u32, Duration) = (2, Duration::from_millis(100));

/// Interval between updates of the liveness probe.
const HEARTBEAT: Duration = Duration::from_secs(5);

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
            Box::pin(controller.run()).await
        })
        .await
}

struct Controller {
    client: Client,
    namespace: String,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    watches: Watches,
    cache: Cache,
    applier: Arc<Applier>,
    refusals: Refusals,
    recorder: EventRecorder,
    openshift: OpenshiftOriginal,
    verification: Verification,
    copies: Copies,
    agents: Agents,
    namespaces: ForNamespaces,
    operators: ForOperators,
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
            copies: Copies::default(),
            agents: Agents::default(),
            namespaces: ForNamespaces::default(),
            operators: ForOperators::default(),
            reported: Reported::default(),
            wrote: false,
            planning: Duration::ZERO,
            client,
            namespace: namespace.clone(),
            health: Arc::clone(&process.health),
            metrics: Arc::clone(&process.metrics),
        }
    }

    /// Returns only with an error.
    async fn run(&mut self) -> anyhow::Error {
        let mut wake = Instant::now();
        let mut heartbeat = interval(HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.health.beat();
            self.health
                .set_waits_for_caches(!self.cache.caches_synced());
            let next = self.cache.settles_at().map_or(wake, |at| at.min(wake));
            let mut changed = tokio::select! {
                _ = heartbeat.tick() => continue,
                event = self.watches.next() => match event {
                    Some(event) => self.cache.handle(event, Instant::now()),
                    None => return anyhow::anyhow!("every watch has ended"),
                },
                Some(done) = self.namespaces.executor.pending.next() => {
                    let mut objects = Objects::Namespaces(&mut self.cache.pull_secrets);
                    self.namespaces.executor.settle(&mut objects, done);
                    true
                }
                Some(done) = self.operators.executor.pending.next() => {
                    let mut objects = Objects::Operators(&mut self.cache.operators);
                    self.operators.executor.settle(&mut objects, done);
                    true
                }
                () = self.verification.changed() => true,
                () = sleep_until(next) => next == wake,
            };
            changed |= self.handle_pending_events().await;
            changed |= self.cache.settle(Instant::now());
            if !changed {
                continue;
            }
            if !self.cache.caches_synced() {
                wake = Instant::now() + RESYNC;
                continue;
            }
            self.planning = Duration::ZERO;
            let pause = Box::pin(self.reconcile()).await;
            self.metrics.reconciled(self.refusals.is_clean());
            wake = Instant::now() + pause;
            tokio::time::sleep((self.planning * PAUSE.0).min(PAUSE.1)).await;
        }
    }

    /// Handles all events that have arrived, so that they share a reconcile. Returns whether they may change the plan.
    async fn handle_pending_events(&mut self) -> bool {
        let until = Instant::now() + BATCH;
        let mut changed = false;
        let mut quiet = 0;
        // The connection's task forwards events and needs to run first, possibly several times.
        while quiet < 3 && Instant::now() < until {
            quiet += 1;
            while let Some(Some(event)) = self.watches.next().now_or_never() {
                changed |= self.cache.handle(event, Instant::now());
                quiet = 0;
            }
            tokio::task::yield_now().await;
        }
        if let Some(additional) = self.cache.additional() {
            self.recorder.set_regarding(additional);
        }
        changed
    }
}
