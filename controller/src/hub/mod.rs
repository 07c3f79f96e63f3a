//! The hub's program: watches, plans, assigns, writes into the clusters and reports. Like `run`, for clusters instead of nodes.

mod assign;
#[cfg(test)]
mod bounds_tests;
mod cache;
mod cluster_api;
mod clusters;
mod common_targets;
mod desired;
mod events;
mod fleets;
#[cfg(test)]
mod hidden_tests;
mod install;
mod member_watch;
mod messages;
mod objects;
mod pins;
#[cfg(test)]
mod properties;
mod reconcile;
#[cfg(test)]
mod refused_tests;
mod report;
mod requests;
mod revisions;
mod scope;
mod session;
mod session_report;
#[cfg(test)]
mod session_tests;
mod sessions;
mod source;
mod statuses;
mod views;
mod watches;
mod writes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, Subcommand};
use futures::StreamExt as _;
use futures::stream::{BoxStream, SelectAll};
use globalps_core::api::ClusterPullSecretStatus;
use globalps_core::names::{CONTROLLER_NAMESPACE, HUB_LEADER, hub_shard};
use globalps_planner::clusters::clock::ClusterClock;
use globalps_planner::clusters::input::ClusterKey;
use globalps_planner::clusters::known::Known;
use globalps_planner::clusters::shard::Shard;
use globalps_planner::clusters::trust::Trust;
use kube::Client;
use tokio::time::Instant;

use crate::leader::election::identity;
use crate::leader::fencing::{Fence, FencingToken, fenced_client};
use crate::leader::reconciling::{RESYNC, Reconciles, reconciling};
use crate::leader::terms::Terms;
use crate::objects::refusals::Refusals;
use crate::process::{self, Process, ProcessArgs};
use crate::telemetry::metrics::Metrics;
use cache::HubCache;
use messages::Observations;
use pins::Pins;
use sessions::Sessions;
use source::{SourceRef, SourceState};
use watches::Scoped;
use writes::Writer;

#[derive(Parser)]
#[command(
    name = "globalps-hub",
    version,
    about = "Rolls out pull secrets to many clusters, a few at a time"
)]
struct HubCli {
    #[command(subcommand)]
    command: HubCommand,
}

#[derive(Subcommand)]
enum HubCommand {
    /// Watch the `FleetPullSecret`s and roll them out, until a signal
    Run(HubArgs),
}

#[derive(clap::Args)]
struct HubArgs {
    /// Namespaces with `FleetPullSecret`s and clusters, separated by commas; default: all
    #[arg(long, value_delimiter = ',')]
    namespaces: Vec<String>,
    /// Namespaces whose `FleetPullSecret`s may have `namespaceSelector` and `install`, separated by commas
    #[arg(long, value_delimiter = ',', default_value = CONTROLLER_NAMESPACE)]
    trusted_namespaces: Vec<String>,
    /// Share of the clusters that this process connects to: `0/3` is the first of three, which plans for all
    #[arg(long, value_name = "INDEX/OF", default_value = "0/1")]
    shard: Shard,
    #[command(flatten)]
    process: ProcessArgs,
}

pub(crate) async fn main() -> anyhow::Result<()> {
    let HubCommand::Run(args) = HubCli::parse().command;
    let process = process::start(&args.process).await?;
    let me = identity();
    tracing::info!(
        me,
        namespaces = args.namespaces.join(","),
        shard = args.shard.index,
        "started"
    );
    let lease = hub_shard(args.shard.index);
    let terms = Terms {
        client: &process.client,
        health: &process.health,
        metrics: &process.metrics,
        lease: &lease,
        // Only the first shard writes the objects that the policy protects.
        record: (args.shard.index == 0).then_some(HUB_LEADER),
        me: &me,
    };
    // Each term starts with new watches and new connections to the clusters.
    terms
        .lead(async |token| {
            let mut hub = Hub::new(&process, &args, &token);
            Box::pin(reconciling(&mut hub, &process.health)).await
        })
        .await
}

