//! A stand-in of `OpenShift`'s Machine Config Operator: it renders the pull secret for each pool, and brings it to one node after the
//! other. A paused pool keeps what it has; a file that another program has changed is found and restored; a node may be degraded.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Map, Value, json};
use tokio::time::sleep;

use super::ledger::Ledger;
use super::objects;
use crate::fleet::observed::content_of;

const MODE: u32 = 0o600;
const LOOKS: Duration = Duration::from_millis(100);
/// Longest pause between two steps of an update.
const STEP: u64 = 150;
/// Updates among which one is stuck for a while.
const STUCK: u8 = 20;

/// What the pool's nodes should have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rendered {
    name: String,
    bytes: Vec<u8>,
}

struct Member {
    name: String,
    file: PathBuf,
    /// What the last update has brought; `None`: there was none.
    current: Option<Rendered>,
}

/// The nodes of one pool, and the operator for them.
pub(super) struct Pool {
    name: &'static str,
    client: Client,
    ledger: Ledger,
    random: Rng,
    members: Vec<Member>,
    rendered: Option<Rendered>,
    /// Number of renderings.
    number: usize,
    /// The status that was written last.
    status: Value,
    /// Of all pools.
    pub(super) updates: Arc<AtomicUsize>,
}

impl Pool {
    /// `files`: of its nodes, by name.
    pub(super) fn new(
        name: &'static str,
        (client, ledger): (&Client, &Ledger),
        files: impl Iterator<Item = (String, PathBuf)>,
        random: Rng,
        updates: &Arc<AtomicUsize>,
    ) -> Self {
        let members = files.map(|(name, file)| Member {
            name,
            file,
            current: None,
        });
        Self {
            name,
            client: client.clone(),
            ledger: ledger.clone(),
            random,
            members: members.collect(),
            rendered: None,
            number: 0,
            status: Value::Null,
            updates: Arc::clone(updates),
        }
    }

    /// Never ends.
    pub(super) async fn run(mut self) {
        loop {
            if let Err(error) = self.step().await {
                eprintln!("the Machine Config Operator, pool {}: {error:#}", self.name);
            }
            sleep(LOOKS).await;
        }
    }

    /// Renders, and updates or restores one node.
    async fn step(&mut self) -> Result<()> {
        let pool = objects::api(&self.client, "MachineConfigPool");
        let is_paused = pool.get(self.name).await?.data["spec"]["paused"] == true;
        let wanted = self.render().await?;
        let changed = self.members.iter().position(|member| {
            let current = member.current.as_ref();
            current.is_some_and(|current| difference(&member.file, &current.bytes).is_some())
        });
        let outdated = self.members.iter().position(|member| {
            let current = member.current.as_ref();
            !is_paused && current != Some(&wanted)
        });
        self.report(changed.is_some(), &wanted).await?;
        match (changed, outdated) {
            (Some(at), _) => self.restore(at).await,
            (None, Some(at)) => self.update(at, wanted).await,
            (None, None) => Ok(()),
        }
    }

    async fn render(&mut self) -> Result<Rendered> {
        let bytes = content_of(&self.ledger.read().await?);
        let last = self.rendered.take().filter(|last| last.bytes == bytes);
        let rendered = last.unwrap_or_else(|| {
            self.number += 1;
            let name = format!("rendered-{}-{}", self.name, self.number);
            Rendered { name, bytes }
        });
        self.rendered = Some(rendered.clone());
        Ok(rendered)
    }

    async fn update(&mut self, at: usize, wanted: Rendered) -> Result<()> {
        let name = self.members[at].name.clone();
        let begins = json!({"desiredConfig": wanted.name, "state": "Working", "reason": ""});
        self.annotate(&name, &begins).await?;
        self.tell(&name, &wanted.name, false).await?;
        if self.random.u8(..STUCK) == 0 {
            let degraded = json!({"state": "Degraded", "reason": "the disk is full"});
            self.annotate(&name, &degraded).await?;
            self.pause(4000).await;
            self.annotate(&name, &json!({"state": "Working", "reason": ""}))
                .await?;
        }
        self.pause(STEP).await;
        write(&self.members[at].file, &wanted.bytes)?;
        self.pause(STEP).await;
        self.members[at].current = Some(wanted);
        self.restore(at).await
    }

