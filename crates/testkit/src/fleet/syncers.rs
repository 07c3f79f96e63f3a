//! A simulated syncer for each node, which makes the API requests of a real one: one watch of its own object by name,
//! and for each assignment a GET of the Secret, a simulated kubelet restart, and a status patch. A real syncer would
//! also report progress after a second, which takes longer than a simulated restart.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use futures::{StreamExt as _, pin_mut};
use globalps_core::api::{DeliveryType, NodePullSecret, NodePullSecretStatus, Phase};
use globalps_core::names::{
    DELIVERY_ANNOTATION, GLOBAL_SECRET, REVISION_ANNOTATION, REVISION_ID_ANNOTATION,
    ROLLED_OUT_SECRET, SYNCER_MANAGER,
};
use globalps_core::rollout::Revision;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tokio::sync::{Semaphore, watch};
use tokio::time::sleep;

use super::RESTART;
use crate::product::NAMESPACE;

/// Interval at which a real syncer renews its watch.
const WATCH_SECONDS: u32 = 290;
/// Interval at which a real syncer rereads a Secret with another revision.
const RECHECK: Duration = Duration::from_secs(5);
/// Number of connections that are opened concurrently.
const CONNECTING: usize = 32;

pub(super) struct Syncers {
    shared: Arc<Shared>,
}

/// Kubelets that post a heartbeat after each restart, by their nodes' clocks.
pub(super) struct Kubelets {
    pub(super) nodes: Api<Node>,
    /// How far the clock of a node is ahead.
    pub(super) offset: Box<dyn Fn(&str) -> SignedDuration + Send + Sync>,
}

impl Kubelets {
    fn now(&self, node: &str) -> Timestamp {
        let now = Timestamp::now();
        now.checked_add((self.offset)(node)).unwrap_or(now)
    }

    async fn beat(&self, node: &str) -> kube::Result<()> {
        let now = self.now(node);
        let ready = json!({"type": "Ready", "status": "True", "lastHeartbeatTime": now});
        let patch = Patch::Strategic(json!({"status": {"conditions": [ready]}}));
        let params = PatchParams::default();
        self.nodes.patch_status(node, &params, &patch).await?;
        Ok(())
    }
}

struct Shared {
    /// Whether to ignore all events of the watches.
    deaf: AtomicBool,
    connecting: Semaphore,
    watching: AtomicUsize,
    busy: AtomicUsize,
    most_busy: AtomicUsize,
    /// Number of requests that failed and were retried.
    errors: AtomicUsize,
    /// The revision of each node, and since when it has it.
    synced: Mutex<BTreeMap<String, (i64, Instant)>>,
    /// When each node received each revision, just before its report.
    seen: Mutex<Vec<Seen>>,
    kubelets: Option<Kubelets>,
}

/// An assignment as its syncer saw it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) revision: i64,
    pub(super) received: Instant,
    pub(super) reported: Instant,
}

/// An assignment to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Task {
    uid: String,
    generation: i64,
    revision: Revision,
    restore: bool,
}

impl Syncers {
    /// Starts all syncers, and returns when all are watching.
    pub(super) async fn start(clients: &[Client], names: &[String]) -> Result<Self> {
        Self::with(clients, names, None).await
    }

    pub(super) async fn with(
        clients: &[Client],
        names: &[String],
        kubelets: Option<Kubelets>,
    ) -> Result<Self> {
        let shared = Arc::new(Shared {
            deaf: AtomicBool::new(false),
            connecting: Semaphore::new(CONNECTING),
            watching: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            most_busy: AtomicUsize::new(0),
            errors: AtomicUsize::new(0),
            synced: Mutex::default(),
            seen: Mutex::default(),
            kubelets,
        });
        for (name, client) in names.iter().zip(clients.iter().cycle()) {
            let (sender, receiver) = watch::channel(None);
            let syncer = Syncer {
                objects: Api::namespaced(client.clone(), NAMESPACE),
                secrets: Api::namespaced(client.clone(), NAMESPACE),
                name: name.clone(),
                shared: shared.clone(),
                provider: Arc::default(),
            };
            tokio::spawn(syncer.clone().follow(sender));
            tokio::spawn(syncer.work(receiver));
        }
        let deadline = Instant::now() + Duration::from_mins(5);
        while shared.watching.load(Relaxed) < names.len() {
            if Instant::now() > deadline {
                bail!("not every syncer opened its watch");
            }
            sleep(Duration::from_millis(100)).await;
        }
        Ok(Self { shared })
    }

