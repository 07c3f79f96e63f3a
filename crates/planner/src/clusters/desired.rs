//! What a cluster must have. Pure.

use std::sync::Arc;

use globalps_core::rollout::Revision;

use super::installation::Installation;
use crate::content::source::Data;

/// Desired state of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Desired {
    /// No desired state is known: the hub reads the cluster and writes nothing.
    Nothing,
    /// The cluster is to have this in its target Secret.
    Revision(Release),
    /// The cluster is to have nothing from the hub.
    Removed,
}

/// A revision to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// Number and id, which the member's Secret carries.
    pub revision: Revision,
    /// Shared: there may be a thousand clusters.
    pub content: Arc<Data>,
    /// What to install; `None`: the hub does not install globalps.
    pub install: Option<Arc<Installation>>,
    /// With each new value, the cluster's globalps retries its failed nodes. Empty: no retry requested.
    pub retry: String,
}
