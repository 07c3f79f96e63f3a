//! Node objects as large as those of a cloud provider, and their kubelets' heartbeats.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use crate::kubernetes::VERSION;

/// Interval of a kubelet's heartbeats if nothing changes.
const REPORT: Duration = Duration::from_mins(5);

pub(super) fn name(index: usize) -> String {
    format!(
        "ip-10-{}-{}-{}.eu-west-1.compute.internal",
        index / 62_500,
        index / 250 % 250,
        index % 250
    )
}

/// Creates all Nodes; returns their UIDs by name.
pub(super) async fn create(client: &Client, number: usize) -> Result<BTreeMap<String, String>> {
    let api: Api<Node> = Api::all(client.clone());
    stream::iter(0..number)
        .map(|index| {
            let api = api.clone();
            async move {
                let node: Node = serde_json::from_value(node(index))?;
                let node = api.create(&PostParams::default(), &node).await?;
                anyhow::Ok((node.name_any(), node.uid().unwrap_or_default()))
            }
        })
        .buffer_unordered(32)
        .try_collect()
        .await
}

/// Writes each Node's heartbeat in turn, as often as its kubelet would. Never ends.
pub(super) async fn beat(client: Client, number: usize) {
    let api: Api<Node> = Api::all(client);
    let pause = REPORT / u32::try_from(number).unwrap_or(u32::MAX);
    let mut ticks = interval(pause.max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for index in (0..number).cycle() {
        ticks.tick().await;
        let patch = json!({"status": {"conditions": [ready()]}});
        // The next heartbeat follows in five minutes.
        let _ = api
            .patch_status(
                &name(index),
                &PatchParams::default(),
                &Patch::Strategic(patch),
            )
            .await;
    }
}

fn ready() -> Value {
    json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status",
        "lastHeartbeatTime": Timestamp::now(), "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

/// About 10 KB: the fields that a kubelet and a cloud's controllers write, with 50 images.
fn node(index: usize) -> Value {
    let name = name(index);
    let condition = |type_: &str| {
        json!({"type": type_, "status": "False", "reason": format!("KubeletHasNo{type_}"),
            "message": format!("kubelet has no {type_}"), "lastHeartbeatTime": Timestamp::now(),
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let images: Vec<_> = (0..50_u64)
        .map(|image| {
            let repository = format!("registry.example.com/platform/component-{image}");
            json!({"sizeBytes": 10_000_000 + image, "names": [
                format!("{repository}@sha256:{:064x}", u128::from(image) << 64 | 0x5eed),
                format!("{repository}:v1.{image}.0"),
            ]})
        })
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/instance-type": "m5.2xlarge",
                "beta.kubernetes.io/os": "linux", "failure-domain.beta.kubernetes.io/region": "eu-west-1",
                "failure-domain.beta.kubernetes.io/zone": format!("eu-west-1{}", ["a", "b", "c"][index % 3]),
                "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": "m5.2xlarge", "node-role.kubernetes.io/worker": "",
                "topology.ebs.csi.aws.com/zone": format!("eu-west-1{}", ["a", "b", "c"][index % 3]),
                "topology.kubernetes.io/region": "eu-west-1",
                "topology.kubernetes.io/zone": format!("eu-west-1{}", ["a", "b", "c"][index % 3]),
            },
            "annotations": {
                "csi.volume.kubernetes.io/nodeid": format!("{{\"ebs.csi.aws.com\":\"i-{index:017x}\"}}"),
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
        },
        "spec": {"providerID": format!("aws:///eu-west-1a/i-{index:017x}"), "podCIDR": "10.1.0.0/24"},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": name}],
            "allocatable": {"cpu": "7500m", "memory": "30000000Ki", "pods": "110", "ephemeral-storage": "100Gi"},
            "capacity": {"cpu": "8", "memory": "32000000Ki", "pods": "110", "ephemeral-storage": "120Gi"},
            "conditions": [condition("MemoryPressure"), condition("DiskPressure"), condition("PIDPressure"), ready()],
            "images": images,
            "nodeInfo": {
                "architecture": "amd64", "bootID": "b", "containerRuntimeVersion": "containerd://2.1.0",
                "kernelVersion": "6.12.0", "kubeProxyVersion": "", "kubeletVersion": VERSION,
                "machineID": "m", "operatingSystem": "linux", "osImage": "Linux", "systemUUID": "u",
            },
        },
    })
}
