//! The parts of the management cluster's objects that the hub caches.

use std::collections::BTreeMap;
use std::sync::Arc;

use globalps_core::api::{ClusterPullSecret, FleetPullSecret};
use globalps_core::names::{
    CLUSTER_KUBECONFIG_KEYS, CLUSTER_LABEL, KUBECONFIG_ANNOTATION, cluster_pull_secret,
};
use globalps_core::rollout;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::DynamicObject;
use kube::{Resource, ResourceExt as _};

use crate::cache::versioned::Versioned;
use crate::clusters::input::ClusterKey;
use crate::clusters::revision::Revision;
use crate::clusters::shard::Shard;
use crate::content::source::Data;
use crate::targets::{created, version};

/// Namespace and name of an object, with its uid, `resourceVersion` and `creationTimestamp`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Id {
    pub(super) key: ClusterKey,
    pub(super) uid: String,
    pub(super) version: u64,
    pub(super) created: Option<Timestamp>,
}

impl Id {
    pub(super) fn of(object: &impl Resource) -> Self {
        Self {
            key: key(object),
            uid: object.uid().unwrap_or_default(),
            version: version(object),
            created: created(object),
        }
    }
}

pub(super) fn key(object: &impl Resource) -> ClusterKey {
    (object.namespace().unwrap_or_default(), object.name_any())
}

fn joined((namespace, name): &ClusterKey) -> String {
    format!("{namespace}/{name}")
}

/// A `Cluster` of Cluster API.
#[derive(Clone, Debug)]
pub(super) struct ClusterObject {
    pub(super) id: Id,
    pub(super) api_version: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) is_deleting: bool,
    /// Name of the Secret whose kubeconfig the hub uses; `None`: Cluster API's.
    pub(super) kubeconfig: Option<String>,
}

impl ClusterObject {
    /// Whether it names the Secret with this name, which must be its own.
    pub(super) fn names(&self, secret: &str) -> bool {
        self.id.key.1 == secret && self.kubeconfig.as_deref() == Some(secret)
    }
}

/// A Secret with a kubeconfig: Cluster API's, or one that registers a cluster.
#[derive(Clone, Debug)]
pub(super) struct KubeconfigSecret {
    pub(super) id: Id,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) kubeconfig: Arc<Data>,
}

impl KubeconfigSecret {
    /// Drops the kubeconfig if the cluster belongs to another shard.
    pub(super) fn for_shard(mut self, shard: Shard) -> Self {
        let (namespace, name) = &self.id.key;
        let cluster = name.strip_suffix("-kubeconfig").unwrap_or(name);
        let is_own = [name.as_str(), cluster]
            .iter()
            .any(|name| shard.has(namespace, name));
        if !is_own {
            self.kubeconfig = Arc::new(Data(None));
        }
        self
    }
}

/// A Secret with a revision of a fleet.
#[derive(Clone, Debug)]
pub(super) struct RevisionSecret {
    pub(super) id: Id,
    /// uid of the `FleetPullSecret` that owns it.
    pub(super) owner: String,
    pub(super) revision: Revision,
}

#[derive(Clone, Debug)]
pub(super) struct NamespaceLabels {
    pub(super) id: Id,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) is_deleting: bool,
}

macro_rules! versioned {
    ($($object:ty),*) => {$(
        impl Versioned for $object {
            fn key(&self) -> String {
                joined(&self.id.key)
            }

            fn key_of(namespace: &str, name: &str) -> String {
                format!("{namespace}/{name}")
            }

            fn version(&self) -> u64 {
                self.id.version
            }
        }
    )*};
}
versioned!(
    ClusterObject,
    KubeconfigSecret,
    RevisionSecret,
    NamespaceLabels
);

macro_rules! versioned_objects {
    ($($object:ty),*) => {$(
        impl Versioned for $object {
            fn key(&self) -> String {
                joined(&key(self))
            }

            fn key_of(namespace: &str, name: &str) -> String {
                format!("{namespace}/{name}")
            }

            fn version(&self) -> u64 {
                version(self)
            }
        }
    )*};
}
versioned_objects!(FleetPullSecret, ClusterPullSecret);

pub(super) fn cluster(object: &DynamicObject, api_version: &str) -> ClusterObject {
    let metadata = &object.metadata;
    ClusterObject {
        id: Id::of(object),
        api_version: api_version.to_owned(),
        labels: metadata.labels.clone().unwrap_or_default(),
        is_deleting: metadata.deletion_timestamp.is_some(),
        kubeconfig: object.annotations().get(KUBECONFIG_ANNOTATION).cloned(),
    }
}

/// Drops the keys of other Secrets of Cluster API, which have the same label.
pub(super) fn kubeconfig(secret: &Secret) -> KubeconfigSecret {
    let is_kubeconfig =
        secret.labels().contains_key(CLUSTER_LABEL) || secret.name_any().ends_with("-kubeconfig");
    let keys = CLUSTER_KUBECONFIG_KEYS.iter().filter(|_| is_kubeconfig);
    let mut found = keys.map(|key| Data::of(secret, key));
    KubeconfigSecret {
        id: Id::of(secret),
        labels: secret.labels().clone(),
        kubeconfig: Arc::new(found.find(|data| data.0.is_some()).unwrap_or(Data(None))),
    }
}

pub(super) fn revision(secret: &Secret) -> RevisionSecret {
    let none = || Revision::new(rollout::Revision::NONE, Arc::new(Data(None)), None);
    let mut owners = secret.owner_references().iter();
    RevisionSecret {
        id: Id::of(secret),
        owner: owners
            .next()
            .map(|owner| owner.uid.clone())
            .unwrap_or_default(),
        revision: Revision::decode(secret).unwrap_or_else(none),
    }
}

/// The fleet and the cluster of the object; `None`: its name does not match, so the hub did not create it.
pub(super) fn pair(object: &ClusterPullSecret) -> Option<(String, ClusterKey)> {
    let spec = &object.spec;
    let (namespace, name) = spec.fleet.split_once('/')?;
    let expected = cluster_pull_secret(&spec.cluster, namespace, name);
    (object.name_any() == expected).then(|| {
        let key = (object.namespace().unwrap_or_default(), spec.cluster.clone());
        (spec.fleet.clone(), key)
    })
}