    pub(super) fn set_deaf(&self) {
        self.shared.deaf.store(true, Relaxed);
    }

    pub(super) fn errors(&self) -> usize {
        self.shared.errors.load(Relaxed)
    }

    /// The maximum number of kubelets that restarted at the same time since the last call.
    pub(super) fn most_busy(&self) -> usize {
        self.shared.most_busy.swap(0, Relaxed)
    }

    /// The assignments of this revision, in the order in which they were received.
    pub(super) fn seen(&self, revision: i64) -> Vec<Seen> {
        let seen = self.shared.seen.lock();
        let seen = seen.unwrap_or_else(PoisonError::into_inner);
        let mut found: Vec<Seen> = seen
            .iter()
            .filter(|it| it.revision == revision)
            .copied()
            .collect();
        found.sort_unstable_by_key(|it| it.received);
        found
    }

    /// When each node reached this revision, in order.
    pub(super) fn times(&self, revision: i64) -> Vec<Instant> {
        let synced = self.shared.synced.lock();
        let synced = synced.unwrap_or_else(PoisonError::into_inner);
        let mut times: Vec<_> = synced
            .values()
            .filter(|(at, _)| *at == revision)
            .map(|(_, when)| *when)
            .collect();
        times.sort_unstable();
        times
    }
}

#[derive(Clone)]
struct Syncer {
    objects: Api<NodePullSecret>,
    secrets: Api<Secret>,
    name: String,
    shared: Arc<Shared>,
    /// The kubelet's provider configuration; `None` if it has none.
    provider: Arc<Mutex<Option<String>>>,
}

