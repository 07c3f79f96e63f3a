//! Objects that the controller delivers to namespaces and operators, in a form that can be compared.

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use globalps_core::names::{CONTROLLER_NAMESPACE, DATA_KEY, LEADER};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};

use super::Objects;
use super::gate::Gate;
use crate::fleet::stage::Stage;

pub(super) const CONTROLLER: &str = "globalps-controller";

/// Owner of an object.
pub(super) enum Part {
    /// The controller must not change the object: compares everything, including its resourceVersion.
    Others,
    /// The controller adds something to the object.
    Shared,
    /// A Secret of the controller: compares its meaning.
    Own,
}

/// A gate for the controller's writes of Secrets, service accounts and the configuration.
pub(super) fn gate(stage: &Stage) -> Result<Gate> {
    let operations = ["CREATE", "UPDATE", "DELETE"];
    let rules = json!([
        {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets", "serviceaccounts"],
            "operations": operations},
        {"apiGroups": ["globalps.io"], "apiVersions": ["*"],
            "resources": ["globalpullsecrets", "globalpullsecrets/status"], "operations": operations},
    ]);
    Gate::new(stage, CONTROLLER, &rules)
}

/// All objects, except the Secrets in globalps' own namespace and the account that names the leader. `part` returns the owner by kind, namespace and name.
pub(super) async fn objects(
    client: &Client,
    part: impl Fn(&str, &str, &str) -> Part,
) -> Result<Objects> {
    let all = ListParams::default();
    let secrets = Api::<Secret>::all(client.clone()).list(&all).await?;
    let accounts = Api::<ServiceAccount>::all(client.clone())
        .list(&all)
        .await?;
    let secrets = secrets.iter().map(|one| seen(&part, "Secret", one));
    let accounts = accounts
        .iter()
        .map(|one| seen(&part, "ServiceAccount", one));
    let all: Result<Objects> = secrets.chain(accounts).collect();
    // Each controller writes its name into this service account.
    let leader = format!("ServiceAccount {CONTROLLER_NAMESPACE}/{LEADER}");
    let is_counted = |key: &String| !key.starts_with("Secret kube-system/") && *key != leader;
    Ok(all?
        .into_iter()
        .filter(|(key, _)| is_counted(key))
        .collect())
}

fn seen(
    part: impl Fn(&str, &str, &str) -> Part,
    kind: &str,
    object: &(impl ResourceExt + Serialize),
) -> Result<(String, Value)> {
    let (space, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let mut value = serde_json::to_value(object)?;
    drop_field(&mut value["metadata"], "managedFields", |_| true);
    match part(kind, &space, &name) {
        Part::Others => {}
        Part::Shared => {
            let is_empty = |value: &Value| *value == json!({}) || *value == json!([]);
            drop_field(&mut value["metadata"], "resourceVersion", |_| true);
            drop_field(&mut value["metadata"], "annotations", is_empty);
            drop_field(&mut value, "imagePullSecrets", is_empty);
        }
        Part::Own => value = meaning(&value)?,
    }
    Ok((format!("{kind} {space}/{name}"), value))
}

fn drop_field(of: &mut Value, field: &str, is_dropped: impl Fn(&Value) -> bool) {
    if of.get(field).is_some_and(is_dropped)
        && let Some(fields) = of.as_object_mut()
    {
        fields.remove(field);
    }
}

fn meaning(secret: &Value) -> Result<Value> {
    let data = secret["data"][DATA_KEY].as_str().context("no content")?;
    let content: Value = serde_json::from_slice(&BASE64_STANDARD.decode(data)?)?;
    let metadata = &secret["metadata"];
    let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
    let owners: Vec<&Value> = owners.map(|owner| &owner["name"]).collect();
    Ok(own_secret(
        &secret["type"],
        &metadata["labels"],
        &owners,
        &content,
    ))
}

/// The compared form of [`Part::Own`]. `owners`: names of its owner references.
pub(super) fn own_secret(
    type_: &Value,
    labels: &Value,
    owners: &[&Value],
    content: &Value,
) -> Value {
    json!({"type": type_, "labels": labels, "owners": owners, "content": content})
}
