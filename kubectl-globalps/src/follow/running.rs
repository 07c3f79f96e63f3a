//! Whether the program runs that a wait depends on.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::timeout;

use crate::cluster::{Cluster, Program, deployment, not_running};
use crate::error::{Failure, Result};

const HINT: &str =
    "see `kubectl -n globalps-system get deployments,pods`; the rollout continues when it runs";
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(10);
/// Nothing is shown meanwhile.
const LOOK: Duration = Duration::from_secs(2);

/// Looks at its Deployment now and then.
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

    /// `Err`: it does not run. `is_stale`: it has not reported on what is in the cluster now, so it doesn't run elsewhere.
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
            // Another look comes soon, and the watches report what stays.
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
