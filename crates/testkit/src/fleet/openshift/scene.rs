//! What happens at random moments, and how it must end.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use globalps_core::names::{
    ADDITIONAL_SECRET, APPLIED_SECRET, CONTROLLER_NAMESPACE, GLOBAL_SECRET, LEASE,
    OPENSHIFT_ORIGINAL,
};
use globalps_dockerconfig::{DockerConfig, parse};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{interval, sleep};

use super::Report;
use super::document::Keys;
use super::ledger::{self, Ledger, text_of};
use super::machine_config::Pool;
use super::objects::{api, label, machine_config_node, pool};
use super::writers::Writers;
use crate::fleet::objects::{apply_secret, configure, status};
use crate::fleet::observed::{
    Files, LOOKS, Observers, Watcher, auth, content_of, has, objects, says, until, wait_clean,
    wait_restored,
};
use crate::fleet::stage::Stage;
use crate::kubernetes::openshift_crds;
use crate::product::NAMESPACE;

/// The entries of the platform, of an operator of Azure, and of a program that has the same registry as a pull secret.
pub(super) const PLATFORM: &str = "{ \"auths\" : {
  \"cloud.openshift.com\":{\"auth\":\"cGxhdGZvcm06cA==\",\"email\":\"you@example.com\"},
  \"quay.io\" : {\"auth\":\"cGxhdGZvcm06cQ==\", \"email\":\"you@example.com\"},
  \"registry.redhat.io\":{ \"auth\":\"cGxhdGZvcm06cg==\"},
  \"o.example.com\":{\"auth\":\"bzpw\"},
  \"theirs.example.com\":{\"auth\":\"dGhlaXJzOnA=\"},
  \"weu.arosvc.azurecr.io\" : { \"auth\": \"b3BlcmF0b3I6cA==\" }
} }
";
/// Registries that only globalps writes.
const OURS: &[&str] = &[
    "a.example.com",
    "b.example.com:5000",
    "c.example.com/team",
    "quay.io/team",
];
/// A registry whose entry of others globalps may replace.
const OVERRIDDEN: &str = "o.example.com";
const REGISTRIES: [&str; 5] = [OURS[0], OURS[1], OURS[2], OURS[3], OVERRIDDEN];
/// Registries that others have, so that those of the pull secret are not written.
const NOT_WRITTEN: [&str; 2] = ["quay.io", "theirs.example.com"];
const POOLS: [&str; 2] = ["worker", "infra"];
/// Until a leader knows of a new pull secret.
const KNOWN_WITHIN: Duration = Duration::from_secs(1);
/// Until a new leader has its caches.
const LEADS: Duration = Duration::from_secs(5);
/// Between two kills, in milliseconds. A Lease lasts 10 seconds.
const KILLS: std::ops::Range<u64> = 16_000..40_000;

pub(super) struct Scene<'a> {
    stage: &'a Stage,
    client: Client,
    files: Files,
    observers: Observers,
    operator: Vec<JoinHandle<()>>,
    updates: Arc<AtomicUsize>,
    ledger: Ledger,
    /// `None`: they have ended.
    others: Option<Writers>,
    watcher: Watcher,
    seed: u64,
    /// What the pull secret has, and the number of the newest password.
    auths: BTreeMap<&'static str, Value>,
    number: usize,
    is_paused: bool,
    paused_pool: Option<&'static str>,
    next_kill: Instant,
    /// The Lease's holder that was killed, and since when there is another one.
    killed: Option<(String, Option<Instant>)>,
    report: Report,
}

impl Drop for Scene<'_> {
    fn drop(&mut self) {
        self.operator.iter().for_each(JoinHandle::abort);
    }
}

fn in_millis(range: std::ops::Range<u64>) -> Instant {
    Instant::now() + Duration::from_millis(fastrand::u64(range))
}

impl<'a> Scene<'a> {
    pub(super) async fn start(
        stage: &'a Stage,
        client: &Client,
        number: usize,
        seed: u64,
    ) -> Result<Self> {
        for file in openshift_crds()? {
            stage.apply(fs::read_to_string(file)?)?;
        }
        let established = [
            "wait",
            "--for=condition=Established",
            "--timeout=60s",
            "crd",
            "--all",
        ];
        stage.cluster.kubectl(&established)?;
        let files = Files::create(client, number).await?;
        let ledger = Ledger::new(
            client,
            Keys {
                ours: OURS,
                overridden: OVERRIDDEN,
            },
        );
        let first = ledger.read().await?;
        let updates = Arc::default();
        let mut operator = vec![tokio::spawn(ledger.clone().watch(first))];
        for (at, name) in POOLS.into_iter().enumerate() {
            let nodes = files.by_node.iter().skip(at).step_by(POOLS.len());
            let nodes: Vec<_> = nodes
                .map(|(name, file)| (name.clone(), file.clone()))
                .collect();
            let mut objects = vec![pool(name)];
            objects.extend(
                nodes
                    .iter()
                    .map(|(node, _)| machine_config_node(node, name)),
            );
            stage.apply_all(&objects)?;
            label(
                client,
                name,
                &nodes.iter().map(|it| &*it.0).collect::<Vec<_>>(),
            )
            .await?;
            let random = Rng::with_seed(seed.wrapping_add(100 + at as u64));
            let of_pool = Pool::new(name, (client, &ledger), nodes.into_iter(), random, &updates);
            operator.push(tokio::spawn(of_pool.run()));
        }
        let overrides = json!({"kubelet": {"overrideRegistries": [OVERRIDDEN]}});
        configure(client, &overrides).await?;
        stage.start_controller()?;
        Ok(Self {
            others: Some(Writers::careful(&ledger, seed)),
            watcher: Watcher::new(files.by_node.clone()),
            stage,
            client: client.clone(),
            files,
            observers: Observers::default(),
            operator,
            updates,
            ledger,
            seed,
            auths: BTreeMap::new(),
            number: 0,
            is_paused: false,
            paused_pool: None,
            next_kill: in_millis(6_000..15_000),
            killed: None,
            report: Report::default(),
        })
    }

