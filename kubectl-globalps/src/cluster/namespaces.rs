//! The cluster's namespaces, and the pull secrets delivered to them. Reads no content of Secrets.

mod affected;
mod content;

use std::collections::BTreeMap;

use globalps_core::names;
use globalps_core::namespaces::applied;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{ListParams, PartialObjectMeta};
use kube::core::Request;
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use crate::cluster::client::Cluster;
use crate::cluster::facts::{metadata_pages, pages};
use crate::error::Result;

pub(crate) use affected::{Affected, Who, affected};
pub(crate) use content::{PartsInForce, SecretSeen};

/// The relevant fields of a Namespace.
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

pub(crate) async fn namespaces(cluster: &Cluster<'_>) -> Result<BTreeMap<String, NamespaceSeen>> {
    let api: Api<Namespace> = Api::all(cluster.client.clone());
    let doing = "list the Namespaces";
    let found = all_metadata(cluster, &api, ListParams::default(), doing).await?;
    let found = found.iter();
    Ok(found
        .map(|namespace| (namespace.name_any(), NamespaceSeen::of(namespace)))
        .collect())
}

/// The Secrets of this name, by namespace.
pub(crate) async fn secrets(
    cluster: &Cluster<'_>,
    name: &str,
) -> Result<BTreeMap<String, SecretSeen>> {
    let api: Api<Secret> = Api::all(cluster.client.clone());
    let params = ListParams::default().fields(&format!("metadata.name={name}"));
    let doing = format!("list the Secrets `{name}` of every namespace");
    let found = all_metadata(cluster, &api, params, &doing).await?;
    let found = found.iter();
    Ok(found
        .map(|secret| {
            (
                secret.namespace().unwrap_or_default(),
                SecretSeen::of(secret),
            )
        })
        .collect())
}

/// The metadata of all objects of a list, read page by page.
pub(crate) async fn all_metadata<K>(
    cluster: &Cluster<'_>,
    api: &Api<K>,
    params: ListParams,
    doing: &str,
) -> Result<Vec<PartialObjectMeta<K>>>
where
    K: Resource,
{
    let list = Request::new(api.resource_url());
    metadata_pages(cluster, doing, &list, params).await
}

/// Passes each object of a list to `keep`, page by page.
pub(crate) async fn each<K>(
    cluster: &Cluster<'_>,
    api: &Api<K>,
    params: ListParams,
    doing: &str,
    keep: impl FnMut(K),
) -> Result<()>
where
    K: Resource + DeserializeOwned,
{
    let list = Request::new(api.resource_url());
    pages(cluster, doing, &list, params, keep).await.map(drop)
}

/// Whether the controller owns the Secret. A copy has only the label, and the controller leaves it alone.
pub(crate) fn is_ours(secret: &impl ResourceExt) -> bool {
    let label = secret.labels().get(names::IMAGE_PULL_SECRET_LABEL);
    label.is_some_and(|label| label == "true") && applied(secret).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
        }
    }
}
