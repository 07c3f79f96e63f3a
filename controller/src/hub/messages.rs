//! Messages between the hub and a member's session.

use std::sync::Arc;

use globalps_core::api::{ClusterPullSecretStatus, Target};
use globalps_core::rollout::Revision;
use tokio::sync::{Semaphore, mpsc};

use crate::clusters::desired::Desired;
use crate::clusters::identity::Pin;
use crate::clusters::input::ClusterKey;
use crate::clusters::known::Known;
use crate::clusters::target::Names;
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
    /// The same of the cluster.
    pub(super) cluster: String,
    /// All of both.
    pub(super) known: Arc<Known>,
    pub(super) require_nodes: bool,
    pub(super) pin: Pin,
    /// The session writes into the cluster with the pinned identity, which is not the management cluster.
    pub(super) may_write: bool,
    /// A Secret with the name of the `Cluster` has no effect.
    pub(super) ignores_secret: bool,
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

    /// Whether the session may write into the cluster with this identity, which the status has already.
    pub(super) fn accepts(&self, identity: Option<&String>) -> bool {
        self.may_write && self.pin.identity.is_some() && self.pin.identity.as_ref() == identity
    }

    pub(super) fn names(&self) -> Names<'_> {
        Names {
            fleet: &self.fleet,
            cluster: &self.cluster,
        }
    }

    /// Whether the same connection and watch serve both.
    pub(super) fn has_same_place(&self, other: &Self) -> bool {
        let place = |it: &Self| (it.require_nodes, it.pin.accepted.clone());
        (&self.kubeconfig, &self.target) == (&other.kubeconfig, &other.target)
            && place(self) == place(other)
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
