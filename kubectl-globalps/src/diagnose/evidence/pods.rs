//! Pods that have not ended, and those of them that wait for an image, grouped by similarity.

use crate::cluster::Cluster;
use crate::cluster::namespaces::each;
use crate::diagnose::evidence::facts::events;
use crate::diagnose::why::{Failing, PodSeen, SANDBOX, Said, Use, failing};
use crate::error::Result;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use std::collections::BTreeMap;

/// Pods with an equal value have the same cause.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Alike {
    namespace: String,
    service_account: String,
    image: String,
    pull_secrets: Vec<String>,
    /// What a command restarts or edits.
    workload: Option<String>,
    kept: Option<&'static str>,
    said: Said,
    used: Use,
    /// The node, if it does not have the newest revision.
    lagging: String,
}

/// A group of similar pods: one of them, its container, and the names of all.
pub(crate) struct PodGroup {
    pub pod: Pod,
    pub failing: Failing,
    pub names: Vec<String>,
}

/// The pods that can't pull, grouped by similarity. Only a pod's first container counts.
pub(crate) async fn kinds(
    cluster: &Cluster<'_>,
    namespace: Option<&str>,
    lags: impl Fn(&str) -> bool,
) -> Result<Vec<PodGroup>> {
    // Only events of sandboxes are needed, because a container's status has its own message.
    let all = events(cluster, namespace, &format!("reason={SANDBOX}")).await?;
    let mut of_sandboxes: BTreeMap<(String, String), Vec<Event>> = BTreeMap::new();
    for event in all {
        let pod = &event.involved_object;
        let key = (pod.namespace.clone(), pod.name.clone());
        let key = (key.0.unwrap_or_default(), key.1.unwrap_or_default());
        of_sandboxes.entry(key).or_default().push(event);
    }
    let mut kinds: BTreeMap<Alike, PodGroup> = BTreeMap::new();
    unfinished_pods(cluster, namespace, |pod| {
        let seen = PodSeen::of(&pod);
        let own = of_sandboxes.get(&(seen.namespace.clone(), seen.name.clone()));
        let own = own.map_or(&[][..], |own| own.as_slice());
        let Some(failing) = failing(&pod, own).into_iter().next() else {
            return;
        };
        let name = format!("{}/{}", seen.namespace, seen.name);
        let references = pod.spec.iter().flat_map(|spec| &spec.image_pull_secrets);
        let alike = Alike {
            pull_secrets: references.flatten().map(|it| it.name.clone()).collect(),
            image: failing.image.clone(),
            said: failing.said(),
            used: failing.used.clone(),
            lagging: Some(seen.node)
                .filter(|node| lags(node))
                .unwrap_or_default(),
            workload: seen.workload,
            kept: seen.kept,
            namespace: seen.namespace,
            service_account: seen.service_account,
        };
        let kind = kinds.entry(alike).or_insert_with(|| PodGroup {
            pod: slim(pod),
            failing,
            names: Vec::new(),
        });
        kind.names.push(name);
    })
    .await?;
    let mut kinds: Vec<PodGroup> = kinds.into_values().collect();
    kinds.sort_by_key(|kind| std::cmp::Reverse(kind.names.len()));
    Ok(kinds)
}

/// Drops the large fields that are not used.
pub(crate) fn slim(mut pod: Pod) -> Pod {
    pod.managed_fields_mut().clear();
    pod
}

/// All pods that have not ended, read page by page. `namespace`: `None` for all.
pub(crate) async fn unfinished_pods(
    cluster: &Cluster<'_>,
    namespace: Option<&str>,
    keep: impl FnMut(Pod),
) -> Result<()> {
    let client = cluster.client.clone();
    let api: Api<Pod> = match namespace {
        Some(namespace) => Api::namespaced(client, namespace),
        None => Api::all(client),
    };
    // A running pod can also wait for the image of a restarted container.
    let params = ListParams::default().fields("status.phase!=Succeeded,status.phase!=Failed");
    each(cluster, &api, params, "list the pods", keep).await
}
