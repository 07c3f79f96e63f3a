//! Delivery to namespaces by controllers that are killed at each of their writes, with both ways to attach pull secrets.

use anyhow::{Result, ensure};
use globalps_core::api::Attach;
use globalps_core::names::{
    ADDITIONAL_SECRET, ATTACHED_ANNOTATION, GLOBAL_SECRET, IMAGE_PULL_SECRET_LABEL, SECRET_TYPE,
};
use k8s_openapi::api::core::v1::Secret;
use kube::api::DeleteParams;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::delivery::{CONTROLLER, Part, gate, objects, own_secret};
use super::{Objects, Outcome, Scene, kill_at_each_write};
use crate::fleet::objects::{apply_secret, config, configure, status};
use crate::fleet::stage::Stage;
use crate::product::NAMESPACE;

const TEAM: &str = "team";
/// Namespaces that get the Secret; `t-1` is in the scope of the second source.
const SPACES: [&str; 4] = ["a", "b", "default", "t-1"];
/// Service accounts that get a reference.
const ACCOUNTS: [&str; 2] = ["ci", "default"];

/// A change to which delivery reacts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Enable,
    Rotate,
    RotateTeam,
    ToAdmission,
    Withdraw,
    Restore,
    RotateAgain,
    ToAccounts,
    Disable,
}

/// Made in turn; each change starts from the state after the previous one.
const CHANGES: [Change; 9] = [
    Change::Enable,
    Change::Rotate,
    Change::RotateTeam,
    Change::ToAdmission,
    Change::Withdraw,
    Change::Restore,
    Change::RotateAgain,
    Change::ToAccounts,
    Change::Disable,
];

struct World<'a> {
    stage: &'a Stage,
    client: Client,
    /// Objects of other clients, in their original and final state.
    base: Objects,
    is_enabled: bool,
    has_sources: bool,
    attach: Attach,
    /// Number in the password of each content.
    additional: u32,
    team: u32,
}

pub fn run() -> Result<Vec<Outcome<Change>>> {
    let stage = Stage::managed("delivery-kills", Attach::ServiceAccounts)?;
    kill_at_each_write(&gate(&stage)?, World::new(&stage), &CHANGES)
}

impl<'a> World<'a> {
    /// Creates the namespaces of users, objects of other clients, and both sources.
    async fn new(stage: &'a Stage) -> Result<Self> {
        let mut others = Vec::new();
        let account = |namespace: &str, name: &str, reference: &str| {
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "imagePullSecrets": [{"name": reference}],
                "metadata": {"name": name, "namespace": namespace}})
        };
        for name in ["a", "b", "t-1", "out", "foreign"] {
            let labels = if name == "out" {
                json!({"globalps.io/exclude": "true"})
            } else {
                json!({})
            };
            others.push(json!({"apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": name, "labels": labels}}));
            others.push(account(name, "ci", "own"));
        }
        // Another client's reference, and another client's Secret.
        others.push(account("b", "mine", GLOBAL_SECRET));
        others.push(json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": GLOBAL_SECRET, "namespace": "foreign"}, "stringData": {"key": "theirs"}}));
        stage.apply_all(&others)?;
        stage.allow_source(TEAM)?;
        let mut world = Self {
            stage,
            client: stage.admin_client().await?,
            base: Objects::new(),
            is_enabled: false,
            has_sources: true,
            attach: Attach::ServiceAccounts,
            additional: 0,
            team: 0,
        };
        world
            .configure(&json!({
                "sources": [{"name": TEAM, "scope": {"namespaces": ["t-*"]}}],
                "imagePullSecrets": {"enabled": false, "serviceAccounts": [ACCOUNTS[0], ACCOUNTS[1], "mine"]}}))
            .await?;
        world.apply_sources().await?;
        stage.wait_default_accounts(&["a", "b", "t-1", "out", "foreign", "default"])?;
        world.base = world.found().await?;
        Ok(world)
    }

    async fn configure(&self, spec: &Value) -> Result<()> {
        configure(&self.client, spec).await
    }

    async fn apply_sources(&self) -> Result<()> {
        self.apply_source(ADDITIONAL_SECRET, "quay.io", self.additional)
            .await?;
        self.apply_source(TEAM, "ghcr.io", self.team).await
    }

    async fn apply_source(&self, name: &str, registry: &str, number: u32) -> Result<()> {
        let config = config(&[(registry, number)]);
        apply_secret(&self.client, NAMESPACE, name, config).await
    }

    fn is_delivered(&self) -> bool {
        self.is_enabled && self.has_sources
    }
}

fn part(kind: &str, space: &str, name: &str) -> Part {
    match kind {
        _ if !SPACES.contains(&space) => Part::Others,
        "Secret" if name == GLOBAL_SECRET => Part::Own,
        "ServiceAccount" if ACCOUNTS.contains(&name) => Part::Shared,
        _ => Part::Others,
    }
}