impl Syncer {
    async fn follow(self, sender: watch::Sender<Option<Task>>) {
        loop {
            if self.watch_once(&sender).await.is_err() {
                self.shared.errors.fetch_add(1, Relaxed);
            }
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// One list, and the watch that continues from it.
    async fn watch_once(&self, sender: &watch::Sender<Option<Task>>) -> Result<()> {
        let field = format!("metadata.name={}", self.name);
        let permit = self.shared.connecting.acquire().await?;
        let list = self
            .objects
            .list(&ListParams::default().fields(&field))
            .await?;
        let mut version = list.metadata.resource_version.unwrap_or_default();
        let mut permit = Some(permit);
        for object in list.items {
            tell(sender, &object);
        }
        let mut first = true;
        loop {
            let parameters = WatchParams::default().fields(&field).timeout(WATCH_SECONDS);
            let stream = self.objects.watch(&parameters, &version).await?;
            permit.take();
            if std::mem::take(&mut first) {
                self.shared.watching.fetch_add(1, Relaxed);
            }
            pin_mut!(stream);
            while let Some(event) = stream.next().await {
                match event? {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                        version = object.resource_version().unwrap_or_default();
                        tell(sender, &object);
                    }
                    WatchEvent::Deleted(object) => {
                        version = object.resource_version().unwrap_or_default();
                    }
                    WatchEvent::Bookmark(bookmark) => version = bookmark.metadata.resource_version,
                    WatchEvent::Error(_) => return Ok(()),
                }
            }
        }
    }

    async fn work(self, mut tasks: watch::Receiver<Option<Task>>) {
        while tasks.changed().await.is_ok() {
            let Some(task) = tasks.borrow_and_update().clone() else {
                continue;
            };
            if self.shared.deaf.load(Relaxed) {
                continue;
            }
            while !self.try_once(&task).await {
                self.shared.errors.fetch_add(1, Relaxed);
                tokio::select! {
                    () = sleep(RECHECK) => {}
                    _ = tasks.changed() => { tasks.mark_changed(); break }
                }
            }
        }
    }

    /// Whether the node reached its assignment.
    async fn try_once(&self, task: &Task) -> bool {
        if task.revision == Revision::NONE && !task.restore {
            // Reported once, so that the controller sees that the syncer runs.
            return self
                .patch(task, Revision::NONE, Phase::Pending, None)
                .await
                .is_ok();
        }
        let received = Instant::now();
        let mut provider = None;
        let after = if task.restore {
            Phase::Restored
        } else {
            match self.delivery_of(task.revision).await {
                Some(found) => provider = found,
                None => return false,
            }
            Phase::Synced
        };
        let mut restarted = None;
        if provider.is_none() || provider != self.provider() {
            restarted = self.now();
            let busy = self.shared.busy.fetch_add(1, Relaxed) + 1;
            self.shared.most_busy.fetch_max(busy, Relaxed);
            sleep(RESTART).await;
            // The controller may see the next patch before this program receives its response.
            self.shared.busy.fetch_sub(1, Relaxed);
        }
        *self.provider.lock().unwrap_or_else(PoisonError::into_inner) = provider;
        let seen = self.shared.seen.lock();
        seen.unwrap_or_else(PoisonError::into_inner).push(Seen {
            revision: task.revision.number,
            received,
            reported: Instant::now(),
        });
        let mut done = self
            .patch(task, task.revision, after, restarted)
            .await
            .is_ok();
        if let (Some(kubelets), Some(_)) = (&self.shared.kubelets, restarted) {
            done &= kubelets.beat(&self.name).await.is_ok();
        }
        if done {
            let synced = self.shared.synced.lock();
            synced
                .unwrap_or_else(PoisonError::into_inner)
                .insert(self.name.clone(), (task.revision.number, Instant::now()));
        }
        done
    }

    /// The annotation of the Secret with this revision; `None` if there is none.
    async fn delivery_of(&self, revision: Revision) -> Option<Option<String>> {
        for name in [GLOBAL_SECRET, ROLLED_OUT_SECRET] {
            let Ok(secret) = self.secrets.get(name).await else {
                continue;
            };
            let found = secret.annotations().get(REVISION_ANNOTATION);
            let id = secret.annotations().get(REVISION_ID_ANNOTATION);
            if found == Some(&revision.number.to_string()) && id == Some(&revision.id.to_string()) {
                return Some(secret.annotations().get(DELIVERY_ANNOTATION).cloned());
            }
        }
        None
    }

    fn provider(&self) -> Option<String> {
        let provider = self.provider.lock();
        provider.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// By the node's clock; `None` if it has no kubelet.
    fn now(&self) -> Option<Timestamp> {
        let kubelets = self.shared.kubelets.as_ref();
        kubelets.map(|kubelets| kubelets.now(&self.name))
    }

    async fn patch(
        &self,
        task: &Task,
        revision: Revision,
        phase: Phase,
        restarted: Option<Timestamp>,
    ) -> kube::Result<()> {
        let mut status = status(task.generation, revision, phase);
        status.kubelet_restarted_at = restarted.map(Time);
        if let Some(now) = self.now() {
            status.last_transition_time = Some(Time(now));
        }
        let delivery = match self.provider() {
            Some(_) => DeliveryType::CredentialProvider,
            None => DeliveryType::ConfigFile,
        };
        delivery.as_str().clone_into(&mut status.delivery);
        patch_status(&self.objects, &self.name, &task.uid, &status).await
    }
}

fn tell(sender: &watch::Sender<Option<Task>>, object: &NodePullSecret) {
    let task = Some(Task {
        uid: object.uid().unwrap_or_default(),
        generation: object.metadata.generation.unwrap_or_default(),
        revision: object.spec.assigned(),
        restore: object.spec.restore,
    });
    sender.send_if_modified(|known| {
        let news = *known != task;
        *known = task;
        news
    });
}

pub(super) fn status(generation: i64, revision: Revision, phase: Phase) -> NodePullSecretStatus {
    NodePullSecretStatus {
        observed_generation: generation,
        revision: revision.number,
        revision_id: revision.id,
        phase,
        last_transition_time: Some(Time(Timestamp::now())),
        ..NodePullSecretStatus::default()
    }
}

pub(super) async fn patch_status(
    objects: &Api<NodePullSecret>,
    name: &str,
    uid: &str,
    status: &NodePullSecretStatus,
) -> kube::Result<()> {
    let body = json!({"metadata": {"uid": uid}, "status": status});
    let params = PatchParams {
        field_manager: Some(SYNCER_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    objects
        .patch_status(name, &params, &Patch::Merge(&body))
        .await
        .map(|_| ())
}
