//! Which process works on the node: takes the lock, loads the state, and reports what prevents it.

use tokio::time::{Instant, sleep};

use globalps_core::api::Phase;

use super::reporting::is_answered;
use super::{Access, Agent, DISK_RETRY, LOCK_RETRY, UNANSWERED};
use crate::node::file;
use crate::node::state::NodeError;

impl Agent {
    /// No other process has changed the node since its state was loaded.
    pub(super) fn has_node(&self) -> bool {
        self.node.access == Access::State
            && match &self.node.lock {
                Some(lock) => lock.is_held(),
                None => !self.node.journal.is_in_use(),
            }
    }

    /// Waits until no other process works on the node, and loads its state. Returns early if the API server rejects this pod.
    /// Without a state and a change the lock is not taken: a node that globalps has not changed has no file of it.
    pub(super) async fn acquire_node(&mut self, is_changed: bool) {
        self.node.access = Access::Nothing;
        self.node.lock = None;
        if !is_changed && !self.node.journal.is_in_use() {
            self.node.state = None;
            self.node.access = Access::State;
            return;
        }
        let (mut unanswered_since, mut is_logged) = (None, false);
        while self.node.lock.is_none() {
            match self.node.journal.lock() {
                Ok(lock) => self.node.lock = Some(lock),
                Err(_) if self.is_cut_off() => return,
                Err(error @ NodeError::Locked { .. }) => {
                    if !std::mem::replace(&mut is_logged, true) {
                        tracing::error!("{error}");
                    }
                    self.stand_by(&error, &mut unanswered_since);
                    sleep(LOCK_RETRY).await;
                }
                Err(error) => self.wait_unusable(&error).await,
            }
        }
        self.node.access = Access::Lock;
        file::sweep(&self.options.config_file);
        loop {
            match self.load() {
                Ok(()) => {
                    self.node.access = Access::State;
                    if let Ok(provider) = self.provider_on_node() {
                        provider.sweep();
                    }
                    return;
                }
                Err(_) if self.is_cut_off() => return,
                Err(error) => self.wait_unusable(&error).await,
            }
        }
    }

    /// Takes the state from the disk, which may have been written before it was known that nothing is restarted here.
    pub(super) fn load(&mut self) -> Result<(), NodeError> {
        self.node.state = self.node.journal.load()?;
        if !self.options.restart || self.kubelet.is_server {
            self.waive_restart();
        }
        Ok(())
    }

    /// Lets the files that a change in progress has written take effect without a restart.
    pub(super) fn waive_restart(&mut self) {
        let change = self
            .node
            .state
            .as_mut()
            .and_then(|state| state.change.as_mut());
        if let Some(change) = change {
            change.waive_restart();
        }
    }

    /// Another process holds the lock. While it answers the object, it reports for the node and this pod is ready: pods of a
    /// deleted `DaemonSet` may stay for long, and the node has what it needs. Otherwise this syncer reports the reason.
    fn stand_by(&mut self, error: &NodeError, unanswered_since: &mut Option<Instant>) {
        let known = self.observe_object();
        let is_answered = known.object().is_some_and(|object| {
            let status = object.status.as_ref();
            is_answered(object) && status.is_some_and(|status| status.reason != error.reason())
        });
        self.reporter.mark_ready(is_answered);
        if is_answered {
            *unanswered_since = None;
            return;
        }
        let since = unanswered_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= UNANSWERED {
            self.assigned.held.clone_from(&self.assigned.task);
            self.report(Phase::Failed, error.reason(), &error.to_string());
        }
    }

    async fn wait_unusable(&mut self, error: &NodeError) {
        tracing::error!(%error, "can't work on this node");
        self.observe_object();
        self.assigned.held.clone_from(&self.assigned.task);
        self.report_error(error);
        self.wait(DISK_RETRY).await;
    }
}
