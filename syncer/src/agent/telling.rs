//! What the node tells of itself, in words.

use std::path::Path;

use globalps_core::api::{NodePullSecretStatus, Phase};

use super::Agent;
use crate::drift;
use crate::journal::{Failure, NodeError};
use crate::node_status::identity;
use crate::tell;

impl Agent {
    pub(super) fn tell_in_force(&mut self) {
        let within = "the kubelet takes it up by itself within 5 minutes";
        let drifts = self.state.as_ref().map_or(0, |state| state.drifts);
        let (reason, message) = match (&self.set_aside, &self.unrestartable) {
            (Some(path), _) => ("FileSetAside", kept(path)),
            (None, Some(why)) => ("RestartNotPossible", format!("{why}, so {within}")),
            (None, None) if !self.restart => ("RestartNever", within.to_owned()),
            (None, None) if drifts > 0 => ("DriftRepaired", drift::told(drifts)),
            (None, None) => ("", String::new()),
        };
        self.tell(Phase::Synced, reason, &message);
    }

    /// A node that waits for its turn says so, which tells that somebody is there to take it.
    pub(super) fn tell_waiting(&mut self) {
        if self.about.is_some() {
            self.tell(Phase::Pending, "", "");
        }
    }

    pub(super) fn tell_foreign(&mut self, owner: &str) {
        let message = tell::of_foreign_owner(owner);
        self.tell(Phase::ForeignOwner, "ManagedFile", &message);
    }

    pub(super) fn tell_restored(&mut self) {
        match self.set_aside.take().filter(|path| path.exists()) {
            Some(path) => self.tell(Phase::Restored, "FileSetAside", &kept(&path)),
            None => self.tell(Phase::Restored, "", ""),
        }
    }

    pub(super) fn tell(&mut self, phase: Phase, reason: &str, message: &str) {
        let known = self.objects.borrow().clone();
        let Some(object) = known.object() else {
            // Nobody to tell but the kubelet, which asks whether this pod is ready.
            return self.teller.mark_ready(phase == Phase::Synced);
        };
        let Some((_, generation)) = self
            .about
            .clone()
            .filter(|(uid, _)| *uid == identity(object).0)
        else {
            return;
        };
        let status = NodePullSecretStatus {
            observed_generation: generation,
            phase,
            reason: reason.to_owned(),
            message: message.to_owned(),
            revision: self.state.as_ref().map_or(0, |state| state.revision),
            restarts: self
                .state
                .as_ref()
                .map_or_else(|| self.teller.restarts(object), |state| state.restarts),
            drifts: self.state.as_ref().map_or(0, |state| state.drifts),
            restored: phase == Phase::Restored,
            ..NodePullSecretStatus::default()
        };
        self.teller.tell(object, status);
    }

    pub(super) fn tell_failure(&mut self, failure: &Failure) {
        let (phase, reason, message) = tell::of_failure(failure);
        self.tell(phase, reason, &message);
    }

    pub(super) fn tell_error(&mut self, error: &NodeError) {
        self.tell(Phase::Failed, error.reason(), &error.to_string());
    }
}

fn kept(path: &Path) -> String {
    let path = path.display();
    format!("the node's own file was no credentials file and is kept as {path}")
}
