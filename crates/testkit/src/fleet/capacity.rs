//! Measures the maximum throughput of this API server: the requests of a rotation, in their mix, without waiting.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::Result;
use futures::StreamExt as _;
use globalps_core::api::{NodePullSecret, NodePullSecretSpec, Phase};
use globalps_core::names::{
    CONTROLLER_MANAGER, CONTROLLER_NAMESPACE, GLOBAL_SECRET, LEADER_ANNOTATION, LEASE,
};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Patch, PatchParams, WatchParams};
use kube::{Api, Client, ResourceExt as _};

use super::syncers::{patch_status, status};
use crate::product::NAMESPACE;

const TIME: Duration = Duration::from_secs(10);
/// A revision that no rotation reaches.
const FIRST_REVISION: usize = 1_000_000;

/// Requests per second, for the best of several numbers of clients. The watches of all nodes must be open.
pub(super) async fn measure(
    controller: &Client,
    syncers: &[Client],
    nodes: &BTreeMap<String, String>,
) -> Result<f64> {
    let leases: Api<Lease> = Api::namespaced(controller.clone(), CONTROLLER_NAMESPACE);
    let leader = leases.get(LEASE).await?.spec;
    let leader = leader
        .and_then(|spec| spec.holder_identity)
        .unwrap_or_default();
    let watching = tokio::spawn(watch_all(controller.clone()));
    let mut best = 0.0_f64;
    for clients in [16, 64, 256] {
        best = best.max(run(controller, &leader, syncers, nodes, clients).await?);
    }
    watching.abort();
    Ok(best)
}

/// The watch of all objects, which the controller also has open.
async fn watch_all(client: Client) -> Result<()> {
    let objects: Api<NodePullSecret> = Api::namespaced(client, NAMESPACE);
    loop {
        let mut events = objects.watch(&WatchParams::default(), "0").await?.boxed();
        while events.next().await.is_some() {}
    }
}

async fn run(
    controller: &Client,
    leader: &str,
    syncers: &[Client],
    nodes: &BTreeMap<String, String>,
    clients: usize,
) -> Result<f64> {
    let nodes: Arc<Vec<_>> = Arc::new(nodes.clone().into_iter().collect());
    let turn = Arc::new(AtomicUsize::new(0));
    let begun = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..clients {
        let assigning: Api<NodePullSecret> = Api::namespaced(controller.clone(), NAMESPACE);
        let syncer = &syncers[index % syncers.len()];
        let objects: Api<NodePullSecret> = Api::namespaced(syncer.clone(), NAMESPACE);
        let secrets: Api<Secret> = Api::namespaced(syncer.clone(), NAMESPACE);
        let (nodes, turn, leader) = (nodes.clone(), turn.clone(), leader.to_owned());
        tasks.spawn(async move {
            let mut requests = 0_usize;
            while begun.elapsed() < TIME {
                let turn = turn.fetch_add(1, Relaxed);
                let (node, uid) = &nodes[turn % nodes.len()];
                let revision = i64::try_from(FIRST_REVISION + clients * 100_000 + turn)?;
                let assigned = assign(&assigning, &leader, node, uid, revision).await?;
                secrets.get(GLOBAL_SECRET).await?;
                let generation = assigned.metadata.generation.unwrap_or_default();
                let object_uid = assigned.uid().unwrap_or_default();
                let status = status(generation, assigned.spec.assigned(), Phase::Synced);
                patch_status(&objects, node, &object_uid, &status).await?;
                requests += 3;
            }
            anyhow::Ok(requests)
        });
    }
    let mut requests = 0_u32;
    while let Some(done) = tasks.join_next().await {
        requests += u32::try_from(done??)?;
    }
    Ok(f64::from(requests) / begun.elapsed().as_secs_f64())
}

/// Makes an assignment like the controller.
async fn assign(
    objects: &Api<NodePullSecret>,
    leader: &str,
    node: &str,
    uid: &str,
    revision: i64,
) -> Result<NodePullSecret> {
    let spec = NodePullSecretSpec {
        revision,
        ..NodePullSecretSpec::default()
    };
    let mut object = NodePullSecret::new(node, spec);
    object
        .annotations_mut()
        .insert(LEADER_ANNOTATION.to_owned(), leader.to_owned());
    object.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.to_owned(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    }]);
    let params = PatchParams::apply(CONTROLLER_MANAGER).force();
    Ok(objects.patch(node, &params, &Patch::Apply(&object)).await?)
}
