//! What the controller sees: watches on the few objects that matter, kept as plain data.

pub(crate) mod hosted;
mod node;
pub(crate) mod object_watch;
pub(crate) mod store;
mod watches;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Debug;

use globalps_core::api::{GlobalPullSecret, HostedControlPlaneRef, NodePullSecret, SecretRef};
use globalps_core::dockerconfig;
use globalps_core::names::{
    ADDITIONAL_PROVEN_ANNOTATION, ADDITIONAL_SECRET, DATA_KEY, GLOBAL_SECRET, LAST_ADDITIONAL_KEY,
    LAST_ORIGINAL_KEY, LAST_SOURCE_KEY_PREFIX, NODE_POOL_LABEL, PROVEN_ANNOTATION,
    REFUSED_ANNOTATION, REFUSED_KEY, ROLLED_OUT_ANNOTATION,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::watcher::{self, Event};
use kube::{Resource, ResourceExt as _};

use watches::stripped;
pub(crate) use watches::{Changes, changes, original_changes, source_changes};

use crate::cache::store::{Cache, Versioned};
use crate::content::history::revision;
use crate::content::resolve::{Data, Global, Source};
use crate::nodes::members::NodeView;
use crate::nodes::plan::Observed;
use crate::objects::apply::without_content;
use crate::objects::managed::{Created, Marks, PIECES, Piece};

macro_rules! versioned {
    ($($object:ty),*) => {$(
        impl Versioned for $object {
            fn key(&self) -> String {
                self.name_any()
            }

            fn version(&self) -> u64 {
                version(self)
            }
        }
    )*};
}

versioned!(Secret, GlobalPullSecret, NodePullSecret);

fn version(object: &impl Resource) -> u64 {
    object
        .meta()
        .resource_version
        .as_deref()
        .and_then(|version| version.parse().ok())
        .unwrap_or_default()
}

/// One event of one watch.
#[allow(clippy::large_enum_variant)] // One at a time, and for a moment only.
pub(crate) enum Change {
    Additional(Event<Secret>),
    Original(Source),
    /// One of `spec.sources`, by name.
    Source(String, Source),
    Global(Event<Secret>),
    Config(Event<GlobalPullSecret>),
    Created(Piece, Event<Created>),
    Node(Event<NodeView>),
    NodePullSecret(Event<Box<NodePullSecret>>),
    /// A watch failed; it goes on by itself after a while.
    Failed(&'static str, watcher::Error),
}

#[derive(Default)]
pub(crate) struct World {
    additional: Cache<Secret>,
    /// The original that is watched, and what is known of it; `None`: nothing yet.
    original_ref: Option<OriginalRef>,
    original: Option<Source>,
    /// What is known of each of `spec.sources`, in their order.
    sources: Vec<(String, Option<Source>)>,
    global: Cache<Secret>,
    /// As it was before somebody else deleted it, until it is there again.
    lost_global: Option<Secret>,
    config: Cache<GlobalPullSecret>,
    /// The syncer's objects, in the order of [`PIECES`].
    created: [Cache<Created>; PIECES.len()],
    /// What somebody else did to what was created; taken by whoever tells of it.
    tampered: Vec<Tampered>,
    /// Nodes whose object somebody deleted, until there is another one.
    robbed: BTreeSet<String>,
    nodes: Cache<NodeView>,
    pub(crate) node_pull_secrets: Cache<Box<NodePullSecret>>,
}

impl World {
    /// Whether the change says something that the plan may depend on.
    pub(crate) fn handle(&mut self, change: Change) -> bool {
        match change {
            Change::Additional(event) => self.additional.handle(event),
            Change::Original(source) => {
                let news = self.original.as_ref() != Some(&source);
                self.original = Some(source);
                news
            }
            Change::Source(name, source) => {
                let known = self.sources.iter_mut().find(|(known, _)| *known == name);
                let Some((_, known)) = known else {
                    return false;
                };
                let news = known.as_ref() != Some(&source);
                *known = Some(source);
                news
            }
            Change::Global(event) => {
                if let Some(tampered) = tampered("Secret", &self.global, &event, |_, _| true) {
                    if tampered.is_deleted {
                        self.lost_global = self.global.get(GLOBAL_SECRET).cloned();
                    }
                    self.tampered.push(tampered);
                }
                let news = self.global.handle(event);
                if self.global.get(GLOBAL_SECRET).is_some() {
                    self.lost_global = None;
                }
                news
            }
            Change::Config(event) => {
                // Its spec is the user's.
                let tampered = tampered("GlobalPullSecret", &self.config, &event, |_, _| false);
                self.tampered.extend(tampered);
                self.config.handle(event)
            }
            Change::Created(piece, event) => self.created[piece as usize].handle(event),
            Change::Node(event) => self.nodes.handle(event),
            Change::NodePullSecret(event) => {
                // A status is the syncer's, a spec is ours.
                #[allow(clippy::borrowed_box)] // As the cache keeps them.
                let is_ours = |known: &Box<NodePullSecret>, new: &Box<NodePullSecret>| {
                    known.metadata.generation != new.metadata.generation
                };
                let tampered = tampered("NodePullSecret", &self.node_pull_secrets, &event, is_ours);
                // One of a Node that is gone goes with it.
                let tampered = tampered.filter(|tampered| self.nodes.get(&tampered.name).is_some());
                if let Some(tampered) = tampered.as_ref().filter(|tampered| tampered.is_deleted) {
                    self.robbed.insert(tampered.name.clone());
                }
                self.tampered.extend(tampered);
                self.node_pull_secrets.handle(event)
            }
            Change::Failed(what, error) => {
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

    /// Every watch has delivered its first list, so that what is not there is known to be absent.
    pub(crate) fn is_complete(&self) -> bool {
        self.additional.complete
            && self.global.complete
            && self.config.complete
            && self.created.iter().all(|cache| cache.complete)
            && self.node_pull_secrets.complete
            && self.nodes.complete
            && (self.original_ref.is_none() || self.original.is_some())
            && self.sources.iter().all(|(_, known)| known.is_some())
    }

    /// From now on this is the original one.
    pub(crate) fn expect_original(&mut self, original: Option<OriginalRef>) {
        self.original = None;
        self.original_ref = original;
    }

    pub(crate) fn original_ref(&self) -> Option<&OriginalRef> {
        self.original_ref.as_ref()
    }

    /// From now on these are the sources. What is known of one stays known.
    pub(crate) fn expect_sources(&mut self, names: &[String]) {
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

    pub(crate) fn has_daemon_set(&self) -> bool {
        self.created(Piece::DaemonSet).is_some()
    }

    fn created(&self, piece: Piece) -> Option<&Created> {
        self.created[piece as usize].get("")
    }

    /// The syncer's objects as they are.
    pub(crate) fn marks(&self) -> Marks {
        PIECES.map(|piece| self.created(piece).map(|created| created.mark.clone()))
    }

    pub(crate) fn put_created(&mut self, piece: Piece, created: Created) {
        self.created[piece as usize].put(created);
    }

    pub(crate) fn take_tampered(&mut self) -> Vec<Tampered> {
        std::mem::take(&mut self.tampered)
    }

    pub(crate) fn node_uid(&self, name: &str) -> Option<&str> {
        self.nodes.get(name).map(|node| node.uid.as_str())
    }

    /// What the controller created is deleted; the watches say so a little later.
    pub(crate) fn forget_created(&mut self) {
        self.global.live.clear();
        self.lost_global = None;
        for cache in &mut self.created {
            cache.live.clear();
        }
        self.node_pull_secrets.live.clear();
    }

    pub(crate) fn put_global(&mut self, secret: Secret) {
        self.lost_global = None;
        self.global.put(secret);
    }

    pub(crate) fn put_node_pull_secret(&mut self, object: NodePullSecret) {
        let object = stripped(object);
        self.robbed.remove(&object.key());
        self.node_pull_secrets.put(object);
    }

    pub(crate) fn put_config(&mut self, config: GlobalPullSecret) {
        self.config.put(config);
    }

    pub(crate) fn observed(&self, now: Timestamp) -> Observed<'_> {
        let additional = self.additional().map_or(Source::Absent, |secret| {
            Source::Found(Data::of(secret, DATA_KEY))
        });
        Observed {
            spec: self
                .config()
                .map(|config| config.spec.clone())
                .unwrap_or_default(),
            additional,
            additional_type: self.additional().and_then(|secret| secret.type_.clone()),
            original: match &self.original_ref {
                None => Source::Absent,
                // Asked for only when it is known.
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
                .or(self.lost_global.as_ref())
                .map(global),
            global_is_lost: self.lost_global.is_some(),
            last_rolled_out: None,
            daemon_set: self.has_daemon_set(),
            nodes: Cow::Borrowed(&self.nodes.live),
            robbed: Cow::Borrowed(&self.robbed),
            node_pull_secrets: Cow::Borrowed(&self.node_pull_secrets.live),
            now,
        }
    }
}

/// What somebody else did to an object that was created here.
#[derive(Debug)]
pub(crate) struct Tampered {
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    /// Else it was changed.
    pub(crate) is_deleted: bool,
}

/// Our own writes and deletions are in the cache before the watch shows them, so all other news are somebody else's.
/// `concerns`: whether it is a change of what is ours.
fn tampered<T: Versioned + Clone>(
    kind: &'static str,
    cache: &Cache<T>,
    event: &Event<T>,
    concerns: impl Fn(&T, &T) -> bool,
) -> Option<Tampered> {
    let (object, is_deleted) = match event {
        Event::Apply(object) => (object, false),
        Event::Delete(object) => (object, true),
        _ => return None,
    };
    let name = object.key();
    let known = cache.get(&name)?;
    let is_news = if is_deleted {
        known.version() <= object.version()
    } else {
        known.version() < object.version() && concerns(known, object)
    };
    is_news.then_some(Tampered {
        kind,
        name,
        is_deleted,
    })
}

/// Where the original pull secret is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OriginalRef {
    Secret(SecretRef),
    Hosted(HostedControlPlaneRef),
}

fn global(secret: &Secret) -> Global {
    let kept = |key: &str| Some(Data::of(secret, key)).filter(|data| data.0.is_some());
    let told = |key: &str| secret.annotations().get(key);
    Global {
        revision: revision(secret),
        merged: Data::of(secret, DATA_KEY)
            .0
            .and_then(|bytes| dockerconfig::parse(&bytes).ok()),
        last_additional: kept(LAST_ADDITIONAL_KEY),
        last_original: kept(LAST_ORIGINAL_KEY),
        last_sources: secret
            .data
            .iter()
            .flatten()
            .filter_map(|(key, bytes)| {
                let name = key.strip_prefix(LAST_SOURCE_KEY_PREFIX)?;
                Some((name.to_owned(), Data(Some(bytes.0.clone()))))
            })
            .collect(),
        proven: told(PROVEN_ANNOTATION)
            .and_then(|text| text.parse().ok())
            .unwrap_or_default(),
        rolled_out: told(ROLLED_OUT_ANNOTATION).and_then(|text| text.parse().ok()),
        is_additional_proven: told(ADDITIONAL_PROVEN_ANNOTATION).is_some_and(|text| text == "true"),
        refused: kept(REFUSED_KEY),
        refused_why: told(REFUSED_ANNOTATION).cloned(),
    }
}
