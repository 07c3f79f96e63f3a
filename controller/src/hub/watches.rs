//! The watches of the management cluster.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::{BoxStream, SelectAll, select_all};
use globalps_core::api::{ClusterPullSecret, FleetPullSecret};
use globalps_core::decode::Item;
use globalps_core::names::{CLUSTER_LABEL, FLEET_LABEL};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::core::GroupVersionKind;
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

use super::views::{
    ClusterObject, Id, KubeconfigSecret, NamespaceLabels, RevisionSecret, cluster, kubeconfig,
    revision,
};
use crate::cache::list_watch::{Update, list_watch};

/// Label with the cluster's name on Secrets of Cluster API.
const CLUSTER_NAME_LABEL: &str = "cluster.x-k8s.io/cluster-name";
const CLUSTER_API_GROUP: &str = "cluster.x-k8s.io";

pub(super) enum HubEvent {
    Fleet(Update<Box<FleetPullSecret>>),
    Object(Update<Box<ClusterPullSecret>>),
    Cluster(Update<ClusterObject>),
    /// A Secret of Cluster API, possibly without a kubeconfig.
    Kubeconfig(Update<KubeconfigSecret>),
    Registered(Update<KubeconfigSecret>),
    Revision(Update<RevisionSecret>),
    Namespace(Update<NamespaceLabels>),
}

/// An event and its scope.
pub(super) type Scoped = (String, HubEvent);

/// Watches the objects of these namespaces; an empty list means all. `resource`: Cluster API's `Cluster`.
pub(super) fn events(
    client: &Client,
    namespaces: &[String],
    resource: &ApiResource,
) -> SelectAll<BoxStream<'static, Scoped>> {
    let mut streams: Vec<BoxStream<'static, Scoped>> = Vec::new();
    let all = Api::<Item<PartialObjectMeta<Namespace>>>::all(client.clone());
    let labels = |object: PartialObjectMeta<Namespace>| NamespaceLabels {
        id: Id::of(&object),
        labels: object.labels().clone(),
        is_deleting: object.metadata.deletion_timestamp.is_some(),
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

pub(super) fn scopes(namespaces: &[String]) -> Vec<String> {
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

fn api<K>(client: &Client, scope: &str) -> Api<Item<K>>
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
    let clusters: Api<Item<DynamicObject>> = if scope.is_empty() {
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
            .map(move |it| (one.clone(), HubEvent::Fleet(it.map(Box::new))))
            .boxed(),
        objects
            .map(move |it| (two.clone(), HubEvent::Object(it.map(Box::new))))
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

/// `Cluster` of Cluster API in the version that the API server prefers, or in the newest one if it is not served.
pub(super) async fn cluster_resource(client: &Client) -> ApiResource {
    let groups = tokio::time::timeout(Duration::from_secs(15), client.list_api_groups());
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
