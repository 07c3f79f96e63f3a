//! The `ClusterPullSecret`s of one scope. Only the hub writes them: what other clients do to a spec or a status is undone, and nothing is
//! planned from it.

use std::collections::{BTreeMap, BTreeSet};

use globalps_core::api::{ClusterPhase, ClusterPullSecret, ClusterPullSecretSpec};
use globalps_core::names::{ACCEPTED_IDENTITY_ANNOTATION, HUB, RETRY_ANNOTATION};
use globalps_planner::clusters::progress::up_to_date;
use globalps_planner::clusters::shard::Shard;
use globalps_runtime::list_events::Event;
use globalps_runtime::list_watch::Update;
use kube::ResourceExt as _;

use crate::cache::kept::Kept;
use crate::cache::out_of_band::out_of_band_changes;
use crate::cache::own_specs::OwnSpecs;
use crate::cache::versioned::Versioned as _;

/// Maximum length of the value of an annotation. The field that it is copied to has the same limit.
const VALUE: usize = 1024;
/// Finalizers that a message names.
const FINALIZERS: usize = 8;
/// The hub looks for objects that it does not need only if there are more.
const MANY: usize = 1000;

#[derive(Default)]
pub(super) struct ClusterPullSecrets {
    pub(super) store: Kept<Box<ClusterPullSecret>>,
    specs: OwnSpecs<ClusterPullSecretSpec>,
    /// Objects whose status another client changed, until this process has rewritten it. The cache keeps the previous status.
    statuses: BTreeSet<String>,
    /// The last state of those that another client deleted, until the hub writes them again.
    deleted: BTreeMap<String, Box<ClusterPullSecret>>,
    /// Objects that the hub has rewritten since, until their clusters have reported their state.
    recreated: BTreeSet<String>,
    /// Objects that the hub deletes.
    released: BTreeSet<String>,
    /// There was a complete list: what is new since, and this process has not written, is of another client.
    is_listed: bool,
}

impl ClusterPullSecrets {
    /// Whether the update changes anything.
    pub(super) fn handle(
        &mut self,
        mut update: Update<Box<ClusterPullSecret>>,
        shard: Shard,
    ) -> bool {
        match &mut update {
            Update::Event(Event::Apply(object) | Event::InitApply(object)) => {
                slim(object);
                self.keep_status(object, shard);
            }
            Update::Event(Event::Delete(object)) => {
                self.statuses.remove(&object.key());
            }
            _ => {}
        }
        self.handle_spec(update, shard)
    }

    /// Stores the response to a write of a status, which may arrive before the watch event. Its spec may be of another client.
    pub(super) fn put_status(&mut self, mut object: ClusterPullSecret, shard: Shard) {
        slim(&mut object);
        self.statuses.remove(&object.key());
        self.handle_spec(Update::Event(Event::Apply(Box::new(object))), shard);
    }

    /// Only the process that connects to the cluster writes the status and stores the responses, so any other change
    /// comes from another client. A process that has just started can't tell.
    fn keep_status(&mut self, object: &mut ClusterPullSecret, shard: Shard) {
        let key = object.key();
        let known = self.store.get(&key);
        let known = known.filter(|known| known.metadata.uid == object.metadata.uid);
        let Some(known) = known.filter(|known| connects(shard, known)) else {
            self.statuses.remove(&key);
            if connects(shard, object) && object.status.is_some() && self.is_foreign(object) {
                object.status = None;
                self.statuses.insert(key);
            }
            return;
        };
        if known.version() > object.version() {
            return;
        }
        if known.status == object.status {
            self.statuses.remove(&key);
            return;
        }
        object.status.clone_from(&known.status);
        if self.statuses.insert(key.clone()) {
            tracing::warn!(
                object = key,
                "another client changed the status of a ClusterPullSecret; the hub writes it again"
            );
        }
    }

    fn handle_spec(&mut self, mut update: Update<Box<ClusterPullSecret>>, shard: Shard) -> bool {
        if shard.plans() {
            self.keep(&mut update);
        } else {
            self.follow(&mut update);
        }
        self.is_listed |= matches!(update, Update::Event(Event::InitDone));
        self.store.handle(update)
    }

