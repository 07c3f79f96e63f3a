//! The limits of a `FleetPullSecret`'s rollout.

use globalps_core::api::{Canary, FleetRollout, Rollout};
use globalps_core::rollout;

/// The limits in the form that `core`'s `rollout` takes.
pub(crate) fn limits(rollout: &FleetRollout) -> Rollout {
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

/// Whether this many failures halt the rollout.
pub(crate) fn is_halted(rollout: &FleetRollout, failed: usize, members: usize) -> bool {
    rollout::is_halted(failed, &limits(rollout), members)
}
