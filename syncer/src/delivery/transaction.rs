//! A change of the node as one transaction: it replaces files and restarts the kubelet. Each step is recorded in the journal
//! first, so that the next syncer can continue after a crash at any point.

use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use globalps_core::rollout::Goal;
use tokio::time::sleep;

use super::writes::{Guard, Writes};
use super::{config_file, credential_provider};
use crate::node::file::{self, FileError, FileSnapshot};
use crate::node::journal::Journal;
use crate::node::kubelet::{Kubelet, KubeletError};
use crate::node::provider::{Provider, WRITING};
use crate::node::state::{
    ChangeStep, FailedTask, JournalState, NodeError, Obstacle, PendingChange,
};
use crate::node::systemd::Since;

/// How many times in a row another process may write the files during a change.
const MEANWHILE: usize = 3;

/// The result of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChangeOutcome {
    InForce,
    /// The file is written, and the restart is due after this time. Changes until then share it.
    Written(Duration),
    /// The file is as it was before the change.
    RolledBack(FailedTask),
}

pub(crate) struct Transaction<'a, K> {
    pub(crate) journal: &'a Journal,
    pub(crate) path: &'a PathBuf,
    pub(crate) provider: &'a Provider,
    pub(crate) kubelet: &'a mut K,
    /// `None`: no daemon updates the node.
    pub(crate) guard: Option<Guard>,
}

