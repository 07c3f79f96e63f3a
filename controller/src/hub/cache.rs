//! What the management cluster has: fleets, clusters, kubeconfigs, revisions and the objects about clusters.

use std::collections::BTreeMap;

use futures::StreamExt as _;
use futures::stream::{BoxStream, SelectAll, select_all};
use globalps_core::api::{ClusterPullSecret, FleetPullSecret};
use globalps_core::names::{CLUSTER_KUBECONFIG_KEYS, CLUSTER_LABEL, FLEET_LABEL};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::core::GroupVersionKind;
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

use crate::cache::list_watch::{Update, list_watch};
use crate::cache::store::Store;
use crate::cache::versioned::Versioned;
use crate::clusters::input::{ClusterKey, ClusterView};
use crate::clusters::revision::Revision;
use crate::content::source::Data;
use crate::targets::version;

/// Label of Cluster API's Secrets: the name of their cluster.
const CLUSTER_NAME_LABEL: &str = "cluster.x-k8s.io/cluster-name";
pub(super) const CLUSTER_API_GROUP: &str = "cluster.x-k8s.io";

/// Namespace and name of an object, with its uid and `resourceVersion`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Id {
    pub(super) key: ClusterKey,
    pub(super) uid: String,
    version: u64,
}

impl Id {
    fn of(object: &impl Resource) -> Self {
        Self {
            key: key(object),
            uid: object.uid().unwrap_or_default(),
            version: version(object),
        }
    }
}

fn key(object: &impl Resource) -> ClusterKey {
    (object.namespace().unwrap_or_default(), object.name_any())
}

fn joined((namespace, name): &ClusterKey) -> String {
    format!("{namespace}/{name}")
}

/// A `Cluster` of Cluster API.
#[derive(Clone, Debug)]
pub(super) struct ClusterObject {
    pub(super) id: Id,
    labels: BTreeMap<String, String>,
    is_deleting: bool,
}

/// A Secret with a kubeconfig: Cluster API's, or one that registers a cluster.
#[derive(Clone, Debug)]
pub(super) struct KubeconfigSecret {
    pub(super) id: Id,
    labels: BTreeMap<String, String>,
    kubeconfig: Data,
}

/// The revision of a fleet.
#[derive(Clone, Debug)]
pub(super) struct RevisionSecret {
    id: Id,
    fleet: String,
    revision: Revision,
}

#[derive(Clone, Debug)]
pub(super) struct NamespaceLabels {
    id: Id,
    labels: BTreeMap<String, String>,
}

macro_rules! versioned {
    ($($object:ty),*) => {$(
        impl Versioned for $object {
            fn key(&self) -> String {
                joined(&self.id.key)
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

            fn version(&self) -> u64 {
                version(self)
            }
        }
    )*};
}
versioned_objects!(FleetPullSecret, ClusterPullSecret);

pub(super) enum HubEvent {
    Fleet(Update<Box<FleetPullSecret>>),
    Object(Update<Box<ClusterPullSecret>>),
    Cluster(Update<ClusterObject>),
    /// Cluster API's; `None`: another Secret of its.
    Kubeconfig(Update<KubeconfigSecret>),
    Registered(Update<KubeconfigSecret>),
    Revision(Update<RevisionSecret>),
    Namespace(Update<NamespaceLabels>),
}

/// The objects of one namespace, or of all.
#[derive(Default)]
struct Scope {
    fleets: Store<Box<FleetPullSecret>>,
    objects: Store<Box<ClusterPullSecret>>,
    clusters: Store<ClusterObject>,
    kubeconfigs: Store<KubeconfigSecret>,
    registered: Store<KubeconfigSecret>,
    revisions: Store<RevisionSecret>,
    /// Cluster API is not installed.
    has_no_clusters: bool,
}

impl Scope {
    fn synced(&self) -> bool {
        self.fleets.synced
            && self.objects.synced
            && (self.clusters.synced || self.has_no_clusters)
            && self.kubeconfigs.synced
            && self.registered.synced
            && self.revisions.synced
    }
}

pub(super) struct HubCache {
    /// By namespace; the empty one is all of them.
    scopes: BTreeMap<String, Scope>,
    namespaces: Store<NamespaceLabels>,
}

/// An event, and the scope that it is of.
pub(super) type Scoped = (String, HubEvent);

/// Watches the objects of these namespaces; an empty list is all of them. `resource`: of Cluster API's clusters.
pub(super) fn events(
    client: &Client,
    namespaces: &[String],
    resource: &ApiResource,
) -> SelectAll<BoxStream<'static, Scoped>> {
    let mut streams: Vec<BoxStream<'static, Scoped>> = Vec::new();
    let all = Api::<PartialObjectMeta<Namespace>>::all(client.clone());
    let labels = |object: PartialObjectMeta<Namespace>| NamespaceLabels {
        id: Id::of(&object),
        labels: object.labels().clone(),
    };
    let updates = list_watch(all, config(None), "namespaces");
    streams.push(
        updates
            .map(move |it| (String::new(), HubEvent::Namespace(it.map(labels))))
            .boxed(),
    );
    for scope in scopes(namespaces) {
        streams.extend(scoped(client, &scope, resource));
    }
    select_all(streams)
}

