//! The measurement: first rollout, rotations, idle time, and the API server's maximum throughput.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use globalps_core::api::{GlobalPullSecret, condition};
use globalps_core::names::{ADDITIONAL_SECRET, GLOBAL_SECRET, PLUGIN_MANAGER};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::meter::{Requests, Usage, audited};
use super::objects::configure;
use super::stage::Stage;
use super::syncers::Syncers;
use super::{Figures, Options, Rotation, capacity, nodes};
use crate::product::{NAMESPACE, pull_secret};

/// Number of clients whose connections all syncers share for everything except watches.
const CLIENTS: usize = 16;
/// Interval between reads of the status.
const LOOK: Duration = Duration::from_millis(100);
/// Deadline of a rotation.
const DEADLINE: Duration = Duration::from_mins(10);

struct Run<'a> {
    nodes: usize,
    admin: Client,
    syncers: Syncers,
    controller: u32,
    audit_log: &'a Path,
    revision: i64,
}

/// A fleet before its first rollout.
struct Begun<'a> {
    run: Run<'a>,
    uids: BTreeMap<String, String>,
    clients: Vec<Client>,
    beats: JoinHandle<()>,
    /// The controller after its start.
    fresh: Usage,
}

async fn begin<'a>(stage: &Stage, number: usize, audit_log: &'a Path) -> Result<Begun<'a>> {
    let say = |what: &str| eprintln!("{number} nodes: {what}");
    let admin = stage.admin_client().await?;
    let uids: BTreeMap<String, String> = nodes::create(&admin, number).await?;
    say("created");
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(stage.syncer_client().await?);
    }
    let names: Vec<String> = uids.keys().cloned().collect();
    let syncers = Syncers::start(&clients, &names).await?;
    let beats = tokio::spawn(nodes::beat(admin.clone(), number));
    say("every syncer is watching");
    let controller = stage.start_controller()?;
    // Waits until the controller has listed everything.
    sleep(Duration::from_secs(5)).await;
    let run = Run {
        nodes: number,
        admin,
        syncers,
        controller,
        audit_log,
        revision: 0,
    };
    Ok(Begun {
        run,
        uids,
        clients,
        beats,
        fresh: Usage::of(controller)?,
    })
}

/// A fleet after its first rollout, which makes no further change.
pub(super) async fn roll_out_once(stage: &Stage, nodes: usize) -> Result<Syncers> {
    let audit_log = stage.cluster.audit_log();
    let mut begun = begin(stage, nodes, &audit_log).await?;
    begun.run.rotate().await?;
    eprintln!("{nodes} nodes: rollout done");
    stage.stop_controller()?;
    begun.beats.abort();
    begun.run.syncers.set_deaf();
    Ok(begun.run.syncers)
}

pub(super) async fn measure(stage: &Stage, options: &Options) -> Result<Figures> {
    let say = |what: &str| eprintln!("{} nodes: {what}", options.nodes);
    let audit_log = stage.cluster.audit_log();
    let Begun {
        mut run,
        uids,
        clients,
        beats,
        fresh,
    } = begin(stage, options.nodes, &audit_log).await?;
    let first = run.rotate().await?;
    say("first rollout complete");
    sleep(Duration::from_secs(2)).await;
    let tenth = run.rotate().await?;
    say("rotation done");
    let one_at_a_time = run.one_at_a_time(options.one_at_a_time).await?;
    say("one at a time complete");
    run.configure(&json!({"kubelet": {"delivery": "CredentialProvider"}}))
        .await?;
    // A change of the delivery is a revision too.
    run.revision += 1;
    run.wait_ready(Instant::now() + DEADLINE).await?;
    let in_place = run.rotate().await?;
    ensure!(in_place.waves == 0, "kubelets restarted");
    say("rotation in place complete");
    let (idle, idle_processor) = run.idle(options.idle).await?;
    say("idleness done");
    let last = Usage::of(run.controller)?;
    stage.stop_controller()?;
    beats.abort();
    run.syncers.set_deaf();
    let capacity = capacity::measure(&stage.controller_client().await?, &clients, &uids).await?;
    ensure!(
        run.syncers.errors() == 0,
        "{} requests of syncers failed",
        run.syncers.errors()
    );
    Ok(Figures {
        nodes: options.nodes,
        first,
        tenth,
        one_at_a_time,
        in_place,
        capacity,
        idle,
        idle_processor,
        fresh,
        last,
    })
}

