//! Checks that the program that a wait depends on is running.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::timeout;

use crate::cluster::{Cluster, Program, deployment, not_running};
use crate::error::{Failure, Result};

const HINT: &str =
    "see `kubectl -n globalps-system get deployments,pods`; the rollout continues when it runs";
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(10);
/// Pause between two checks; nothing is shown meanwhile.
const LOOK: Duration = Duration::from_secs(2);

/// Checks the program's Deployment periodically.
pub(crate) struct Running {
    program: Program,
    looked_at: Option<Timestamp>,
}

impl Running {
    pub(crate) fn of(program: Program) -> Self {
        Self {
            program,
            looked_at: None,
        }
    }

    /// Fails if the program does not run. `is_stale`: its report is older than the cluster's state; otherwise, without
    /// a Deployment, the program runs elsewhere.
    pub(crate) async fn check(
        &mut self,
        cluster: &Cluster<'_>,
        is_stale: bool,
        now: Timestamp,
    ) -> Result<()> {
        let is_due = |at| now.duration_since(at) >= LOOK_AGAIN;
        if !self.looked_at.is_none_or(is_due) {
            return Ok(());
        }
        self.looked_at = Some(now);
        let found = match timeout(LOOK, deployment(cluster, self.program)).await {
            // The next check follows soon, and the watches report a lasting failure.
            Err(_) | Ok(Err(_)) => return Ok(()),
            Ok(Ok(None)) if !is_stale => return Ok(()),
            Ok(Ok(found)) => found,
        };
        match not_running(self.program, found.as_ref(), now) {
            Some(reason) => Err(Failure::no(reason, HINT)),
            None => Ok(()),
        }
    }
}
