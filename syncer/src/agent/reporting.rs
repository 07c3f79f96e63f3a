//! Builds the node's reports.

use std::path::Path;
use std::time::Duration;

use globalps_core::api::{DeliveryType, NodePullSecret, NodePullSecretStatus, Phase};
use globalps_core::names::MACHINE_CONFIG_UPDATE;
use globalps_core::reasons::Reason;
use globalps_core::rollout::{Goal, Revision};
use tokio::time::Instant;

use super::{Access, Agent};
use crate::cluster::identity;
use crate::delivery::config_file::parsed;
use crate::node::file;
use crate::node::state::{FailedTask, NodeError, Task};
use crate::report::wording;

/// The kubelet keeps what it has read for minutes, so it is unlikely to read the file within this time.
const SOON: Duration = Duration::from_secs(2);

impl Agent {
    pub(super) fn report_in_force(&mut self) {
        let within = "the kubelet picks up the file within 5 minutes";
        let drifts = self.node.state.as_ref().map_or(0, |state| state.drifts);
        let has_provider = self
            .node
            .state
            .as_ref()
            .is_some_and(|state| state.provider.is_some());
        let doubtful = self.node.state.as_ref().map(|state| &state.doubtful);
        let doubtful = doubtful.filter(|keys| !keys.is_empty());
        let (reason, message) = match (&self.files.quarantined, &self.kubelet.no_restart) {
            _ if let Some(keys) = doubtful => (Some(Reason::StateLost), wording::state_lost(keys)),
            (Some(path), _) => (Some(Reason::FileQuarantined), quarantined(path)),
            _ if let Some(obstacle) = &self.files.obstacle => {
                (Some(obstacle.reason), wording::obstacle(&obstacle.message))
            }
            // The kubelet runs the provider at the next pull.
            _ if has_provider && drifts == 0 => (None, String::new()),
            _ if has_provider => (Some(Reason::DriftRepaired), wording::drifts(drifts)),
            (None, Some(reason)) => (
                Some(Reason::RestartNotPossible),
                format!("{reason}, so {within}"),
            ),
            (None, None) if !self.options.restart => {
                (Some(Reason::RestartNever), within.to_owned())
            }
            (None, None) if drifts > 0 => (Some(Reason::DriftRepaired), wording::drifts(drifts)),
            (None, None) => match self.node.state.as_ref().and_then(|state| state.mode) {
                Some(mode) => (Some(Reason::ModeNarrowed), wording::mode_narrowed(mode)),
                None => (None, String::new()),
            },
        };
        self.report(Phase::Synced, reason, &message);
    }

    /// Reports a waiting node, so that the controller sees that its syncer runs.
    pub(super) fn report_waiting(&mut self) {
        if self.assigned.about.is_some() {
            self.report(Phase::Pending, None, "");
        }
    }

    /// A syncer that only restores answers every assignment: without that the controller can't know what the node has.
    pub(super) fn report_standing_by(&mut self) {
        let known = self.assigned.objects.borrow();
        let is_answered = known.object().is_none_or(is_answered);
        drop(known);
        if !is_answered {
            self.report_waiting();
        }
    }

    pub(super) fn report_foreign(&mut self, owner: &str) {
        let (phase, reason, message) = match owner {
            MACHINE_CONFIG_UPDATE => (
                Phase::SteppedAside,
                Reason::UpdatedInPlace,
                wording::stepped_aside().to_owned(),
            ),
            _ => (
                Phase::ForeignOwner,
                Reason::ManagedFile,
                wording::foreign_owner(owner),
            ),
        };
        self.report(phase, reason, &message);
    }

    /// Asks the controller whether the file of another program may be replaced. Its answer wakes this syncer.
    pub(super) fn ask(&mut self, token: String) {
        let since = self.files.asked.take().filter(|(asked, _)| *asked == token);
        let since = since.map_or_else(Instant::now, |(_, since)| since);
        self.files.asked = Some((token, since));
        let is_restore = self.assigned.task.as_ref().map(Task::goal) == Some(Goal::Restore);
        let phase = if is_restore {
            Phase::Restoring
        } else {
            Phase::Syncing
        };
        self.report(
            phase,
            Reason::WaitingForConfirmation,
            wording::unconfirmed(),
        );
    }

    /// The answer came before the kubelet may have read the file again.
    pub(super) fn is_answered_soon(&self) -> bool {
        let asked = self.files.asked.as_ref();
        asked.is_none_or(|(_, since)| since.elapsed() < SOON)
    }

