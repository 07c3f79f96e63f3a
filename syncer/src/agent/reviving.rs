//! Starts a kubelet that a rollback left down, until it serves again.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::revival::Revival;
use super::{Agent, BUS_RETRY, IDLE};
use crate::node::kubelet::Kubelet as _;
use crate::node::state::FailedTask;

/// Interval between checks whether the kubelet was started by something else.
const CHECK: Duration = Duration::from_secs(5);

impl Agent {
    /// The failure that left the kubelet down, unless a change in progress restarts it.
    pub(super) fn down(&self) -> Option<FailedTask> {
        let state = self
            .node
            .state
            .as_ref()
            .filter(|state| state.change.is_none())?;
        state.failed.clone().filter(|failure| failure.stuck)
    }

    /// Starts the kubelet if it is down and its pause is over. Returns the time until the next check.
    pub(super) async fn revive(&mut self) -> Duration {
        let Some(failure) = self.down() else {
            self.revival = Revival::default();
            return IDLE;
        };
        // The status refers to the failed task, whatever the object assigns now.
        self.assigned.about = Some((failure.task.uid.clone(), failure.task.generation));
        self.report_failure(&failure);
        let found = if self.kubelet.unit.is_found {
            self.has_moved().await.map(drop)
        } else {
            self.find_unit(true).await
        };
        if let Err(error) = found {
            tracing::warn!(%error, "the kubelet is down, but its unit is unknown");
            return BUS_RETRY;
        }
        if !self.options.restart || self.kubelet.no_restart.is_some() {
            return CHECK;
        }
        if matches!(self.kubelet.unit.serves().await, Ok(true)) {
            self.revived();
            return Duration::ZERO;
        }
        if self.revival.begin_attempt() {
            self.start_kubelet().await;
        }
        CHECK
    }

    async fn start_kubelet(&mut self) {
        if let Some(state) = &mut self.node.state {
            state.unit = self.kubelet.unit.unit();
            state.restarts = state.restarts.saturating_add(1);
            state.restarted_at = Some(Time(jiff::Timestamp::now()));
        }
        self.remember();
        match self.kubelet.unit.restart(true).await {
            Ok(()) => self.revived(),
            Err(error) => tracing::warn!(%error, "the kubelet is still down"),
        }
    }

    fn revived(&mut self) {
        tracing::info!("the kubelet serves again");
        self.revival = Revival::default();
        let failure = self
            .node
            .state
            .as_mut()
            .and_then(|state| state.failed.as_mut());
        if let Some(failure) = failure {
            failure.stuck = false;
            failure.recovered = true;
            let failure = failure.clone();
            self.report_failure(&failure);
        }
        self.remember();
    }

    /// Saves the state. An error prevents nothing: a full disk may be why the kubelet is down.
    pub(super) fn remember(&self) {
        if let Some(state) = &self.node.state
            && let Err(error) = self.node.journal.save(state)
        {
            tracing::warn!(%error, "could not save the journal");
        }
    }
}
