//! Delivery to namespaces under random events: namespaces are created, deleted and excluded, content changes, other
//! clients interfere, controllers are killed. After each iteration exactly the expected objects must exist.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use globalps_core::api::Attach;
use globalps_core::names::{ADDITIONAL_SECRET, DATA_KEY, GLOBAL_SECRET};
use globalps_dockerconfig::parse;
use k8s_openapi::api::core::v1::{Namespace, Secret, ServiceAccount};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::objects::{apply_secret, config, configure, unless};
use super::stage::Stage;
use crate::fleet::block_on;
use crate::process::kill;
use crate::product::NAMESPACE;
use crate::soak::{self, Events, World, events};

const CONTROLLERS: [&str; 2] = ["globalps-controller", "globalps-controller-2"];
const TEAM: &str = "team";
/// How often another client may remove a reference before the controller gives up.
const REMOVALS: u32 = 3;
/// Status codes if another event deleted the object or its namespace.
const GONE: &[u16] = &[404, 409];
const ACCOUNTS: [&str; 2] = ["ci", "default"];

pub fn soak(time: Duration, seed: u64) -> Result<()> {
    let stage = Stage::managed("delivery-soak", Attach::ServiceAccounts)?;
    block_on(async {
        let mut delivery = Delivery::new(&stage, seed).await?;
        soak::soak(&mut delivery, time).await
    })
}

/// A user's namespace.
#[derive(Clone, Debug, Default)]
struct Space {
    has_label: bool,
    has_annotation: bool,
    removals: u32,
}

struct Delivery<'a> {
    stage: &'a Stage,
    client: Client,
    events: Events,
    /// Process ids.
    controllers: Vec<u32>,
    spaces: BTreeMap<String, Space>,
    /// Number in the password of each content.
    additional: u32,
    team: u32,
    attach: Attach,
    is_enabled: bool,
    /// Whether `spec.imagePullSecrets.excludedNamespaces` matches names that begin with `x`.
    excludes_x: bool,
}

impl World for Delivery<'_> {
    events! { |it, name|
        "namespace created", 4, it.create().await;
        "rotation", 1, it.rotate(true).await;
        "rotation of a source", 1, it.rotate(false).await;
        "paused or resumed", 1, it.pause_or_resume().await;
        "other attachment", 1, it.attach().await;
        "enabled or disabled", 1, it.enable().await;
        "other exclusions", 1, it.exclude().await;
        "namespace deleted", 2, it.delete(&name).await;
        "namespace marked", 3, it.mark(&name).await;
        "Secret changed", 1, it.overwrite(&name).await;
        "Secret deleted", 1, it.delete_secret(&name).await;
        "reference removed", 3, it.detach(&name).await;
    }
    /// Name of a namespace.
    type Drawn = String;
    const ROUND: usize = 12;
    /// The next leader waits until the Lease of a killed one expires.
    const SETTLED: Duration = Duration::from_mins(2);
    const POLL: Duration = Duration::from_millis(200);

    fn events(&mut self) -> &mut Events {
        &mut self.events
    }

    async fn draw(&mut self) -> Result<String> {
        if self.spaces.is_empty() {
            self.create().await?;
        }
        let at = self.events.random.usize(0..self.spaces.len());
        self.spaces.keys().nth(at).cloned().context("a namespace")
    }

    fn pause(&mut self) -> Duration {
        self.events.below(200)
    }

    /// Kills the controllers first. New content ends every conflict.
    async fn heal(&mut self) -> Result<()> {
        for (at, component) in CONTROLLERS.into_iter().enumerate() {
            if self.events.random.u8(0..3) == 0 {
                kill(self.controllers[at]);
                self.events.count("controller killed", true);
                // The controller may still be working on the previous event.
                soak::make_any(self).await?;
                sleep(self.events.below(500)).await;
                self.controllers[at] = self.stage.start(component)?;
            }
        }
        self.configure(&json!({"rollout": {"paused": false}}))
            .await?;
        self.rotate(true).await?;
        self.rotate(false).await
    }

    async fn settled(&mut self) -> Result<()> {
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
                let own: &[&str] = if account_name == "ci" { &["own"] } else { &[] };
                let expected = [own, if is_ours { &[GLOBAL_SECRET] } else { &[] }].concat();
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
}

