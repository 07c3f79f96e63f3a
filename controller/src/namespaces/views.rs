//! Namespaces, Secrets and service accounts, as far as the plan depends on them: there are thousands.

use globalps_core::names::{ATTACHED_ANNOTATION, CONTENT_ANNOTATION, CONTROLLER_MANAGER, DATA_KEY};
use globalps_core::namespaces::is_marked_excluded;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Secret, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::PartialObjectMeta;
use kube::{Resource, ResourceExt as _};

use crate::nodes::labels::Labels;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamespaceView {
    pub(crate) name: String,
    pub(crate) version: u64,
    pub(crate) labels: Labels,
    /// It says itself that it gets nothing.
    pub(crate) is_marked_excluded: bool,
    pub(crate) is_terminating: bool,
}

impl From<PartialObjectMeta<Namespace>> for NamespaceView {
    fn from(object: PartialObjectMeta<Namespace>) -> Self {
        Self {
            name: object.name_any(),
            version: version(&object),
            is_marked_excluded: is_marked_excluded(object.labels(), object.annotations()),
            is_terminating: object.metadata.deletion_timestamp.is_some(),
            labels: object.labels().into(),
        }
    }
}

/// A Secret of the name that the pull secrets have in namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PullSecretView {
    pub(crate) namespace: String,
    pub(crate) version: u64,
    /// The controller created it.
    pub(crate) is_managed: bool,
    /// Nobody has changed what the controller wrote: the API server records who wrote which field.
    pub(crate) is_intact: bool,
    /// Its annotation `globalps.io/content`.
    pub(crate) content: Box<str>,
    /// When the controller wrote it last.
    pub(crate) written: Timestamp,
    pub(crate) is_being_deleted: bool,
}

impl From<PartialObjectMeta<Secret>> for PullSecretView {
    fn from(object: PartialObjectMeta<Secret>) -> Self {
        let entries = object.managed_fields();
        let own = entries.iter().find(|entry| {
            entry.manager.as_deref() == Some(CONTROLLER_MANAGER)
                && entry.operation.as_deref() == Some("Apply")
        });
        let content = object.annotations().get(CONTENT_ANNOTATION);
        Self {
            namespace: object.namespace().unwrap_or_default(),
            version: version(&object),
            is_managed: own.is_some(),
            is_intact: own.is_some_and(owns_content),
            content: content.cloned().unwrap_or_default().into_boxed_str(),
            written: own
                .and_then(|own| own.time.as_ref())
                .map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            is_being_deleted: object.metadata.deletion_timestamp.is_some(),
        }
    }
}

/// Another client that changes a field becomes its owner.
fn owns_content(entry: &ManagedFieldsEntry) -> bool {
    let Some(fields) = &entry.fields_v1 else {
        return false;
    };
    let has = |parents: &[&str], field: String| {
        let parent = parents.iter().try_fold(&fields.0, |at, key| at.get(*key));
        parent.and_then(|at| at.get(field)).is_some()
    };
    has(&["f:data"], format!("f:{DATA_KEY}"))
        && has(
            &["f:metadata", "f:annotations"],
            format!("f:{CONTENT_ANNOTATION}"),
        )
}

/// A service account, and its reference to the Secret of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AccountView {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) resource_version: Box<str>,
    /// Its annotation `globalps.io/attached`: the controller added a reference to this Secret.
    pub(crate) attached: Option<Box<str>>,
    /// Place of the reference to the Secret that namespaces get.
    pub(crate) wanted_at: Option<usize>,
    /// Place of the reference that the annotation names.
    pub(crate) attached_at: Option<usize>,
    pub(crate) has_references: bool,
    pub(crate) has_annotations: bool,
    pub(crate) is_being_deleted: bool,
}

impl AccountView {
    /// `secret_name`: of the Secret that namespaces get.
    pub(crate) fn new(account: &ServiceAccount, secret_name: &str) -> Self {
        let references = account.image_pull_secrets.as_deref().unwrap_or_default();
        let at = |name: &str| {
            references
                .iter()
                .position(|reference| reference.name == name)
        };
        let attached = account.annotations().get(ATTACHED_ANNOTATION);
        Self {
            namespace: account.namespace().unwrap_or_default(),
            name: account.name_any(),
            resource_version: account.resource_version().unwrap_or_default().into(),
            attached: attached.map(|name| name.as_str().into()),
            wanted_at: at(secret_name),
            attached_at: attached.and_then(|name| at(name)),
            has_references: !references.is_empty(),
            has_annotations: !account.annotations().is_empty(),
            is_being_deleted: account.metadata.deletion_timestamp.is_some(),
        }
    }

    /// Name of a service account in the cache.
    pub(crate) fn key_of(namespace: &str, name: &str) -> String {
        format!("{namespace}/{name}")
    }
}

fn version(object: &impl Resource) -> u64 {
    let version = object.meta().resource_version.as_deref();
    version
        .and_then(|version| version.parse().ok())
        .unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_secret_is_managed_and_intact_as_the_api_server_records_it() {
        let own = json!({"manager": "globalps-controller", "operation": "Apply", "time": "2026-01-01T00:00:00Z",
            "fieldsV1": {"f:data": {"f:.dockerconfigjson": {}},
                "f:metadata": {"f:annotations": {"f:globalps.io/content": {}}}}});
        let overwritten = json!({"manager": "globalps-controller", "operation": "Apply",
            "fieldsV1": {"f:metadata": {"f:annotations": {"f:globalps.io/content": {}}}}});
        let edit = json!({"manager": "kubectl-edit", "operation": "Update",
            "fieldsV1": {"f:data": {"f:.dockerconfigjson": {}}}});
        let update =
            json!({"manager": "globalps-controller", "operation": "Update", "fieldsV1": {}});
        for (fields, managed, intact) in [
            (json!([own]), true, true),
            (json!([own, edit]), true, true),
            (json!([overwritten, edit]), true, false),
            (json!([edit]), false, false),
            (json!([update]), false, false),
            (json!([]), false, false),
        ] {
            let object: PartialObjectMeta<Secret> = serde_json::from_value(json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {
                    "name": "s", "namespace": "a", "resourceVersion": "7", "managedFields": fields,
                    "annotations": {"globalps.io/content": "5"}}}))
            .unwrap();
            let view = PullSecretView::from(object);
            assert_eq!(
                (view.is_managed, view.is_intact),
                (managed, intact),
                "{fields}"
            );
            assert_eq!((&*view.content, view.version), ("5", 7));
        }
    }
}
