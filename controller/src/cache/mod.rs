//! The watched objects, kept as plain data.

mod event;
mod hosted;
mod node;
mod object_watch;
mod store;
mod versioned;
mod watches;

use std::borrow::Cow;
use std::collections::BTreeSet;

use globalps_core::api::{GlobalPullSecret, NodePullSecret};
use globalps_core::manifests::Agent;
use globalps_core::names::{
    ADDITIONAL_SECRET, DATA_KEY, GLOBAL_SECRET, NODE_POOL_LABEL, ROLLED_OUT_SECRET,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PartialObjectMeta;
use kube::core::PartialObjectMetaExt as _;
use kube::runtime::watcher::{self, Event};

pub(crate) use event::{CacheEvent, OriginalRef};
use store::Store;
use versioned::Versioned;
use watches::stripped;
pub(crate) use watches::{CacheEvents, events, original_events, source_events};

use crate::content::secret::{self, revision};
use crate::content::source::{Data, Source};
use crate::nodes::clock::AssignmentClock;
use crate::nodes::input::{NodeView, Snapshot, Syncers};
use crate::objects::managed::{Fingerprints, LiveObject, ManagedKind, ManagedObject, PerObject};
use crate::telemetry::client::without_content;

#[derive(Default)]
pub(crate) struct Cache {
    additional: Store<Secret>,
    /// The watched original, and its content; `None`: not listed yet.
    original_ref: Option<OriginalRef>,
    original: Option<Source>,
    /// The content of each of `spec.sources`, in their order; `None`: not listed yet.
    sources: Vec<(String, Option<Source>)>,
    global: Store<Secret>,
    rolled_out: Store<PartialObjectMeta<Secret>>,
    /// As it was when another client deleted it, until it is written again.
    deleted_global: Option<Secret>,
    config: Store<GlobalPullSecret>,
    managed: PerObject<Store<LiveObject>>,
    /// Changes by other clients that are not reported yet.
    out_of_band_changes: Vec<OutOfBandChange>,
    /// Nodes whose `NodePullSecret` another client deleted, until it is written again.
    deleted_out_of_band: BTreeSet<String>,
    nodes: Store<NodeView>,
    pub(crate) node_pull_secrets: Store<Box<NodePullSecret>>,
    clock: AssignmentClock,
}

impl Cache {
    /// Whether the event may change the plan.
    pub(crate) fn handle(&mut self, event: CacheEvent) -> bool {
        match event {
            CacheEvent::Additional(event) => self.additional.handle(event),
            CacheEvent::Original(source) => {
                let news = self.original.as_ref() != Some(&source);
                self.original = Some(source);
                news
            }
            CacheEvent::Source(name, source) => {
                let known = self.sources.iter_mut().find(|(known, _)| *known == name);
                let Some((_, known)) = known else {
                    return false;
                };
                let news = known.as_ref() != Some(&source);
                *known = Some(source);
                news
            }
            CacheEvent::Global(event) => {
                if let Some(change) =
                    out_of_band_change("Secret", &self.global, &event, |_, _| true)
                {
                    if change.is_deleted {
                        self.deleted_global = self.global.get(GLOBAL_SECRET).cloned();
                    }
                    self.out_of_band_changes.push(change);
                }
                let news = self.global.handle(event);
                if self.global.get(GLOBAL_SECRET).is_some() {
                    self.deleted_global = None;
                }
                news
            }
            CacheEvent::RolledOut(event) => self.rolled_out.handle(event),
            CacheEvent::Config(event) => {
                // The user may change its spec.
                let change =
                    out_of_band_change("GlobalPullSecret", &self.config, &event, |_, _| false);
                self.out_of_band_changes.extend(change);
                self.config.handle(event)
            }
            CacheEvent::Managed(object, event) => self.managed.get_mut(object).handle(event),
            CacheEvent::Node(event) => self.nodes.handle(event),
            CacheEvent::NodePullSecret(event) => {
                // The syncer writes the status, the controller the spec.
                #[allow(clippy::borrowed_box)] // As the store keeps them.
                let is_spec = |known: &Box<NodePullSecret>, new: &Box<NodePullSecret>| {
                    known.metadata.generation != new.metadata.generation
                };
                let change =
                    out_of_band_change("NodePullSecret", &self.node_pull_secrets, &event, is_spec);
                // The garbage collector deletes the object of a deleted Node.
                let change = change.filter(|change| self.nodes.get(&change.name).is_some());
                if let Some(change) = change.as_ref().filter(|change| change.is_deleted) {
                    self.deleted_out_of_band.insert(change.name.clone());
                }
                self.out_of_band_changes.extend(change);
                self.node_pull_secrets.handle(event)
            }
            CacheEvent::Failed(what, error) => {
                let error = match &error {
                    watcher::Error::InitialListFailed(error)
                    | watcher::Error::WatchStartFailed(error)
                    | watcher::Error::WatchFailed(error) => without_content(error),
                    other => other.to_string(),
                };
                tracing::warn!(watch = what, error, "a watch failed and is tried again");
                false
            }
        }
    }

    /// Every watch has delivered its first list, so that a missing object is known to be absent.
    pub(crate) fn caches_synced(&self) -> bool {
        self.additional.synced
            && self.global.synced
            && self.rolled_out.synced
            && self.config.synced
            && self.managed.iter().all(|(_, store)| store.synced)
            && self.node_pull_secrets.synced
            && self.nodes.synced
            && (self.original_ref.is_none() || self.original.is_some())
            && self.sources.iter().all(|(_, known)| known.is_some())
    }

    /// Replaces the watched original.
    pub(crate) fn set_original(&mut self, original: Option<OriginalRef>) {
        self.original = None;
        self.original_ref = original;
    }

    pub(crate) fn original_ref(&self) -> Option<&OriginalRef> {
        self.original_ref.as_ref()
    }

    /// Replaces the watched sources. The content of those that stay is kept.
    pub(crate) fn set_sources(&mut self, names: &[String]) {
        let mut known = std::mem::take(&mut self.sources);
        let mut known = |name: &String| {
            let known = known.iter_mut().find(|(known, _)| known == name);
            known.and_then(|(_, source)| source.take())
        };
        self.sources = names.iter().map(|n| (n.clone(), known(n))).collect();
    }

    pub(crate) fn are_sources(&self, names: &[String]) -> bool {
        self.sources.iter().map(|(name, _)| name).eq(names)
    }

    /// Whether the cluster is one of `OpenShift`.
    pub(crate) fn is_openshift(&self) -> bool {
        let mut nodes = self.nodes.live.values();
        nodes.any(|node| node.is_foreign || node.labels.get(NODE_POOL_LABEL).is_some())
    }

    pub(crate) fn config(&self) -> Option<&GlobalPullSecret> {
        self.config.get(GLOBAL_SECRET)
    }

    pub(crate) fn additional(&self) -> Option<&Secret> {
        self.additional.get(ADDITIONAL_SECRET)
    }

    pub(crate) fn has_daemon_set(&self, agent: Agent) -> bool {
        let kind = ManagedKind::DaemonSet;
        self.managed(ManagedObject { agent, kind }).is_some()
    }

    fn managed(&self, object: ManagedObject) -> Option<&LiveObject> {
        self.managed.get(object).get("")
    }

    /// The syncer's objects as they are.
    pub(crate) fn fingerprints(&self) -> Fingerprints {
        PerObject::of(|object| self.managed(object).map(|live| live.fingerprint.clone()))
    }

    pub(crate) fn put_managed(&mut self, object: ManagedObject, live: LiveObject) {
        self.managed.get_mut(object).put(live);
    }

    pub(crate) fn take_out_of_band_changes(&mut self) -> Vec<OutOfBandChange> {
        std::mem::take(&mut self.out_of_band_changes)
    }

    pub(crate) fn node_uid(&self, name: &str) -> Option<&str> {
        self.nodes.get(name).map(|node| node.uid.as_str())
    }

    /// Forgets the objects that the controller just deleted, before the watches report it.
    pub(crate) fn forget_managed(&mut self) {
        self.global.live.clear();
        self.deleted_global = None;
        self.rolled_out.live.clear();
        for object in ManagedObject::all() {
            self.managed.get_mut(object).live.clear();
        }
        self.node_pull_secrets.live.clear();
    }

    pub(crate) fn put_global(&mut self, secret: Secret) {
        self.deleted_global = None;
        self.global.put(secret);
    }

    /// `None`: the controller deleted it.
    pub(crate) fn put_rolled_out(&mut self, secret: Option<Secret>) {
        match secret {
            Some(secret) => {
                let metadata = secret.metadata.into_response_partial();
                self.rolled_out.put(metadata);
            }
            None => self.rolled_out.live.clear(),
        }
    }

    /// Call it before a snapshot.
    pub(crate) fn observe_clock(&mut self, now: Timestamp) {
        let objects = self.node_pull_secrets.live.iter();
        self.clock
            .observe(objects.map(|(name, object)| (name, &**object)), now);
    }

    pub(crate) fn put_node_pull_secret(&mut self, object: NodePullSecret) {
        let object = stripped(object);
        self.deleted_out_of_band.remove(&object.key());
        self.node_pull_secrets.put(object);
    }

    pub(crate) fn put_config(&mut self, config: GlobalPullSecret) {
        self.config.put(config);
    }

    pub(crate) fn snapshot(&self, now: Timestamp) -> Snapshot<'_> {
        let additional = self.additional().map_or(Source::Absent, |secret| {
            Source::Found(Data::of(secret, DATA_KEY))
        });
        let config = self.config();
        let status = config.and_then(|config| config.status.as_ref());
        Snapshot {
            spec: config.map(|config| config.spec.clone()).unwrap_or_default(),
            config_missing: config.is_none(),
            additional,
            additional_type: self.additional().and_then(|secret| secret.type_.clone()),
            original: match &self.original_ref {
                None => Source::Absent,
                // `caches_synced` holds, so it is known.
                Some(_) => self.original.clone().unwrap_or(Source::Absent),
            },
            sources: self
                .sources
                .iter()
                .map(|(name, known)| (name.clone(), known.clone().unwrap_or(Source::Absent)))
                .collect(),
            global: self
                .global
                .get(GLOBAL_SECRET)
                .or(self.deleted_global.as_ref())
                .map(secret::decode),
            global_deleted_out_of_band: self.deleted_global.is_some(),
            rolled_out_revision: self.rolled_out.get(ROLLED_OUT_SECRET).map(revision),
            reported_revision: status.map_or(0, |status| status.revision),
            last_rolled_out: None,
            syncers: Syncers::default(),
            clock: Cow::Borrowed(&self.clock),
            daemon_set: self.has_daemon_set(Agent::Syncer),
            nodes: Cow::Borrowed(&self.nodes.live),
            deleted_out_of_band: Cow::Borrowed(&self.deleted_out_of_band),
            node_pull_secrets: Cow::Borrowed(&self.node_pull_secrets.live),
            now,
        }
    }
}

/// A change by another client of an object that the controller wrote.
#[derive(Debug)]
pub(crate) struct OutOfBandChange {
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) is_deleted: bool,
}

/// The controller's own writes and deletions are in the cache before the watch reports them, so every other change is by
/// another client. `concerns`: whether the two differ in what the controller manages.
fn out_of_band_change<T: Versioned + Clone>(
    kind: &'static str,
    store: &Store<T>,
    event: &Event<T>,
    concerns: impl Fn(&T, &T) -> bool,
) -> Option<OutOfBandChange> {
    let (object, is_deleted) = match event {
        Event::Apply(object) => (object, false),
        Event::Delete(object) => (object, true),
        _ => return None,
    };
    let name = object.key();
    let known = store.get(&name)?;
    let is_news = if is_deleted {
        known.version() <= object.version()
    } else {
        known.version() < object.version() && concerns(known, object)
    };
    is_news.then_some(OutOfBandChange {
        kind,
        name,
        is_deleted,
    })
}
