//! Begins, resumes and ends changes of the node.

use std::time::Duration;

use globalps_core::api::Phase;
use globalps_core::names::MACHINE_CONFIG_UPDATE;
use globalps_core::reasons::Reason;
use globalps_core::rollout::{Goal, Revision};
use tokio::time::Instant;

use super::decide::Action;
use super::facts::in_place;
use super::watching::WATCH;
use super::{Agent, IDLE};
use crate::delivery::transaction::{ChangeOutcome, Transaction};
use crate::node::file::{FileError, FileSnapshot};
use crate::node::state::{JournalState, NodeError, PendingChange, Task};
use crate::report::wording;

impl Agent {
    pub(super) async fn begin(
        &mut self,
        file: FileSnapshot,
        begun: Action,
    ) -> Result<Duration, NodeError> {
        let Action::Begin {
            change,
            quarantine,
            drift,
            is_own,
        } = begun
        else {
            return Ok(Duration::ZERO);
        };
        if let Some(state) = self.node.state.as_mut().filter(|_| is_own) {
            // Saved together with the change. Who writes a narrowed file often keeps its mode.
            let mode = file.wide_mode().or(state.mode);
            state.snapshot = file.clone().with_mode(mode);
        }
        if quarantine && let FileSnapshot::File { bytes, .. } = &file {
            let path = self.node.journal.quarantine(bytes)?;
            tracing::warn!(path = %path.display(), "quarantined the credentials file because it can't be parsed");
            self.files.quarantined = Some(path);
        }
        let pause = self.change(file, Some(*change)).await?;
        if drift {
            self.count_drift()?;
        }
        Ok(pause)
    }

    pub(super) async fn resume(&mut self, file: FileSnapshot) -> Result<Duration, NodeError> {
        if self.last_error.is_none() {
            tracing::info!("resuming the change in the journal");
        }
        self.change(file, None).await
    }

    /// The task is to restore a node that globalps has never changed. No state of its files or of its system bus prevents that.
    fn has_nothing(&self) -> bool {
        let task = self.assigned.task.as_ref();
        task.is_some_and(|task| task.goal() == Goal::Restore)
            && self.node.state.is_none()
            && self.node.lock.is_none()
            && !self.node.journal.is_in_use()
            && !self.node.journal.has_directory()
            && matches!(self.options.provider.installed_anywhere(), Ok(None))
    }

    /// The action that doesn't depend on the node's files; `None` if they decide.
    pub(super) async fn unobserved(&mut self) -> Result<Option<Duration>, NodeError> {
        if self.has_nothing() {
            return Ok(Some(self.report_nothing()));
        }
        if !self.is_held() {
            return Ok(None);
        }
        match self.keep_in_force().await? {
            None => Ok(Some(self.revive().await)),
            pause => Ok(pause),
        }
    }

    /// Whether globalps has worked on this node but its state is missing, for example because a damaged one was moved away.
    fn has_lost_state(&self) -> bool {
        let known = self.assigned.objects.borrow();
        let status = known.object().and_then(|object| object.status.as_ref());
        let is_reported = status.is_some_and(|status| status.in_force() != Revision::NONE);
        self.node.state.is_none() && (is_reported || self.node.journal.has_directory())
    }

    fn report_nothing(&mut self) -> Duration {
        (self.last_error, self.assigned.held, self.files.obstacle) = (None, None, None);
        self.report(Phase::Restored, None, "");
        IDLE
    }

    /// Removes the journal, because nothing of globalps is left on the node.
    pub(super) fn forget(&mut self) -> Result<Duration, NodeError> {
        self.node.journal.remove(&self.options.provider)?;
        self.node.state = None;
        self.node.lock = None;
        if self.is_aside() {
            return Ok(Duration::ZERO);
        }
        self.report(Phase::Restored, None, "");
        Ok(IDLE)
    }

    /// Another process changed managed entries, and the syncer restored them.
    fn count_drift(&mut self) -> Result<(), NodeError> {
        tracing::warn!("restored managed entries that another process changed");
        self.files.drift.count();
        if let Some(state) = &mut self.node.state {
            state.drifts = state.drifts.saturating_add(1);
            self.node.journal.save(state)?;
        }
        Ok(())
    }

    /// Another task than the one that was given up is a new attempt.
    pub(super) fn take_up_again(&mut self) {
        let is_over = |given_up: &Task| {
            self.assigned
                .task
                .as_ref()
                .is_some_and(|task| task != given_up)
        };
        if let Some(state) = &mut self.node.state
            && state.given_up.as_ref().is_some_and(is_over)
        {
            state.given_up = None;
            self.files.drift.forget_conflicts();
        }
    }

    /// Stops restoring the file until there is another task.
    pub(super) fn give_up(&mut self, task: Option<Task>) -> Result<Duration, NodeError> {
        if let Some(state) = self
            .node
            .state
            .as_mut()
            .filter(|state| state.given_up != task)
        {
            state.given_up = task;
            self.node.journal.save(state)?;
            tracing::warn!(
                "stopped restoring the managed entries because another process keeps changing them"
            );
        }
        self.uphold_provider()?;
        self.report(
            Phase::ForeignOwner,
            Reason::ConflictLimit,
            &wording::conflicts(),
        );
        Ok(IDLE)
    }

