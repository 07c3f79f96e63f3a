//! The hub in front of many clusters: the management cluster's API server and etcd and the hub are real, the members
//! are simulated.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use globalps_core::api::{FleetPullSecret, FleetPullSecretStatus, condition};
use globalps_core::names::CLUSTER_LABEL;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::hub_capacity::capacity;
use super::hub_stage::{CLUSTERS, HubProcess, HubStage};
use super::hub_steps::{Mark, files, waves};
use super::members::Members;
use super::meter::Usage;
use crate::product::pull_secret;

pub use super::hub_steps::Step;

/// Name of the `FleetPullSecret` and of its source.
const FLEET: &str = "shared";
const POLL: Duration = Duration::from_millis(20);
/// Deadline of a step, and the additional time for each cluster.
const DEADLINE: Duration = Duration::from_mins(5);
const DEADLINE_OF_CLUSTER: Duration = Duration::from_millis(100);

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub clusters: usize,
    /// Time until each node of a member has a new Secret.
    pub time: Duration,
    /// Whether the members use TLS, like real clusters.
    pub has_tls: bool,
    /// Hub processes that share the members.
    pub shards: u32,
    /// How long to measure the idle hub.
    pub idle: Duration,
}

/// All results for one number of clusters.
#[derive(Clone, Debug)]
pub struct Figures {
    pub options: Options,
    /// From the hub's start until every cluster has the first revision.
    pub cold: Step,
    /// From the start of another hub, with everything in force, until it watches every cluster.
    pub restart: Step,
    /// The seconds after the restart.
    pub settled: Step,
    /// A rotation of a tenth of the clusters at a time, and of all at once.
    pub tenth: Step,
    pub all: Step,
    /// A rotation while a third of the clusters is unreachable, and from their return until they have the revision.
    pub away: Step,
    pub back: Step,
    pub idle: Step,
    /// The hub without clusters, and at the end; with several shards, the largest one.
    pub fresh: Usage,
    pub last: Usage,
    /// Memory of all shards, in KiB.
    pub resident: u64,
    /// Open files at the end, mostly connections.
    pub files: usize,
    /// Writes per second, in a rotation's mix, that this API server can process.
    pub capacity: f64,
}

/// Starts a management cluster with this many members, and takes all measurements.
pub fn measure(options: &Options) -> Result<Figures> {
    let stage = HubStage::up_with(&format!("hub-{}", options.clusters), options.shards)?;
    crate::fleet::block_on(run(&stage, *options))
}

async fn run(stage: &HubStage, options: Options) -> Result<Figures> {
    let say = |what: &str| eprintln!("{} clusters: {what}", options.clusters);
    let took = |what: &str, step: &Step| {
        say(&format!(
            "{what} after {:.1} s, {} writes",
            step.time.as_secs_f64(),
            step.writes()
        ));
    };
    let hub = stage.start_with_metrics()?;
    sleep(Duration::from_secs(3)).await;
    let fresh = Usage::of(hub.pid)?;
    stage.stop()?;
    let mut bench = Bench {
        stage,
        admin: stage.admin_client().await?,
        members: Members::start(options.clusters, options.time, options.has_tls, None).await?,
        hub,
        revision: 0,
        deadline: DEADLINE + DEADLINE_OF_CLUSTER * u32::try_from(options.clusters)?,
    };
    bench.register().await?;
    say("registered");
    let number = options.clusters;
    let cold = bench.cold(number).await?;
    took("cold start complete", &cold);
    sleep(Duration::from_secs(2)).await;
    let tenth = bench.rotate(number, number / 10).await?;
    took("rotation of a tenth at a time complete", &tenth);
    bench.limit("100%").await?;
    let all = bench.rotate(number, number).await?;
    took("rotation of all complete", &all);
    bench.limit("10%").await?;
    let third = bench.members.take_third_away().await;
    let unreachable = u32::try_from(third)?;
    bench
        .wait(|status| status.counts.unreachable == unreachable)
        .await?;
    say("a third is unreachable");
    let away = bench.rotate(number - third, number / 10).await?;
    took("rotation without it complete", &away);
    let back = bench.back(number, third).await?;
    took("it is back and complete", &back);
    sleep(Duration::from_secs(10)).await;
    let idle = bench.rest(options.idle).await?;
    let (last, resident) = largest(stage)?;
    let files = files(bench.hub.pid)?;
    let restart = bench.restart(number).await?;
    let settled = bench.rest(Duration::from_secs(10)).await?;
    let (restarted, _) = largest(stage)?;
    took("another hub watches all clusters", &restart);
    stage.stop()?;
    let capacity = capacity(&bench.admin, CLUSTERS).await?;
    let most_resident = last.most_resident.max(restarted.most_resident);
    Ok(Figures {
        options,
        cold,
        restart,
        settled,
        tenth,
        all,
        away,
        back,
        idle,
        fresh,
        last: Usage {
            most_resident,
            ..last
        },
        resident,
        files,
        capacity,
    })
}

/// Usage of the shard with the most memory, and the memory of all shards.
fn largest(stage: &HubStage) -> Result<(Usage, u64)> {
    let pids = stage.pids()?;
    let usages: Result<Vec<Usage>> = pids.into_iter().map(Usage::of).collect();
    let usages = usages?;
    let all = usages.iter().map(|usage| usage.resident).sum();
    let largest = usages.into_iter().max_by_key(|usage| usage.most_resident);
    Ok((largest.context("a hub")?, all))
}