fn scopes(namespaces: &[String]) -> Vec<String> {
    if namespaces.is_empty() {
        vec![String::new()]
    } else {
        namespaces.to_vec()
    }
}

fn config(labels: Option<&str>) -> watcher::Config {
    let config = watcher::Config::default().page_size(100);
    match labels {
        Some(labels) => config.labels(labels),
        None => config,
    }
}

fn api<K>(client: &Client, scope: &str) -> Api<K>
where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned,
{
    if scope.is_empty() {
        Api::all(client.clone())
    } else {
        Api::namespaced(client.clone(), scope)
    }
}

fn scoped(client: &Client, scope: &str, resource: &ApiResource) -> Vec<BoxStream<'static, Scoped>> {
    let fleets = list_watch(
        api::<FleetPullSecret>(client, scope),
        config(None),
        "fleets",
    );
    let objects = list_watch(
        api::<ClusterPullSecret>(client, scope),
        config(None),
        "objects of clusters",
    );
    let clusters: Api<DynamicObject> = if scope.is_empty() {
        Api::all_with(client.clone(), resource)
    } else {
        Api::namespaced_with(client.clone(), scope, resource)
    };
    let clusters = list_watch(clusters, config(None), "clusters");
    let secrets =
        |labels: &str, what| list_watch(api::<Secret>(client, scope), config(Some(labels)), what);
    let is_registered = format!("{CLUSTER_LABEL}=true");
    let (one, two, three) = (scope.to_owned(), scope.to_owned(), scope.to_owned());
    let (four, five, six) = (scope.to_owned(), scope.to_owned(), scope.to_owned());
    vec![
        fleets
            .map(move |it| {
                (
                    one.clone(),
                    HubEvent::Fleet(it.map(|it| Box::new(slim(it)))),
                )
            })
            .boxed(),
        objects
            .map(move |it| {
                (
                    two.clone(),
                    HubEvent::Object(it.map(|it| Box::new(slim(it)))),
                )
            })
            .boxed(),
        clusters
            .map(move |it| (three.clone(), HubEvent::Cluster(it.map(|it| cluster(&it)))))
            .boxed(),
        secrets(CLUSTER_NAME_LABEL, "kubeconfigs")
            .map(move |it| {
                (
                    four.clone(),
                    HubEvent::Kubeconfig(it.map(|it| kubeconfig(&it))),
                )
            })
            .boxed(),
        secrets(&is_registered, "registered clusters")
            .map(move |it| {
                (
                    five.clone(),
                    HubEvent::Registered(it.map(|it| kubeconfig(&it))),
                )
            })
            .boxed(),
        secrets(FLEET_LABEL, "revisions")
            .map(move |it| (six.clone(), HubEvent::Revision(it.map(|it| revision(&it)))))
            .boxed(),
    ]
}

/// Without the managed fields, which nothing depends on.
fn slim<K: Resource>(mut object: K) -> K {
    object.meta_mut().managed_fields = None;
    object
}

fn cluster(object: &DynamicObject) -> ClusterObject {
    let metadata = &object.metadata;
    ClusterObject {
        id: Id {
            key: (
                metadata.namespace.clone().unwrap_or_default(),
                metadata.name.clone().unwrap_or_default(),
            ),
            uid: metadata.uid.clone().unwrap_or_default(),
            version: metadata
                .resource_version
                .as_deref()
                .and_then(|version| version.parse().ok())
                .unwrap_or_default(),
        },
        labels: metadata.labels.clone().unwrap_or_default(),
        is_deleting: metadata.deletion_timestamp.is_some(),
    }
}

