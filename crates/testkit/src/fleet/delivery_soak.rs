//! Delivery into namespaces under random events: namespaces are created, deleted and excluded, content changes, other
//! clients interfere, controllers are killed. After each iteration exactly the expected objects must exist.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fastrand::Rng;
use globalps_core::api::Attach;
use globalps_core::names::{ADDITIONAL_SECRET, DATA_KEY, GLOBAL_SECRET};
use globalps_dockerconfig::parse;
use k8s_openapi::api::core::v1::{Namespace, Secret, ServiceAccount};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::objects::{apply_secret, config, configure, unless};
use super::stage::Stage;
use crate::process::kill;
use crate::product::NAMESPACE;

/// How long the controllers may take after an iteration: the next leader waits until the Lease of a killed one expires.
const SETTLED: Duration = Duration::from_mins(2);
const POLL: Duration = Duration::from_millis(200);
const EVENTS: usize = 12;
const CONTROLLERS: [&str; 2] = ["globalps-controller", "globalps-controller-2"];
const TEAM: &str = "team";
/// How often another client may remove a reference before the controller gives up.
const REMOVALS: u32 = 3;
/// Another event deleted the object, or its namespace.
const GONE: &[u16] = &[404, 409];
const ACCOUNTS: [&str; 2] = ["ci", "default"];

/// Counts of what happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    pub rounds: usize,
    pub events: usize,
    pub kills: usize,
    /// The longest time until the expected state was reached.
    pub slowest: Duration,
}

pub fn soak(time: Duration, seed: u64) -> Result<Outcome> {
    let stage = Stage::managed("delivery-soak", Attach::ServiceAccounts)?;
    crate::fleet::block_on(run(&stage, time, seed))
}

/// A namespace of a user.
#[derive(Clone, Debug, Default)]
struct Space {
    has_label: bool,
    has_annotation: bool,
    removals: u32,
}

struct World {
    client: Client,
    rng: Rng,
    spaces: BTreeMap<String, Space>,
    /// Number in the password of each content.
    additional: u32,
    team: u32,
    attach: Attach,
    is_enabled: bool,
    /// `spec.imagePullSecrets.excludedNamespaces` matches those that begin with `x`.
    excludes_x: bool,
}

async fn run(stage: &Stage, time: Duration, seed: u64) -> Result<Outcome> {
    let mut world = World {
        client: stage.admin_client().await?,
        rng: Rng::with_seed(seed),
        spaces: BTreeMap::new(),
        additional: 0,
        team: 0,
        attach: Attach::ServiceAccounts,
        is_enabled: true,
        excludes_x: false,
    };
    stage.allow_source(TEAM)?;
    let source = json!({"name": TEAM, "scope": {"namespaces": ["t-*"]}});
    world
        .configure(&json!({"sources": [source], "imagePullSecrets": {"serviceAccounts": ACCOUNTS}}))
        .await?;
    world.rotate(true).await?;
    world.rotate(false).await?;
    let mut controllers = CONTROLLERS.map(|component| stage.start(component));
    let mut outcome = Outcome::default();
    let end = Instant::now() + time;
    while Instant::now() < end {
        for _ in 0..EVENTS {
            world.event().await?;
            sleep(Duration::from_millis(world.rng.u64(0..200))).await;
        }
        outcome.events += EVENTS;
        for (component, controller) in CONTROLLERS.iter().zip(&mut controllers) {
            if world.rng.u8(0..3) == 0 {
                let pid = controller
                    .as_ref()
                    .map_err(|error| anyhow::anyhow!("{error:#}"))?;
                kill(*pid);
                outcome.kills += 1;
                // The controller may still be working on the previous event.
                world.event().await?;
                sleep(Duration::from_millis(world.rng.u64(0..500))).await;
                *controller = stage.start(component);
            }
        }
        // New content ends every conflict.
        world
            .configure(&json!({"rollout": {"paused": false}}))
            .await?;
        world.rotate(true).await?;
        world.rotate(false).await?;
        outcome.rounds += 1;
        outcome.slowest = outcome.slowest.max(world.settle(outcome.rounds).await?);
    }
    Ok(outcome)
}

