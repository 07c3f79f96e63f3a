//! Messages between the hub and a member's session.

use std::sync::Arc;

use globalps_core::api::{ClusterPullSecretStatus, Target};
use globalps_core::rollout::Revision;
use tokio::sync::{Semaphore, mpsc};

use crate::clusters::fleets::KnownFleets;
use crate::clusters::input::ClusterKey;
use crate::clusters::member::Desired;
use crate::content::source::Data;
use crate::leader::fencing::Fence;

/// Desired state of a member, with everything that its session needs.
#[derive(Clone, PartialEq)]
pub(super) struct MemberSpec {
    /// `None`: there is no Secret, or it has no kubeconfig.
    pub(super) kubeconfig: Option<Arc<Data>>,
    /// uid and generation of the `ClusterPullSecret` that this spec comes from.
    pub(super) uid: String,
    pub(super) generation: i64,
    pub(super) desired: Desired,
    pub(super) target: Target,
    /// `NAMESPACE/NAME` of the `FleetPullSecret`.
    pub(super) fleet: String,
    /// All of them.
    pub(super) known: Arc<KnownFleets>,
    pub(super) require_nodes: bool,
    /// uid of the cluster's `kube-system`, as reported. `None`: not known yet.
    pub(super) identity: Option<String>,
    /// The session writes into the cluster with this identity, which is neither a duplicate nor the management cluster.
    pub(super) may_write: bool,
    /// Last known revision in force.
    pub(super) revision: Revision,
    pub(super) outcome: Outcome,
}

/// What the status says of this generation, also to a hub that starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Nothing yet, or something else.
    Open,
    Synced,
    /// What the hub has installed does not run.
    NotInstalled,
}

impl MemberSpec {
    /// The status says that the desired revision is in force.
    pub(super) fn is_in_force(&self) -> bool {
        self.outcome == Outcome::Synced
            && matches!(&self.desired, Desired::Revision(release) if release.revision == self.revision)
    }

    /// Whether the session may write into the cluster with this identity.
    pub(super) fn accepts(&self, identity: Option<&String>) -> bool {
        self.may_write && self.identity.is_some() && self.identity.as_ref() == identity
    }

    /// Whether the same connection and watch serve both.
    pub(super) fn has_same_place(&self, other: &Self) -> bool {
        (&self.kubeconfig, &self.target, self.require_nodes)
            == (&other.kubeconfig, &other.target, other.require_nodes)
    }
}

/// A status from a member's session.
pub(super) struct Observation {
    /// `NAMESPACE/NAME` of the `FleetPullSecret`.
    pub(super) fleet: String,
    pub(super) cluster: ClusterKey,
    pub(super) status: ClusterPullSecretStatus,
}

/// Shared by all sessions.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) fence: Fence,
    /// Field manager of this hub.
    pub(super) manager: Arc<str>,
    pub(super) observations: mpsc::UnboundedSender<Observation>,
    /// Limits the number of sessions that connect at the same time.
    pub(super) connecting: Arc<Semaphore>,
}