    /// Everything happens at random moments for this long; then everything settles, and the pull secret is removed.
    pub(super) async fn round(&mut self, duration: Duration) -> Result<()> {
        for registry in REGISTRIES {
            self.set(registry);
        }
        self.write().await?;
        self.observers = Observers::default();
        let (stage, client) = (self.stage, &self.client);
        self.observers.start(stage, client, &self.files).await?;
        let seed = self.seed.wrapping_add(1000 * self.report.removals as u64);
        let admin = Writers::careless(&self.ledger, seed);
        let ends = Instant::now() + duration;
        let mut looks = interval(LOOKS);
        let mut next = in_millis(1000..4000);
        while Instant::now() < ends {
            looks.tick().await;
            self.look().await?;
            if Instant::now() >= self.next_kill {
                self.kill().await?;
            }
            if Instant::now() >= next {
                next = in_millis(200..4000);
                self.act().await?;
            }
        }
        let settled = self.settle().await;
        // Who puts a copy back that is older than the removal has the entries again, as their own.
        admin.stop().await?;
        if settled.is_err() {
            let status = status(&self.client).await?;
            return settled.with_context(|| format!("{:#?}", status.conditions));
        }
        self.remove().await
    }

    pub(super) async fn end(mut self) -> Result<Report> {
        if let Some(others) = self.others.take() {
            others.stop().await?;
        }
        let mut report = std::mem::take(&mut self.report);
        let chronicle = self.ledger.chronicle().await;
        report.versions = chronicle.versions;
        report.problems = chronicle.problems;
        report.updates = self.updates.load(Ordering::Relaxed);
        report.seen = std::mem::take(&mut self.watcher.seen);
        Ok(report)
    }

    /// A new password.
    fn set(&mut self, registry: &'static str) {
        self.number += 1;
        let password = format!("password-{}", self.number);
        self.auths.insert(registry, auth(&password));
    }

    async fn write(&mut self) -> Result<()> {
        self.report.rotations += 1;
        let content = json!({"auths": self.auths});
        apply_secret(&self.client, NAMESPACE, ADDITIONAL_SECRET, content).await
    }

    async fn act(&mut self) -> Result<()> {
        let was_odd = NOT_WRITTEN.iter().any(|it| self.auths.contains_key(it));
        match fastrand::u8(0..20) {
            0..8 => self.set(REGISTRIES[fastrand::usize(..REGISTRIES.len())]),
            8 if self.auths.len() > 1 => drop(self.auths.pop_last()),
            9 if !was_odd => self.set(NOT_WRITTEN[fastrand::usize(..NOT_WRITTEN.len())]),
            10..14 => {
                let old: BTreeMap<_, _> = OURS.iter().map(|it| (it, auth("password-0"))).collect();
                return self.files.spoil(&json!({"auths": old}));
            }
            14..17 => return self.pause(!self.is_paused).await,
            17 | 18 => {
                let pool = POOLS[fastrand::usize(..POOLS.len())];
                let wanted = self.paused_pool.is_none().then_some(pool);
                return self.pause_pool(wanted).await;
            }
            _ => return Ok(()),
        }
        if was_odd {
            self.auths.retain(|it, _| !NOT_WRITTEN.contains(it));
        }
        self.write().await
    }

    async fn pause(&mut self, is_paused: bool) -> Result<()> {
        self.report.pauses += usize::from(is_paused);
        self.is_paused = is_paused;
        configure(&self.client, &json!({"rollout": {"paused": is_paused}})).await
    }

    /// `None`: none is paused.
    async fn pause_pool(&mut self, wanted: Option<&'static str>) -> Result<()> {
        self.report.paused_pools += usize::from(wanted.is_some());
        self.paused_pool = wanted;
        let pools = api(&self.client, "MachineConfigPool");
        for name in POOLS {
            let patch = Patch::Merge(json!({"spec": {"paused": wanted == Some(name)}}));
            pools.patch(name, &PatchParams::default(), &patch).await?;
        }
        Ok(())
    }

