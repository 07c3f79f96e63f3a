//! The cluster's namespaces, and what delivery left in them. Secrets are read without their content.

mod affected;
mod rows;

use std::collections::BTreeMap;
use std::fmt::Debug;

use globalps_core::names;
use k8s_openapi::api::core::v1::{Namespace, Secret, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::{ListParams, PartialObjectMeta, Patch};
use kube::core::Request;
use kube::{Api, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::client::Cluster;
use crate::error::Failure;
use crate::facts::pages;

pub(crate) use affected::{Affected, Who, affected};
pub(crate) use rows::{InForce, NamespaceRow, SecretSeen, Snapshot, rows, table};

/// Objects of one request.
const PAGE: u32 = 500;

/// What matters of a Namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NamespaceSeen {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub is_terminating: bool,
}

impl NamespaceSeen {
    pub(crate) fn of(namespace: &impl ResourceExt) -> Self {
        Self {
            labels: namespace.labels().clone(),
            annotations: namespace.annotations().clone(),
            is_terminating: namespace.meta().deletion_timestamp.is_some(),
        }
    }
}

/// Every namespace, by name.
pub(crate) async fn namespaces(
    cluster: &Cluster<'_>,
) -> Result<BTreeMap<String, NamespaceSeen>, Failure> {
    let api: Api<Namespace> = Api::all(cluster.client.clone());
    let doing = "list the Namespaces";
    let found = all_metadata(cluster, &api, ListParams::default(), doing).await?;
    let found = found.iter();
    Ok(found
        .map(|namespace| (namespace.name_any(), NamespaceSeen::of(namespace)))
        .collect())
}

/// The Secrets of this name of every namespace.
pub(crate) async fn secrets(
    cluster: &Cluster<'_>,
    name: &str,
) -> Result<Vec<PartialObjectMeta<Secret>>, Failure> {
    let api: Api<Secret> = Api::all(cluster.client.clone());
    let params = ListParams::default().fields(&format!("metadata.name={name}"));
    let doing = format!("list the Secrets `{name}` of every namespace");
    all_metadata(cluster, &api, params, &doing).await
}

/// The metadata of every object of a list, page by page.
pub(crate) async fn all_metadata<K>(
    cluster: &Cluster<'_>,
    api: &Api<K>,
    params: ListParams,
    doing: &str,
) -> Result<Vec<PartialObjectMeta<K>>, Failure>
where
    K: Clone + DeserializeOwned + Debug,
{
    let mut params = params.limit(PAGE);
    let mut found = Vec::new();
    loop {
        let page = cluster.call(doing, api.list_metadata(&params)).await?;
        found.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}

/// Hands every object of a list to `keep`, page by page.
pub(crate) async fn each<K>(
    cluster: &Cluster<'_>,
    api: &Api<K>,
    params: ListParams,
    doing: &str,
    keep: impl FnMut(K),
) -> Result<(), Failure>
where
    K: kube::Resource + DeserializeOwned,
{
    let list = Request::new(api.resource_url());
    pages(cluster, doing, &list, params, keep).await
}

/// Whether it has the controller's label.
pub(crate) fn is_labelled(secret: &impl ResourceExt) -> bool {
    let label = secret.labels().get(names::IMAGE_PULL_SECRET_LABEL);
    label.is_some_and(|label| label == "true")
}

/// The controller's entry of the managed fields: it applied the Secret.
pub(crate) fn applied(secret: &impl ResourceExt) -> Option<&ManagedFieldsEntry> {
    secret.managed_fields().iter().find(|entry| {
        let is = |field: &Option<String>, value| field.as_deref() == Some(value);
        is(&entry.manager, names::CONTROLLER_MANAGER) && is(&entry.operation, "Apply")
    })
}

/// Whether the controller keeps it. A copy has the label only, and the controller leaves it as it is.
pub(crate) fn is_ours(secret: &impl ResourceExt) -> bool {
    is_labelled(secret) && applied(secret).is_some()
}

/// Operations of a JSON patch that take out the reference that the controller recorded on the service account, if nobody has
/// written the object since. `None`: it recorded none.
pub(crate) fn detach(account: &ServiceAccount) -> Option<Vec<Value>> {
    let name = account.annotations().get(names::ATTACHED_ANNOTATION)?;
    let mut operations = without_reference(account, name);
    let key = names::ATTACHED_ANNOTATION.replace('/', "~1");
    operations.push(json!({"op": "remove", "path": format!("/metadata/annotations/{key}")}));
    Some(operations)
}

/// Operations that take the first reference to this Secret out, under a test that the object is still as it was read.
pub(crate) fn without_reference(account: &ServiceAccount, name: &str) -> Vec<Value> {
    let version = account.resource_version();
    let mut operations = vec![json!({
        "op": "test", "path": "/metadata/resourceVersion", "value": version,
    })];
    let mut references = account.image_pull_secrets.iter().flatten();
    if let Some(at) = references.position(|reference| reference.name == name) {
        operations.push(json!({"op": "remove", "path": format!("/imagePullSecrets/{at}")}));
    }
    operations
}

/// A patch of RFC 6902.
pub(crate) fn json_patch(operations: Vec<Value>) -> Result<Patch<()>, Failure> {
    let operations = serde_json::from_value(Value::Array(operations));
    operations.map(Patch::Json).map_err(|_| {
        Failure::new(
            "the change of a ServiceAccount could not be written as a JSON patch",
            "report it: this is an error of the plugin",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(references: &[&str], attached: Option<&str>) -> ServiceAccount {
        let references: Vec<Value> = references
            .iter()
            .map(|name| json!({"name": name}))
            .collect();
        let mut account = json!({
            "metadata": {"name": "default", "namespace": "a", "resourceVersion": "7"},
            "imagePullSecrets": references,
        });
        if let Some(name) = attached {
            account["metadata"]["annotations"] = json!({names::ATTACHED_ANNOTATION: name});
        }
        serde_json::from_value(account).expect("a ServiceAccount")
    }

    #[test]
    fn a_secret_is_ours_where_the_controller_applied_it() {
        let own = json!([{"manager": "globalps-controller", "operation": "Apply"}]);
        let update = json!([{"manager": "globalps-controller", "operation": "Update"}]);
        for (label, fields, expected) in [
            ("true", &own, true),
            ("false", &own, false),
            ("true", &update, false),
            ("true", &json!([]), false),
        ] {
            let secret = json!({"metadata": {"name": "s", "managedFields": fields,
                "labels": {names::IMAGE_PULL_SECRET_LABEL: label}}});
            let secret: Secret = serde_json::from_value(secret).expect("a Secret");
            assert_eq!(is_ours(&secret), expected, "{label} {fields}");
            assert_eq!(is_labelled(&secret), label == "true");
        }
    }

    #[test]
    fn exactly_the_recorded_reference_is_taken_out() {
        let test = json!({"op": "test", "path": "/metadata/resourceVersion", "value": "7"});
        let record = json!({"op": "remove", "path": "/metadata/annotations/globalps.io~1attached"});
        for (references, attached, expected) in [
            (&["x", "own"][..], None, None),
            (
                &["x", "own"],
                Some("own"),
                Some(json!([test, {"op": "remove", "path": "/imagePullSecrets/1"}, record])),
            ),
            (&["x"], Some("own"), Some(json!([test, record]))),
        ] {
            let found = detach(&account(references, attached));
            if let Some(operations) = &found {
                assert!(json_patch(operations.clone()).is_ok());
            }
            assert_eq!(
                found.map(Value::Array),
                expected,
                "{references:?} {attached:?}"
            );
        }
    }
}
