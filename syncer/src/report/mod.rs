//! The node's reports: its status and the readiness of its syncer.

pub(crate) mod wording;
pub(crate) mod writer;

use std::path::PathBuf;

use globalps_core::api::{NodePullSecret, NodePullSecretStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::sync::watch;

use writer::Report;

pub(crate) struct StatusReporter {
    reports: watch::Sender<Option<Report>>,
    last: Option<NodePullSecretStatus>,
    /// uid of the object to which `last` was written.
    last_uid: Option<String>,
    /// The file that the readiness probe checks.
    ready_file: PathBuf,
}

impl StatusReporter {
    pub(crate) fn new(reports: watch::Sender<Option<Report>>, ready_file: PathBuf) -> Self {
        Self {
            reports,
            last: None,
            last_uid: None,
            ready_file,
        }
    }

    /// Kubelet restarts as last reported, for a node without state.
    pub(crate) fn restarts(&self, object: &NodePullSecret) -> i64 {
        self.last
            .as_ref()
            .or(object.status.as_ref())
            .map_or(0, |status| status.restarts)
    }

    /// Sends the status if it differs from the last one.
    pub(crate) fn report(&mut self, object: &NodePullSecret, mut status: NodePullSecretStatus) {
        if self.last_uid != object.metadata.uid {
            self.last_uid.clone_from(&object.metadata.uid);
            self.last = None;
        }
        let before = self.last.as_ref().or(object.status.as_ref());
        cut(&mut status.message);
        let status = dated(status, before, jiff::Timestamp::now());
        if self.last.as_ref() != Some(&status) {
            self.last = Some(status.clone());
            let uid = object.metadata.uid.clone().unwrap_or_default();
            self.reports.send_replace(Some(Report { uid, status }));
        }
    }

    pub(crate) fn mark_ready(&self, ready: bool) {
        let path = &self.ready_file;
        let result = match (ready, path.exists()) {
            (true, false) => std::fs::write(path, ""),
            (false, true) => std::fs::remove_file(path),
            _ => Ok(()),
        };
        if let Err(error) = result {
            tracing::warn!(path = %path.display(), %error, "could not update the readiness file of this pod");
        }
    }
}

/// Maximum length of a message in bytes. A message may quote errors of systemd of any length.
const MESSAGE_LIMIT: usize = 1024;

fn cut(message: &mut String) {
    message.truncate(message.floor_char_boundary(MESSAGE_LIMIT));
}

/// Sets the transition time: keeps that of `before` if the phase is the same.
fn dated(
    mut new: NodePullSecretStatus,
    before: Option<&NodePullSecretStatus>,
    now: jiff::Timestamp,
) -> NodePullSecretStatus {
    let since = before
        .filter(|before| before.phase == new.phase)
        .and_then(|before| before.last_transition_time.clone());
    new.last_transition_time = Some(since.unwrap_or(Time(now)));
    new
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use globalps_core::api::{NodePullSecretSpec, Phase};

    use super::*;

    fn status(phase: Phase) -> NodePullSecretStatus {
        NodePullSecretStatus {
            phase,
            ..NodePullSecretStatus::default()
        }
    }

    #[test]
    fn the_time_changes_only_with_the_phase() {
        let at = |second| jiff::Timestamp::from_second(second).unwrap();
        let first = dated(status(Phase::Syncing), None, at(1));
        let more = NodePullSecretStatus {
            message: "more".to_owned(),
            ..status(Phase::Syncing)
        };
        let same = dated(more, Some(&first), at(2));
        assert_eq!(same.last_transition_time.unwrap().0, at(1));
        assert_eq!(
            dated(status(Phase::Synced), Some(&first), at(3))
                .last_transition_time
                .unwrap()
                .0,
            at(3)
        );
    }

    #[test]
    fn a_message_is_cut_at_1_024_bytes_and_never_within_a_character() {
        let directory = tempfile::tempdir().unwrap();
        let (sender, receiver) = watch::channel(None);
        let mut reporter = StatusReporter::new(sender, directory.path().join("ready"));
        let object = NodePullSecret::new("n", NodePullSecretSpec::default());
        for (message, length) in [
            ("a".repeat(1024), 1024),
            ("a".repeat(600_000), 1024),
            ("é".repeat(600), 1024),
            (format!("a{}", "é".repeat(600)), 1023),
        ] {
            let status = NodePullSecretStatus {
                message: message.clone(),
                ..status(Phase::Failed)
            };
            reporter.report(&object, status);
            let sent = receiver.borrow().clone().unwrap().status.message;
            assert_eq!(sent, message[..length]);
        }
    }

    #[test]
    fn a_recreated_object_gets_its_status_again() {
        let directory = tempfile::tempdir().unwrap();
        let (sender, mut receiver) = watch::channel(None);
        let mut reporter = StatusReporter::new(sender, directory.path().join("ready"));
        let mut object = NodePullSecret::new("n", NodePullSecretSpec::default());
        for (uid, expected) in [("first", true), ("first", false), ("second", true)] {
            object.metadata.uid = Some(uid.to_owned());
            reporter.report(&object, status(Phase::Synced));
            assert_eq!(receiver.has_changed().unwrap(), expected, "{uid}");
            receiver.borrow_and_update();
        }
    }
}