impl<'a> Delivery<'a> {
    async fn new(stage: &'a Stage, seed: u64) -> Result<Self> {
        let mut delivery = Self {
            stage,
            client: stage.admin_client().await?,
            events: Events::new(seed),
            controllers: Vec::new(),
            spaces: BTreeMap::new(),
            additional: 0,
            team: 0,
            attach: Attach::ServiceAccounts,
            is_enabled: true,
            excludes_x: false,
        };
        stage.allow_source(TEAM)?;
        let source = json!({"name": TEAM, "scope": {"namespaces": ["t-*"]}});
        let spec = json!({"sources": [source], "imagePullSecrets": {"serviceAccounts": ACCOUNTS}});
        delivery.configure(&spec).await?;
        delivery.rotate(true).await?;
        delivery.rotate(false).await?;
        for component in CONTROLLERS {
            delivery.controllers.push(stage.start(component)?);
        }
        Ok(delivery)
    }

    fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    fn namespaces(&self) -> Api<Namespace> {
        Api::all(self.client.clone())
    }

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

    async fn pause_or_resume(&mut self) -> Result<()> {
        let paused = self.events.random.bool();
        self.configure(&json!({"rollout": {"paused": paused}}))
            .await
    }

    async fn attach(&mut self) -> Result<()> {
        self.attach = if self.events.random.bool() {
            Attach::Admission
        } else {
            Attach::ServiceAccounts
        };
        self.configure(&json!({"imagePullSecrets": {"attach": self.attach}}))
            .await
    }

    async fn enable(&mut self) -> Result<()> {
        self.is_enabled = self.events.random.u8(0..3) > 0;
        self.configure(&json!({"imagePullSecrets": {"enabled": self.is_enabled}}))
            .await
    }

    async fn exclude(&mut self) -> Result<()> {
        self.excludes_x = self.events.random.bool();
        let all = ["kube-*", "globalps-system", "x-*"];
        let excluded = &all[..if self.excludes_x { 3 } else { 2 }];
        self.configure(&json!({"imagePullSecrets": {"excludedNamespaces": excluded}}))
            .await
    }

    async fn delete(&mut self, name: &str) -> Result<()> {
        self.spaces.remove(name);
        self.namespaces()
            .delete(name, &DeleteParams::default())
            .await?;
        Ok(())
    }

    async fn overwrite(&mut self, name: &str) -> Result<()> {
        let config = config(&[("overwritten", 1)]).to_string();
        let patch = Patch::Merge(json!({"stringData": {DATA_KEY: config}}));
        let (api, params) = (self.api::<Secret>(name), PatchParams::default());
        unless(GONE, api.patch(GLOBAL_SECRET, &params, &patch).await).map(drop)
    }

    async fn delete_secret(&mut self, name: &str) -> Result<()> {
        let (api, params) = (self.api::<Secret>(name), DeleteParams::default());
        unless(GONE, api.delete(GLOBAL_SECRET, &params).await).map(drop)
    }

    async fn create(&mut self) -> Result<()> {
        let prefix = ["t", "x"][self.events.random.usize(0..2)];
        let name = format!("{prefix}-{}", self.events.random.u32(..));
        let namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        let params = PostParams::default();
        self.namespaces().create(&params, &namespace).await?;
        let account = json!({"metadata": {"name": "ci"}, "imagePullSecrets": [{"name": "own"}]});
        let account: ServiceAccount = serde_json::from_value(account)?;
        self.api(&name).create(&params, &account).await?;
        self.spaces.insert(name, Space::default());
        Ok(())
    }

    /// Excludes a namespace by its label or annotation, or includes it again.
    async fn mark(&mut self, name: &str) -> Result<()> {
        let (by_label, is_marked) = (self.events.random.bool(), self.events.random.bool());
        let space = self.spaces.get_mut(name).context("a namespace")?;
        let value = is_marked.then_some("true");
        let metadata = if by_label {
            space.has_label = is_marked;
            json!({"labels": {"globalps.io/exclude": value}})
        } else {
            space.has_annotation = is_marked;
            json!({"annotations": {"k8s.titansoft.com/imagepullsecret-patcher-exclude": value}})
        };
        let patch = Patch::Merge(json!({"metadata": metadata}));
        self.namespaces()
            .patch(name, &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    /// Applies a service account in its original form, like another client.
    async fn detach(&mut self, name: &str) -> Result<()> {
        let space = self.spaces.get_mut(name).context("a namespace")?;
        if space.removals >= REMOVALS {
            return Ok(());
        }
        space.removals += 1;
        let patch = Patch::Merge(json!({"imagePullSecrets": [{"name": "own"}]}));
        let (api, params) = (self.api::<ServiceAccount>(name), PatchParams::default());
        unless(GONE, api.patch("ci", &params, &patch).await).map(drop)
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
