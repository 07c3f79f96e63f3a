//! What the cluster says, kept up to date by watches. No judgement here.

mod node_secrets;
mod nodes;
mod pages;

pub(crate) use pages::pages;

use std::collections::BTreeMap;

use globalps_core::api::{GlobalPullSecret, NodePullSecret};
use globalps_core::names;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::api::PartialObjectMeta;
use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};

use crate::client::Cluster;
use crate::error::Failure;

pub(crate) use node_secrets::list as node_secrets;

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
    fn new(exclude: Option<&str>, ready: Option<(&str, Option<Timestamp>)>) -> Self {
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

/// `resourceVersion` of a Secret; its data is never asked for.
pub(crate) type SecretVersion = String;

pub(crate) fn version_of(secret: PartialObjectMeta<Secret>) -> SecretVersion {
    secret.metadata.resource_version.unwrap_or_default()
}

/// Which nodes are of interest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scope {
    /// Empty: all.
    pub names: Vec<String>,
    /// Of labels, as kubectl takes it.
    pub selector: Option<String>,
}

impl Scope {
    pub(crate) fn is_all(&self) -> bool {
        self.names.is_empty() && self.selector.is_none()
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// The custom resources are there.
    pub installed: bool,
    pub global: Store<GlobalPullSecret>,
    pub node_secrets: Store<NodePullSecret>,
    pub scope: Scope,
    /// Those that the scope's selector matches; `None`: hidden from this user.
    pub nodes: Option<Store<NodeFacts>>,
    /// The two pull secrets, each by its name; `None`: hidden from this user.
    pub additional_secret: Option<Store<SecretVersion>>,
    pub global_secret: Option<Store<SecretVersion>>,
}

impl Facts {
    /// One look. What this user may not see stays hidden; only the custom resources are needed.
    pub(crate) async fn observe(cluster: &Cluster<'_>) -> Result<Self, Failure> {
        Self::observe_some(cluster, Scope::default()).await
    }

    /// One look at some nodes.
    pub(crate) async fn observe_some(cluster: &Cluster<'_>, scope: Scope) -> Result<Self, Failure> {
        let gps = cluster.api::<GlobalPullSecret>();
        // Boxed: five requests at once are a large future, and every command would carry it.
        let (gps, node_secrets, nodes, additional, global) = Box::pin(async {
            tokio::join!(
                cluster.call(
                    "get the GlobalPullSecret",
                    gps.get_opt(names::GLOBAL_SECRET)
                ),
                node_secrets::list(cluster),
                nodes::list(cluster, scope.selector.clone()),
                secret_version(cluster, names::ADDITIONAL_SECRET),
                secret_version(cluster, names::GLOBAL_SECRET),
            )
        })
        .await;
        let visible = match nodes {
            // Without the Nodes nobody can tell which ones match.
            Err(failure) if scope.selector.is_some() => return Err(failure),
            nodes => allowed(nodes)?,
        };
        let mut facts = Self {
            installed: true,
            scope,
            additional_secret: additional?,
            global_secret: global?,
            nodes: visible,
            ..Self::default()
        };
        match node_secrets {
            Ok(list) => facts.node_secrets = list,
            Err(failure) if failure.is(404) => facts.installed = false,
            Err(failure) => return Err(failure),
        }
        match gps {
            Ok(Some(object)) => facts.global.insert(object.name_any(), object),
            Ok(None) => {}
            Err(failure) if failure.is(404) => facts.installed = false,
            Err(failure) => return Err(failure),
        }
        Ok(facts)
    }

    /// Whether the node is of interest.
    pub(crate) fn is_shown(&self, node: &str) -> bool {
        let named = &self.scope.names;
        let matches = || {
            self.nodes
                .as_ref()
                .is_some_and(|nodes| nodes.get(node).is_some())
        };
        (named.is_empty() || named.iter().any(|name| name == node))
            && (self.scope.selector.is_none() || matches())
    }

    pub(crate) fn gps(&self) -> Option<&GlobalPullSecret> {
        self.global.get(names::GLOBAL_SECRET)
    }

    /// Nodes have credentials of globalps, or may have.
    pub(crate) fn is_in_force(&self) -> bool {
        !self.node_secrets.is_empty() || matches!(self.merged(), Seen::Present(_))
    }

    pub(crate) fn additional(&self) -> Seen<&str> {
        seen(self.additional_secret.as_ref(), names::ADDITIONAL_SECRET)
    }

    pub(crate) fn merged(&self) -> Seen<&str> {
        seen(self.global_secret.as_ref(), names::GLOBAL_SECRET)
    }
}

fn seen<'a>(store: Option<&'a Store<SecretVersion>>, name: &str) -> Seen<&'a str> {
    match store.map(|store| store.get(name)) {
        None => Seen::Hidden,
        Some(None) => Seen::Absent,
        Some(Some(version)) => Seen::Present(version),
    }
}

fn allowed<T>(answer: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(failure) if failure.is(403) => Ok(None),
        Err(failure) => Err(failure),
    }
}

async fn secret_version(
    cluster: &Cluster<'_>,
    name: &str,
) -> Result<Option<Store<SecretVersion>>, Failure> {
    let api = cluster.api::<Secret>();
    let answer = cluster
        .call(
            &format!("see whether Secret `{name}` exists"),
            api.get_metadata_opt(name),
        )
        .await;
    Ok(allowed(answer)?.map(|secret| {
        let mut store = Store::default();
        if let Some(secret) = secret {
            store.insert(name, version_of(secret));
        }
        store
    }))
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
