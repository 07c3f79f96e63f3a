//! The node's reports: its status and the readiness of its syncer.

pub(crate) mod wording;
pub(crate) mod writer;

use std::convert::Infallible;
use std::future::pending;
use std::path::PathBuf;
use std::time::Duration;

use globalps_core::api::{MAX_REVISION, NodePullSecret, NodePullSecretStatus};
use globalps_runtime::backoff::Backoff;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::cluster::SeenObject;
use writer::StatusReport;

/// Pauses before checks that the object has the last report.
const CHECKS: Backoff = Backoff::new(Duration::from_secs(10), Duration::from_mins(10));

pub(crate) struct StatusReporter {
    reports: watch::Sender<Option<StatusReport>>,
    last: Option<NodePullSecretStatus>,
    /// uid of the object to which `last` was written.
    last_uid: Option<String>,
    /// The file that the readiness probe checks.
    ready_file: PathBuf,
    /// When the object is checked for the last report; `None`: not before it changes. And the pauses before checks.
    check_at: Option<Instant>,
    checks: Backoff,
}

impl StatusReporter {
    pub(crate) fn new(reports: watch::Sender<Option<StatusReport>>, ready_file: PathBuf) -> Self {
        Self {
            reports,
            last: None,
            last_uid: None,
            ready_file,
            check_at: None,
            checks: CHECKS,
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
        bound(&mut status);
        let status = dated(status, before, jiff::Timestamp::now());
        if self.last.as_ref() != Some(&status) {
            self.last = Some(status.clone());
            let uid = object.metadata.uid.clone().unwrap_or_default();
            self.reports
                .send_replace(Some(StatusReport { uid, status }));
            self.checks.reset();
            self.check_at = Some(Instant::now() + self.checks.pause());
        }
    }

    /// Reports again whenever the object has another status than the last report, which another client must have written. Each
    /// repetition doubles the pause, so that two writers don't compete at full speed. Runs while the node has nothing to do;
    /// `versions` changes with each version of the object. Without one there is nothing to check, so an idle node sleeps.
    pub(crate) async fn uphold(
        &mut self,
        objects: &watch::Receiver<SeenObject>,
        versions: &mut watch::Receiver<()>,
    ) -> Infallible {
        loop {
            let Some(check_at) = self.check_at else {
                if versions.changed().await.is_err() {
                    return pending().await;
                }
                self.check_at = Some(Instant::now() + self.checks.pause());
                continue;
            };
            sleep_until(check_at).await;
            versions.mark_unchanged();
            if objects
                .borrow()
                .object()
                .is_some_and(|object| self.is_overwritten(object))
            {
                tracing::warn!(
                    "the object does not have the status that this syncer reported; reporting it again"
                );
                self.reports.send_modify(|_| {});
                self.check_at = Some(Instant::now() + self.checks.pause());
            } else {
                self.checks.reset();
                self.check_at = None;
            }
        }
    }

    /// Whether a write of the last report would change the object. Compares what the API server stores: times have no fractions of
    /// a second there, and a field that the report leaves out is not written.
    fn is_overwritten(&self, object: &NodePullSecret) -> bool {
        let Some(last) = self
            .last
            .as_ref()
            .filter(|_| self.last_uid == object.metadata.uid)
        else {
            return false;
        };
        let last = serde_json::to_value(last).unwrap_or_default();
        let stored = serde_json::to_value(&object.status).unwrap_or_default();
        last.as_object()
            .is_some_and(|last| last.iter().any(|(field, value)| stored[field] != *value))
    }

    pub(crate) fn mark_ready(&self, ready: bool) {
        let path = &self.ready_file;
        let result = match (ready, path.exists()) {
            (true, false) => std::fs::File::create(path).map(drop),
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

/// The API server refuses a status with a number out of bounds, of which a journal or a status of others may have any.
fn bound(status: &mut NodePullSecretStatus) {
    for count in [&mut status.restarts, &mut status.drifts] {
        *count = (*count).clamp(0, MAX_REVISION);
    }
    if !(0..=MAX_REVISION).contains(&status.revision) {
        (status.revision, status.revision_id) = Default::default();
    }
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
    fn numbers_are_within_the_bounds_of_the_object() {
        let directory = tempfile::tempdir().unwrap();
        let (sender, receiver) = watch::channel(None);
        let mut reporter = StatusReporter::new(sender, directory.path().join("ready"));
        let object = NodePullSecret::new("n", NodePullSecretSpec::default());
        let most = MAX_REVISION;
        for (number, count, revision) in [
            (0, 0, 0),
            (7, 7, 7),
            (most, most, most),
            (most + 1, most, 0),
            (i64::MAX, most, 0),
            (-1, 0, 0),
            (i64::MIN, 0, 0),
        ] {
            let status = NodePullSecretStatus {
                restarts: number,
                drifts: number,
                revision: number,
                ..status(Phase::Synced)
            };
            reporter.report(&object, status);
            let sent = receiver.borrow().clone().unwrap().status;
            let found = (sent.restarts, sent.drifts, sent.revision);
            assert_eq!(found, (count, count, revision), "{number}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_overwritten_status_is_reported_again_ever_more_slowly() {
        let directory = tempfile::tempdir().unwrap();
        let (sender, mut receiver) = watch::channel(None);
        let mut reporter = StatusReporter::new(sender, directory.path().join("ready"));
        let mut object = NodePullSecret::new("n", NodePullSecretSpec::default());
        object.metadata.uid = Some("u".to_owned());
        reporter.report(&object, status(Phase::Synced));
        let sent = receiver.borrow_and_update().clone().unwrap().status;
        // In the API server's form.
        let stored = serde_json::from_value(serde_json::to_value(sent).unwrap()).unwrap();
        let overwritten = NodePullSecretStatus {
            revision: 7,
            ..NodePullSecretStatus::clone(&stored)
        };
        let known = |uid: &str, status: &NodePullSecretStatus| {
            let mut object = object.clone();
            object.metadata.uid = Some(uid.to_owned());
            object.status = Some(status.clone());
            SeenObject::Object(Box::new(object))
        };
        for (sentence, known, least, most) in [
            ("the report stays", known("u", &stored), 0, 0),
            ("the object is gone", SeenObject::Absent, 0, 0),
            (
                "another object's status comes later",
                known("other", &overwritten),
                0,
                0,
            ),
            // After 10, 20, 40 ... seconds, or after half of that.
            ("a fight slows down", known("u", &overwritten), 5, 8),
            ("its end ends the repetitions", known("u", &stored), 0, 0),
        ] {
            let (_objects, objects) = watch::channel(known);
            let (version, mut versions) = watch::channel(());
            version.send_replace(());
            let until = Instant::now() + Duration::from_mins(15);
            let mut repeated = 0;
            while Instant::now() < until {
                tokio::select! {
                    _ = reporter.uphold(&objects, &mut versions) => {}
                    () = tokio::time::sleep(Duration::from_secs(1)) => {}
                }
                repeated += u32::from(receiver.has_changed().unwrap());
                assert_eq!(
                    receiver
                        .borrow_and_update()
                        .clone()
                        .unwrap()
                        .status
                        .revision,
                    0
                );
            }
            assert!(
                (least..=most).contains(&repeated),
                "{sentence}: {repeated} repetitions"
            );
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
