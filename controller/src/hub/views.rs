//! The parts of the management cluster's objects that the hub caches.

use std::collections::BTreeMap;
use std::sync::Arc;

use globalps_core::api::{ClusterPullSecret, FleetPullSecret};
use globalps_core::names::{
    CLUSTER_KUBECONFIG_KEYS, KUBECONFIG_ANNOTATION, cluster_pull_secret, fleet_revision,
};
use globalps_core::rollout::{Revision, RevisionId};
use globalps_planner::clusters::input::ClusterKey;
use globalps_planner::clusters::revision::FleetRevision;
use globalps_planner::clusters::shard::Shard;
use globalps_planner::content::source::Data;
use globalps_planner::targets::{created, version};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::DynamicObject;
use kube::{Resource, ResourceExt as _};

use crate::cache::kept::Bounded;
use crate::cache::versioned::Versioned;

/// Label with the cluster's name on Secrets of Cluster API.
pub(super) const CLUSTER_NAME_LABEL: &str = "cluster.x-k8s.io/cluster-name";

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
    pub(super) kubeconfig: Kubeconfig,
}

/// The part of a kubeconfig that the hub keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kubeconfig {
    /// There is none, or the cluster belongs to another shard.
    None,
    Found(Arc<Data>),
    /// Its size in bytes, which exceeds [`MAX_KUBECONFIG`].
    TooLarge(usize),
    /// The kubeconfigs of the namespace exceed the limit of the hub.
    LeftOut,
}

/// Bytes of a kubeconfig. Those of Cluster API and of `fleet join` have 3 to 10 KB. One with a company's whole bundle of CAs has 100 KB at
/// times; a cluster needs only its own.
pub(super) const MAX_KUBECONFIG: usize = 128 << 10;

impl KubeconfigSecret {
    /// Whether Cluster API, or who has its rights, wrote the kubeconfig of a `Cluster` there. Other Secrets of Cluster API have the same
    /// label.
    pub(super) fn is_of_cluster_api(&self) -> bool {
        let cluster = self.id.key.1.strip_suffix("-kubeconfig");
        // A label holds no longer name, of which Cluster API writes a hash instead.
        let is_named = |cluster: &str| {
            let label = self.labels.get(CLUSTER_NAME_LABEL);
            cluster.len() > 63 || label.is_some_and(|it| it == cluster)
        };
        cluster.is_some_and(is_named)
    }

    /// Drops the kubeconfig if the cluster belongs to another shard.
    pub(super) fn for_shard(mut self, shard: Shard) -> Self {
        let (namespace, name) = &self.id.key;
        let cluster = name.strip_suffix("-kubeconfig").unwrap_or(name);
        let is_own = [name.as_str(), cluster]
            .iter()
            .any(|name| shard.has(namespace, name));
        if !is_own {
            self.kubeconfig = Kubeconfig::None;
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
    pub(super) revision: FleetRevision,
    /// The revisions of the namespace exceed what the hub keeps, so its content is not known.
    pub(super) is_left_out: bool,
}

impl RevisionSecret {
    /// Whether this is a revision of the fleet. Each client that may write Secrets can name the uid of any fleet as its owner.
    pub(super) fn is_of(&self, fleet: &FleetPullSecret) -> bool {
        let name = fleet_revision(&fleet.name_any(), self.revision.number);
        Some(&self.owner) == fleet.uid().as_ref()
            && self.id.key.0 == fleet.namespace().unwrap_or_default()
            && (self.id.key.1 == name || self.revision.number == 0)
    }

    /// Makes its content unknown.
    pub(super) fn forget_content(&mut self) {
        let unknown = Revision::new(self.revision.number, RevisionId::UNKNOWN);
        self.revision = FleetRevision::new(unknown, Arc::new(Data(None)), None);
    }

    pub(super) fn has_content(&self) -> bool {
        self.revision.content.0.is_some() || self.revision.install.is_some()
    }
}

#[derive(Clone, Debug)]
pub(super) struct NamespaceLabels {
    pub(super) id: Id,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) is_deleting: bool,
}

/// Bytes that each object needs besides what its author chooses, about.
const OBJECT: usize = 512;
/// See [`Bounded::PART`].
const PART: usize = 8;

fn length(data: &Data) -> usize {
    data.0.as_ref().map_or(0, Vec::len)
}

fn length_of(labels: &BTreeMap<String, String>) -> usize {
    let labels = labels.iter();
    labels
        .map(|(key, value)| key.len() + value.len() + 64)
        .sum()
}

impl Bounded for KubeconfigSecret {
    const MOST: usize = 8 << 20;
    const MOST_CONTENT: usize = 32 << 20;
    const PART: usize = PART;

