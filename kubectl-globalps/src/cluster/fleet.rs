//! `FleetPullSecret`s and `ClusterPullSecret`s of the management cluster, kept up to date by watches.

use std::fmt::Debug;

use globalps_core::api::{ClusterPullSecret, FleetPullSecret};
use globalps_core::decode::Item;
use globalps_runtime::list_events::one;
use k8s_openapi::NamespaceResourceScope;
use kube::api::{ListParams, ObjectMeta};
use kube::{Api, Resource, ResourceExt as _};

use crate::cluster::client::Cluster;
use crate::cluster::facts::{Signals, Store, WatchedKind, watch_kind};
use crate::cluster::namespaces::each;
use crate::error::{Failure, Result};

/// The fleets and clusters to show.
#[derive(Clone, Debug, Default)]
pub(crate) struct FleetFilter {
    /// `None`: every one.
    pub fleet: Option<String>,
    /// Clusters of it, by `NAME` or `NAMESPACE/NAME`; none: all.
    pub clusters: Vec<String>,
    pub all_namespaces: bool,
}

impl FleetFilter {
    pub(crate) fn of(fleet: &str) -> Self {
        Self {
            fleet: Some(fleet.to_owned()),
            ..Self::default()
        }
    }
}

/// Objects by `NAMESPACE/NAME`.
#[derive(Clone, Debug, Default)]
pub(crate) struct FleetFacts {
    pub fleets: Store<FleetPullSecret>,
    pub objects: Store<ClusterPullSecret>,
    pub filter: FleetFilter,
    /// Clusters of other namespaces are selected.
    pub is_wide: bool,
}

impl FleetFacts {
    pub(crate) async fn observe(cluster: &Cluster<'_>, filter: FleetFilter) -> Result<Self> {
        let mut facts = Self {
            filter,
            ..Self::default()
        };
        if let Some(name) = &facts.filter.fleet {
            let fleet = find(cluster, name).await?;
            facts.fleets.insert(key(&fleet.metadata), fleet);
        } else {
            let all = facts.filter.all_namespaces;
            facts.fleets = list(cluster, "FleetPullSecrets", all).await?;
        }
        let is_wide = facts
            .fleets
            .iter()
            .any(|(_, fleet)| fleet.spec.namespace_selector.is_some());
        facts.is_wide = is_wide || facts.filter.all_namespaces;
        facts.objects = list(cluster, "ClusterPullSecrets", facts.is_wide).await?;
        Ok(facts)
    }
}

fn key(metadata: &ObjectMeta) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    format!("{}/{}", text(&metadata.namespace), text(&metadata.name))
}

/// Of this namespace, or of all.
fn api<K>(cluster: &Cluster<'_>, all_namespaces: bool) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    if all_namespaces {
        Api::all(cluster.client.clone())
    } else {
        cluster.api()
    }
}

async fn list<K>(cluster: &Cluster<'_>, kinds: &str, all_namespaces: bool) -> Result<Store<K>>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + serde::de::DeserializeOwned
        + Clone,
{
    let api: Api<K> = api(cluster, all_namespaces);
    let mut store = Store::default();
    let place = if all_namespaces {
        String::new()
    } else {
        format!(" of namespace `{}`", cluster.namespace)
    };
    let doing = format!("list the {kinds}{place}");
    let keep = |object: K| store.insert(key(object.meta()), object);
    let listed = each(cluster, &api, ListParams::default(), &doing, keep);
    listed.await.map_err(of_hub)?;
    Ok(store)
}

/// `name`: of the only one.
pub(crate) fn watch<'a, K>(
    cluster: &'a Cluster<'a>,
    doing: &'static str,
    all_namespaces: bool,
    name: Option<String>,
) -> Signals<'a, K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + serde::de::DeserializeOwned
        + Clone
        + Debug
        + Send
        + 'static,
{
    let kind = WatchedKind {
        doing,
        api: api(cluster, all_namespaces),
        params: name.map_or_else(ListParams::default, |name| one(&name)),
        listed: None,
        key,
        keep: Result::ok,
    };
    watch_kind(cluster, kind)
}

/// The `FleetPullSecret`; where it is in another namespace, the error says so.
pub(crate) async fn find(cluster: &Cluster<'_>, name: &str) -> Result<FleetPullSecret> {
    let doing = format!("get FleetPullSecret `{}/{name}`", cluster.namespace);
    let api = cluster.api::<Item<FleetPullSecret>>();
    let found = cluster.read(&doing, api.get_opt(name)).await;
    if let Some(fleet) = found.map_err(of_hub)? {
        return Ok(fleet);
    }
    let elsewhere = list::<FleetPullSecret>(cluster, "FleetPullSecrets", true).await;
    let elsewhere = match elsewhere {
        Err(failure) if failure.is(404) => return Err(failure),
        // A user who may not list them all still learns the rest.
        other => other.unwrap_or_default(),
    };
    let mut same = elsewhere
        .iter()
        .filter(|(_, fleet)| fleet.name_any() == name);
    let hint = match same.next().and_then(|(_, fleet)| fleet.namespace()) {
        Some(namespace) => {
            format!("namespace `{namespace}` has one of this name: add `-n {namespace}`")
        }
        None => "`kubectl globalps fleet status -A` shows all of them".to_owned(),
    };
    let message = format!("there is no FleetPullSecret `{}/{name}`", cluster.namespace);
    Err(Failure::not_found(message, hint))
}

/// The custom resources of the hub are missing.
pub(crate) fn of_hub(failure: Failure) -> Failure {
    if !failure.is(404) {
        return failure;
    }
    Failure::not_found(
        "the hub is not installed in this cluster: it has no FleetPullSecrets",
        "run this against the management cluster: see `--context` and `--kubeconfig`",
    )
}
