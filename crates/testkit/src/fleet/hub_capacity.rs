//! Measures the maximum throughput of the management cluster's API server: the hub's writes of a rotation, without waiting.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use globalps_core::api::ClusterPullSecret;
use globalps_core::names::HUB;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

/// Duration of the measurement with each number of writers.
const TIME: Duration = Duration::from_secs(5);

/// Writes per second, for the best of several numbers of writers. The hub's objects must exist, but the hub must not run.
pub(super) async fn capacity(client: &Client, namespace: &str) -> Result<f64> {
    let api: Api<ClusterPullSecret> = Api::namespaced(client.clone(), namespace);
    let objects = api.list(&ListParams::default()).await?.items;
    ensure!(!objects.is_empty(), "no objects of clusters");
    let mut best = 0.0_f64;
    for writers in [16, 64] {
        let (begun, turn) = (Instant::now(), AtomicUsize::new(0));
        let writers = (0..writers).map(async |_| {
            let mut writes = 0_u32;
            while begun.elapsed() < TIME {
                let turn = turn.fetch_add(1, Relaxed);
                write(&api, &objects[turn % objects.len()], turn).await?;
                writes += 3;
            }
            anyhow::Ok(writes)
        });
        let writes = futures::future::try_join_all(writers).await?;
        let writes: u32 = writes.into_iter().sum();
        best = best.max(f64::from(writes) / begun.elapsed().as_secs_f64());
    }
    Ok(best)
}

/// The hub's writes for each cluster: an assignment and two statuses.
async fn write(
    api: &Api<ClusterPullSecret>,
    object: &ClusterPullSecret,
    turn: usize,
) -> Result<()> {
    let name = object.name_any();
    let mut assigned = ClusterPullSecret::new(&name, object.spec.clone());
    assigned.metadata.owner_references = object.metadata.owner_references.clone();
    assigned.spec.retry = turn.to_string();
    let params = PatchParams::apply(HUB).force();
    api.patch(&name, &params, &Patch::Apply(&assigned)).await?;
    for phase in ["Syncing", "Synced"] {
        let status = json!({"status": {"phase": phase, "message": turn.to_string()}});
        let params = PatchParams::default();
        api.patch_status(&name, &params, &Patch::Merge(&status))
            .await?;
    }
    Ok(())
}