impl Scene for World<'_> {
    type Change = Change;
    const PROGRAM: &'static str = CONTROLLER;

    fn client(&self) -> &Client {
        &self.client
    }

    fn start(&self) -> Result<u32> {
        self.stage.start_controller()
    }

    async fn make(&mut self, change: Change) -> Result<()> {
        match change {
            Change::Enable | Change::Disable => {
                self.is_enabled = change == Change::Enable;
                let spec = json!({"imagePullSecrets": {"enabled": self.is_enabled}});
                self.configure(&spec).await
            }
            Change::Rotate | Change::RotateAgain => {
                self.additional += 1;
                self.apply_source(ADDITIONAL_SECRET, "quay.io", self.additional)
                    .await
            }
            Change::RotateTeam => {
                self.team += 1;
                self.apply_source(TEAM, "ghcr.io", self.team).await
            }
            Change::ToAdmission | Change::ToAccounts => {
                self.attach = if change == Change::ToAdmission {
                    Attach::Admission
                } else {
                    Attach::ServiceAccounts
                };
                let spec = json!({"imagePullSecrets": {"attach": self.attach}});
                self.configure(&spec).await
            }
            Change::Withdraw => {
                self.has_sources = false;
                let api: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
                for name in [ADDITIONAL_SECRET, TEAM] {
                    api.delete(name, &DeleteParams::default()).await?;
                }
                Ok(())
            }
            Change::Restore => {
                self.has_sources = true;
                self.apply_sources().await
            }
        }
    }

    fn circle(&self, change: Change) -> &'static [Change] {
        match change {
            Change::Rotate => &[Change::Rotate],
            Change::RotateTeam => &[Change::RotateTeam],
            Change::RotateAgain => &[Change::RotateAgain],
            _ => &[],
        }
    }

    async fn found(&self) -> Result<Objects> {
        objects(&self.client, part).await
    }

    fn wanted(&self) -> Objects {
        let mut wanted = self.base.clone();
        if !self.is_delivered() {
            return wanted;
        }
        for space in SPACES {
            let mut entries = vec![("quay.io", self.additional)];
            if space.starts_with("t-") {
                entries.push(("ghcr.io", self.team));
            }
            let labels = json!({IMAGE_PULL_SECRET_LABEL: "true", "app.kubernetes.io/managed-by": CONTROLLER});
            let secret = own_secret(&json!(SECRET_TYPE), &labels, &[], &config(&entries));
            wanted.insert(format!("Secret {space}/{GLOBAL_SECRET}"), secret);
            if self.attach == Attach::Admission {
                continue;
            }
            for account in ACCOUNTS {
                let Some(account) = wanted.get_mut(&format!("ServiceAccount {space}/{account}"))
                else {
                    continue;
                };
                let own = account["imagePullSecrets"].as_array().cloned();
                let ours = json!({"name": GLOBAL_SECRET});
                account["imagePullSecrets"] = own.into_iter().flatten().chain([ours]).collect();
                account["metadata"]["annotations"][ATTACHED_ANNOTATION] = json!(GLOBAL_SECRET);
            }
        }
        wanted
    }

    fn may_differ(&self, change: Change, key: &str) -> bool {
        // Two sources are added or removed, one after the other.
        let is_twofold = matches!(change, Change::Withdraw | Change::Restore);
        is_twofold && key == format!("Secret t-1/{GLOBAL_SECRET}")
    }

    /// Checks that every reference has its Secret.
    async fn check_between(&self, found: &Objects) -> Result<()> {
        for (key, account) in found {
            let is_ours = !account["metadata"]["annotations"][ATTACHED_ANNOTATION].is_null();
            let space = key.split([' ', '/']).nth(1).unwrap_or_default();
            let has_secret = found.contains_key(&format!("Secret {space}/{GLOBAL_SECRET}"));
            ensure!(
                !is_ours || has_secret,
                "{key} references a Secret that does not exist"
            );
        }
        Ok(())
    }

    async fn check_status(&self) -> Result<()> {
        let status = status(&self.client).await?;
        let revision = status.revision;
        ensure!(
            (revision > 0) == self.has_sources,
            "the revision is {revision}"
        );
        let found = status.image_pull_secrets.as_ref();
        let found = found.map(|found| (found.synced, found.total, found.failed));
        // `foreign` has a conflict.
        let all = if self.has_sources {
            (4, 5, 1)
        } else {
            (0, 0, 0)
        };
        let expected = self.is_enabled.then_some(all);
        ensure!(
            found == expected,
            "the status has {found:?}, not {expected:?}"
        );
        Ok(())
    }
}
