//! The limits of a `FleetPullSecret`'s rollout.

use globalps_core::api::{Canary, FleetRollout, Rollout};
use globalps_core::reasons::{Reason, ReasonAndMessage};

/// Clusters of a namespace that each process of the hub connects to, once for each fleet. A connection needs 0.1 MB.
pub const MOST_CONNECTIONS: usize = 2000;

/// What it says of such a cluster.
pub fn too_many(namespace: &str) -> ReasonAndMessage {
    let message = format!(
        "namespace `{namespace}` has more clusters than the hub connects to, which are {MOST_CONNECTIONS} for each of its processes, once for each FleetPullSecret; the oldest ones have the connections: remove some, or raise `--shards` of `kubectl globalps fleet install`"
    );
    (Reason::TooManyClusters, message)
}

/// The limits in the form that `core`'s `rollout` takes.
pub fn limits(rollout: &FleetRollout) -> Rollout {
    Rollout {
        max_unavailable: rollout.max_unavailable.clone(),
        max_failures: rollout.max_failures.clone(),
        paused: rollout.paused,
        on_failure: rollout.on_failure,
        canary: Canary {
            nodes: rollout.canary.clusters,
            ..Canary::default()
        },
        ..Rollout::default()
    }
}
