//! Shared by all deliveries into namespaces: namespaces, service accounts, and the memory of writes. Pure.

pub(crate) mod account;
pub(crate) mod memory;
pub(crate) mod namespace;

use kube::Resource;
use kube::api::ObjectMeta;

/// `metadata.resourceVersion` as a number; 0: none.
pub(crate) fn version(object: &impl Resource) -> u64 {
    version_of(object.meta())
}

/// The same for metadata alone.
pub(crate) fn version_of(metadata: &ObjectMeta) -> u64 {
    let version = metadata.resource_version.as_deref();
    let version = version.and_then(|version| version.parse().ok());
    version.unwrap_or_default()
}