/// Other Secrets of Cluster API carry the same label: their keys are not kept.
fn kubeconfig(secret: &Secret) -> KubeconfigSecret {
    let is_kubeconfig =
        secret.labels().contains_key(CLUSTER_LABEL) || secret.name_any().ends_with("-kubeconfig");
    let keys = CLUSTER_KUBECONFIG_KEYS.iter().filter(|_| is_kubeconfig);
    let mut found = keys.map(|key| Data::of(secret, key));
    KubeconfigSecret {
        id: Id::of(secret),
        labels: secret.labels().clone(),
        kubeconfig: found.find(|data| data.0.is_some()).unwrap_or(Data(None)),
    }
}

fn revision(secret: &Secret) -> RevisionSecret {
    let none = || Revision::new(0, Data(None));
    RevisionSecret {
        id: Id::of(secret),
        fleet: secret
            .labels()
            .get(FLEET_LABEL)
            .cloned()
            .unwrap_or_default(),
        revision: Revision::decode(secret).unwrap_or_else(none),
    }
}

impl HubCache {
    pub(super) fn new(namespaces: &[String]) -> Self {
        let scopes = scopes(namespaces).into_iter();
        Self {
            scopes: scopes.map(|scope| (scope, Scope::default())).collect(),
            namespaces: Store::default(),
        }
    }

    /// Whether it may change the plan.
    pub(super) fn handle(&mut self, (scope, event): Scoped) -> bool {
        if let HubEvent::Namespace(update) = event {
            return self.namespaces.handle(update);
        }
        let Some(scope) = self.scopes.get_mut(&scope) else {
            return false;
        };
        match event {
            HubEvent::Namespace(_) => false,
            HubEvent::Fleet(update) => scope.fleets.handle(update),
            HubEvent::Object(update) => scope.objects.handle(update),
            HubEvent::Cluster(Update::Failed(error)) => {
                let before = scope.has_no_clusters;
                scope.has_no_clusters |= error.is_not_served;
                before != scope.has_no_clusters
            }
            HubEvent::Cluster(update) => scope.clusters.handle(update),
            HubEvent::Kubeconfig(update) => scope.kubeconfigs.handle(update),
            HubEvent::Registered(update) => scope.registered.handle(update),
            HubEvent::Revision(update) => scope.revisions.handle(update),
        }
    }

    pub(super) fn synced(&self) -> bool {
        self.namespaces.synced && self.scopes.values().all(Scope::synced)
    }

    /// The response to a write, which may arrive before its event.
    pub(super) fn put_object(&mut self, object: ClusterPullSecret) {
        let namespace = object.namespace().unwrap_or_default();
        if let Some(scope) = self.scope_mut(&namespace) {
            scope.objects.put(Box::new(slim(object)));
        }
    }

    pub(super) fn put_revision(&mut self, secret: &Secret) {
        let namespace = secret.namespace().unwrap_or_default();
        if let Some(scope) = self.scope_mut(&namespace) {
            scope.revisions.put(revision(secret));
        }
    }

    pub(super) fn put_fleet(&mut self, fleet: FleetPullSecret) {
        let namespace = fleet.namespace().unwrap_or_default();
        if let Some(scope) = self.scope_mut(&namespace) {
            scope.fleets.put(Box::new(slim(fleet)));
        }
    }

    fn scope_mut(&mut self, namespace: &str) -> Option<&mut Scope> {
        let scope = if self.scopes.contains_key(namespace) {
            namespace
        } else {
            ""
        };
        self.scopes.get_mut(scope)
    }

    /// Oldest first: of two with one target the older one writes it.
    pub(super) fn fleets(&self) -> Vec<FleetPullSecret> {
        let fleets = self.scopes.values().flat_map(|it| it.fleets.live.values());
        let mut fleets: Vec<FleetPullSecret> = fleets.map(|fleet| (**fleet).clone()).collect();
        fleets.sort_by_key(|fleet| {
            let created = fleet.metadata.creation_timestamp.as_ref();
            (created.map(|time| time.0), key(fleet))
        });
        fleets
    }