impl World {
    async fn configure(&self, spec: &Value) -> Result<()> {
        configure(&self.client, spec).await
    }

    /// `is_additional`: rotates the content for every pod; otherwise that of the source with a scope.
    async fn rotate(&mut self, is_additional: bool) -> Result<()> {
        let (name, registry, number) = if is_additional {
            (ADDITIONAL_SECRET, "quay.io", &mut self.additional)
        } else {
            (TEAM, "ghcr.io", &mut self.team)
        };
        *number += 1;
        let config = config(&[(registry, *number)]);
        apply_secret(&self.client, NAMESPACE, name, config).await
    }

    fn some_space(&mut self) -> Option<String> {
        let at = self.rng.usize(0..self.spaces.len().max(1));
        self.spaces.keys().nth(at).cloned()
    }

    async fn event(&mut self) -> Result<()> {
        let what = self.rng.u8(0..20);
        match what {
            0..4 => return self.create().await,
            4 => return self.rotate(true).await,
            5 => return self.rotate(false).await,
            6 => {
                let paused = self.rng.bool();
                return self
                    .configure(&json!({"rollout": {"paused": paused}}))
                    .await;
            }
            7 => {
                self.attach = if self.rng.bool() {
                    Attach::Admission
                } else {
                    Attach::ServiceAccounts
                };
                return self
                    .configure(&json!({"imagePullSecrets": {"attach": self.attach}}))
                    .await;
            }
            8 => {
                self.is_enabled = self.rng.u8(0..3) > 0;
                let enabled = self.is_enabled;
                return self
                    .configure(&json!({"imagePullSecrets": {"enabled": enabled}}))
                    .await;
            }
            9 => {
                self.excludes_x = self.rng.bool();
                let excluded = if self.excludes_x {
                    vec!["kube-*", "globalps-system", "x-*"]
                } else {
                    vec!["kube-*", "globalps-system"]
                };
                return self
                    .configure(&json!({"imagePullSecrets": {"excludedNamespaces": excluded}}))
                    .await;
            }
            _ => {}
        }
        let Some(name) = self.some_space() else {
            return Ok(());
        };
        match what {
            10 | 11 => {
                self.spaces.remove(&name);
                let api: Api<Namespace> = Api::all(self.client.clone());
                api.delete(&name, &DeleteParams::default()).await?;
                Ok(())
            }
            12..15 => self.mark(&name).await,
            15 => {
                let config = config(&[("overwritten", 1)]).to_string();
                let api: Api<Secret> = Api::namespaced(self.client.clone(), &name);
                let patch = Patch::Merge(json!({"stringData": {DATA_KEY: config}}));
                let params = PatchParams::default();
                unless(GONE, api.patch(GLOBAL_SECRET, &params, &patch).await).map(drop)
            }
            16 => {
                let api: Api<Secret> = Api::namespaced(self.client.clone(), &name);
                let params = DeleteParams::default();
                unless(GONE, api.delete(GLOBAL_SECRET, &params).await).map(drop)
            }
            _ => self.detach(&name).await,
        }
    }

