//! What the hub and a member's task say to each other.

use std::sync::Arc;

use globalps_core::api::{ClusterPullSecretStatus, Target};
use tokio::sync::{Semaphore, mpsc};

use crate::clusters::input::ClusterKey;
use crate::clusters::member::Wanted;
use crate::content::source::Data;
use crate::leader::fencing::Fence;

/// What the hub wants of a member.
#[derive(Clone, PartialEq)]
pub(super) struct Order {
    /// The kubeconfig; `None`: the Secret has none.
    pub(super) kubeconfig: Option<Arc<Data>>,
    /// Generation of the object that this is about.
    pub(super) generation: i64,
    pub(super) wanted: Wanted,
    pub(super) target: Target,
    /// `NAMESPACE/NAME` of the `FleetPullSecret`.
    pub(super) fleet: String,
    pub(super) require_nodes: bool,
    /// uid of the one `kube-system` that may be written to: it is known to be none of another name, nor the hub's. `None`: nothing
    /// may be written.
    pub(super) identity: Option<String>,
    /// What was in force there last.
    pub(super) revision: i64,
    /// The status is about this generation.
    pub(super) is_settled: bool,
}

impl Order {
    /// The status says that what is wanted is in force.
    pub(super) fn is_in_force(&self) -> bool {
        self.is_settled
            && matches!(&self.wanted, Wanted::Revision(release) if release.number == self.revision)
    }

    pub(super) fn has_same_place(&self, other: &Self) -> bool {
        (&self.kubeconfig, &self.target, self.require_nodes)
            == (&other.kubeconfig, &other.target, other.require_nodes)
    }
}

/// What a member's task has seen.
pub(super) struct Observation {
    /// `NAMESPACE/NAME` of the `FleetPullSecret`.
    pub(super) fleet: String,
    pub(super) cluster: ClusterKey,
    pub(super) status: ClusterPullSecretStatus,
}

/// Shared by all members.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) fence: Fence,
    /// Field manager of this hub.
    pub(super) manager: Arc<str>,
    pub(super) observations: mpsc::UnboundedSender<Observation>,
    /// Connections that are being made.
    pub(super) connecting: Arc<Semaphore>,
}