struct Bench<'a> {
    stage: &'a HubStage,
    admin: Client,
    members: Members,
    hub: HubProcess,
    revision: i64,
    deadline: Duration,
}

impl Bench<'_> {
    /// Creates the Secrets that register the members, the source and the `FleetPullSecret`.
    async fn register(&mut self) -> Result<()> {
        let secrets = self.members.kubeconfigs().map(|(name, kubeconfig)| {
            let labels = json!({CLUSTER_LABEL: "true"});
            json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": labels},
                "stringData": {"kubeconfig": kubeconfig},
            })
        });
        stream::iter(secrets.collect::<Vec<_>>())
            .map(|secret| apply_secret(&self.admin, secret))
            .buffer_unordered(32)
            .try_collect::<Vec<()>>()
            .await?;
        self.write_source().await?;
        let fleet = json!({
            "apiVersion": "globalps.io/v1alpha1", "kind": "FleetPullSecret", "metadata": {"name": FLEET},
            "spec": {
                "secretRef": {"name": FLEET}, "registered": {}, "rollout": {"maxUnavailable": "10%"},
            },
        });
        let params = PatchParams::apply("bench").force();
        self.fleets()
            .patch(FLEET, &params, &Patch::Apply(&fleet))
            .await?;
        Ok(())
    }

    /// Writes new content into the source, which creates the next revision.
    async fn write_source(&mut self) -> Result<()> {
        self.revision += 1;
        let entry = json!({"username": "bench", "password": format!("password-{}", self.revision)});
        let config = json!({"auths": {"bench.example.com": entry}}).to_string();
        let secret = pull_secret(CLUSTERS, FLEET, &config);
        apply_secret(&self.admin, secret).await
    }

    fn fleets(&self) -> Api<FleetPullSecret> {
        Api::namespaced(self.admin.clone(), CLUSTERS)
    }

    async fn limit(&self, most: &str) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": {"rollout": {"maxUnavailable": most}}}));
        let params = PatchParams::default();
        let fleet = self.fleets().patch(FLEET, &params, &patch).await?;
        let generation = fleet.metadata.generation.unwrap_or_default();
        self.wait(|status| status.observed_generation == generation)
            .await
    }

    async fn cold(&mut self, number: usize) -> Result<Step> {
        let from = Mark::before(&self.members);
        self.hub = self.stage.start_with_metrics()?;
        self.wait_in_force(number).await?;
        self.since(from, waves(0, number, number / 10)).await
    }

    /// Rolls out the next revision, and waits until `number` clusters have it; at most `most` change at once.
    async fn rotate(&mut self, number: usize, most: usize) -> Result<Step> {
        let from = Mark::now(&self.members, self.hub).await?;
        self.write_source().await?;
        self.wait_in_force(number).await?;
        self.since(from, waves(0, number, most)).await
    }

    async fn back(&mut self, number: usize, away: usize) -> Result<Step> {
        let from = Mark::now(&self.members, self.hub).await?;
        self.members.bring_all_back();
        self.wait_in_force(number).await?;
        self.since(from, waves(number - away, number, number / 10))
            .await
    }

    async fn since(&self, from: Mark, waves: usize) -> Result<Step> {
        let log = self.stage.stage.cluster.audit_log();
        from.until_now(&self.members, self.hub, &log, waves).await
    }

    /// Measures the activity during this time.
    async fn rest(&self, time: Duration) -> Result<Step> {
        let from = Mark::now(&self.members, self.hub).await?;
        sleep(time).await;
        self.since(from, 0).await
    }

    /// Restarts the hub, and waits until it watches every member.
    async fn restart(&mut self, number: usize) -> Result<Step> {
        self.stage.stop()?;
        let begun = Instant::now();
        while self.members.watches() > 0 {
            ensure!(
                begun.elapsed() < self.deadline,
                "the watches of the stopped hub are still open"
            );
            sleep(POLL).await;
        }
        let from = Mark::before(&self.members);
        self.hub = self.stage.start_with_metrics()?;
        while self.members.watches() < number {
            ensure!(
                from.begun.elapsed() < self.deadline,
                "{} watches",
                self.members.watches()
            );
            sleep(POLL).await;
        }
        self.since(from, 0).await
    }

    /// Waits until this many clusters have the newest revision and all others are settled.
    async fn wait_in_force(&self, number: usize) -> Result<()> {
        let (revision, number) = (self.revision, u32::try_from(number)?);
        self.wait(|status| {
            let mut conditions = status.conditions.iter();
            let is_ready = conditions.any(|it| it.type_ == condition::READY && it.status == "True");
            is_ready && status.revision == revision && status.counts.synced == number
        })
        .await
    }

    async fn wait(&self, is_done: impl Fn(&FleetPullSecretStatus) -> bool) -> Result<()> {
        let (api, begun) = (self.fleets(), Instant::now());
        loop {
            let status = api.get(FLEET).await?.status.unwrap_or_default();
            if is_done(&status) {
                return Ok(());
            }
            if begun.elapsed() > self.deadline {
                bail!("not within {} s: {status:?}", self.deadline.as_secs());
            }
            sleep(POLL).await;
        }
    }
}

async fn apply_secret(client: &Client, secret: Value) -> Result<()> {
    let api: Api<Secret> = Api::namespaced(client.clone(), CLUSTERS);
    let name = secret["metadata"]["name"].as_str().unwrap_or_default();
    let params = PatchParams::apply("bench").force();
    api.patch(name, &params, &Patch::Apply(&secret)).await?;
    Ok(())
}
