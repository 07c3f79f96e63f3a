//! Shared by all deliveries into namespaces: namespaces, service accounts, proofs in Secrets, what to write next, and the memory of
//! writes. Pure.

pub mod account;
pub mod memory;
pub mod namespace;
pub mod plan;
pub mod proof;
pub mod summary;
pub mod write;

use jiff::{SignedDuration, Timestamp};
use kube::Resource;
use kube::core::ObjectMeta;

/// Maximum number of service accounts that are kept of one namespace, and of subscriptions and the like: there is no limit to how
/// many its users create.
pub const PER_NAMESPACE: usize = 1000;
/// Maximum number of writes in one plan, besides removals from namespaces: more would take longer than a reconcile may.
pub const WRITES: usize = 2048;
/// What can't be written or removed for this long is a problem of its namespace only: nothing else waits for it.
pub const STUCK_AFTER: SignedDuration = SignedDuration::from_secs(30);

/// Namespace and name of an object.
pub type Id = (String, String);

/// `metadata.resourceVersion` as a number; 0: none.
pub fn version(object: &impl Resource) -> u64 {
    version_of(object.meta())
}

/// The same for metadata alone.
pub fn version_of(metadata: &ObjectMeta) -> u64 {
    let version = metadata.resource_version.as_deref();
    let version = version.and_then(|version| version.parse().ok());
    version.unwrap_or_default()
}

/// When the API server created the object.
pub fn created(object: &impl Resource) -> Option<Timestamp> {
    let created = object.meta().creation_timestamp.as_ref();
    created.map(|created| created.0)
}
