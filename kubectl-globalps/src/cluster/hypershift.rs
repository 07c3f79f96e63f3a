//! A cluster that runs `HyperShift`'s own syncer, and how much of its state is visible.

use std::collections::BTreeMap;

use globalps_core::names;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::ListParams;

use crate::cluster::client::Cluster;
use crate::error::{Result, allowed};

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
    let (daemon_sets, pods) = (cluster.api::<DaemonSet>(), cluster.api::<Pod>());
    let doing = "see whether HyperShift's own syncer runs";
    let found = cluster
        .call(doing, daemon_sets.get_opt(names::SYNCER))
        .await;
    let Some(daemon_set) = allowed(found)?.flatten() else {
        return Ok(None);
    };
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
