//! Messages between the hub and a member's session.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use globalps_core::api::{ClusterPullSecretStatus, Target};
use globalps_core::reasons::ReasonAndMessage;
use globalps_core::rollout::Revision;
use globalps_planner::clusters::desired::Desired;
use globalps_planner::clusters::identity::Pin;
use globalps_planner::clusters::input::ClusterKey;
use globalps_planner::clusters::known::Known;
use globalps_planner::clusters::target::Names;
use globalps_planner::content::source::Data;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::leader::fencing::Fence;
use crate::remote::bounds::Bounds;

/// A fleet, as `NAMESPACE/NAME`, and a cluster.
pub(super) type Pair = (String, ClusterKey);

/// Desired state of a member, with everything that its session needs.
#[derive(Clone, PartialEq)]
pub(super) struct MemberSpec {
    /// `Err`: there is none that the hub can use.
    pub(super) kubeconfig: Result<Arc<Data>, ReasonAndMessage>,
    /// uid and generation of the `ClusterPullSecret` that this spec comes from.
    pub(super) uid: String,
    pub(super) generation: i64,
    pub(super) desired: Desired,
    pub(super) target: Target,
    /// `NAMESPACE/NAME` of the `FleetPullSecret`.
    pub(super) fleet: String,
    /// `NAMESPACE/NAME` of the cluster.
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
    pub(super) outcome: MemberOutcome,
}

/// The result that the status reports for this generation, also to a hub that starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberOutcome {
    /// None yet, or another one.
    Open,
    Synced,
    /// globalps, which the hub installed, does not run.
    NotInstalled,
}

impl MemberSpec {
    /// The status says that the desired revision is in force.
    pub(super) fn is_in_force(&self) -> bool {
        self.outcome == MemberOutcome::Synced
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

/// The newest status from each session that the hub has not looked at: a member may change its own a thousand times per second.
#[derive(Default)]
pub(super) struct Observations {
    newest: Mutex<BTreeMap<Pair, ClusterPullSecretStatus>>,
    changed: Notify,
}

impl Observations {
    pub(super) fn send(&self, pair: Pair, status: ClusterPullSecretStatus) {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        newest.insert(pair, status);
        self.changed.notify_one();
    }

    /// Waits until a session has sent one.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(super) fn take(&self) -> BTreeMap<Pair, ClusterPullSecretStatus> {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut newest)
    }
}

/// Shared by all sessions.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) fence: Fence,
    /// Field manager of this hub.
    pub(super) manager: Arc<str>,
    pub(super) observations: Arc<Observations>,
    pub(super) connecting: Connecting,
    pub(super) bounds: Bounds,
}

/// Limits the number of sessions that connect at the same time: of a namespace, whose clusters may all be silent, and of all.
#[derive(Clone)]
pub(super) struct Connecting {
    pub(super) of_namespace: Arc<Semaphore>,
    pub(super) of_all: Arc<Semaphore>,
}

impl Connecting {
    /// Waits for its turn.
    pub(super) async fn permits(
        &self,
    ) -> (Option<OwnedSemaphorePermit>, Option<OwnedSemaphorePermit>) {
        // The semaphores are never closed.
        let of_namespace = Arc::clone(&self.of_namespace).acquire_owned().await.ok();
        (
            of_namespace,
            Arc::clone(&self.of_all).acquire_owned().await.ok(),
        )
    }
}
