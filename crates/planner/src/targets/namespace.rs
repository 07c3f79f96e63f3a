//! Namespaces, reduced to what the plan needs: there are thousands.

use globalps_core::namespaces::is_marked_excluded;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use kube::core::PartialObjectMeta;

use super::version;
use crate::nodes::labels::Labels;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceView {
    pub name: String,
    pub version: u64,
    pub labels: Labels,
    /// The namespace excludes itself.
    pub is_marked_excluded: bool,
    pub is_terminating: bool,
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