struct Hub {
    events: SelectAll<BoxStream<'static, Scoped>>,
    source_events: SelectAll<BoxStream<'static, (SourceRef, SourceState)>>,
    sources: BTreeMap<SourceRef, Option<SourceState>>,
    observations: Arc<Observations>,
    /// Statuses from the sessions that are not written yet.
    observed: BTreeMap<(String, ClusterKey), ClusterPullSecretStatus>,
    sessions: Sessions,
    /// The objects that can't be decoded and are in the log.
    unreadable: BTreeSet<String>,
    /// The namespaces that the hub may not read and are in the log.
    hidden: BTreeSet<String>,
    shard: Shard,
    trust: Trust,
    pins: Pins,
    known: Arc<Known>,
    cache: HubCache,
    /// When it last listed everything.
    listed: Instant,
    clock: ClusterClock,
    writer: Writer,
    refusals: Refusals,
    client: Client,
    metrics: Arc<Metrics>,
}

impl Hub {
    fn new(process: &Process, args: &HubArgs, token: &Arc<FencingToken>) -> Self {
        let client = fenced_client(&process.client, token, &process.health);
        let fence = Fence {
            token: Arc::clone(token),
            health: Arc::clone(&process.health),
        };
        let observations = Arc::<Observations>::default();
        Self {
            events: watches::events(&client, &args.namespaces, args.shard),
            source_events: SelectAll::new(),
            sources: BTreeMap::new(),
            observations: Arc::clone(&observations),
            observed: BTreeMap::new(),
            sessions: Sessions::new(fence, observations),
            unreadable: BTreeSet::new(),
            hidden: BTreeSet::new(),
            cache: HubCache::new(&args.namespaces, args.shard),
            listed: Instant::now(),
            clock: ClusterClock::default(),
            shard: args.shard,
            trust: Trust::new(&args.trusted_namespaces),
            pins: Pins::default(),
            known: Arc::default(),
            writer: Writer::new(client.clone()),
            refusals: Refusals::default(),
            client,
            metrics: Arc::clone(&process.metrics),
        }
    }

    /// Objects that were dropped may fit now.
    fn list_again(&mut self) {
        if self.listed.elapsed() < RESYNC || !self.cache.is_full() {
            return;
        }
        self.listed = Instant::now();
        self.events = watches::events(&self.client, &self.cache.namespace_names(), self.shard);
    }

    fn on_source(&mut self, source: SourceRef, found: SourceState) -> bool {
        let others = self
            .sources
            .iter()
            .filter(|(it, _)| it.0 == source.0 && **it != source);
        let others: usize = others.filter_map(|(_, it)| Some(it.as_ref()?.size())).sum();
        let found = found.within(others, &source.0);
        self.sources.insert(source, Some(found));
        true
    }

    /// Whether there are any.
    fn take_observations(&mut self) -> bool {
        let taken = self.observations.take();
        let is_any = !taken.is_empty();
        self.observed.extend(taken);
        is_any
    }

    /// Watches exactly these sources. Returns whether the content of each one is known.
    fn watch_sources(&mut self, desired: &BTreeSet<SourceRef>) -> bool {
        let is_same = desired.iter().eq(self.sources.keys());
        if !is_same {
            let watch = |reference: &SourceRef| {
                let reference = reference.clone();
                source::source(&self.client, &reference)
                    .map(move |found| (reference.clone(), found))
                    .boxed()
            };
            self.source_events = futures::stream::select_all(desired.iter().map(watch));
            self.sources.retain(|known, _| desired.contains(known));
            for reference in desired {
                self.sources.entry(reference.clone()).or_default();
            }
        }
        self.sources.values().all(Option::is_some)
    }
}

impl Reconciles for Hub {
    const BATCH: Duration = Duration::from_millis(50);

    fn is_synced(&self) -> bool {
        self.cache.synced()
    }

    async fn event(&mut self) -> Option<bool> {
        tokio::select! {
            event = self.events.next() => event.map(|event| self.cache.handle(event)),
            Some((source, found)) = self.source_events.next() => Some(self.on_source(source, found)),
            () = self.observations.changed() => Some(self.take_observations()),
        }
    }

    async fn respond(&mut self) -> Duration {
        self.list_again();
        let pause = Box::pin(self.reconcile()).await;
        self.metrics.reconciled(self.refusals.is_clean());
        pause
    }
}
