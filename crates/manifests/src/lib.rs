//! Typed builders of every installed object, the only source of the YAML in `manifests/`.

mod affinity;
mod agent;
mod agent_bounds;
mod allowed;
mod bounds;
mod daemon_set;
mod hub;
mod hub_member;
mod install;
mod leader;
mod namespaced;
mod network;
mod openshift;
mod operators;
mod own_node;
mod placement;
mod policy;
mod program;
mod quota;
mod rbac;
mod roles;
mod schema;
mod shape;
mod syncer;

use std::collections::BTreeMap;

pub use agent::Agent;
pub use allowed::Allowed;
pub use daemon_set::provider_paths_of;
pub use hub::HubInstall;
pub use hub_member::{HUB_TOKEN_SECRET, hub_member, hub_registration};
pub use install::{Manifests, sources_access};
pub use namespaced::NamespaceAccess;
pub use openshift::openshift;
pub use operators::OperatorAccess;
pub use roles::{OPERATOR, VIEWER};
pub use syncer::{AgentObjects, SyncerObjects, syncer_objects};

use k8s_openapi::Metadata;
use k8s_openapi::api::core::v1::LocalObjectReference;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde_json::Value;

/// Objects as a stream of YAML documents for `kubectl apply -f -`.
pub fn to_yaml(objects: &[Value]) -> String {
    objects
        .iter()
        .flat_map(|object| ["---\n".to_owned(), yaml(object)])
        .collect()
}

fn yaml(object: &Value) -> String {
    let document = serde_saphyr::to_string(object).expect("JSON is always YAML");
    format!("{}\n", document.trim_end())
}

fn value<T: Serialize>(object: T) -> Value {
    serde_json::to_value(object).expect("Kubernetes objects are always JSON")
}

/// Metadata of a managed object. Empty `namespace`: the object is cluster-scoped.
fn meta(name: &str, namespace: &str) -> ObjectMeta {
    let labels = [
        ("app.kubernetes.io/name", "globalps"),
        ("app.kubernetes.io/managed-by", "globalps"),
    ];
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
        labels: Some(
            labels
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
        ),
        ..ObjectMeta::default()
    }
}

fn named<T: Metadata<Ty = ObjectMeta> + Default>(name: &str, namespace: &str) -> T {
    let mut object = T::default();
    *object.metadata_mut() = meta(name, namespace);
    object
}

fn strings<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).into()
}

fn quantities<const N: usize>(amounts: [(&str, &str); N]) -> BTreeMap<String, Quantity> {
    amounts
        .map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned())))
        .into()
}

/// The pull secret reference in a pod spec.
fn pull_secrets(name: Option<&str>) -> Option<Vec<LocalObjectReference>> {
    let reference = |name: &str| LocalObjectReference {
        name: name.to_owned(),
    };
    name.map(|name| vec![reference(name)])
}
