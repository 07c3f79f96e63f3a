//! Namespaces, reduced to what the plan needs: there are thousands.

use std::collections::BTreeMap;

use globalps_core::namespaces::is_marked_excluded;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use kube::core::PartialObjectMeta;

use super::version;
use crate::nodes::labels::Labels;

/// A Namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceView {
    /// Unique in the cluster.
    pub name: String,
    /// Its `resourceVersion`.
    pub version: u64,
    /// For the selectors.
    pub labels: Labels,
    /// The namespace excludes itself.
    pub is_marked_excluded: bool,
    /// The API server rejects new objects there.
    pub is_terminating: bool,
}

/// Whether the namespace is terminating, which removes everything in it, or does not exist.
pub(crate) fn is_going(namespaces: &BTreeMap<String, NamespaceView>, name: &str) -> bool {
    let namespace = namespaces.get(name);
    namespace.is_none_or(|namespace| namespace.is_terminating)
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
