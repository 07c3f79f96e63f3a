//! What the node tells of itself: its status, and whether its pod is ready.

use std::path::PathBuf;

use globalps_core::api::{NodePullSecret, NodePullSecretStatus, Phase};
use globalps_core::names::MACHINE_CONFIG_OPERATOR;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::sync::watch;

use crate::journal::Failure;
use crate::node_status::Report;

pub(crate) struct Teller {
    reports: watch::Sender<Option<Report>>,
    told: Option<NodePullSecretStatus>,
    /// uid of the object that `told` was told to: another one knows nothing of it.
    told_to: Option<String>,
    /// The file that the readiness probe looks for.
    ready_file: PathBuf,
}

impl Teller {
    pub(crate) fn new(reports: watch::Sender<Option<Report>>, ready_file: PathBuf) -> Self {
        Self {
            reports,
            told: None,
            told_to: None,
            ready_file,
        }
    }

    /// Restarts of the kubelet as they were told last, for a node that remembers none.
    pub(crate) fn restarts(&self, object: &NodePullSecret) -> i64 {
        self.told
            .as_ref()
            .or(object.status.as_ref())
            .map_or(0, |status| status.restarts)
    }

    /// Hands the status on where it says something new.
    pub(crate) fn tell(&mut self, object: &NodePullSecret, status: NodePullSecretStatus) {
        if self.told_to != object.metadata.uid {
            self.told_to.clone_from(&object.metadata.uid);
            self.told = None;
        }
        let before = self.told.as_ref().or(object.status.as_ref());
        let status = dated(status, before, jiff::Timestamp::now());
        self.mark_ready(matches!(status.phase, Phase::Synced | Phase::Restored));
        if self.told.as_ref() != Some(&status) {
            self.told = Some(status.clone());
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
            tracing::warn!(path = %path.display(), %error, "the readiness of this pod could not be marked");
        }
    }
}

/// What is told of a file that another program is known to manage.
pub(crate) fn of_foreign_owner(owner: &str) -> String {
    let way_on = if owner == MACHINE_CONFIG_OPERATOR {
        "change the cluster's own pull secret instead, with `oc set data secret/pull-secret -n openshift-config \
         --from-file=.dockerconfigjson=FILE`"
    } else {
        "let it write the credentials, or exclude this node"
    };
    format!(
        "{owner} manages the kubelet's credentials file on this node, and globalps leaves it alone: {way_on}"
    )
}

/// Phase, reason and message for a task that did not work out.
pub(crate) fn of_failure(failure: &Failure) -> (Phase, &'static str, String) {
    let (phase, reason, way_on) = if failure.stuck {
        (
            Phase::Failed,
            "KubeletDown",
            "look at the kubelet's journal on the node",
        )
    } else {
        let way_on =
            "the file is what it was before and the kubelet runs; another content is tried again";
        (Phase::RolledBack, "KubeletDidNotStart", way_on)
    };
    (phase, reason, format!("{}; {way_on}", failure.why))
}

/// With the time of its phase: that of `before` where the phase is the same.
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
    use globalps_core::api::NodePullSecretSpec;

    use super::*;

    fn status(phase: Phase) -> NodePullSecretStatus {
        NodePullSecretStatus {
            phase,
            ..NodePullSecretStatus::default()
        }
    }

    #[test]
    fn the_time_changes_with_the_phase_and_only_with_it() {
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
    fn the_pod_is_ready_exactly_while_what_was_granted_is_in_force() {
        let folder = tempfile::tempdir().unwrap();
        let ready = folder.path().join("ready");
        let (sender, receiver) = watch::channel(None);
        let mut teller = Teller::new(sender, ready.clone());
        let object = NodePullSecret::new("n", NodePullSecretSpec::default());
        for (phase, expected) in [
            (Phase::Syncing, false),
            (Phase::Synced, true),
            (Phase::RolledBack, false),
            (Phase::Restored, true),
            (Phase::Failed, false),
        ] {
            teller.tell(&object, status(phase));
            assert_eq!(ready.exists(), expected, "{phase}");
            assert_eq!(receiver.borrow().clone().unwrap().status.phase, phase);
        }
    }

    #[test]
    fn an_object_that_was_made_anew_is_told_the_same_again() {
        let folder = tempfile::tempdir().unwrap();
        let (sender, mut receiver) = watch::channel(None);
        let mut teller = Teller::new(sender, folder.path().join("ready"));
        let mut object = NodePullSecret::new("n", NodePullSecretSpec::default());
        for (uid, expected) in [("first", true), ("first", false), ("second", true)] {
            object.metadata.uid = Some(uid.to_owned());
            teller.tell(&object, status(Phase::Synced));
            assert_eq!(receiver.has_changed().unwrap(), expected, "{uid}");
            receiver.borrow_and_update();
        }
    }
}