impl Run<'_> {
    /// Rotates with the default limit.
    async fn rotate(&mut self) -> Result<Rotation> {
        self.syncers.most_busy();
        let limit = (self.nodes / 10).max(1);
        let before = (
            Requests::read(&self.admin).await?,
            Usage::of(self.controller)?,
        );
        let begun = Instant::now();
        self.write_secret().await?;
        self.wait_ready(begun + DEADLINE).await?;
        let time = begun.elapsed();
        let after = (
            Requests::read(&self.admin).await?,
            Usage::of(self.controller)?,
        );
        let busy = self.syncers.most_busy();
        ensure!(
            busy <= limit,
            "{busy} nodes changed at the same time, but the limit is {limit}"
        );
        let synced = self.syncers.times(self.revision).len();
        ensure!(
            synced == self.nodes,
            "{synced} of {} nodes are synced",
            self.nodes
        );
        let mut requests = after.0.since(&before.0);
        // Excludes this program's own reads of the status.
        requests.counts.remove("GET globalpullsecrets");
        Ok(Rotation {
            time,
            waves: if busy == 0 {
                0
            } else {
                1 + (self.nodes - 1).div_ceil(limit)
            },
            requests,
            processor: after.1.processor.saturating_sub(before.1.processor),
        })
    }

    /// Rotates one node after the other for at most this time, then the remaining nodes at once. Returns the time per
    /// node, and the number of nodes.
    async fn one_at_a_time(&mut self, most: Duration) -> Result<(Duration, usize)> {
        self.configure(&json!({"rollout": {"maxUnavailable": 1}}))
            .await?;
        self.syncers.most_busy();
        let begun = Instant::now();
        self.write_secret().await?;
        while begun.elapsed() < most && self.syncers.times(self.revision).len() < self.nodes {
            sleep(LOOK).await;
        }
        let busy = self.syncers.most_busy();
        ensure!(
            busy <= 1,
            "{busy} nodes changed at the same time, but the limit is 1"
        );
        let times = self.syncers.times(self.revision);
        self.configure(&json!({"rollout": {"maxUnavailable": "10%"}}))
            .await?;
        self.wait_ready(Instant::now() + DEADLINE).await?;
        let Some(last) = times.last() else {
            bail!("no node was synced");
        };
        let each = last.duration_since(begun) / u32::try_from(times.len())?;
        Ok((each, times.len()))
    }

    /// Requests and CPU time of the idle controller.
    async fn idle(&self, time: Duration) -> Result<((Vec<(String, usize)>, f64), Duration)> {
        // Waits until the last statuses of the rotation are written.
        sleep(Duration::from_secs(5)).await;
        let (before, from) = (Usage::of(self.controller)?, Timestamp::now());
        sleep(time).await;
        let (after, to) = (Usage::of(self.controller)?, Timestamp::now());
        let requests = audited(self.audit_log, from, to)?;
        let processor = after.processor.saturating_sub(before.processor);
        Ok(((requests, time.as_secs_f64() / 60.0), processor))
    }

    /// Writes new content into the additional Secret, which creates the next revision.
    async fn write_secret(&mut self) -> Result<()> {
        self.revision += 1;
        let password = format!("password-{}", self.revision);
        let content =
            json!({"auths": {"bench.example.com": {"username": "bench", "password": password}}});
        let secret = pull_secret(NAMESPACE, ADDITIONAL_SECRET, &content.to_string());
        let api: Api<Secret> = Api::namespaced(self.admin.clone(), NAMESPACE);
        let params = PatchParams::apply(PLUGIN_MANAGER).force();
        api.patch(ADDITIONAL_SECRET, &params, &Patch::Apply(&secret))
            .await?;
        Ok(())
    }

    async fn configure(&self, spec: &Value) -> Result<()> {
        configure(&self.admin, spec).await
    }

    /// Waits until the status reports that every node has the newest revision.
    async fn wait_ready(&self, deadline: Instant) -> Result<()> {
        let api: Api<GlobalPullSecret> = Api::namespaced(self.admin.clone(), NAMESPACE);
        loop {
            let object = api.get_opt(GLOBAL_SECRET).await?;
            let status = object.as_ref().and_then(|object| object.status.as_ref());
            let ready = status.is_some_and(|status| {
                status.revision == self.revision
                    && status.conditions.iter().any(|condition| {
                        condition.type_ == condition::READY && condition.status == "True"
                    })
            });
            if ready {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!(
                    "revision {} is not in effect everywhere: {status:?}",
                    self.revision
                );
            }
            sleep(LOOK).await;
        }
    }
}