impl<K: Kubelet> Transaction<'_, K> {
    /// Saves the change in the journal, then applies it.
    pub(crate) async fn begin(
        &mut self,
        state: &mut JournalState,
        change: PendingChange,
    ) -> Result<ChangeOutcome, NodeError> {
        // Detects an unreadable file or an unusable unit before anything changes.
        file::read(self.path)?;
        if change.target.is_too_large() {
            let path = self.path.clone();
            return Err(FileError::WouldBeTooLarge { path }.into());
        }
        if change.restart {
            self.kubelet.invocation().await?;
        }
        state.change = Some(change);
        state.in_place = self.guard.is_some();
        self.journal.save(state)?;
        // Another process may have written the files since the change was decided.
        self.resume(state).await
    }

    /// Continues the change in the journal.
    pub(crate) async fn resume(
        &mut self,
        state: &mut JournalState,
    ) -> Result<ChangeOutcome, NodeError> {
        match state.change.as_ref().map(|change| change.step) {
            None | Some(ChangeStep::Watching) => Ok(ChangeOutcome::InForce),
            Some(ChangeStep::Back) => self.back(state).await,
            Some(ChangeStep::Forward) => {
                for _ in 0..MEANWHILE {
                    match self.onward(state).await {
                        // After a restart, the next one waits.
                        Err(NodeError::File(FileError::Changed { .. }))
                            if !state.is_restarted() =>
                        {
                            sleep(WRITING).await;
                        }
                        outcome => return outcome,
                    }
                }
                self.onward(state).await
            }
        }
    }

    async fn onward(&mut self, state: &mut JournalState) -> Result<ChangeOutcome, NodeError> {
        self.keep_what_others_wrote(state)?;
        match self.keep_settings(state).await? {
            Some(error) => self.roll_back(state, error).await,
            None => self.forward(state).await,
        }
    }

    /// Adapts the change if another process wrote the file since it began.
    fn keep_what_others_wrote(&self, state: &mut JournalState) -> Result<(), NodeError> {
        let Some(change) = &state.change else {
            return Ok(());
        };
        let file = file::read(self.path)?;
        if change.knows(&file) {
            return Ok(());
        }
        if let FileSnapshot::File { bytes, .. } = &file
            && config_file::is_unparsable(&file)
        {
            let path = self.journal.quarantine(bytes)?;
            tracing::warn!(path = %path.display(), "quarantined the credentials file because it can't be parsed");
        }
        if let Some(rebased) = config_file::rebase(change, &file, state) {
            tracing::info!("keeping entries that another process wrote during the change");
            state.change = Some(rebased);
            self.journal.save(state)?;
        }
        Ok(())
    }

    /// Like [`Self::keep_what_others_wrote`], for the files of the credential provider. Returns why they no longer
    /// allow adding it.
    async fn keep_settings(&self, state: &mut JournalState) -> Result<Option<String>, NodeError> {
        let Some(change) = &mut state.change else {
            return Ok(None);
        };
        let Some(provider) = &mut change.provider else {
            return Ok(None);
        };
        let disk = self.provider.read()?;
        match credential_provider::rebase(self.provider, provider, &disk) {
            Ok(None) => Ok(None),
            Ok(Some(rebased)) => {
                tracing::info!(
                    "keeping kubelet flags or providers that another process wrote during the change"
                );
                *provider = rebased;
                self.journal.save(state)?;
                Ok(None)
            }
            Err(obstacle) => {
                self.provider.expect_settled(&disk).await?;
                // A rollback leaves them unchanged.
                (provider.before.config, provider.before.flags) = (disk.config, disk.flags);
                self.journal.save(state)?;
                Ok(Some(obstacle.message))
            }
        }
    }

    fn writes(&self, state: &JournalState, change: &PendingChange, is_back: bool) -> Writes {
        let guard = self.guard.clone().map(|mut guard| {
            guard.may_replace.push(state.written.clone());
            guard.skips |= is_back;
            guard
        });
        Writes::new(self.path, self.provider, change, is_back, guard)
    }

    /// Whether the kubelet was started with the current files, and serves.
    async fn is_taken_up(
        &mut self,
        from: Option<&String>,
        has_provider: bool,
    ) -> Result<bool, NodeError> {
        let since = match from {
            Some(invocation) => Since::Start(invocation.clone()),
            // A removed configuration has no modification time.
            None if has_provider => return Ok(false),
            None => match file::modified(self.path) {
                Some(time) => Since::Time(time),
                None => return Ok(false),
            },
        };
        self.serves_since(&since).await
    }

    async fn serves_since(&mut self, since: &Since) -> Result<bool, NodeError> {
        self.kubelet
            .serves_since(since)
            .await
            .or_else(|error| error.verdict().map(|_| false))
    }

    /// Ends a change that wrote nothing, with the node's error. If it wrote a part, it continues from there.
    fn end_unwritten(
        &self,
        state: &mut JournalState,
        change: &PendingChange,
    ) -> Result<(), NodeError> {
        let is_unwritten = match &change.provider {
            // If the new file is in place, only its fsync failed.
            None => !file::read(self.path).is_ok_and(|file| file == change.target),
            Some(_) if change.started_from.is_some() => false,
            Some(_) => {
                let back = self.writes(state, change, true);
                back.write_files(self.provider).is_ok() && back.write_last(self.provider).is_ok()
            }
        };
        if is_unwritten {
            state.change = None;
            self.journal.save(state)?;
        }
        Ok(())
    }

    async fn forward(&mut self, state: &mut JournalState) -> Result<ChangeOutcome, NodeError> {
        let Some(change) = state.change.clone() else {
            return Ok(ChangeOutcome::InForce);
        };
        let writes = self.writes(state, &change, false);
        let is_new = match writes.write_first(self.provider) {
            Ok(written) => {
                state.written = written.file.unwrap_or(std::mem::take(&mut state.written));
                written.is_new
            }
            // Continues after adapting to what was written.
            Err(
                error @ NodeError::File(FileError::Changed { .. } | FileError::Unconfirmed { .. }),
            ) => return Err(error),
            Err(error) => {
                self.end_unwritten(state, &change)?;
                return Err(error);
            }
        };
        if let Some(installed) = &writes.installed
            && let Err(error) = self.provider.check(installed).await
        {
            writes.expect_first()?;
            // There is no other state to roll back to.
            if change.is_repair() {
                return Err(NodeError::Provider(Obstacle::failed(error)));
            }
            if let Some(provider) = state.change.as_mut().and_then(|it| it.provider.as_mut()) {
                provider.has_failed = true;
            }
            return self.roll_back(state, error).await;
        }
        let from = change.started_from.as_ref();
        if change.restart && (is_new || !self.is_taken_up(from, change.provider.is_some()).await?) {
            let cooldown = self.kubelet.cooldown();
            if from.is_none() && !cooldown.is_zero() {
                return Ok(ChangeOutcome::Written(cooldown));
            }
            if let Err(error) = self.restart(state).await? {
                return self.roll_back(state, error).await;
            }
        }
        if let Some(error) = self.missing_evidence(&change).await? {
            return self.roll_back(state, error).await;
        }
        self.write_last(state, false)?;
        let is_restore = change.task.goal() == Goal::Restore;
        if is_restore {
            self.journal.remove(self.provider)?;
        }
        let Some(change) = state.change.take() else {
            return Ok(ChangeOutcome::InForce);
        };
        if is_restore {
            *state = state.restored(change.target);
            return Ok(ChangeOutcome::InForce);
        }
        state.managed = change.target_managed.clone().after(&change.before_managed);
        state.revision = change.task.revision;
        state.applied = Some(change.task.clone());
        if let Some(provider) = &change.provider {
            state.provider.clone_from(&provider.target.installed);
        }
        // Without a restart, a kubelet that is down stays down.
        state.failed = state
            .failed
            .take()
            .filter(|failure| !change.restart && (failure.stuck || change.is_upkeep()));
        state.mode = change.before.wide_mode().or(state.mode);
        state.change = change.restart.then_some(PendingChange {
            step: ChangeStep::Watching,
            ..change
        });
        self.journal.save(state)?;
        Ok(ChangeOutcome::InForce)
    }

    /// These follow the first files by seconds: another process may have written in the meantime.
    fn write_last(&self, state: &mut JournalState, is_back: bool) -> Result<(), NodeError> {
        self.keep_what_others_wrote(state)?;
        let Some(change) = &state.change else {
            return Ok(());
        };
        let writes = self.writes(state, change, is_back);
        if let Some(written) = writes.write_last(self.provider)? {
            state.written = written;
        }
        Ok(())
    }

    /// Why the provider can't be confirmed, apart from the restart.
    async fn missing_evidence(
        &mut self,
        change: &PendingChange,
    ) -> Result<Option<String>, NodeError> {
        let Some(provider) = &change.provider else {
            return Ok(None);
        };
        if provider.target.installed.is_none() || !provider.is_kubelet_checked {
            return Ok(None);
        }
        if change.is_repair() {
            return Ok(None);
        }
        if !change.restart {
            let serves = self.serves_since(&Since::Time(UNIX_EPOCH)).await?;
            return Ok((!serves).then(|| "the kubelet does not serve".to_owned()));
        }
        match self.kubelet.provider_flag().await {
            Ok(flag) => Ok(self.provider.check_flag(&flag).err()),
            // Only visible evidence can contradict: the kubelet serves.
            Err(KubeletError::Systemd(_)) => Ok(None),
            Err(error) => error.verdict().map(Some),
        }
    }

    /// Rolls the change back. It may have been in force: the kubelet died during observation.
    pub(crate) async fn roll_back(
        &mut self,
        state: &mut JournalState,
        error: String,
    ) -> Result<ChangeOutcome, NodeError> {
        if let Some(change) = &mut state.change {
            change.step = ChangeStep::Back;
            change.failure = error;
        }
        self.journal.save(state)?;
        self.back(state).await
    }

    async fn back(&mut self, state: &mut JournalState) -> Result<ChangeOutcome, NodeError> {
        self.keep_what_others_wrote(state)?;
        if let Some(error) = self.keep_settings(state).await? {
            tracing::warn!(error, "leaving the kubelet's flags and providers unchanged");
        }
        let Some(change) = &state.change else {
            return Ok(ChangeOutcome::InForce);
        };
        let writes = self.writes(state, change, true);
        let written = writes.write_first(self.provider)?.file;
        let from = change.back_from.clone();
        if let Some(written) = written {
            state.written = written;
        }
        // Unless its restart was never requested, the kubelet may run with the new content.
        let owed = match &from {
            Some(_) => !self.is_taken_up(from.as_ref(), false).await?,
            None => change.started_from.is_some(),
        };
        let restarted = if owed {
            self.restart(state).await?
        } else {
            Ok(())
        };
        self.write_last(state, true)?;
        let Some(change) = state.change.take() else {
            return Ok(ChangeOutcome::InForce);
        };
        state.managed = change.before_managed;
        state.revision = change.before_revision;
        let has_failed = change.provider.as_ref().is_some_and(|it| it.has_failed);
        if let Some(provider) = change.provider {
            state.provider = provider.before.installed;
        }
        let error = change.failure;
        if error.is_empty() && restarted.is_ok() {
            self.journal.save(state)?;
            return Ok(ChangeOutcome::InForce);
        }
        let failure = FailedTask {
            task: change.task,
            stuck: restarted.is_err(),
            error: match restarted {
                Ok(()) => error,
                Err(again) => format!("{error}; with the previous file: {again}"),
            },
            recovered: false,
            is_of_provider: has_failed,
        };
        state.failed = Some(failure.clone());
        self.journal.save(state)?;
        Ok(ChangeOutcome::RolledBack(failure))
    }
}

#[cfg(test)]
mod tests;
