//! Specs of objects that only this program writes: `NodePullSecret`s and `ClusterPullSecret`s. Pure.

use std::collections::{BTreeMap, BTreeSet};

use globalps_core::api::{ClusterPullSecretSpec, NodePullSecretSpec};
use globalps_runtime::list_events::Event;
use globalps_runtime::list_watch::Update;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::core::object::HasSpec;

use super::store::Store;
use super::versioned::Versioned;

pub(crate) trait OwnSpec: Clone + PartialEq {
    fn assigned_at(&mut self) -> &mut Option<Time>;
}

impl OwnSpec for NodePullSecretSpec {
    fn assigned_at(&mut self) -> &mut Option<Time> {
        &mut self.assigned_at
    }
}

impl OwnSpec for ClusterPullSecretSpec {
    fn assigned_at(&mut self) -> &mut Option<Time> {
        &mut self.assigned_at
    }
}

/// Which objects have a spec that another client wrote. It is reverted, and nothing is planned from it: the cache keeps what this program
/// wrote.
#[derive(Debug)]
pub(crate) struct OwnSpecs<S> {
    /// Keys of the objects, until their specs are written again.
    changed: BTreeSet<String>,
    /// Writes without a response: they may be in force.
    unanswered: BTreeMap<String, S>,
}

impl<S> Default for OwnSpecs<S> {
    fn default() -> Self {
        Self {
            changed: BTreeSet::new(),
            unanswered: BTreeMap::new(),
        }
    }
}

impl<S: OwnSpec> OwnSpecs<S> {
    /// Replaces a spec of another client in the update by the known one. Call it before the store handles the update.
    pub(crate) fn keep<T>(&mut self, store: &Store<Box<T>>, update: &mut Update<Box<T>>)
    where
        T: Versioned + Clone + ResourceExt + HasSpec<Spec = S>,
    {
        match update {
            Update::Event(Event::Apply(object) | Event::InitApply(object)) => {
                self.keep_spec(store, object);
            }
            Update::Event(Event::Delete(object)) => self.forget(&object.key()),
            _ => {}
        }
    }

    fn keep_spec<T>(&mut self, store: &Store<Box<T>>, object: &mut T)
    where
        T: Versioned + Clone + ResourceExt + HasSpec<Spec = S>,
    {
        let key = object.key();
        let is_changed = self.changed.contains(&key);
        let known = store.get(&key).filter(|known| {
            let (before, now) = (known.meta(), object.meta());
            // A status that follows a change by another client has the same generation, and that client's spec. A list may have the version
            // that is known.
            let may_differ = before.generation != now.generation || is_changed;
            known.version() <= object.version() && before.uid == now.uid && may_differ
        });
        let Some(known) = known else { return };
        if self.is_awaited(&key, object.spec()) {
            self.forget(&key);
        } else if known.spec() == object.spec() {
            self.changed.remove(&key);
        } else {
            object.spec_mut().clone_from(known.spec());
            self.changed.insert(key);
        }
    }

    /// Another client wrote this object's spec.
    pub(crate) fn changed_now(&mut self, key: &str) {
        self.changed.insert(key.to_owned());
    }

    /// The write may have taken effect all the same.
    pub(crate) fn wrote_without_response(&mut self, key: &str, spec: S) {
        self.unanswered.insert(key.to_owned(), spec);
    }

    /// The object was written or deleted.
    pub(crate) fn forget(&mut self, key: &str) {
        self.changed.remove(key);
        self.unanswered.remove(key);
    }

    /// Forgets unknown objects, and writes that are no longer needed.
    pub(crate) fn retain(
        &mut self,
        is_known: impl Fn(&String) -> bool,
        is_needed: impl Fn(&str, &S) -> bool,
    ) {
        self.changed.retain(is_known);
        self.unanswered.retain(|key, spec| is_needed(key, spec));
    }

    /// Whether this is a write without a response.
    pub(crate) fn is_awaited(&self, key: &str, spec: &S) -> bool {
        let unanswered = self.unanswered.get(key);
        unanswered.is_some_and(|written| assigns_the_same(written, spec))
    }

    pub(crate) fn changed(&self) -> &BTreeSet<String> {
        &self.changed
    }
}

/// The API server stores times in whole seconds.
fn assigns_the_same<S: OwnSpec>(written: &S, found: &S) -> bool {
    let mut found = found.clone();
    let mut written = written.clone();
    *found.assigned_at() = None;
    *written.assigned_at() = None;
    written == found
}