    /// Whether another client created it: it was not there when this process listed everything, and this process has not written it.
    fn is_foreign(&self, object: &ClusterPullSecret) -> bool {
        let key = object.key();
        let known = self.store.get(&key);
        let is_known = known.is_some_and(|known| known.metadata.uid == object.metadata.uid);
        self.is_listed
            && !is_known
            // The hub may have written it before it could not be decoded.
            && !self.store.unreadable.contains_key(&key)
            && !self.specs.is_awaited(&key, &object.spec)
    }

    /// A process that does not plan follows only what the hub wrote, until the planning process has reverted what another client wrote.
    fn follow(&self, update: &mut Update<Box<ClusterPullSecret>>) {
        let Update::Event(Event::Apply(object) | Event::InitApply(object)) = update else {
            return;
        };
        let is_own = is_of_the_hub(object);
        object.metadata.managed_fields = None;
        if is_own {
            return;
        }
        self.disown(object);
    }

    /// Restores the state that the hub wrote last; without one, clears it.
    fn disown(&self, object: &mut ClusterPullSecret) {
        let known = self.store.get(&object.key());
        object.spec = known.map_or_else(
            || ClusterPullSecretSpec {
                fleet: std::mem::take(&mut object.spec.fleet),
                cluster: std::mem::take(&mut object.spec.cluster),
                ..ClusterPullSecretSpec::default()
            },
            |known| known.spec.clone(),
        );
    }

    fn keep(&mut self, update: &mut Update<Box<ClusterPullSecret>>) {
        let known = self.specs.changed().clone();
        let deletions = out_of_band_changes("ClusterPullSecret", &self.store, update, |_, _| false);
        for deletion in deletions {
            self.recreated.remove(&deletion.name);
            if self.released.remove(&deletion.name) {
                continue;
            }
            if let Some(object) = self.store.get(&deletion.name) {
                tracing::warn!(
                    object = deletion.name,
                    "another client deleted a ClusterPullSecret; the hub writes it again"
                );
                self.deleted.insert(deletion.name, object.clone());
            }
        }
        self.specs.keep(&self.store, update);
        if let Update::Event(Event::Apply(object) | Event::InitApply(object)) = update {
            let key = object.key();
            if let Some(deleted) = self.deleted.get(&key) {
                object.spec.clone_from(&deleted.spec);
                self.specs.changed_now(&key);
            } else if self.is_foreign(object) {
                self.disown(object);
                self.specs.changed_now(&key);
            } else if up_to_date(object).is_some_and(|status| has_settled(status.phase)) {
                self.recreated.remove(&key);
            }
        }
        for object in self.specs.changed().difference(&known) {
            tracing::warn!(
                object,
                "another client changed the spec of a ClusterPullSecret; the hub reverts it"
            );
        }
    }

    /// Stores the response to a write of the spec, which may arrive before the watch event.
    pub(super) fn put_written(&mut self, mut object: ClusterPullSecret, shard: Shard) {
        slim(&mut object);
        // The status may come from another client.
        self.keep_status(&mut object, shard);
        let key = object.key();
        self.specs.forget(&key);
        self.released.remove(&key);
        if self.deleted.remove(&key).is_some() {
            self.recreated.insert(key);
        }
        self.store.put(Box::new(object));
    }

    /// The write may have taken effect all the same.
    pub(super) fn wrote_without_response(&mut self, key: &str, spec: ClusterPullSecretSpec) {
        self.specs.wrote_without_response(key, spec);
    }

    /// Forgets what is of no fleet and of no cluster. Otherwise a client that creates and deletes objects with ever new names would fill
    /// the memory.
    pub(super) fn forget_foreign(
        &mut self,
        is_needed: impl Fn(&str, &ClusterPullSecretSpec) -> bool,
    ) {
        if self.store.live.len() > MANY {
            let live = &mut self.store.live;
            live.retain(|key, object| is_needed(key, &object.spec));
        }
        self.deleted
            .retain(|key, object| is_needed(key, &object.spec));
        let (live, deleted) = (&self.store.live, &self.deleted);
        let is_known = |key: &String| live.contains_key(key) || deleted.contains_key(key);
        for keys in [&mut self.statuses, &mut self.recreated, &mut self.released] {
            keys.retain(is_known);
        }
        self.specs.retain(is_known, is_needed);
    }

