//! Maintains what is in force while the assigned task is not worked on.

use std::time::Duration;

use super::decide::{Action, guarded, is_replaceable, keep};
use super::facts::{FileGuard, NodeFacts, in_place};
use super::{Agent, HALF_WRITTEN, IDLE};
use crate::cluster::confirmed;
use crate::delivery::config_file::is_unparsable;
use crate::delivery::writes::Guard;
use crate::node::drift::MAX_CONFLICTS;
use crate::node::file::FileSnapshot;
use crate::node::replace::read_identified;
use crate::node::state::NodeError;

impl Agent {
    /// Repairs what is in force while the task is held. What prevents reading it is most likely why the task is held.
    pub(super) async fn keep_in_force(&mut self) -> Result<Option<Duration>, NodeError> {
        let known = self.assigned.objects.borrow().clone();
        let object = known.object();
        let is_foreign = object.is_some_and(|object| !object.spec.foreign_owner.is_empty());
        if self.options.restores_only || is_foreign {
            return Ok(None);
        }
        let Ok((file, found)) = read_identified(&self.options.config_file) else {
            return Ok(None);
        };
        if self.may_be_half_written(&file) {
            return Ok(Some(HALF_WRITTEN));
        }
        let Ok(provider) = self.observe_provider(object, None).await else {
            return Ok(None);
        };
        if self.is_half_written(provider.as_ref()) {
            return Ok(Some(HALF_WRITTEN));
        }
        let is_guarded = in_place(object, self.node.state.as_ref());
        let guard = is_guarded.then(|| FileGuard {
            found: &found,
            confirmed: object.map_or("", confirmed),
        });
        let facts = NodeFacts {
            task: self.assigned.task.as_ref(),
            is_foreign: false,
            is_updating: false,
            guard,
            state: self.node.state.as_ref(),
            file: &file,
            desired: None,
            superseded: false,
            restart: false,
            is_cooled_down: true,
            is_watched: self.files.drift.is_watched(),
            is_conflict_limit_reached: self.files.drift.is_limit_reached(),
            restores_only: false,
            provider: provider.as_ref(),
        };
        let action = keep(&facts).map(|action| guarded(&facts, action));
        self.files.guard = guard.map(|_| Guard {
            may_replace: Vec::from_iter(is_replaceable(&facts).then(|| found.clone())),
            skips: false,
        });
        let token = found.token(&facts.written());
        match action {
            Some(Action::Ask) => {
                self.ask(token);
                Ok(Some(IDLE))
            }
            Some(action) => Ok(Some(self.begin(file, action).await?)),
            None => Ok(None),
        }
    }

    /// Whether the credentials file may still be in the middle of a write by another process.
    pub(super) fn may_be_half_written(&mut self, file: &FileSnapshot) -> bool {
        let is_new = is_unparsable(file) && self.files.half_written.as_ref() != Some(file);
        if is_new {
            self.files.half_written = Some(file.clone());
        }
        is_new
    }

    /// A kubelet does not start with flags or a configuration that name missing files, so these are restored even if
    /// nothing else is repaired.
    pub(super) fn uphold_provider(&mut self) -> Result<(), NodeError> {
        let provider = self.provider_on_node()?;
        provider.remove_half_flags()?;
        let state = self.node.state.as_ref().filter(|it| it.change.is_none());
        let Some((state, installed)) = state.and_then(|it| it.provider.as_ref().map(|on| (it, on)))
        else {
            return Ok(());
        };
        if !provider.lacks_files()? {
            return Ok(());
        }
        if !self.node.journal.has_directory() {
            self.node.journal.save(state)?;
        }
        // Another process may remove them again and again.
        let may_write = self.files.drift.conflicts() < 2 * MAX_CONFLICTS;
        provider.uphold(installed, may_write)?;
        tracing::warn!("the kubelet's flags named files that another process removed");
        self.files.drift.count();
        Ok(())
    }
}
