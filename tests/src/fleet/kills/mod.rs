//! Controllers that are killed at each of their writes. The next one finishes the work, and then exactly what should be there is
//! there.

mod gate;
pub mod namespaces;
pub mod operators;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use globalps_core::api::{GlobalPullSecret, GlobalPullSecretStatus};
use globalps_core::names::{CONTROLLER_NAMESPACE, DATA_KEY, GLOBAL_SECRET, LEASE};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::stage::Stage;
use crate::process::parent;
use crate::product::NAMESPACE;
use gate::Gate;

const CONTROLLER: &str = "globalps-controller";
const SETTLED: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(50);

/// What became of one change.
#[derive(Clone, Debug)]
pub struct Outcome<C> {
    pub change: C,
    pub kills: usize,
    /// Those of a controller that nobody killed.
    pub writes: Vec<String>,
    /// How long that one took.
    pub alone: Duration,
    /// The longest that another controller took after a kill, and after how many writes that was.
    pub slowest: (Duration, usize),
}

/// Secrets and service accounts, by kind, namespace and name.
type Objects = BTreeMap<String, Value>;

/// Whose an object is.
enum Part {
    /// The controller may not touch it: all of it is compared, with its version.
    Others,
    /// The controller adds something to it.
    Shared,
    /// A Secret of the controller's: its meaning is compared.
    Own,
}

/// Changes of a cluster, and what the controller is to make of them.
trait Scene {
    type Change: Copy + Debug;

    fn client(&self) -> &Client;
    async fn make(&mut self, change: Self::Change) -> Result<()>;
    /// The change that follows is possible without it.
    fn is_rotation(&self, change: Self::Change) -> bool;
    /// What there should be.
    fn wanted(&self) -> Objects;
    fn part(&self, kind: &str, space: &str, name: &str) -> Part;
    /// Whether the object may be neither as it was nor as it is to be in the middle of the change.
    fn may_differ(&self, change: Self::Change, key: &str) -> bool;
    /// What must be so at any moment.
    fn check_between(&self, found: &Objects) -> Result<()>;
    fn check_status(&self, status: &GlobalPullSecretStatus) -> Result<()>;
}

/// Makes all changes over and over: the controller is killed before its first write of each, then before its second one, until
/// there are no more.
fn kill_at_each_write<S: Scene>(
    stage: &Stage,
    scene: impl Future<Output = Result<S>>,
    changes: &[S::Change],
) -> Result<Vec<Outcome<S::Change>>> {
    let gate = Gate::new(stage)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let scene = scene.await?;
        let pid = stage.start(CONTROLLER)?;
        settle(&scene, &gate).await?;
        let mut killer = Killer {
            stage,
            gate: &gate,
            scene,
            pid,
        };
        killer.kill_at_each_write(changes).await
    })
}

struct Killer<'a, S> {
    stage: &'a Stage,
    gate: &'a Gate,
    scene: S,
    /// The controller that runs.
    pid: u32,
}

impl<S: Scene> Killer<'_, S> {
    async fn kill_at_each_write(
        &mut self,
        changes: &[S::Change],
    ) -> Result<Vec<Outcome<S::Change>>> {
        let outcome = |change: &S::Change| Outcome {
            change: *change,
            kills: 0,
            writes: Vec::new(),
            alone: Duration::ZERO,
            slowest: (Duration::ZERO, 0),
        };
        let mut outcomes: Vec<_> = changes.iter().map(outcome).collect();
        for writes in 0.. {
            let mut has_killed = false;
            for outcome in &mut outcomes {
                let change = outcome.change;
                // One that has fewer writes is made without a kill.
                let is_over = !outcome.writes.is_empty();
                if is_over && self.scene.is_rotation(change) {
                    continue;
                }
                let after = if is_over { usize::MAX } else { writes };
                let begun = Instant::now();
                let took = self.make(change, after).await;
                let took =
                    took.with_context(|| format!("{change:?}, killed after {after} writes"))?;
                match took {
                    None if is_over => {}
                    None => {
                        outcome.writes = self.gate.writes();
                        outcome.alone = begun.elapsed();
                    }
                    Some(took) => {
                        has_killed = true;
                        outcome.kills += 1;
                        outcome.slowest = outcome.slowest.max((took, writes));
                    }
                }
            }
            if !has_killed {
                break;
            }
        }
        self.stage.stop_controller()?;
        Ok(outcomes)
    }

    /// Makes the change, with a kill after so many writes: how long the next controller took. `None`: there were not as many.
    async fn make(&mut self, change: S::Change, writes: usize) -> Result<Option<Duration>> {
        self.gate.kill_after(writes, self.pid);
        let before = self.scene.wanted();
        self.scene.make(change).await?;
        if is_settled_unless_killed(&self.scene, self.gate).await? {
            return Ok(None);
        }
        let begun = Instant::now();
        wait_end(self.pid).await?;
        self.check_between(change, &before).await?;
        self.forget_leader().await?;
        self.gate.open();
        self.pid = self.stage.start(CONTROLLER)?;
        settle(&self.scene, self.gate).await?;
        Ok(Some(begun.elapsed()))
    }

    /// Every object is as it was or as it is to be.
    async fn check_between(&self, change: S::Change, before: &Objects) -> Result<()> {
        let (found, after) = (objects(&self.scene).await?, self.scene.wanted());
        for key in found.keys().chain(before.keys()).chain(after.keys()) {
            let now = found.get(key);
            let is_either = now == before.get(key) || now == after.get(key);
            let is_fine = is_either || self.scene.may_differ(change, key);
            ensure!(is_fine, "{key} is neither old nor new: {now:?}");
        }
        self.scene.check_between(&found)
    }

    /// The next controller need not wait for the Lease of the one that was killed to expire.
    async fn forget_leader(&self) -> Result<()> {
        let client = self.scene.client().clone();
        let api: Api<Lease> = Api::namespaced(client, CONTROLLER_NAMESPACE);
        api.delete(LEASE, &DeleteParams::default()).await?;
        Ok(())
    }
}

