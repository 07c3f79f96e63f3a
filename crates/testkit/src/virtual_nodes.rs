//! Two Nodes without a machine that are kept Ready, like a virtual kubelet does. One is marked by a label, the other by a taint.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use anyhow::Result;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::Cluster;

pub const NAMES: [&str; 2] = ["by-label", "by-taint"];
/// A Node times out after 50 seconds without a heartbeat.
const HEARTBEAT: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(100);

/// Runs `body` while they are Ready.
pub fn with_two<T>(cluster: &Cluster, body: impl FnOnce() -> Result<T>) -> Result<T> {
    let [by_label, by_taint] = NAMES;
    let label = json!({"labels": {"type": "virtual-kubelet"}});
    create(cluster, by_label, &label, &json!({}))?;
    let taint =
        json!({"key": "virtual-kubelet.io/provider", "value": "test", "effect": "NoSchedule"});
    create(cluster, by_taint, &json!({}), &json!({"taints": [taint]}))?;
    let is_over = AtomicBool::new(false);
    scope(|scope| {
        let _over = Over(&is_over);
        scope.spawn(|| keep_ready(cluster, &is_over));
        body()
    })
}

/// Ends the thread even if the body panics.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn create(cluster: &Cluster, name: &str, metadata: &Value, spec: &Value) -> Result<()> {
    let mut node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec,
    });
    node["metadata"]["name"] = json!(name);
    node["metadata"]["labels"]["kubernetes.io/os"] = json!("linux");
    let create = ["create", "-f", "-"];
    cluster.kubectl_with(&create, &node).map(drop)
}

fn keep_ready(cluster: &Cluster, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let status = json!({"status": {
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "Test", "message": "",
                "lastHeartbeatTime": now, "lastTransitionTime": now,
            }],
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        }});
        let patch = status.to_string();
        for name in NAMES {
            let node = format!("node/{name}");
            let args = ["--subresource=status", "--type=merge", "-p", &patch];
            // The API server may be going down with the cluster.
            let _ = cluster.kubectl(&[&["patch", &*node], &args[..]].concat());
        }
        let next = Instant::now() + HEARTBEAT;
        while Instant::now() < next && !is_over.load(Ordering::Relaxed) {
            sleep(POLL);
        }
    }
}
