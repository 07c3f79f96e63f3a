//! A cluster that runs `HyperShift`'s own syncer, and how much of its state is visible.

use std::collections::BTreeMap;

use globalps_core::api::{DeliveryType, SecretRef};
use globalps_core::hypershift::is_hypershifts;
use globalps_core::names;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::Api;
use kube::api::ListParams;

use crate::cluster::client::Cluster;
use crate::error::{Failure, Result, allowed};

/// `HyperShift`'s copy of the cluster's original pull secret.
const ORIGINAL: &str = "original-pull-secret";

pub(crate) struct HyperShiftSyncer {
    pub daemon_set: DaemonSet,
    pub pods: Vec<Pod>,
    /// By name, whether it is there.
    pub secrets: BTreeMap<String, bool>,
}

/// `None` if the cluster runs no such syncer.
pub(crate) async fn look(cluster: &Cluster<'_>) -> Result<Option<HyperShiftSyncer>> {
    let Some(daemon_set) = daemon_set(cluster).await? else {
        return Ok(None);
    };
    let pods = cluster.api::<Pod>();
    let of_syncer = ListParams::default().labels(&format!("name={}", names::SYNCER));
    let pods = cluster
        .call("list the syncer's pods", pods.list(&of_syncer))
        .await?;
    let (api, mut secrets) = (cluster.api::<Secret>(), BTreeMap::new());
    for name in [names::ADDITIONAL_SECRET, names::GLOBAL_SECRET, ORIGINAL] {
        let doing = format!("see whether Secret `{name}` exists");
        let found = cluster.call(&doing, api.get_metadata_opt(name)).await?;
        secrets.insert(name.to_owned(), found.is_some());
    }
    Ok(Some(HyperShiftSyncer {
        daemon_set,
        pods: pods.items,
        secrets,
    }))
}

/// Refuses to deliver beside `HyperShift`'s own controller: both would write the `DaemonSet` again and again, and the nodes' files.
pub(crate) async fn must_not_deliver(
    cluster: &Cluster<'_>,
    delivery: Option<DeliveryType>,
) -> Result<()> {
    let is_beside = delivery == Some(DeliveryType::Observe);
    match daemon_set(cluster).await? {
        None if is_beside => Err(Failure::new(
            format!(
                "HyperShift's own controller does not deliver here: there is no DaemonSet `{}/{}` of it, so nobody would write the nodes' files",
                names::NAMESPACE,
                names::SYNCER
            ),
            "install without `--delivery Observe`",
        )),
        Some(_) if !is_beside => Err(Failure::new(
            format!(
                "HyperShift delivers the pull secret of this cluster: DaemonSet `{}/{}` is its own, and globalps would write the same DaemonSet and files",
                names::NAMESPACE,
                names::SYNCER
            ),
            "`kubectl globalps install --delivery Observe` leaves the delivery to it, and reports what each node's file has; `kubectl globalps add`, `remove` and `status` work here without an installation",
        )),
        None | Some(_) => Ok(()),
    }
}

/// What `HyperShift`'s controller merges the additional pull secret with.
pub(crate) fn original() -> SecretRef {
    SecretRef {
        namespace: names::NAMESPACE.to_owned(),
        name: ORIGINAL.to_owned(),
        key: names::DATA_KEY.to_owned(),
    }
}

/// `HyperShift`'s; `None` also if this user may not see it.
pub(crate) async fn daemon_set(cluster: &Cluster<'_>) -> Result<Option<DaemonSet>> {
    let api: Api<DaemonSet> = Api::namespaced(cluster.client.clone(), names::NAMESPACE);
    let doing = "see whether HyperShift's own syncer runs";
    let found = allowed(cluster.call(doing, api.get_opt(names::SYNCER)).await)?;
    Ok(found.flatten().filter(is_hypershifts))
}
