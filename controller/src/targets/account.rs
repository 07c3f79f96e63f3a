//! Service accounts, reduced to their references: there are thousands.

use globalps_core::references::References;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::ResourceExt as _;

/// A service account, and its references to pull secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AccountView {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) references: References,
    pub(crate) is_being_deleted: bool,
}

impl AccountView {
    /// `annotation`: the key of the record of references that the controller added.
    pub(crate) fn new(account: &ServiceAccount, annotation: &str) -> Self {
        Self {
            namespace: account.namespace().unwrap_or_default(),
            name: account.name_any(),
            references: References::of(account, annotation),
            is_being_deleted: account.metadata.deletion_timestamp.is_some(),
        }
    }

    /// Key of a service account in the cache.
    pub(crate) fn key_of(namespace: &str, name: &str) -> String {
        format!("{namespace}/{name}")
    }

    pub(crate) fn key(&self) -> String {
        Self::key_of(&self.namespace, &self.name)
    }

    /// Message for a service account whose reference is not restored for a while.
    pub(crate) fn conflict(key: &str) -> String {
        format!(
            "another client has removed the reference of ServiceAccount `{key}` five times, so globalps stopped restoring it for ten minutes"
        )
    }

    /// The controller has added a reference to it.
    pub(crate) fn is_attached(&self) -> bool {
        !self.references.recorded.is_empty()
    }
}
