//! Pods that wait for an image after credentials were added: their number, and `--retry-pods`.

use std::collections::BTreeSet;
use std::time::Duration;

use globalps_core::names;
use globalps_provider::parse_scoped;
use globalps_runtime::backoff::up_to;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::cli::WaitAndRetry;
use crate::cluster::client::Cluster;
use crate::diagnose::evidence::pods::unfinished_pods;
use crate::diagnose::why::{Added, Waiting, summary, untouched};
use crate::error::Result;
use crate::secret::additional::data_of;
use crate::target::pull_secret;
use crate::terminal::number;

/// How long to retry pods whose disruption budget doesn't permit an eviction yet.
const RETRY_FOR: Duration = Duration::from_mins(2);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_secs(5);
const BUDGET: &str = "their disruption budget did not allow it in time";
const LATE: &str = "the time limit was reached";
const GONE: &str = "they changed meanwhile";

/// Reports how many pods wait for an image of these registries, and evicts them with `--retry-pods`. `source`: of the
/// credentials, if it can have a scope.
pub(crate) async fn after_wait(
    cluster: &Cluster<'_>,
    registries: &[String],
    source: Option<&str>,
    how: &WaitAndRetry,
) -> Result<()> {
    let (retry, time) = (how.retry_pods, how.rollout.timeout);
    let printer = cluster.printer();
    if registries.is_empty() {
        return Ok(());
    }
    let added = added(cluster, registries, source).await;
    let found = match added {
        Ok(added) => list(cluster, &added).await.map(|found| (added, found)),
        Err(failure) => Err(failure),
    };
    let (added, found) = match found {
        // Without `--retry-pods`, the command has already succeeded.
        Err(failure) if !retry => {
            printer.detail(format_args!("no pod is counted: {}", failure.message));
            return Ok(());
        }
        found => found?,
    };
    if found.is_empty() {
        printer.note("no pods are waiting for images from these registries");
        return Ok(());
    }
    let named = match registries {
        [one] => format!("`{one}`"),
        some => format!("these {} registries", some.len()),
    };
    printer.note(summary(found.len(), &named));
    if !retry {
        let can = found.iter().filter(|pod| pod.kept.is_none()).count();
        if can > 0 {
            printer.note(format_args!(
                "`--retry-pods` would delete {can} of them, which a controller recreates; `kubectl globalps why -A` shows what other pods wait for"
            ));
        }
        return Ok(());
    }
    let (evicted, left) = evict_all(cluster, &added, found, time.0.min(RETRY_FOR)).await?;
    if evicted > 0 {
        let pods = number(evicted, "pod");
        printer.data(&format!("{pods} evicted, to pull again"));
    }
    for line in untouched(&left) {
        printer.note(line);
    }
    Ok(())
}

async fn added(
    cluster: &Cluster<'_>,
    registries: &[String],
    source: Option<&str>,
) -> Result<Added> {
    let mut scope = None;
    if let Some(source) = source {
        let global = pull_secret::in_force(cluster).await?;
        let bytes = global
            .as_ref()
            .and_then(|it| data_of(it, names::SCOPED_KEY));
        let scoped = bytes.and_then(|bytes| parse_scoped(bytes).ok());
        let mut scoped = scoped.into_iter().flatten();
        scope = scoped.find(|it| it.source == source).map(|it| it.scope);
    }
    Ok(Added::new(registries.iter().map(String::as_str), scope))
}

async fn list(cluster: &Cluster<'_>, added: &Added) -> Result<Vec<Waiting>> {
    let mut found = Vec::new();
    unfinished_pods(cluster, None, |pod| found.extend(Waiting::of(&pod, added))).await?;
    Ok(found)
}

/// Returns the number of evicted pods, and the other pods with the reason. Reads the pods again in each iteration,
/// because a pod that has its image by then stays.
async fn evict_all(
    cluster: &Cluster<'_>,
    added: &Added,
    mut found: Vec<Waiting>,
    time: Duration,
) -> Result<(usize, Vec<(String, &'static str)>)> {
    let deadline = Instant::now() + time;
    let first: BTreeSet<String> = found.iter().map(|pod| pod.uid.clone()).collect();
    let kept = found.iter();
    let mut left: Vec<(String, &'static str)> = kept
        .filter_map(|pod| Some((pod.title(), pod.kept?)))
        .collect();
    let mut evicted = 0;
    loop {
        let mut blocked = Vec::new();
        for pod in found.iter().filter(|pod| pod.kept.is_none()) {
            if Instant::now() > deadline {
                blocked.push((pod.title(), LATE));
                continue;
            }
            // The client retries a request that got 429 by itself, for longer than this.
            match timeout(PAUSE, evict(cluster, pod)).await {
                Ok(Ok(())) => evicted += 1,
                Ok(Err(failure)) if failure.is(404) => {}
                Ok(Err(failure)) if failure.is(409) => blocked.push((pod.title(), GONE)),
                Ok(Err(failure)) if !failure.is(429) => return Err(failure),
                Ok(Err(_)) | Err(_) => blocked.push((pod.title(), BUDGET)),
            }
        }
        if blocked.is_empty() || Instant::now() + PAUSE > deadline {
            left.extend(blocked);
            return Ok((evicted, left));
        }
        sleep(PAUSE + up_to(Duration::from_secs(1))).await;
        found = list(cluster, added).await?;
        // Pods that replace evicted ones are new, and pull by themselves.
        found.retain(|pod| first.contains(&pod.uid));
    }
}

/// Evicts the pod, if it hasn't changed since it was read; otherwise the API server answers 409. It answers 429 if a
/// disruption budget doesn't permit the eviction now.
async fn evict(cluster: &Cluster<'_>, pod: &Waiting) -> Result<()> {
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), &pod.namespace);
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": {"preconditions": {"uid": pod.uid, "resourceVersion": pod.resource_version}},
    });
    let params = PostParams::default();
    // `Api::evict` of kube 5 sends `delete_options`, which the API server ignores.
    let call = api.create_subresource::<_, Value>("eviction", &pod.name, &params, &eviction);
    let doing = format!("evict pod `{}`", pod.title());
    cluster.call(&doing, call).await.map(drop)
}
