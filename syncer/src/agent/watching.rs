//! Confirms the revision in force, and observes the kubelet for a while after a change.

use std::time::Duration;

use globalps_core::names::forget_up_to;
use kube::ResourceExt;
use tokio::time::Instant;

use super::{Agent, FLAGS_READ, IDLE};
use crate::delivery::transaction::Transaction;
use crate::delivery::writes::Guard;
use crate::node::state::{ChangeStep, JournalState, NodeError, PendingChange};

/// If the kubelet dies within this time after a change, the change is rolled back.
pub(super) const WATCH: Duration = Duration::from_secs(30);
const WATCH_EVERY: Duration = Duration::from_secs(1);

impl Agent {
    /// Reports that the task is in force, and observes the kubelet while the change can still be rolled back.
    pub(super) async fn confirm(&mut self) -> Result<Duration, NodeError> {
        self.last_error = None;
        let is_compared =
            |state: &JournalState| state.provider.is_some() || state.managed.content().is_some();
        let in_force = self
            .node
            .state
            .as_ref()
            .and_then(|state| state.provider.as_ref());
        let others = match in_force {
            Some(_) => self.provider_on_node()?.watched(),
            None => self.options.provider.watched_without(),
        };
        self.files.drift.watch_others(&others);
        if self.assigned.desired.is_some() || self.node.state.as_ref().is_some_and(is_compared) {
            self.files.drift.watch();
        }
        self.answer();
        self.forget_old();
        self.report_in_force();
        let watching = self
            .node
            .state
            .as_ref()
            .and_then(|state| state.change.as_ref());
        if watching.is_none_or(|change| change.step != ChangeStep::Watching) {
            return Ok(if self.has_provider() {
                FLAGS_READ
            } else {
                IDLE
            });
        }
        let until = *self
            .watch_until
            .get_or_insert_with(|| Instant::now() + WATCH);
        if Instant::now() >= until {
            self.settle()?;
            return Ok(Duration::ZERO);
        }
        let Ok(facts) = self.kubelet.unit.systemd.facts().await else {
            return Ok(WATCH_EVERY);
        };
        let before = self
            .kubelet
            .unit
            .served
            .get_or_insert_with(|| facts.clone());
        if !facts.has_died_since(before) {
            return Ok(WATCH_EVERY);
        }
        let error = format!(
            "`{}` died soon after the change (state: {})",
            self.kubelet.unit.systemd.unit(),
            facts.active_state()
        );
        let change = self
            .node
            .state
            .as_ref()
            .and_then(|state| state.change.as_ref());
        let Ok(provider) = self.provider_of(change.and_then(PendingChange::known_provider)) else {
            // The pod no longer has the directories in which it was.
            self.settle()?;
            return Ok(Duration::ZERO);
        };
        // The file that others wrote since stays.
        let guard = self.is_updated_in_place().then(|| Guard {
            may_replace: Vec::new(),
            skips: true,
        });
        let Some(mut state) = self.node.state.take() else {
            return Ok(IDLE);
        };
        let path = self.options.config_file.clone();
        let mut transaction = Transaction {
            journal: &self.node.journal,
            path: &path,
            provider: &provider,
            kubelet: &mut self.kubelet.unit,
            guard,
        };
        let result = transaction.roll_back(&mut state, error).await;
        self.finish(state, None, result)
    }

    /// The content in force answers the task, so the rest of this assignment waits for the next one.
    fn answer(&mut self) {
        let task = self.assigned.task.clone();
        let state = self.node.state.as_mut().filter(|it| it.change.is_none());
        if let Some(state) = state.filter(|it| task.is_some() && it.applied != task) {
            state.applied = task;
            self.remember();
        }
    }

    /// Drops earlier content from the journal, if the cluster requests it. An error of the disk is not an error of the
    /// revision in force, so the next step retries.
    pub(super) fn forget_old(&mut self) {
        let known = self.assigned.objects.borrow();
        let annotations = known.object().map(ResourceExt::annotations);
        let up_to = annotations.and_then(forget_up_to).and_then(Result::ok);
        drop(known);
        let state = self.node.state.as_ref().zip(up_to);
        let Some(next) = state.and_then(|(state, up_to)| state.without_old(up_to)) else {
            return;
        };
        match self.node.journal.save(&next) {
            Ok(()) => {
                tracing::info!(up_to, "forgot earlier content, as the cluster asks for");
                self.node.state = Some(next);
            }
            Err(error) => tracing::warn!(%error, "could not forget earlier content"),
        }
    }

    /// Ends the change: it can no longer be rolled back.
    pub(super) fn settle(&mut self) -> Result<(), NodeError> {
        self.watch_until = None;
        if let Some(state) = &mut self.node.state {
            state.change = None;
            self.node.journal.save(state)?;
        }
        Ok(())
    }
}
