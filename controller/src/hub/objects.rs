//! The `ClusterPullSecret`s of one scope. Only the hub writes them: what other clients do to a spec is undone, and nothing is planned from it.

use std::collections::{BTreeMap, BTreeSet};

use globalps_core::api::{ClusterPhase, ClusterPullSecret, ClusterPullSecretSpec};
use kube::ResourceExt as _;
use kube::runtime::watcher::Event;

use crate::cache::list_watch::Update;
use crate::cache::out_of_band::out_of_band_changes;
use crate::cache::own_specs::OwnSpecs;
use crate::cache::store::Store;
use crate::cache::versioned::Versioned as _;
use crate::clusters::progress::up_to_date;

#[derive(Default)]
pub(super) struct Objects {
    pub(super) store: Store<Box<ClusterPullSecret>>,
    specs: OwnSpecs<ClusterPullSecretSpec>,
    /// The last state of those that another client deleted, until the hub writes them again.
    deleted: BTreeMap<String, Box<ClusterPullSecret>>,
    /// Those that the hub has written again since, until their clusters have reported what they have.
    recreated: BTreeSet<String>,
    /// Those that the hub deletes.
    released: BTreeSet<String>,
}

impl Objects {
    /// Whether the update changes anything. `plans`: this process writes the specs.
    pub(super) fn handle(
        &mut self,
        mut update: Update<Box<ClusterPullSecret>>,
        plans: bool,
    ) -> bool {
        if plans {
            self.keep(&mut update);
        }
        self.store.handle(update)
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
    pub(super) fn put_written(&mut self, object: ClusterPullSecret) {
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

    /// Their namespace was deleted.
    pub(super) fn empty(&mut self) {
        let mut store = std::mem::take(&mut self.store);
        store.empty();
        *self = Self {
            store,
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

    /// Another client changed its spec.
    pub(super) fn is_changed(&self, object: &ClusterPullSecret) -> bool {
        let changed = self.specs.changed();
        !changed.is_empty() && changed.contains(&object.key())
    }

    /// Another client deleted it, and since the hub wrote it again, its cluster has not reported what it has.
    pub(super) fn is_recreated(&self, object: &ClusterPullSecret) -> bool {
        !self.recreated.is_empty() && self.recreated.contains(&object.key())
    }

    pub(super) fn deleted(&self) -> impl Iterator<Item = &ClusterPullSecret> {
        self.deleted.values().map(AsRef::as_ref)
    }
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