    fn created(&self) -> Option<Timestamp> {
        self.id.created
    }

    fn size(&self) -> usize {
        OBJECT + length_of(&self.labels)
    }

    fn content(&self) -> usize {
        match &self.kubeconfig {
            Kubeconfig::Found(data) => length(data),
            _ => 0,
        }
    }

    fn drop_content(&mut self) {
        if matches!(self.kubeconfig, Kubeconfig::Found(_)) {
            self.kubeconfig = Kubeconfig::LeftOut;
        }
    }
}

impl Bounded for RevisionSecret {
    const MOST: usize = 4 << 20;
    const MOST_CONTENT: usize = 32 << 20;
    const PART: usize = PART;

    fn created(&self) -> Option<Timestamp> {
        self.id.created
    }

    fn size(&self) -> usize {
        OBJECT
    }

    fn content(&self) -> usize {
        let FleetRevision {
            content,
            install,
            rejected,
            ..
        } = &self.revision;
        let images = install.as_ref().and_then(|it| it.pull_secret.as_ref());
        let reason = rejected.as_ref().map_or(0, String::len);
        length(content) + images.map_or(0, length) + reason
    }

    fn drop_content(&mut self) {
        self.is_left_out |= self.has_content();
        self.forget_content();
    }
}

impl Bounded for ClusterObject {
    const MOST: usize = 8 << 20;
    const PART: usize = PART;

    fn created(&self) -> Option<Timestamp> {
        self.id.created
    }

    fn size(&self) -> usize {
        let annotation = self.kubeconfig.as_ref().map_or(0, String::len);
        OBJECT + length_of(&self.labels) + annotation
    }
}

/// Each needs a watch of its source, too.
impl Bounded for Box<FleetPullSecret> {
    const MOST: usize = 8 << 20;
    const PART: usize = PART;

    fn created(&self) -> Option<Timestamp> {
        created(&**self)
    }

    fn size(&self) -> usize {
        let json = serde_json::to_vec(self).unwrap_or_default();
        json.len().max(32 << 10)
    }
}

impl Bounded for Box<ClusterPullSecret> {
    const MOST: usize = 48 << 20;
    const PART: usize = PART;

    fn created(&self) -> Option<Timestamp> {
        created(&**self)
    }

    /// The API server limits its texts.
    fn size(&self) -> usize {
        let status = self.status.as_ref();
        let message = status.map_or(0, |it| it.message.len() + it.reason.len());
        let finalizers = self.finalizers().iter().map(String::len);
        OBJECT + 1024 + message + finalizers.sum::<usize>()
    }
}

macro_rules! versioned {
    ($($object:ty: $share:expr),*) => {$(
        impl Versioned for $object {
            fn share(&mut self, before: &Self) {
                let share: fn(&mut Self, &Self) = $share;
                share(self, before);
            }

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
// Content that is in a list and was known before is stored once.
versioned!(
    ClusterObject: |_, _| {},
    KubeconfigSecret: |it, known| {
        if it.kubeconfig == known.kubeconfig {
            it.kubeconfig.clone_from(&known.kubeconfig);
        }
    },
    RevisionSecret: |it, known| {
        if it.revision.content == known.revision.content {
            it.revision.content = Arc::clone(&known.revision.content);
        }
        if it.revision.install == known.revision.install {
            it.revision.install.clone_from(&known.revision.install);
        }
    },
    NamespaceLabels: |_, _| {}
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

/// Keeps only the kubeconfig.
pub(super) fn kubeconfig(secret: &Secret) -> KubeconfigSecret {
    let data = secret.data.as_ref();
    let mut found = CLUSTER_KUBECONFIG_KEYS.iter();
    let found = found.find_map(|key| data?.get(*key));
    let kubeconfig = match found.map(|it| it.0.len()) {
        None => Kubeconfig::None,
        Some(size) if size > MAX_KUBECONFIG => Kubeconfig::TooLarge(size),
        Some(_) => Kubeconfig::Found(Arc::new(Data(found.map(|it| it.0.clone())))),
    };
    KubeconfigSecret {
        id: Id::of(secret),
        labels: secret.labels().clone(),
        kubeconfig,
    }
}

pub(super) fn revision(secret: &Secret) -> RevisionSecret {
    let none = || FleetRevision::new(Revision::NONE, Arc::new(Data(None)), None);
    let mut owners = secret.owner_references().iter();
    RevisionSecret {
        id: Id::of(secret),
        owner: owners
            .next()
            .map(|owner| owner.uid.clone())
            .unwrap_or_default(),
        revision: FleetRevision::decode(secret).unwrap_or_else(none),
        is_left_out: false,
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
