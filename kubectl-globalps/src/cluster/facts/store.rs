//! Objects by name as a watch keeps them, and what matters of a Node. Pure.

use std::collections::BTreeMap;

use globalps_core::names;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};

/// Objects by name. A new listing takes the old one's place only when it is complete.
#[derive(Clone, Debug)]
pub(crate) struct Store<V> {
    current: BTreeMap<String, V>,
    listing: Option<BTreeMap<String, V>>,
}

impl<V> Default for Store<V> {
    fn default() -> Self {
        Self {
            current: BTreeMap::new(),
            listing: None,
        }
    }
}

impl<V> Store<V> {
    pub(crate) fn insert(&mut self, name: impl Into<String>, value: V) {
        self.current.insert(name.into(), value);
    }

    pub(crate) fn get(&self, name: &str) -> Option<&V> {
        self.current.get(name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &V)> {
        self.current.iter()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.current.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.current.len()
    }

    pub(crate) fn apply<K: Resource>(&mut self, event: Event<K>, keep: impl Fn(K) -> V) {
        self.apply_by(event, ResourceExt::name_any, keep);
    }

    /// As [`Store::apply`], of objects in several namespaces.
    pub(crate) fn apply_by<K>(
        &mut self,
        event: Event<K>,
        key: impl Fn(&K) -> String,
        keep: impl Fn(K) -> V,
    ) {
        match event {
            Event::Apply(object) => {
                self.current.insert(key(&object), keep(object));
            }
            Event::Delete(object) => {
                self.current.remove(&key(&object));
            }
            Event::Init => self.listing = Some(BTreeMap::new()),
            Event::InitApply(object) => {
                let name = key(&object);
                self.listing
                    .get_or_insert_default()
                    .insert(name, keep(object));
            }
            Event::InitDone => {
                if let Some(complete) = self.listing.take() {
                    self.current = complete;
                }
            }
        }
    }
}

/// A thing that this user may not be allowed to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen<T> {
    Hidden,
    Absent,
    Present(T),
}

/// What matters of a Node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeFacts {
    pub excluded: bool,
    /// Not ready since then, and whether the control plane has lost it.
    pub not_ready: Option<(Timestamp, Lost)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// The kubelet itself says that it is not ready.
    No,
    /// The kubelet is silent.
    Yes,
}

impl NodeFacts {
    pub(crate) fn of(node: &Node) -> Self {
        let ready = node
            .status
            .as_ref()
            .and_then(|status| status.conditions.as_ref())
            .and_then(|conditions| conditions.iter().find(|c| c.type_ == "Ready"));
        Self::new(
            node.labels().get(names::EXCLUDE_LABEL).map(String::as_str),
            ready.map(|c| {
                (
                    c.status.as_str(),
                    c.last_transition_time.as_ref().map(|t| t.0),
                )
            }),
        )
    }

    /// `ready`: status of the condition, and since when.
    pub(super) fn new(exclude: Option<&str>, ready: Option<(&str, Option<Timestamp>)>) -> Self {
        let not_ready = ready
            .filter(|(status, _)| *status != "True")
            .map(|(status, since)| {
                let lost = if status == "False" {
                    Lost::No
                } else {
                    Lost::Yes
                };
                (since.unwrap_or(Timestamp::UNIX_EPOCH), lost)
            });
        Self {
            excluded: exclude == Some("true"),
            not_ready,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;

    fn object(name: &str) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(name.to_owned());
        object
    }

    fn names(store: &Store<ConfigMap>) -> Vec<&str> {
        store.iter().map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn a_new_listing_counts_only_when_it_is_complete() {
        let mut store = Store::default();
        store.insert("old", object("old"));
        store.apply(Event::Init, |o: ConfigMap| o);
        store.apply(Event::InitApply(object("new")), |o| o);
        assert_eq!(names(&store), ["old"]);
        store.apply(Event::InitDone, |o: ConfigMap| o);
        assert_eq!(names(&store), ["new"]);
        store.apply(Event::Apply(object("more")), |o| o);
        store.apply(Event::Delete(object("new")), |o| o);
        assert_eq!(names(&store), ["more"]);
        assert_eq!(store.len(), 1);
    }
}
