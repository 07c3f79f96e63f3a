//! Restarts the kubelet within a change.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::time::sleep;

use super::transaction::Transaction;
use crate::node::kubelet::Kubelet;
use crate::node::state::{ChangeStep, JournalState, NodeError};

/// Pauses between attempts.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];

impl<K: Kubelet> Transaction<'_, K> {
    /// Restarts the kubelet, in at most three attempts. Its previous `InvocationID` is in the journal first, so that the next
    /// syncer can tell whether the restart happened. The inner error says why the kubelet did not start.
    pub(super) async fn restart(
        &mut self,
        state: &mut JournalState,
    ) -> Result<Result<(), String>, NodeError> {
        let mut pauses = PAUSES.into_iter();
        let mut attempt = 1;
        loop {
            let from = match self.kubelet.invocation().await {
                Err(error) => {
                    error.verdict()?;
                    None
                }
                Ok(from) => Some(from),
            };
            state.unit = self.kubelet.unit();
            state.restarts = state.restarts.saturating_add(1);
            state.restarted_at = Some(Time(Timestamp::now()));
            let mut reset_failed = attempt > 1;
            let mut is_recorded = false;
            if let Some(change) = &mut state.change {
                reset_failed |= change.step == ChangeStep::Back;
                let started_from = match change.step {
                    ChangeStep::Back => &mut change.back_from,
                    _ => &mut change.started_from,
                };
                is_recorded = started_from.is_some();
                *started_from = started_from.take().or(from);
            }
            if let Err(error) = self.journal.save(state) {
                // A kubelet that is down frees no disk space.
                if !is_recorded {
                    return Err(error);
                }
                tracing::warn!(%error, "can't record another attempt to start the kubelet");
            }
            let error = match self.kubelet.restart(reset_failed).await {
                Ok(()) => return Ok(Ok(())),
                Err(error) => error.verdict()?,
            };
            tracing::warn!(attempt, error, "the kubelet did not start");
            let Some(pause) = pauses.next() else {
                return Ok(Err(format!("{error} (attempt {attempt} of {attempt})")));
            };
            sleep(pause).await;
            attempt += 1;
        }
    }
}
