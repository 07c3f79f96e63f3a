//! Delivery to operators by controllers that are killed at each of their writes.

use anyhow::{Context, Result, ensure};
use globalps_core::names::{OPERATOR_SECRET_LABEL, OPERATOR_SECRETS_ANNOTATION, SECRET_TYPE};
use kube::Client;
use serde_json::{Value, json};

use super::delivery::{CONTROLLER, Part, gate, objects, own_secret};
use super::{Objects, Outcome, Scene, kill_at_each_write};
use crate::fleet::objects::{apply_secret, config, configure, status};
use crate::fleet::stage::Stage;
use crate::olm::{catalog, delete, install_olm, set_versions, subscription, version};

/// Namespace of the operators. Their catalogs are in `olm` and `more`, each with a Secret `pull`.
const SPACE: &str = "ops";
const COPIES: [&str; 2] = ["globalps-olm.pull", "globalps-more.pull"];
/// The service accounts that get references: those of both versions of `a`, and that of `b`.
const ACCOUNTS: [&str; 3] = ["op-a", "op-a2", "op-b"];

/// A change to which delivery reacts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Enable,
    Rotate,
    Upgrade,
    Upgraded,
    RemoveEntry,
    AddEntry,
    Unsubscribe,
    Subscribe,
    Disable,
}

/// Made in turn; each change starts from the state after the previous one.
const CHANGES: [Change; 9] = [
    Change::Enable,
    Change::Rotate,
    Change::Upgrade,
    Change::Upgraded,
    Change::RemoveEntry,
    Change::AddEntry,
    Change::Unsubscribe,
    Change::Subscribe,
    Change::Disable,
];

struct World<'a> {
    stage: &'a Stage,
    client: Client,
    /// Objects of other clients, in their original and final state.
    base: Objects,
    is_enabled: bool,
    /// Number in the password of `olm/pull`.
    content: u32,
    /// The installed version of the operator `a`, and the version being installed; `None` if it has no Subscription.
    versions: Option<(&'static str, &'static str)>,
    /// Whether the catalog of `b` names its pull secret.
    has_entry: bool,
}

pub fn run() -> Result<Vec<Outcome<Change>>> {
    let secrets = [("olm", "pull"), ("more", "pull")];
    let stage = Stage::for_operators("operator-kills", &secrets)?;
    install_olm(&stage.cluster);
    kill_at_each_write(&gate(&stage)?, World::new(&stage), &CHANGES)
}

impl<'a> World<'a> {
    async fn new(stage: &'a Stage) -> Result<Self> {
        let account = |name: &str, references: Value| {
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "imagePullSecrets": references,
                "metadata": {"name": name, "namespace": SPACE}})
        };
        let objects_of_others = [
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}),
            account("op-a", json!([{"name": "own"}])),
            account("op-a2", json!([])),
            account("op-b", json!([])),
            account("other", json!([{"name": COPIES[0]}])),
            version(SPACE, "a.v1", "op-a", "quay.io/a:1", None),
            version(SPACE, "a.v2", "op-a2", "quay.io/a:2", None),
            version(SPACE, "b.v1", "op-b", "ghcr.io/b:1", None),
            catalog("olm", "one", &["pull"]),
            subscription(SPACE, "b", ("more", "two")),
        ];
        let mut world = Self {
            stage,
            client: stage.admin_client().await?,
            base: Objects::new(),
            is_enabled: false,
            content: 0,
            versions: None,
            has_entry: false,
        };
        world.apply(&objects_of_others)?;
        world.configure(false).await?;
        world.apply_pull_secret("olm", 0).await?;
        world.apply_pull_secret("more", 0).await?;
        world.make(Change::AddEntry).await?;
        world.make(Change::Subscribe).await?;
        set_versions(&stage.cluster, SPACE, "b", "b.v1", "b.v1");
        // Kubernetes creates the default service accounts of the new namespaces.
        stage.wait_default_accounts(&["olm", "more", SPACE])?;
        world.base = world.found().await?;
        Ok(world)
    }

    fn apply(&self, objects: &[Value]) -> Result<()> {
        self.stage.apply_all(objects)
    }

    async fn configure(&self, is_enabled: bool) -> Result<()> {
        let spec = json!({"operators": {"enabled": is_enabled}});
        configure(&self.client, &spec).await
    }

    async fn apply_pull_secret(&self, namespace: &str, number: u32) -> Result<()> {
        let config = config(&[(registry(namespace), number)]);
        apply_secret(&self.client, namespace, "pull", config).await
    }

    /// Sets the installed version, and the one being installed.
    fn set_versions(&mut self, versions: (&'static str, &'static str)) {
        self.versions = Some(versions);
        set_versions(&self.stage.cluster, SPACE, "a", versions.0, versions.1);
    }
}

