//! The content of a granted revision, which comes from the API server.

use std::time::Duration;

use globalps_core::api::Phase;

use super::{Agent, FOR_EVER};
use crate::journal::{Change, State, Task};
use crate::kubelet::Kubelet as _;
use crate::node_status::FetchError;

/// Between two looks at a `global-pull-secret` that is at another revision than the granted one.
const RECHECK: Duration = Duration::from_secs(5);

impl Agent {
    pub(super) async fn fetch(&mut self, task: Option<&Task>) -> Duration {
        let pause = self.fetch_once(task).await;
        let owes = |state: &State| state.change.as_ref().is_some_and(Change::awaits_restart);
        if self.state.as_ref().is_some_and(owes) {
            // The restart that is owed does not wait for the API server.
            return pause.min(self.unit.rests());
        }
        pause
    }

    /// Looks for a revision that a newcomer may take.
    pub(super) async fn join(&mut self) -> Duration {
        match self.cluster.fetch_proven().await {
            Ok(Some((revision, config))) => {
                tracing::info!(revision, "joining: this revision is proven");
                self.backoff.reset();
                self.desired = Some((revision, config));
                self.joins = Some(revision);
                Duration::ZERO
            }
            Ok(None) => self.backoff.next(),
            Err(error) => {
                let pause = self.backoff.next();
                tracing::warn!(%error, "trying again in {} ms", pause.as_millis());
                pause
            }
        }
    }

    async fn fetch_once(&mut self, task: Option<&Task>) -> Duration {
        let Some(task) = task else { return FOR_EVER };
        match self.cluster.fetch(task.revision).await {
            Ok(config) => {
                self.backoff.reset();
                self.desired = Some((task.revision, config));
                Duration::ZERO
            }
            Err(error @ FetchError::OtherRevision { .. }) => {
                let known = self.superseded.replace(task.revision);
                if known == Some(task.revision) {
                    return RECHECK;
                }
                let in_force = self.state.as_ref().map_or(0, |state| state.revision);
                if in_force == task.revision {
                    return Duration::ZERO;
                }
                tracing::info!(%error, "waiting");
                let message = "the granted revision is no longer to be had; the grant of the newer one is on its way";
                self.tell(Phase::Syncing, "Superseded", message);
                RECHECK
            }
            Err(error) => {
                let pause = self.backoff.next();
                tracing::warn!(%error, "trying again in {} ms", pause.as_millis());
                // What is in force as it is needs no telling.
                if self.state.as_ref().map_or(0, |state| state.revision) != task.revision {
                    self.tell(Phase::Syncing, "SecretNotRead", &error.to_string());
                }
                pause
            }
        }
    }
}