    pub(super) fn report_restored(&mut self) {
        let doubtful = self.doubtful_that_are_left();
        if !doubtful.is_empty() {
            let message = wording::state_lost(&doubtful);
            return self.report(Phase::Restored, Reason::StateLost, &message);
        }
        match self.files.quarantined.take().filter(|path| path.exists()) {
            Some(path) => self.report(
                Phase::Restored,
                Reason::FileQuarantined,
                &quarantined(&path),
            ),
            None => self.report(Phase::Restored, None, ""),
        }
    }

    /// The doubtful keys of the state that the credentials file contains, or may contain.
    fn doubtful_that_are_left(&self) -> Vec<String> {
        let mut keys = self
            .node
            .state
            .as_ref()
            .map_or_else(Vec::new, |state| state.doubtful.clone());
        if keys.is_empty() {
            return keys;
        }
        let file = file::read(&self.options.config_file).ok();
        if let Some(found) = file.and_then(|file| parsed(&file)) {
            keys.retain(|key| found.entries().iter().any(|it| it.key() == key));
        }
        keys
    }

    pub(super) fn report_failure(&mut self, failure: &FailedTask) {
        let (phase, reason, message) = wording::failure(failure);
        self.report(phase, reason, &message);
    }

    /// An error of the node is reported only if something is assigned.
    pub(super) fn report_error(&mut self, error: &NodeError) {
        let is_under_way = self
            .node
            .state
            .as_ref()
            .is_some_and(|state| state.change.is_some());
        if self.assigned.task.is_none() && !is_under_way {
            return self.report_waiting();
        }
        self.report(Phase::Failed, error.reason(), &error.to_string());
    }

    /// How the revision in force is delivered; empty: none is in force.
    fn delivery(&self) -> &'static str {
        match &self.node.state {
            Some(state) if state.provider.is_some() => DeliveryType::CredentialProvider.as_str(),
            Some(state) if state.revision != Revision::NONE => DeliveryType::ConfigFile.as_str(),
            _ => "",
        }
    }

    pub(super) fn report(
        &mut self,
        phase: Phase,
        reason: impl Into<Option<Reason>>,
        message: &str,
    ) {
        let known = self.assigned.objects.borrow().clone();
        let Some(object) = known.object() else {
            return;
        };
        let Some((_, generation)) = self
            .assigned
            .about
            .clone()
            .filter(|(uid, _)| *uid == identity(object).0)
        else {
            return;
        };
        let reason = reason.into();
        let asked = self.files.asked.as_ref();
        let asked = asked.filter(|_| reason == Some(Reason::WaitingForConfirmation));
        let status = NodePullSecretStatus {
            observed_generation: generation,
            found_file: asked.map_or_else(String::new, |(token, _)| token.clone()),
            restored: phase == Phase::Restored || self.has_no_state(object),
            phase,
            reason: reason.map(String::from).unwrap_or_default(),
            message: self.options.provider.on_node(message),
            ..self.on_node(object)
        };
        self.reporter.report(object, status);
    }

    /// After a restore the counts of its state are reported once more. While it can't be loaded, a node without one had nothing
    /// before either.
    fn has_no_state(&self, object: &NodePullSecret) -> bool {
        if self.node.access == Access::State {
            return self.node.state.is_none();
        }
        let last = object.status.as_ref();
        !self.node.journal.is_in_use() && last.is_some_and(|status| status.restored)
    }

    /// The node's state; the last reported one while the journal is not loaded.
    fn on_node(&self, object: &NodePullSecret) -> NodePullSecretStatus {
        if self.node.access != Access::State {
            return object.status.clone().unwrap_or_default();
        }
        let in_force = self.node.state.as_ref().map(|state| state.revision);
        let in_force = in_force.filter(|revision| revision.is_identified());
        let Revision { number, id } = in_force.unwrap_or_default();
        NodePullSecretStatus {
            revision: number,
            revision_id: id,
            restarts: self
                .node
                .state
                .as_ref()
                .map_or_else(|| self.reporter.restarts(object), |state| state.restarts),
            drifts: self.node.state.as_ref().map_or(0, |state| state.drifts),
            kubelet_restarted_at: self
                .node
                .state
                .as_ref()
                .filter(|_| self.options.restart && self.kubelet.no_restart.is_none())
                .and_then(|state| state.restarted_at.clone()),
            delivery: self.delivery().to_owned(),
            forgotten_revision: self.node.state.as_ref().map_or(0, |state| state.forgotten),
            ..NodePullSecretStatus::default()
        }
    }
}

/// Whether the status is about what the object assigns now.
pub(super) fn is_answered(object: &NodePullSecret) -> bool {
    object
        .status
        .as_ref()
        .is_some_and(|status| Some(status.observed_generation) == object.metadata.generation)
}

fn quarantined(path: &Path) -> String {
    let path = path.display();
    format!("the node's own file could not be parsed; it is kept as {path}")
}