    async fn kill(&mut self) -> Result<()> {
        self.report.kills += 1;
        self.next_kill = in_millis(KILLS);
        let holder = self.holder().await?;
        self.stage.stop_controller()?;
        self.killed = Some((holder, None));
        self.stage.start_controller().map(drop)
    }

    async fn holder(&self) -> Result<String> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), CONTROLLER_NAMESPACE);
        let spec = leases.get(LEASE).await?.spec.unwrap_or_default();
        Ok(spec.holder_identity.unwrap_or_default())
    }

    /// Whether a controller can do something now.
    async fn leads(&mut self) -> Result<bool> {
        let Some((killed, since)) = self.killed.clone() else {
            return Ok(true);
        };
        let holder = self.holder().await?;
        let since = since.or_else(|| (holder != killed).then(Instant::now));
        let leads = since.is_some_and(|since| since.elapsed() > LEADS);
        self.killed = (!leads).then_some((killed, since));
        Ok(leads)
    }

    fn wanted(&self) -> Result<DockerConfig> {
        Ok(parse(json!({"auths": self.auths}).to_string().as_bytes())?)
    }

    async fn look(&mut self) -> Result<()> {
        let leads = self.leads().await?;
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        let Some(secret) = secrets.get_opt(GLOBAL_SECRET).await? else {
            return Ok(());
        };
        let objects = objects(&self.client).await?;
        let (bytes, wanted) = (content_of(&secret), self.wanted()?);
        let is_whole = has(&bytes, &wanted) && has(&wanted.render(), &parse(&bytes)?);
        let is_newest = is_whole && leads && !self.is_paused;
        let (state, watcher) = (self.number.to_string(), &mut self.watcher);
        watcher.compare(objects, &secret, is_newest, state.as_bytes())
    }

    /// Everything runs again: the newest passwords are in each file, and each node says so.
    async fn settle(&mut self) -> Result<()> {
        self.pause(false).await?;
        self.pause_pool(None).await?;
        self.auths.retain(|it, _| !NOT_WRITTEN.contains(it));
        self.set(OURS[0]);
        self.write().await?;
        let wanted = self.wanted()?;
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        until("the newest passwords on all nodes", async || {
            let Some(secret) = secrets.get_opt(GLOBAL_SECRET).await? else {
                return Ok(false);
            };
            let objects = objects(&self.client).await?;
            let files = self.files.by_node.values();
            let mut files = files.map(|file| fs::read(file).unwrap_or_default());
            Ok(objects.len() == self.files.by_node.len()
                && objects.iter().all(|object| says(object, &secret))
                && files.all(|file| has(&file, &wanted)))
        })
        .await?;
        let file = self.files.by_node.values().next().context("a node")?;
        let token = fs::read_to_string(file.with_file_name("account").join("token"))?;
        let client = self.stage.token_client(&token).await?;
        let record: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
        for refused in [
            ledger::api(&client).get(OPENSHIFT_ORIGINAL.1).await,
            record.get(APPLIED_SECRET).await,
        ] {
            let is_forbidden = matches!(&refused, Err(kube::Error::Api(it)) if it.code == 403);
            ensure!(is_forbidden, "an observer may read it");
        }
        Ok(())
    }

    /// Without the pull secret nothing of globalps is left: the Secret is byte by byte what others alone would have made of it.
    async fn remove(&mut self) -> Result<()> {
        // A registry that is never written is no reason to wait.
        self.set(NOT_WRITTEN[self.report.removals % NOT_WRITTEN.len()]);
        self.write().await?;
        sleep(KNOWN_WITHIN).await;
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        let params = DeleteParams::default();
        secrets.delete(ADDITIONAL_SECRET, &params).await?;
        wait_restored(&self.client).await?;
        wait_clean(&self.client).await?;
        for name in [GLOBAL_SECRET, APPLIED_SECRET] {
            until(name, async || Ok(secrets.get_opt(name).await?.is_none())).await?;
        }
        self.auths.clear();
        self.report.removals += 1;
        let compared = until("the watch", async || {
            let secret = self.ledger.read().await?;
            let plain = &secret.metadata;
            ensure!(
                plain.labels.is_none() && plain.annotations.is_none(),
                "it has other metadata"
            );
            let chronicle = self.ledger.chronicle().await;
            Ok(plain.resource_version.as_ref() == Some(&chronicle.newest)
                && chronicle.is_as_without_us)
        })
        .await;
        if compared.is_err() {
            let (secret, chronicle) = (self.ledger.read().await?, self.ledger.chronicle().await);
            let wanted = chronicle.without_us;
            return compared.with_context(|| format!("{} instead of {wanted}", text_of(&secret)));
        }
        for file in self.files.by_node.values() {
            let text = fs::read_to_string(file)?;
            let is_left = OURS.iter().any(|registry| text.contains(registry));
            ensure!(!is_left, "the file still has it: {text}");
        }
        Ok(())
    }
}