    /// Compares the file until it is what the node should have. Then the node is done.
    async fn restore(&mut self, at: usize) -> Result<()> {
        let Member {
            name,
            file,
            current,
        } = &self.members[at];
        let (name, file) = (name.clone(), file.clone());
        let Some(current) = current.clone() else {
            return Ok(());
        };
        while let Some(why) = difference(&file, &current.bytes) {
            let degraded =
                json!({"state": "Degraded", "reason": format!("unexpected on-disk state: {why}")});
            self.annotate(&name, &degraded).await?;
            self.pause(STEP * 3).await;
            write(&file, &current.bytes)?;
        }
        let done = json!({"currentConfig": current.name, "state": "Done", "reason": ""});
        self.annotate(&name, &done).await?;
        self.updates.fetch_add(1, Ordering::Relaxed);
        self.tell(&name, &current.name, true).await
    }

    async fn pause(&mut self, most: u64) {
        sleep(Duration::from_millis(self.random.u64(..=most))).await;
    }

    async fn annotate(&self, node: &str, values: &Value) -> Result<()> {
        let values = values.as_object().into_iter().flatten();
        let named = values.map(|(name, value)| (objects::annotation(name), value.clone()));
        let named: Map<String, Value> = named.collect();
        let api: Api<Node> = Api::all(self.client.clone());
        let patch = json!({"metadata": {"annotations": named}});
        api.patch(node, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        Ok(())
    }

    /// In the node's `MachineConfigNode`.
    async fn tell(&self, node: &str, config: &str, is_updated: bool) -> Result<()> {
        let updated = objects::condition("Updated", is_updated, "by the stand-in");
        let mut version = json!({"desired": config});
        if is_updated {
            version["current"] = config.into();
        }
        let spec = json!({"configVersion": {"desired": config}});
        let status = json!({"configVersion": version, "conditions": [updated]});
        objects::patch(&self.client, "MachineConfigNode", node, (spec, status)).await
    }

    async fn report(&mut self, is_changed: bool, wanted: &Rendered) -> Result<()> {
        let all = self.members.len();
        let members = self.members.iter();
        let updated = members.filter(|it| it.current.as_ref() == Some(wanted));
        let updated = updated.count();
        let counts = json!([all, updated, is_changed, wanted.name]);
        if counts == self.status {
            return Ok(());
        }
        let status = json!({
            "machineCount": all, "updatedMachineCount": updated, "readyMachineCount": updated,
            "unavailableMachineCount": usize::from(updated < all), "degradedMachineCount": usize::from(is_changed),
            "configuration": {"name": wanted.name},
            "conditions": [
                objects::condition("Updated", updated == all, ""),
                objects::condition("Updating", updated < all, ""),
                objects::condition("Degraded", is_changed, ""),
                objects::condition("NodeDegraded", is_changed, ""),
            ],
        });
        let spec = json!({"configuration": {"name": wanted.name}});
        objects::patch(&self.client, "MachineConfigPool", self.name, (spec, status)).await?;
        self.status = counts;
        Ok(())
    }
}

/// As the daemon writes: a new file takes the place of the old one.
fn write(file: &Path, bytes: &[u8]) -> Result<()> {
    let new = file.with_file_name(".config.json.mcd");
    fs::write(&new, bytes)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(MODE))?;
    Ok(fs::rename(new, file)?)
}

/// What differs from these bytes and the mode.
fn difference(file: &Path, bytes: &[u8]) -> Option<&'static str> {
    let Ok(found) = fs::read(file) else {
        return Some("no file");
    };
    let mode = fs::metadata(file).map(|found| found.permissions().mode() & 0o7777);
    if found != bytes {
        Some("content mismatch")
    } else if mode.ok() != Some(MODE) {
        Some("mode mismatch")
    } else {
        None
    }
}