    /// Begins this change, or continues the one in the journal, until it ends.
    async fn change(
        &mut self,
        file: FileSnapshot,
        change: Option<PendingChange>,
    ) -> Result<Duration, NodeError> {
        let restarts = self
            .assigned
            .objects
            .borrow()
            .object()
            .map_or(0, |object| self.reporter.restarts(object));
        let is_lost = self.has_lost_state();
        let mut state = self
            .node
            .state
            .take()
            .unwrap_or_else(|| JournalState::new(file, restarts));
        if is_lost && let Some(change) = &change {
            // Entries that globalps wrote can't be distinguished from the node's own, which are never removed.
            let own = change.target_managed.overridden();
            state.doubtful = own.iter().map(|entry| entry.key().to_owned()).collect();
        }
        let task = change
            .as_ref()
            .or(state.change.as_ref())
            .map(|change| &change.task);
        // Reports refer to this task, even if the object changes before it ends.
        self.assigned.about = task.map(|task| (task.uid.clone(), task.generation));
        let goal = task.map(Task::goal);
        // This is no attempt at the assigned task, whose earlier result stays.
        let is_upkeep = task.is_some_and(|task| {
            task.revision == state.revision
                && self.assigned.task.as_ref().is_some_and(|it| it != task)
        });
        match goal {
            _ if self.last_error.is_some() => {}
            Some(Goal::Restore) => tracing::info!("restoring the node"),
            Some(Goal::Revision(revision)) => {
                tracing::info!(revision = revision.number, "applying the revision");
            }
            None => {}
        }
        let path = self.options.config_file.clone();
        self.node.state = Some(state.clone());
        // Reported in the background: the file does not wait for the API server.
        if self.last_error.is_none() && !is_upkeep {
            self.report(phase_towards(goal), None, "");
        }
        let held = self.assigned.held.clone().filter(|_| is_upkeep);
        let provider = self.provider_on_node()?;
        let mut transaction = Transaction {
            journal: &self.node.journal,
            path: &path,
            provider: &provider,
            kubelet: &mut self.kubelet.unit,
            guard: self.files.guard.clone(),
        };
        let result = match change {
            Some(change) => transaction.begin(&mut state, change).await,
            None => transaction.resume(&mut state).await,
        };
        if let Err(NodeError::File(FileError::Unconfirmed { .. })) = result {
            // The next step asks, or steps aside.
            self.node.state = Some(state);
            return Ok(Duration::ZERO);
        }
        let pause = self.finish(state, goal, result)?;
        self.assigned.held = self.assigned.held.take().or(held);
        Ok(pause)
    }

    /// The node was not restored because it is to be.
    fn is_aside(&self) -> bool {
        let known = self.assigned.objects.borrow();
        let spec = known.object().map(|object| &object.spec);
        spec.is_some_and(|spec| spec.foreign_owner == MACHINE_CONFIG_UPDATE && !spec.restore)
    }

    pub(super) fn is_updated_in_place(&self) -> bool {
        let known = self.assigned.objects.borrow();
        in_place(known.object(), self.node.state.as_ref())
    }

    pub(super) fn finish(
        &mut self,
        state: JournalState,
        goal: Option<Goal>,
        result: Result<ChangeOutcome, NodeError>,
    ) -> Result<Duration, NodeError> {
        if result.is_ok() {
            self.last_error = None;
            self.assigned.held = None;
        }
        let is_restored =
            goal == Some(Goal::Restore) && state.change.is_none() && state.failed.is_none();
        self.node.state = Some(state);
        match result {
            Err(error) => {
                // The disk has the authoritative state.
                self.load()?;
                Err(error)
            }
            Ok(ChangeOutcome::Written(cooldown)) => {
                tracing::info!(
                    "file written; restarting the kubelet in {} ms",
                    cooldown.as_millis()
                );
                let message = "the file is written; the kubelet will be restarted 10 s after its last restart";
                self.report(phase_towards(goal), Reason::RestartDelayed, message);
                Ok(cooldown)
            }
            Ok(ChangeOutcome::InForce) if is_restored => {
                tracing::info!("restored the node");
                self.node.lock = None;
                if self.is_aside() {
                    // The next step reports the reason.
                    self.node.state = None;
                    return Ok(Duration::ZERO);
                }
                // Reports the restart count once more before the state is discarded.
                self.report_restored();
                self.node.state = None;
                Ok(IDLE)
            }
            Ok(ChangeOutcome::InForce) => {
                self.watch_until = Some(Instant::now() + WATCH);
                Ok(Duration::ZERO)
            }
            Ok(ChangeOutcome::RolledBack(failure)) => {
                tracing::error!(
                    error = failure.error,
                    stuck = failure.stuck,
                    "the change was rolled back"
                );
                self.report_failure(&failure);
                Ok(Duration::ZERO)
            }
        }
    }
}

/// The phase while the node works towards this goal.
fn phase_towards(goal: Option<Goal>) -> Phase {
    if goal == Some(Goal::Restore) {
        Phase::Restoring
    } else {
        Phase::Syncing
    }
}