async fn wait_end(pid: u32) -> Result<()> {
    let begun = Instant::now();
    while parent(pid).is_some() {
        ensure!(begun.elapsed() < SETTLED, "the controller does not end");
        sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

async fn settle(scene: &impl Scene, gate: &Gate) -> Result<()> {
    ensure!(is_settled_unless_killed(scene, gate).await?, "killed twice");
    Ok(())
}

/// Waits until everything is as it should be and nothing more is written; false: the controller was killed before.
async fn is_settled_unless_killed(scene: &impl Scene, gate: &Gate) -> Result<bool> {
    let begun = Instant::now();
    loop {
        if gate.has_killed() {
            return Ok(false);
        }
        if gate.is_quiet() {
            let checked = check(scene).await;
            if checked.is_ok() && gate.is_quiet() && !gate.has_killed() {
                return Ok(true);
            }
            if let (Err(error), true) = (checked, begun.elapsed() > SETTLED) {
                return Err(error.context(format!("not within {} s", SETTLED.as_secs())));
            }
        }
        if begun.elapsed() > 2 * SETTLED {
            bail!("the controller never rests");
        }
        sleep(POLL).await;
    }
}

async fn check(scene: &impl Scene) -> Result<()> {
    let (found, wanted) = (objects(scene).await?, scene.wanted());
    for key in found.keys().chain(wanted.keys()) {
        let (now, wanted) = (found.get(key), wanted.get(key));
        ensure!(now == wanted, "{key} is {now:?}, not {wanted:?}");
    }
    let api: Api<GlobalPullSecret> = Api::namespaced(scene.client().clone(), NAMESPACE);
    let status = api.get(GLOBAL_SECRET).await?.status;
    scene.check_status(&status.unwrap_or_default())
}

/// All that there is, without the Secrets in the namespace of the pull secrets themselves.
async fn objects(scene: &impl Scene) -> Result<Objects> {
    let (all, client) = (ListParams::default(), scene.client());
    let secrets = Api::<Secret>::all(client.clone()).list(&all).await?;
    let accounts = Api::<ServiceAccount>::all(client.clone())
        .list(&all)
        .await?;
    let secrets = secrets.iter().map(|one| seen(scene, "Secret", one));
    let accounts = accounts
        .iter()
        .map(|one| seen(scene, "ServiceAccount", one));
    let all: Result<Objects> = secrets.chain(accounts).collect();
    let is_counted = |key: &String| !key.starts_with("Secret kube-system/");
    Ok(all?
        .into_iter()
        .filter(|(key, _)| is_counted(key))
        .collect())
}

fn seen(
    scene: &impl Scene,
    kind: &str,
    object: &(impl ResourceExt + Serialize),
) -> Result<(String, Value)> {
    let (space, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let mut value = serde_json::to_value(object)?;
    drop_field(&mut value["metadata"], "managedFields", |_| true);
    match scene.part(kind, &space, &name) {
        Part::Others => {}
        Part::Shared => {
            let is_empty = |value: &Value| *value == json!({}) || *value == json!([]);
            drop_field(&mut value["metadata"], "resourceVersion", |_| true);
            drop_field(&mut value["metadata"], "annotations", is_empty);
            drop_field(&mut value, "imagePullSecrets", is_empty);
        }
        Part::Own => value = meaning(&value)?,
    }
    Ok((format!("{kind} {space}/{name}"), value))
}

fn drop_field(of: &mut Value, field: &str, is_dropped: impl Fn(&Value) -> bool) {
    if of.get(field).is_some_and(is_dropped)
        && let Some(fields) = of.as_object_mut()
    {
        fields.remove(field);
    }
}

fn meaning(secret: &Value) -> Result<Value> {
    let data = secret["data"][DATA_KEY].as_str().context("no content")?;
    let content: Value = serde_json::from_slice(&BASE64_STANDARD.decode(data)?)?;
    let metadata = &secret["metadata"];
    let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
    let owners: Vec<&Value> = owners.map(|owner| &owner["name"]).collect();
    Ok(own_secret(
        &secret["type"],
        &metadata["labels"],
        &owners,
        &content,
    ))
}

/// [`Part::Own`], as it is compared. `owners`: their names.
fn own_secret(type_: &Value, labels: &Value, owners: &[&Value], content: &Value) -> Value {
    json!({"type": type_, "labels": labels, "owners": owners, "content": content})
}

fn config(entries: &[(&str, u32)]) -> Value {
    let entry = |(registry, number): &(&str, u32)| {
        let auth = BASE64_STANDARD.encode(format!("u:p{number}"));
        ((*registry).to_owned(), json!({"auth": auth}))
    };
    let auths: serde_json::Map<String, Value> = entries.iter().map(entry).collect();
    json!({"auths": auths})
}
