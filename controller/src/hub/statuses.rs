//! Writes the statuses from the sessions to the `ClusterPullSecret`s.

use futures::StreamExt as _;
use futures::stream;
use globalps_core::api::{ClusterPhase, ClusterPullSecret, ClusterPullSecretStatus};
use globalps_core::rollout::Revision;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::views::pair;
use super::{CONCURRENT, Hub};
use crate::objects::apply::ApplyError;

impl Hub {
    /// Writes the changed statuses. It drops those without an object.
    pub(super) async fn write_statuses(&mut self) -> Result<(), ApplyError> {
        if self.observed.is_empty() {
            return Ok(());
        }
        let observed = std::mem::take(&mut self.observed);
        let now = Timestamp::now();
        let writes: Vec<(ClusterPullSecret, ClusterPullSecretStatus)> = self
            .cache
            .own_objects()
            .filter_map(|object| {
                let pair = pair(object)?;
                let status = dated(object, observed.get(&pair)?, now)?;
                Some((object.clone(), status))
            })
            .collect();
        let hub = &self.writer;
        let mut written = stream::iter(writes)
            .map(|(object, status)| async move { hub.object_status(&object, &status).await })
            .buffer_unordered(CONCURRENT);
        let mut failed = None;
        while let Some(done) = written.next().await {
            match done {
                Ok(object) => self.cache.put_object(object),
                Err(error) if error.is_code(404) => {}
                // An invalid status of one cluster must not block others.
                Err(error) if error.is_code(422) => {
                    tracing::warn!(%error, "the API server rejected the status of a cluster");
                }
                Err(error) => failed = Some(error),
            }
        }
        drop(written);
        if let Some(error) = failed {
            // Keeps newer statuses that may have arrived.
            for (pair, status) in observed {
                self.observed.entry(pair).or_insert(status);
            }
            return Err(error);
        }
        Ok(())
    }
}

/// The complete status with its times; `None`: unchanged.
fn dated(
    object: &ClusterPullSecret,
    observed: &ClusterPullSecretStatus,
    now: Timestamp,
) -> Option<ClusterPullSecretStatus> {
    let none = ClusterPullSecretStatus::default();
    let before = object.status.as_ref().unwrap_or(&none);
    let is_same_phase = before.phase == observed.phase && before.last_transition_time.is_some();
    let has_moved = !is_same_phase || before.nodes != observed.nodes;
    let mut status = observed.clone();
    // A session that has not reached the cluster yet knows no identity.
    let identity = observed.identity.as_ref().or(before.identity.as_ref());
    let is_another = before
        .identity
        .as_ref()
        .is_some_and(|it| Some(it) != identity);
    status.identity = identity.cloned();
    let is_done = matches!(status.phase, ClusterPhase::Synced | ClusterPhase::Removed);
    if is_another {
        // The kubeconfig leads to another cluster now. The hub has not accepted its identity, so it has written nothing there.
        status.set_in_force(Revision::NONE);
    } else if !is_done {
        status.set_in_force(before.in_force());
    }
    status.last_transition_time = if is_same_phase {
        before.last_transition_time.clone()
    } else {
        Some(Time(now))
    };
    status.last_progress_time = if has_moved {
        Some(Time(now))
    } else {
        before.last_progress_time.clone()
    };
    (status != *before || object.status.is_none()).then_some(status)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use globalps_core::api::ClusterPullSecretSpec;

    use super::*;

    #[test]
    fn a_cluster_with_a_new_identity_has_no_revision_in_force() {
        let status = |phase, identity: &str| ClusterPullSecretStatus {
            phase,
            revision: 3,
            identity: Some(identity.to_owned()),
            ..ClusterPullSecretStatus::default()
        };
        let mut object = ClusterPullSecret::new("a", ClusterPullSecretSpec::default());
        object.status = Some(status(ClusterPhase::Synced, "own"));
        for (phase, identity, expected) in [
            (ClusterPhase::Syncing, "own", 3),
            (ClusterPhase::Syncing, "of-another", 0),
            (ClusterPhase::Synced, "of-another", 0),
        ] {
            let dated = dated(&object, &status(phase, identity), Timestamp::UNIX_EPOCH);
            assert_eq!(dated.unwrap().revision, expected, "{phase} {identity}");
        }
    }
}
