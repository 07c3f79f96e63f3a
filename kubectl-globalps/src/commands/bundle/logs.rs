//! The end of the logs of pods of globalps.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::LogParams;
use serde_json::Value;
use tokio::time::sleep;

use super::allowed::CONTAINERS;
use super::contents::Contents;
use crate::cluster::client::Cluster;

/// Maximum number of pods whose logs are read: pods that restarted or are not ready come first.
const MOST_PODS: usize = 50;
/// Newest lines of each log.
const LINES: i64 = 2000;
/// Maximum size of a response, and of the newest part of it that is kept.
const MOST_BYTES: i64 = 4 << 20;
const KEPT_BYTES: usize = 1 << 20;
/// Attempts to read a log that is not found, and the pause between them.
const ATTEMPTS: u32 = 4;
const RETRY: Duration = Duration::from_secs(1);
/// Concurrent requests.
const PARALLEL: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Log {
    namespace: String,
    pod: String,
    container: String,
    /// Whether it is the log from before the container's last restart.
    previous: bool,
}

impl Log {
    fn path(&self) -> String {
        let Self {
            namespace,
            pod,
            container,
            previous,
        } = self;
        let end = if *previous { ".previous" } else { "" };
        format!("logs/{namespace}/{pod}/{container}{end}.log")
    }
}

pub(super) async fn all(cluster: &Cluster<'_>, contents: &mut Contents, pods: &[Value]) {
    let (logs, others) = chosen(pods);
    if others > 0 {
        let what = format!("logs of {others} more pods");
        contents.missing(what, format!("a bundle has the logs of {MOST_PODS} pods"));
    }
    let read = stream::iter(logs)
        .map(|log| async move { (log.path(), read(cluster, &log).await) })
        .buffered(PARALLEL)
        .collect::<Vec<_>>();
    for (path, answer) in read.await {
        if let Some(text) = contents.read(&path, answer) {
            contents.text(path, newest(&text));
        }
    }
}

async fn read(cluster: &Cluster<'_>, log: &Log) -> Result<String, crate::error::Failure> {
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), &log.namespace);
    let params = LogParams {
        container: Some(log.container.clone()),
        previous: log.previous,
        tail_lines: Some(LINES),
        limit_bytes: Some(MOST_BYTES),
        timestamps: true,
        ..LogParams::default()
    };
    let doing = format!("read the log of pod `{}/{}`", log.namespace, log.pod);
    let logs = async {
        for _ in 1..ATTEMPTS {
            match api.logs(&log.pod, &params).await {
                // A kubelet that has just started does not know its pods yet.
                Err(kube::Error::Api(status)) if status.code == 404 && !log.previous => {
                    sleep(RETRY).await;
                }
                answer => return answer,
            }
        }
        api.logs(&log.pod, &params).await
    };
    cluster.call(&doing, logs).await
}

/// The logs to read, and the number of omitted pods.
fn chosen(pods: &[Value]) -> (Vec<Log>, usize) {
    let statuses = |pod: &Value| {
        let statuses = pod["status"]["containerStatuses"].as_array().cloned();
        statuses.unwrap_or_default()
    };
    let is_well = |pod: &&Value| {
        let statuses = statuses(pod);
        let is_well = |status: &Value| status["ready"] == true && status["restartCount"] == 0;
        !statuses.is_empty() && statuses.iter().all(is_well)
    };
    let mut pods: Vec<&Value> = pods.iter().collect();
    // A stable sort: pods of the controller and the hub stay before those of nodes.
    pods.sort_by_key(is_well);
    let others = pods.len().saturating_sub(MOST_PODS);
    let mut logs = Vec::new();
    for pod in pods.into_iter().take(MOST_PODS) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        for container in pod["spec"]["containers"].as_array().into_iter().flatten() {
            let container = text(&container["name"]);
            if !CONTAINERS.contains(&container.as_str()) {
                continue;
            }
            let restarted = statuses(pod).iter().any(|status| {
                let restarts = status["restartCount"].as_i64().unwrap_or_default();
                status["name"] == container.as_str() && restarts > 0
            });
            let log = Log {
                namespace: text(&pod["metadata"]["namespace"]),
                pod: text(&pod["metadata"]["name"]),
                container,
                previous: false,
            };
            let previous = Log {
                previous: true,
                ..log.clone()
            };
            logs.push(log);
            logs.extend(Some(previous).filter(|_| restarted));
        }
    }
    (logs, others)
}

/// The newest whole lines.
fn newest(text: &str) -> &str {
    let start = text.len().saturating_sub(KEPT_BYTES);
    if start == 0 {
        return text;
    }
    let cut = text.as_bytes().get(start..).unwrap_or_default();
    let line = cut.iter().position(|byte| *byte == b'\n');
    line.and_then(|line| text.get(start + line + 1..))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, restarts: i64) -> Value {
        json!({
            "metadata": {"namespace": "kube-system", "name": name},
            "spec": {"containers": [{"name": "syncer"}, {"name": "sidecar"}]},
            "status": {"containerStatuses": [{"name": "syncer", "ready": true, "restartCount": restarts}]},
        })
    }

    #[test]
    fn pods_with_problems_come_first_and_sidecars_never() {
        let mut pods: Vec<Value> = (0..60)
            .map(|number| pod(&format!("well-{number}"), 0))
            .collect();
        pods.push(pod("restarted", 2));
        let (logs, others) = chosen(&pods);
        assert_eq!(others, 11);
        let paths: Vec<String> = logs.iter().take(3).map(Log::path).collect();
        let expected = [
            "logs/kube-system/restarted/syncer.log",
            "logs/kube-system/restarted/syncer.previous.log",
            "logs/kube-system/well-0/syncer.log",
        ];
        assert_eq!(paths, expected);
        assert!(logs.iter().all(|log| log.container == "syncer"));
    }

    #[test]
    fn the_newest_lines_are_kept() {
        assert_eq!(newest("a\nb\n"), "a\nb\n");
        let text = format!("{}\n{}\nlast\n", "ä".repeat(10), "b".repeat(KEPT_BYTES - 6));
        assert_eq!(newest(&text), "last\n");
        assert_eq!(newest(&"b".repeat(KEPT_BYTES + 1)), "");
    }
}