    async fn create(&mut self) -> Result<()> {
        let prefix = ["t", "x"][self.rng.usize(0..2)];
        let name = format!("{prefix}-{}", self.rng.u32(..));
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        let api: Api<Namespace> = Api::all(self.client.clone());
        api.create(&kube::api::PostParams::default(), &namespace)
            .await?;
        let account: ServiceAccount = serde_json::from_value(
            json!({"metadata": {"name": "ci"}, "imagePullSecrets": [{"name": "own"}]}),
        )?;
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &name);
        api.create(&kube::api::PostParams::default(), &account)
            .await?;
        self.spaces.insert(name, Space::default());
        Ok(())
    }

    /// Excludes a namespace by its label or annotation, or includes it again.
    async fn mark(&mut self, name: &str) -> Result<()> {
        let (by_label, is_marked) = (self.rng.bool(), self.rng.bool());
        let space = self.spaces.get_mut(name).context("a namespace")?;
        let value = is_marked.then_some("true");
        let metadata = if by_label {
            space.has_label = is_marked;
            json!({"labels": {"globalps.io/exclude": value}})
        } else {
            space.has_annotation = is_marked;
            json!({"annotations": {"k8s.titansoft.com/imagepullsecret-patcher-exclude": value}})
        };
        let api: Api<Namespace> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({"metadata": metadata}));
        api.patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Another client applies a service account in its original form.
    async fn detach(&mut self, name: &str) -> Result<()> {
        let space = self.spaces.get_mut(name).context("a namespace")?;
        if space.removals >= REMOVALS {
            return Ok(());
        }
        space.removals += 1;
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), name);
        let patch = Patch::Merge(json!({"imagePullSecrets": [{"name": "own"}]}));
        let params = PatchParams::default();
        unless(GONE, api.patch("ci", &params, &patch).await).map(drop)
    }

    /// Waits for the expected state; returns how long it took.
    async fn settle(&self, round: usize) -> Result<Duration> {
        let begun = Instant::now();
        loop {
            let Err(error) = self.check().await else {
                return Ok(begun.elapsed());
            };
            if begun.elapsed() > SETTLED {
                return Err(error.context(format!(
                    "iteration {round}: not within {} s",
                    SETTLED.as_secs()
                )));
            }
            sleep(POLL).await;
        }
    }

    async fn check(&self) -> Result<()> {
        let params = ListParams::default().fields(&format!("metadata.name={GLOBAL_SECRET}"));
        let secrets = Api::<Secret>::all(self.client.clone())
            .list(&params)
            .await?;
        let secrets: BTreeMap<String, Secret> = secrets
            .into_iter()
            .map(|secret| (secret.namespace().unwrap_or_default(), secret))
            .collect();
        let accounts = Api::<ServiceAccount>::all(self.client.clone());
        let accounts = accounts.list(&ListParams::default()).await?;
        for (name, space) in &self.spaces {
            let is_excluded = space.has_label
                || space.has_annotation
                || self.excludes_x && name.starts_with("x-");
            let is_wanted = self.is_enabled && !is_excluded;
            match secrets.get(name) {
                None => ensure!(!is_wanted, "{name} has no Secret"),
                Some(_) if !is_wanted => bail!("{name} still has a Secret"),
                Some(secret) => self.check_content(name, secret)?,
            }
            let is_attached = is_wanted && self.attach == Attach::ServiceAccounts;
            let of = accounts
                .iter()
                .filter(|account| account.namespace().as_deref() == Some(name));
            for account in of {
                let account_name = account.name_any();
                let names = account.image_pull_secrets.iter().flatten();
                let names: Vec<&str> = names.map(|reference| reference.name.as_str()).collect();
                let is_ours = is_attached && ACCOUNTS.contains(&account_name.as_str());
                let own = if account_name == "ci" {
                    vec!["own"]
                } else {
                    vec![]
                };
                let expected = [own, if is_ours { vec![GLOBAL_SECRET] } else { vec![] }].concat();
                ensure!(
                    names == expected,
                    "{name}/{account_name} has {names:?}, not {expected:?}"
                );
                let record = account.annotations().contains_key("globalps.io/attached");
                ensure!(
                    record == is_ours,
                    "{name}/{account_name}: recorded: {record}"
                );
            }
        }
        Ok(())
    }

    fn check_content(&self, name: &str, secret: &Secret) -> Result<()> {
        let data = secret.data.as_ref().and_then(|data| data.get(DATA_KEY));
        let found = parse(&data.context("no content")?.0)?;
        let mut wanted = vec![("quay.io", self.additional)];
        if name.starts_with("t-") {
            wanted.push(("ghcr.io", self.team));
        }
        let is_right = found.means_the_same(&parse(config(&wanted).to_string().as_bytes())?);
        ensure!(is_right, "{name} has wrong content");
        Ok(())
    }
}
