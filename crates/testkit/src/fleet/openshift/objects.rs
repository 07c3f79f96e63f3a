//! The objects of `OpenShift` that the stand-in of the Machine Config Operator writes: pools, nodes, and their conditions.

use anyhow::Result;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};

const GROUP: &str = "machineconfiguration.openshift.io";

pub(super) fn api(client: &Client, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(GROUP, "v1", kind);
    Api::all_with(client.clone(), &ApiResource::from_gvk(&kind))
}

/// A pool that takes the nodes with its role.
pub(super) fn pool(name: &str) -> Value {
    let role = format!("node-role.kubernetes.io/{name}");
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": "MachineConfigPool", "metadata": {"name": name}, "spec": {
        "nodeSelector": {"matchLabels": {role: ""}}, "maxUnavailable": 1, "paused": false,
        "machineConfigSelector": {"matchLabels": {format!("{GROUP}/role"): name}},
    }})
}

/// A node of a pool, before its first update.
pub(super) fn machine_config_node(name: &str, pool: &str) -> Value {
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": "MachineConfigNode", "metadata": {"name": name}, "spec": {
        "node": {"name": name}, "pool": {"name": pool}, "configVersion": {"desired": format!("rendered-{pool}-0")},
    }})
}

/// The annotation of a Node of this name.
pub(super) fn annotation(name: &str) -> String {
    format!("{GROUP}/{name}")
}

pub(super) fn condition(type_: &str, is_so: bool, message: &str) -> Value {
    json!({"type": type_, "status": if is_so { "True" } else { "False" }, "reason": "AsExpected", "message": message,
        "lastTransitionTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()})
}

/// Changes the object, and its status. `kind`: of the Machine Config Operator.
pub(super) async fn patch(
    client: &Client,
    kind: &str,
    name: &str,
    (spec, status): (Value, Value),
) -> Result<()> {
    let api = api(client, kind);
    let params = PatchParams::default();
    api.patch(name, &params, &Patch::Merge(json!({"spec": spec})))
        .await?;
    let status = Patch::Merge(json!({"status": status}));
    api.patch_status(name, &params, &status).await?;
    Ok(())
}

/// Gives the Nodes this role.
pub(super) async fn label(client: &Client, role: &str, nodes: &[&str]) -> Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    let labels = json!({format!("node-role.kubernetes.io/{role}"): ""});
    for node in nodes {
        let patch = json!({"metadata": {"labels": labels}});
        let params = PatchParams::default();
        api.patch(node, &params, &Patch::Merge(patch)).await?;
    }
    Ok(())
}
