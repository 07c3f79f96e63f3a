//! The watches of the management cluster.

use futures::StreamExt as _;
use futures::stream::{BoxStream, SelectAll, select_all};
use globalps_core::api::{ClusterPullSecret, FleetPullSecret};
use globalps_core::decode::Item;
use globalps_core::names::{CLUSTER_LABEL, FLEET_LABEL};
use globalps_planner::clusters::shard::Shard;
use globalps_runtime::list_watch::{Update, list_watch};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::ListParams;
use kube::api::PartialObjectMeta;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

use super::cluster_api::{Clusters, clusters};
use super::views::{
    CLUSTER_NAME_LABEL, ClusterObject, Id, KubeconfigSecret, NamespaceLabels, RevisionSecret,
    kubeconfig, revision,
};

pub(super) enum HubEvent {
    Fleet(Update<Box<FleetPullSecret>>),
    Object(Update<Box<ClusterPullSecret>>),
    Cluster(Update<ClusterObject>),
    /// The API server serves no `Cluster`s.
    NoClusterApi,
    /// A Secret of Cluster API, possibly without a kubeconfig.
    Kubeconfig(Update<KubeconfigSecret>),
    Registered(Update<KubeconfigSecret>),
    Revision(Update<RevisionSecret>),
    Namespace(Update<NamespaceLabels>),
}

/// An event and its scope.
pub(super) type Scoped = (String, HubEvent);

/// Watches the objects of these namespaces; an empty list means all. `shard`: if it does not plan, it must tell who wrote a spec.
pub(super) fn events(
    client: &Client,
    namespaces: &[String],
    shard: Shard,
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
        streams.extend(scoped(client, &scope, shard));
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

fn config(labels: Option<&str>) -> ListParams {
    let config = ListParams::default().limit(100);
    match labels {
        Some(labels) => config.labels(labels),
        None => config,
    }
}

fn api<K, const OWNERS: bool>(client: &Client, scope: &str) -> Api<Item<K, OWNERS>>
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

fn scoped(client: &Client, scope: &str, shard: Shard) -> Vec<BoxStream<'static, Scoped>> {
    let fleets = list_watch(
        api::<FleetPullSecret, false>(client, scope),
        config(None),
        "fleets",
    );
    let what = "objects of clusters";
    let objects = if shard.plans() {
        let api = api::<ClusterPullSecret, false>(client, scope);
        list_watch(api, config(None), what)
    } else {
        let api = api::<ClusterPullSecret, true>(client, scope);
        list_watch(api, config(None), what)
    };
    let clusters = clusters(client.clone(), scope.to_owned(), config(None));
    let secrets = |labels: &str, what| {
        list_watch(
            api::<Secret, false>(client, scope),
            config(Some(labels)),
            what,
        )
    };
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
            .map(move |it| {
                let event = match it {
                    Clusters::NotServed => HubEvent::NoClusterApi,
                    Clusters::Listed(update) => HubEvent::Cluster(update),
                };
                (three.clone(), event)
            })
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