fn registry(catalogs: &str) -> &'static str {
    if catalogs == "olm" {
        "quay.io"
    } else {
        "ghcr.io"
    }
}

fn account_of(version: &str) -> &'static str {
    match version {
        "a.v1" => "op-a",
        "a.v2" => "op-a2",
        _ => "op-b",
    }
}

/// Adds a copy for these versions of operators, and a reference in the service account of each.
fn add(wanted: &mut Objects, copy: &str, content: &Value, versions: &[&str]) {
    let labels = json!({OPERATOR_SECRET_LABEL: "true", "app.kubernetes.io/managed-by": CONTROLLER});
    let owners: Vec<Value> = versions.iter().map(|name| json!(name)).collect();
    let owners: Vec<&Value> = owners.iter().collect();
    let secret = own_secret(&json!(SECRET_TYPE), &labels, &owners, content);
    wanted.insert(format!("Secret {SPACE}/{copy}"), secret);
    for version in versions {
        let key = format!("ServiceAccount {SPACE}/{}", account_of(version));
        let account = wanted.entry(key).or_default();
        let own = account["imagePullSecrets"].as_array().cloned();
        let ours = json!({"name": copy});
        account["imagePullSecrets"] = own.into_iter().flatten().chain([ours]).collect();
        account["metadata"]["annotations"][OPERATOR_SECRETS_ANNOTATION] = json!(copy);
    }
}

fn part(kind: &str, space: &str, name: &str) -> Part {
    match kind {
        _ if space != SPACE => Part::Others,
        "Secret" if COPIES.contains(&name) => Part::Own,
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
                self.configure(self.is_enabled).await?;
            }
            Change::Rotate => {
                self.content += 1;
                self.apply_pull_secret("olm", self.content).await?;
                // It belongs to another client, and has a new resourceVersion now.
                let key = "Secret olm/pull";
                let now = self.found().await?.remove(key).context(key)?;
                self.base.insert(key.to_owned(), now);
            }
            Change::Upgrade => self.set_versions(("a.v1", "a.v2")),
            Change::Upgraded => self.set_versions(("a.v2", "a.v2")),
            Change::RemoveEntry | Change::AddEntry => {
                self.has_entry = change == Change::AddEntry;
                let secrets: &[&str] = if self.has_entry { &["pull"] } else { &[] };
                self.apply(&[catalog("more", "two", secrets)])?;
            }
            Change::Unsubscribe => {
                self.versions = None;
                delete(&self.stage.cluster, SPACE, "subscription/a");
            }
            Change::Subscribe => {
                self.apply(&[subscription(SPACE, "a", ("olm", "one"))])?;
                self.set_versions(("a.v1", "a.v1"));
            }
        }
        Ok(())
    }

    fn circle(&self, change: Change) -> &'static [Change] {
        match change {
            Change::Rotate => &[Change::Rotate],
            _ => &[],
        }
    }

    async fn found(&self) -> Result<Objects> {
        objects(&self.client, part).await
    }

    fn wanted(&self) -> Objects {
        let mut wanted = self.base.clone();
        if !self.is_enabled {
            return wanted;
        }
        if let Some((installed, current)) = self.versions {
            let mut versions = vec![installed, current];
            versions.dedup();
            let content = config(&[("quay.io", self.content)]);
            add(&mut wanted, COPIES[0], &content, &versions);
        }
        if self.has_entry {
            add(
                &mut wanted,
                COPIES[1],
                &config(&[("ghcr.io", 0)]),
                &["b.v1"],
            );
        }
        wanted
    }

    /// Checks that a service account refers to every copy, because this is how the next controller finds the copy.
    async fn check_between(&self, found: &Objects) -> Result<()> {
        for copy in COPIES {
            let is_there = found.contains_key(&format!("Secret {SPACE}/{copy}"));
            let is_named = found.values().any(|account| {
                account["metadata"]["annotations"][OPERATOR_SECRETS_ANNOTATION] == copy
            });
            ensure!(
                !is_there || is_named,
                "no service account references {copy}"
            );
        }
        Ok(())
    }

    async fn check_status(&self) -> Result<()> {
        let status = status(&self.client).await?;
        let found = status.operators.as_ref();
        let found = found.map(|found| (found.synced, found.total, found.failed));
        let all = u32::from(self.versions.is_some()) + u32::from(self.has_entry);
        let expected = self.is_enabled.then_some((all, all, 0));
        ensure!(
            found == expected,
            "the status has {found:?}, not {expected:?}"
        );
        Ok(())
    }
}
