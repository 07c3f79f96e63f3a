//! Fetches the content of the assigned revision from the API server.

use std::time::Duration;

use globalps_core::api::Phase;
use globalps_core::reasons::Reason;

use super::reporting::is_answered;
use super::{Agent, IDLE};
use crate::cluster::FetchError;
use crate::node::kubelet::Kubelet as _;
use crate::node::state::{JournalState, Task};

/// Interval between attempts to fetch a revision that has no content in the cluster.
const RECHECK: Duration = Duration::from_secs(5);

impl Agent {
    pub(super) async fn fetch(&mut self, task: Option<&Task>) -> Duration {
        let pause = self.fetch_once(task).await;
        if self
            .node
            .state
            .as_ref()
            .is_some_and(JournalState::awaits_restart)
        {
            // A pending restart does not wait for the API server.
            return pause.min(self.kubelet.unit.cooldown());
        }
        pause
    }

    async fn fetch_once(&mut self, task: Option<&Task>) -> Duration {
        let Some(task) = task else { return IDLE };
        match self.cluster.fetch(task.revision).await {
            Ok(content) => {
                self.backoff.reset();
                self.assigned.desired = Some((task.revision, content));
                Duration::ZERO
            }
            Err(error @ FetchError::Superseded { .. }) => {
                if self.assigned.superseded.replace(task.revision) != Some(task.revision) {
                    tracing::info!(%error, "content not found in the cluster; looking in the journal");
                    return Duration::ZERO;
                }
                let message =
                    "the assigned revision is superseded; the controller assigns the newer one";
                self.report(Phase::Syncing, Reason::Superseded, message);
                RECHECK
            }
            Err(error) => {
                let pause = self.backoff.pause();
                tracing::warn!(%error, "could not fetch the content; retrying in {} ms", pause.as_millis());
                // A node whose revision is already in force stays Synced, if it has answered this assignment.
                let is_in_force =
                    self.node.state.as_ref().map(|state| state.revision) == Some(task.revision);
                let is_answered = self
                    .assigned
                    .objects
                    .borrow()
                    .object()
                    .is_none_or(is_answered);
                if !is_in_force || !is_answered {
                    self.report(Phase::Syncing, Reason::SecretNotRead, &error.to_string());
                }
                pause
            }
        }
    }
}