    /// Their namespace was deleted.
    pub(super) fn empty(&mut self) {
        let mut store = std::mem::take(&mut self.store);
        store.empty();
        *self = Self {
            store,
            is_listed: self.is_listed,
            ..Self::default()
        };
    }

    /// The hub has deleted it.
    pub(super) fn release(&mut self, key: &str) {
        self.specs.forget(key);
        if self.store.get(key).is_some() {
            self.released.insert(key.to_owned());
        }
    }

    /// Another client changed the status of any of them.
    pub(super) fn has_changed_statuses(&self) -> bool {
        !self.statuses.is_empty()
    }

    /// Another client changed its status.
    pub(super) fn is_status_changed(&self, object: &ClusterPullSecret) -> bool {
        !self.statuses.is_empty() && self.statuses.contains(&object.key())
    }

    /// Another client changed its spec.
    pub(super) fn is_changed(&self, object: &ClusterPullSecret) -> bool {
        let changed = self.specs.changed();
        !changed.is_empty() && changed.contains(&object.key())
    }

    /// Another client deleted it, and since the hub wrote it again, its cluster has not reported what it has.
    pub(super) fn is_recreated(&self, object: &ClusterPullSecret) -> bool {
        !self.recreated.is_empty() && self.recreated.contains(&object.key())
    }

    /// How much it knows of objects besides the objects themselves.
    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        let sets = [&self.statuses, &self.recreated, &self.released];
        let sets: usize = sets.iter().map(|it| it.len()).sum();
        sets + self.deleted.len() + self.specs.changed().len()
    }

    pub(super) fn deleted(&self) -> impl Iterator<Item = &ClusterPullSecret> {
        self.deleted.values().map(AsRef::as_ref)
    }
}

/// Drops what the hub does not need, and its author may have made large.
fn slim(object: &mut ClusterPullSecret) {
    let metadata = &mut object.metadata;
    metadata.labels = None;
    if let Some(annotations) = &mut metadata.annotations {
        let needed = [ACCEPTED_IDENTITY_ANNOTATION, RETRY_ANNOTATION];
        annotations.retain(|key, value| needed.contains(&key.as_str()) && value.len() <= VALUE);
    }
    if let Some(owners) = &mut metadata.owner_references {
        owners.truncate(1);
    }
    if let Some(finalizers) = &mut metadata.finalizers {
        finalizers.truncate(FINALIZERS);
    }
}

/// Whether the hub has applied each non-empty field of the spec. A field that another client changes no longer belongs
/// to the hub.
fn is_of_the_hub(object: &ClusterPullSecret) -> bool {
    let mut entries = object.managed_fields().iter();
    let own = entries.find_map(|entry| {
        let is_own = entry.manager.as_deref() == Some(HUB)
            && entry.operation.as_deref() == Some("Apply")
            && entry.subresource.as_deref().unwrap_or_default().is_empty();
        entry.fields_v1.as_ref().filter(|_| is_own)?.0.get("f:spec")
    });
    let fields = |spec: &ClusterPullSecretSpec| serde_json::to_value(spec).unwrap_or_default();
    let (spec, nothing) = (
        fields(&object.spec),
        fields(&ClusterPullSecretSpec::default()),
    );
    let mut said = spec.as_object().into_iter().flatten();
    own.is_some_and(|own| {
        said.all(|(key, value)| {
            nothing.get(key) == Some(value) || own.get(format!("f:{key}")).is_some()
        })
    })
}

/// Earlier reports only repeat what the object says, and a new object says nothing.
fn has_settled(phase: ClusterPhase) -> bool {
    matches!(phase, ClusterPhase::Synced | ClusterPhase::Removed)
}

/// uid of the object's owner: the `Cluster`, or the Secret that registers the cluster.
pub(super) fn owner_uid(object: &ClusterPullSecret) -> Option<&str> {
    let owner = object.owner_references().first()?;
    Some(&owner.uid)
}

/// Namespace and name of the object's cluster.
pub(super) fn cluster_of(object: &ClusterPullSecret) -> (&str, &str) {
    let namespace = object.metadata.namespace.as_deref();
    (namespace.unwrap_or_default(), &object.spec.cluster)
}

/// Whether this process connects to the object's cluster.
pub(super) fn connects(shard: Shard, object: &ClusterPullSecret) -> bool {
    let (namespace, name) = cluster_of(object);
    shard.has(namespace, name)
}
