//! Writes the node's statuses, one at a time, in the background.

use std::time::Duration;

use globalps_core::api::{NodePullSecretStatus, Phase};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::cluster::{BACKOFF, Cluster};

/// Minimum interval between two statuses.
const BETWEEN_REPORTS: Duration = Duration::from_millis(100);
/// Work in progress is reported only if it takes this long. A successful restart takes less, which saves the API server a write
/// for each of thousands of nodes.
const PASSING: Duration = Duration::from_secs(1);

/// Starts the writer. It writes the newest status that it received, and repeats a failed write.
pub(crate) fn start(cluster: Cluster) -> watch::Sender<Option<StatusReport>> {
    let (sender, mut receiver) = watch::channel::<Option<StatusReport>>(None);
    tokio::spawn(async move {
        let mut backoff = BACKOFF;
        while receiver.changed().await.is_ok() {
            while let Some(report) = lasting(&mut receiver).await {
                match cluster.write_status(&report.uid, &report.status).await {
                    Ok(()) => {
                        backoff.reset();
                        break;
                    }
                    // If the object is deleted, the status is obsolete. A conflict means that another object of that name exists,
                    // whose status follows soon, or a concurrent write, after which this write is repeated.
                    Err(error) if error.is_not_found() => break,
                    Err(error) => tracing::warn!(%error, "could not write the status"),
                }
                sleep(backoff.pause()).await;
            }
            sleep(BETWEEN_REPORTS).await;
        }
    });
    sender
}

/// A status and its object.
#[derive(Clone, Debug)]
pub(crate) struct StatusReport {
    pub(crate) uid: String,
    pub(crate) status: NodePullSecretStatus,
}

impl StatusReport {
    /// Work is in progress without a problem.
    fn is_passing(&self) -> bool {
        let status = &self.status;
        matches!(status.phase, Phase::Syncing | Phase::Restoring) && status.reason.is_empty()
    }
}

/// The newest status, once it is worth a write.
async fn lasting(reports: &mut watch::Receiver<Option<StatusReport>>) -> Option<StatusReport> {
    loop {
        let report = reports.borrow_and_update().clone()?;
        let is_over =
            report.is_passing() && matches!(timeout(PASSING, reports.changed()).await, Ok(Ok(())));
        if !is_over {
            return Some(report);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    /// Which phase is written and after how many milliseconds, if the second status comes after 400.
    async fn written(first: Phase, reason: &str, second: Option<Phase>) -> (Phase, u128) {
        let report = |phase, reason: &str| {
            let status = NodePullSecretStatus {
                phase,
                reason: reason.to_owned(),
                ..NodePullSecretStatus::default()
            };
            let uid = String::new();
            Some(StatusReport { uid, status })
        };
        let (sender, mut receiver) = watch::channel(None);
        sender.send_replace(report(first, reason));
        let begun = Instant::now();
        let writer = async {
            let report = lasting(&mut receiver).await.unwrap();
            (report.status.phase, begun.elapsed().as_millis())
        };
        let later = async {
            sleep(Duration::from_millis(400)).await;
            if let Some(second) = second {
                sender.send_replace(report(second, ""));
            }
        };
        tokio::join!(writer, later).0
    }

    #[tokio::test(start_paused = true)]
    async fn work_in_progress_is_reported_only_after_a_second() {
        use Phase::{Restored, Restoring, RolledBack, Synced, Syncing};
        #[rustfmt::skip]
        let cases = [
            ("a quick restart is one write", Syncing, "", Some(Synced), (Synced, 400)),
            ("so is a quick failure", Syncing, "", Some(RolledBack), (RolledBack, 400)),
            ("and a quick restore", Restoring, "", Some(Restored), (Restored, 400)),
            ("a slow change is reported", Syncing, "", None, (Syncing, 1000)),
            ("a problem is reported at once", Syncing, "SecretNotRead", Some(Synced), (Syncing, 0)),
            ("and so is its end", Synced, "", None, (Synced, 0)),
        ];
        for (sentence, first, reason, second, expected) in cases {
            assert_eq!(written(first, reason, second).await, expected, "{sentence}");
        }
    }
}
