//! Service accounts, reduced to their references: there are thousands.

use globalps_core::reasons::{Reason, ReasonAndMessage};
use globalps_core::references::References;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::ResourceExt as _;
use kube::core::ObjectMeta;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Maximum size of the names of the pull secrets that a service account refers to, in bytes. Kubernetes has no limit, and all
/// accounts are in memory.
const REFERENCES: usize = 4096;
/// What a name takes beside its bytes.
const NAME: usize = 16;
/// Maximum size of its `secrets` as JSON. The API server needs seconds for each change of a large list.
const SECRETS: usize = 64 << 10;

/// The fields of a service account that matter. Everything else is dropped while it is decoded.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccountFields {
    metadata: ObjectMeta,
    image_pull_secrets: Option<Vec<ReferenceFields>>,
    /// Not decoded: only its size matters.
    secrets: Option<Box<RawValue>>,
}

#[derive(Clone, Debug, Deserialize)]
struct ReferenceFields {
    #[serde(default)]
    name: String,
}

globalps_core::view!(AccountFields: ServiceAccount);

/// A service account, and its references to pull secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountView {
    /// Where it is.
    pub namespace: String,
    /// Unique in the namespace.
    pub name: String,
    /// Without names if [`Self::has_too_many`].
    pub references: References,
    /// Its references are too many to keep or to change.
    pub has_too_many: bool,
    /// Its references need no change.
    pub is_being_deleted: bool,
}

impl AccountView {
    /// `annotation`: the key of the record of references that the controller added.
    pub fn new(account: &AccountFields, annotation: &str) -> Self {
        let names = account.image_pull_secrets.iter().flatten();
        let names = names.map(|reference| reference.name.as_str());
        let size: usize = names.clone().map(|name| NAME + name.len()).sum();
        let secrets = account.secrets.as_ref().map_or(0, |all| all.get().len());
        let has_too_many = size > REFERENCES || secrets > SECRETS;
        Self {
            namespace: account.namespace().unwrap_or_default(),
            name: account.name_any(),
            references: References::of(account, names.filter(|_| !has_too_many), annotation),
            has_too_many,
            is_being_deleted: account.metadata.deletion_timestamp.is_some(),
        }
    }

    /// Key of a service account in the cache.
    pub fn key_of(namespace: &str, name: &str) -> String {
        format!("{namespace}/{name}")
    }

    /// Its key in the cache.
    pub fn key(&self) -> String {
        Self::key_of(&self.namespace, &self.name)
    }

    /// Reason and message for a service account that [`Self::has_too_many`] references.
    pub(super) fn too_many(key: &str) -> ReasonAndMessage {
        let message = format!(
            "ServiceAccount `{key}` has more than {} KiB of `imagePullSecrets` or {} KiB of `secrets`, so globalps does not change it: remove some",
            REFERENCES >> 10,
            SECRETS >> 10
        );
        (Reason::TooManyReferences, message)
    }

    /// The controller has added a reference to it, and can remove it.
    pub fn is_attached(&self) -> bool {
        !self.references.recorded.is_empty() && !self.has_too_many
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn view(names: &Value, secrets: usize) -> AccountView {
        let account = json!({
            "metadata": {"name": "default", "namespace": "a", "annotations": {"k": "s"}},
            "imagePullSecrets": names, "secrets": vec![json!({}); secrets],
        });
        let account = serde_json::from_str(&account.to_string()).expect("a ServiceAccount");
        AccountView::new(&account, "k")
    }

    #[test]
    fn of_references_without_end_nothing_is_kept() {
        let many = |count| {
            json!(
                (0..count)
                    .map(|at| json!({"name": format!("x{at:05}")}))
                    .collect::<Vec<_>>()
            )
        };
        for (names, secrets, kept, has_too_many) in [
            (json!(null), 0, 0, false),
            (json!([{}, {"name": "s"}]), 20_000, 2, false),
            (json!([{}, {"name": "s"}]), 80_000, 0, true),
            (many(186), 0, 186, false),
            (many(40_000), 0, 0, true),
            (json!([{"name": "x".repeat(1_300_000)}]), 0, 0, true),
        ] {
            let view = view(&names, secrets);
            assert_eq!(
                (view.references.names.len(), view.has_too_many),
                (kept, has_too_many)
            );
            assert_eq!(view.is_attached(), !has_too_many);
        }
    }
}