    /// Objects about clusters, with the `FleetPullSecret` that they are of.
    pub(super) fn objects(&self) -> impl Iterator<Item = &ClusterPullSecret> {
        let scopes = self.scopes.values();
        scopes.flat_map(|scope| scope.objects.live.values().map(|it| &**it))
    }

    /// Oldest first.
    pub(super) fn revisions(&self, fleet: &FleetPullSecret) -> Vec<Revision> {
        let (namespace, name) = key(fleet);
        let all = self
            .scopes
            .values()
            .flat_map(|it| it.revisions.live.values());
        let of = all.filter(|it| it.fleet == name && it.id.key.0 == namespace);
        let mut revisions: Vec<Revision> = of
            .map(|it| it.revision.clone())
            .filter(|it| it.number > 0)
            .collect();
        revisions.sort_by_key(|it| it.number);
        revisions
    }

    pub(super) fn namespaces(&self) -> BTreeMap<String, BTreeMap<String, String>> {
        let namespaces = self.namespaces.live.values();
        namespaces
            .map(|it| (it.id.key.1.clone(), it.labels.clone()))
            .collect()
    }

    /// uid of the management cluster's own `kube-system`.
    pub(super) fn identity(&self) -> Option<&str> {
        let kube_system = self.namespaces.get("/kube-system")?;
        Some(&kube_system.id.uid)
    }

    /// The clusters as the plan sees them, without what their connections say.
    pub(super) fn clusters(&self) -> BTreeMap<ClusterKey, ClusterView> {
        let mut clusters: BTreeMap<ClusterKey, ClusterView> = BTreeMap::new();
        for scope in self.scopes.values() {
            for cluster in scope.clusters.live.values() {
                let view = clusters.entry(cluster.id.key.clone()).or_default();
                view.labels = Some(cluster.labels.clone());
                view.is_deleting = cluster.is_deleting;
            }
            for secret in scope.registered.live.values() {
                let view = clusters.entry(secret.id.key.clone()).or_default();
                view.registered = Some(secret.labels.clone());
            }
        }
        for (key, view) in &mut clusters {
            view.has_kubeconfig = self.kubeconfig(key).is_some();
        }
        clusters
    }

    /// The one that was made for the hub, where there is one, before Cluster API's, which may do everything.
    pub(super) fn kubeconfig(&self, (namespace, name): &ClusterKey) -> Option<Data> {
        let scope = self.scopes.get(namespace).or_else(|| self.scopes.get(""))?;
        let own = scope.registered.get(&format!("{namespace}/{name}"));
        let of_cluster_api = || {
            scope
                .kubeconfigs
                .get(&format!("{namespace}/{name}-kubeconfig"))
        };
        let found = own.or_else(of_cluster_api)?;
        found
            .kubeconfig
            .0
            .is_some()
            .then(|| found.kubeconfig.clone())
    }

    /// Kind, API version and uid of what owns the object about this cluster.
    pub(super) fn owner(&self, (namespace, name): &ClusterKey) -> Option<(bool, String)> {
        let scope = self.scopes.get(namespace).or_else(|| self.scopes.get(""))?;
        let key = format!("{namespace}/{name}");
        let cluster = scope.clusters.get(&key).map(|it| (true, it.id.uid.clone()));
        let registered = || {
            scope
                .registered
                .get(&key)
                .map(|it| (false, it.id.uid.clone()))
        };
        cluster.or_else(registered)
    }
}

/// `Cluster` of Cluster API in the version that the API server prefers; `None`: it is not served.
pub(super) async fn cluster_resource(client: &Client) -> ApiResource {
    let groups = tokio::time::timeout(std::time::Duration::from_secs(15), client.list_api_groups());
    let groups = groups.await.ok().and_then(Result::ok);
    let version = groups.and_then(|groups| {
        let mut groups = groups.groups.into_iter();
        let group = groups.find(|group| group.name == CLUSTER_API_GROUP)?;
        Some(group.preferred_version?.version)
    });
    let version = version.unwrap_or_else(|| "v1beta2".to_owned());
    ApiResource::from_gvk(&GroupVersionKind::gvk(
        CLUSTER_API_GROUP,
        &version,
        "Cluster",
    ))
}
