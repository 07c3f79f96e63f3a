//! Secrets in namespaces, reduced to what the plan needs: there are thousands.

use globalps_core::names::{CONTENT_ANNOTATION, DATA_KEY};
use globalps_core::namespaces::applied;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::ResourceExt as _;
use kube::api::PartialObjectMeta;

use crate::targets::version;

/// A Secret with the delivered name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PullSecretView {
    pub(crate) namespace: String,
    pub(crate) version: u64,
    /// The controller created it.
    pub(crate) is_managed: bool,
    /// Nobody has changed what the controller wrote, according to the API server's record of field ownership.
    pub(crate) is_intact: bool,
    /// Its annotation `globalps.io/content`.
    pub(crate) content: Box<str>,
    /// When the controller last wrote it, as the API server or another client says.
    pub(crate) written: Option<Timestamp>,
    pub(crate) is_being_deleted: bool,
    /// Those that keep it meanwhile, for a message.
    pub(crate) finalizers: Box<str>,
}

/// Maximum length of [`PullSecretView::finalizers`] in characters.
const FINALIZERS: usize = 256;
/// Maximum length of [`PullSecretView::content`] in bytes. What is longer was not written by the controller.
const CONTENT: usize = 16 << 10;

impl From<PartialObjectMeta<Secret>> for PullSecretView {
    fn from(object: PartialObjectMeta<Secret>) -> Self {
        let own = applied(&object);
        let content = object.annotations().get(CONTENT_ANNOTATION);
        let content = content.filter(|content| content.len() <= CONTENT);
        Self {
            namespace: object.namespace().unwrap_or_default(),
            version: version(&object),
            is_managed: own.is_some(),
            is_intact: own.is_some_and(owns_content),
            content: content.cloned().unwrap_or_default().into_boxed_str(),
            written: own.and_then(|own| own.time.as_ref()).map(|time| time.0),
            is_being_deleted: object.metadata.deletion_timestamp.is_some(),
            finalizers: finalizers(object.finalizers()),
        }
    }
}

fn finalizers(all: &[String]) -> Box<str> {
    let text: String = all.join(", ").chars().take(FINALIZERS).collect();
    text.into_boxed_str()
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
