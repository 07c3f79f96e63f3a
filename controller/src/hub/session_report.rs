//! The reports of a session about its cluster.

use std::time::Duration;

use globalps_core::api::{ClusterPhase, ClusterPullSecretStatus, MESSAGE_LIMIT};
use globalps_core::rollout::Revision;
use globalps_planner::clusters::desired::Desired;
use globalps_planner::clusters::member::{DoneCriteria, status};
use globalps_planner::clusters::member_report::MemberReport;
use globalps_planner::clusters::text::sanitized;
use tokio::time::Instant;

use super::clusters::ignored_secret;
use super::messages::MemberSpec;
use super::session::Session;

/// A cluster may lack its `GlobalPullSecret` for this time: its controller creates one after the installation, and other programs replace
/// it by deleting and creating it.
const CONFIG_IS_AWAITED: Duration = Duration::from_mins(1);

impl Session {
    /// When to look again whether the cluster still has no `GlobalPullSecret`; `None`: it has one, or it has had none for long.
    pub(super) fn await_config(&mut self) -> Option<Instant> {
        let is_missing = self.state.report == MemberReport::NoConfig;
        let now = Instant::now();
        let since = is_missing.then(|| self.without_config.unwrap_or(now));
        self.without_config = since;
        let until = since.map(|since| since + CONFIG_IS_AWAITED);
        self.state.lacks_config = until.is_some_and(|until| until <= now);
        until.filter(|_| !self.state.lacks_config)
    }

    /// Reports a changed status to the hub.
    pub(super) fn report(&mut self) {
        let spec = self.specs.borrow().clone();
        let Some(status) = self.status(&spec) else {
            return;
        };
        let report = Some((spec.uid.clone(), status.clone()));
        if self.reported == report {
            return;
        }
        self.reported = report;
        let pair = (spec.fleet.clone(), self.cluster.clone());
        self.shared.observations.send(pair, status);
    }

    /// `None`: the cluster had the desired revision, and its watch has not reported yet. A status now would only show a brief
    /// `Syncing` after each restart of the hub.
    fn status(&self, spec: &MemberSpec) -> Option<ClusterPullSecretStatus> {
        let state = &self.state;
        let criteria = DoneCriteria {
            require_nodes: spec.require_nodes,
            is_additional: spec.target.is_additional(),
        };
        let is_awaited = criteria.require_nodes
            && criteria.is_additional
            && state.report == MemberReport::Unknown
            && state.unreachable.is_none()
            && state.blocked.is_none();
        let is_accepted = spec.accepts(self.identity.as_ref());
        if is_awaited && spec.is_in_force() && is_accepted {
            return None;
        }
        let about = (spec.names(), &*spec.known);
        let mut status = status(state, &spec.desired, about, criteria);
        if spec.ignores_secret {
            let messages = [status.message, ignored_secret(&self.cluster)];
            let message = messages.into_iter().filter(|it| !it.is_empty());
            let message = message.collect::<Vec<_>>().join("; ");
            status.message = sanitized(&message, MESSAGE_LIMIT);
        }
        // Another cluster did not get it from the hub.
        let in_force = match (status.phase, &spec.desired) {
            (ClusterPhase::Synced, Desired::Revision(release)) if is_accepted => release.revision,
            (ClusterPhase::Removed, _) => Revision::NONE,
            // Another client deleted the object while no hub ran.
            (ClusterPhase::Pending, Desired::Nothing) if !spec.revision.is_identified() => {
                let target = state.target.as_ref();
                target.map_or(Revision::NONE, |it| {
                    it.unknown_revision(spec.names(), &spec.known)
                })
            }
            _ => spec.revision,
        };
        status.set_in_force(in_force);
        status.observed_generation = spec.generation;
        spec.pin.report(self.identity.as_deref(), &mut status);
        Some(status)
    }
}
