//! Writes the statuses from the sessions to the `ClusterPullSecret`s.

use std::collections::{BTreeMap, BTreeSet};

use globalps_core::api::{
    ClusterPhase, ClusterPullSecret, ClusterPullSecretStatus, FleetPullSecret,
};
use globalps_core::rollout::Revision;
use globalps_planner::clusters::input::{ClusterKey, object_title, revision_title};
use globalps_planner::clusters::plan::FleetPlan;
use globalps_planner::refused::title;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;

use super::Hub;
use super::cache::HubCache;
use super::events::{event, record};
use super::messages::Pair;
use super::views::pair;

/// Statuses of a namespace that one reconcile writes.
const MOST_WRITES: usize = 500;

impl Hub {
    /// Writes the changed statuses, also those that another client changed. It drops those without an object. Returns whether some are
    /// left: a namespace whose clusters all change their status without end delays no other one.
    pub(super) async fn write_statuses(&mut self) -> bool {
        let observed = std::mem::take(&mut self.observed);
        let mut writes = due(&self.cache, &observed, Timestamp::now());
        let all = writes.len();
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        writes.retain(|(object, _)| {
            let count = counts.entry(object.namespace().unwrap_or_default());
            let count = count.or_default();
            *count += 1;
            *count <= MOST_WRITES
        });
        let is_left = writes.len() < all;
        let hub = &self.writer;
        let calls = writes.iter().map(|(object, status)| {
            let call = async move {
                match hub.object_status(object, status).await {
                    Err(error) if error.is_absent() => Ok(None),
                    done => done.map(|written| Some((written, event(object, status)))),
                }
            };
            (status_title(object), call)
        });
        let written = self.refusals.all(calls).await;
        for (object, event) in written.done.into_iter().flatten() {
            self.cache.put_status(object);
            if let Some(event) = event {
                record(&self.client, event);
            }
        }
        if is_left || !written.is_complete {
            // Keeps newer statuses that may have arrived.
            for (pair, status) in observed {
                self.observed.entry(pair).or_insert(status);
            }
        }
        is_left
    }
}

/// The objects with the statuses to write: what the sessions report, and otherwise what it was before another client changed it.
pub(super) fn due(
    cache: &HubCache,
    observed: &BTreeMap<Pair, ClusterPullSecretStatus>,
    now: Timestamp,
) -> Vec<(ClusterPullSecret, ClusterPullSecretStatus)> {
    let has_changed = cache
        .scopes
        .values()
        .any(|it| it.objects.has_changed_statuses());
    if observed.is_empty() && !has_changed {
        return Vec::new();
    }
    let is_changed = |object: &ClusterPullSecret| {
        let mut scopes = cache.scopes.values();
        has_changed && scopes.any(|it| it.objects.is_status_changed(object))
    };
    let status = |object: &ClusterPullSecret| {
        // An object that says another fleet than its name does has no session, but its status is the hub's all the same.
        let reported = pair(object).and_then(|pair| observed.get(&pair));
        let reported = reported.and_then(|it| dated(object, it, now));
        let again = || is_changed(object).then(|| object.status.clone().unwrap_or_default());
        reported.or_else(again)
    };
    let own = cache.own_objects();
    own.filter_map(|object| Some((object.clone(), status(object)?)))
        .collect()
}

/// Title of the object's status among the failed writes.
fn status_title(object: &ClusterPullSecret) -> String {
    let namespace = object.namespace().unwrap_or_default();
    let name = format!("{namespace}/{}", object.name_any());
    title("status of ClusterPullSecret", &name)
}

/// Titles of the objects that the plan writes, among the failed writes.
pub(super) fn titles(
    fleet: &FleetPullSecret,
    plan: &FleetPlan,
    objects: &BTreeMap<ClusterKey, &ClusterPullSecret>,
    own: String,
) -> BTreeSet<String> {
    let revisions = plan.revisions.iter().map(|revision| revision.number);
    let revisions = revisions.chain(plan.outdated.iter().copied());
    let members = plan.members.iter().map(|(key, _)| key);
    let statuses = objects.values().map(|object| status_title(object));
    revisions
        .map(|number| revision_title(fleet, number))
        .chain(
            members
                .chain(&plan.released)
                .map(|key| object_title(key, fleet)),
        )
        .chain(statuses)
        .chain([own])
        .collect()
}

/// The complete status with its times; `None`: unchanged.
pub(super) fn dated(
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
    } else if !is_done && before.in_force().is_identified() {
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
mod tests {
    use globalps_core::api::ClusterPullSecretSpec;
    use globalps_runtime::list_events::Event;
    use globalps_runtime::list_watch::Update;

    use super::super::watches::HubEvent;
    use super::*;

    #[test]
    fn a_foreign_status_is_replaced_whatever_fleet_the_spec_says() {
        let mut cache = HubCache::new(&[], "0/1".parse().unwrap());
        let mut watch = |version: &str, phase| {
            let spec = ClusterPullSecretSpec {
                fleet: "ns/other".to_owned(),
                cluster: "a".to_owned(),
                ..ClusterPullSecretSpec::default()
            };
            let mut object = ClusterPullSecret::new("a.ns.shared", spec);
            object.metadata.namespace = Some("ns".to_owned());
            object.metadata.resource_version = Some(version.to_owned());
            object.status = Some(ClusterPullSecretStatus {
                phase,
                ..ClusterPullSecretStatus::default()
            });
            let event = Update::Event(Event::Apply(Box::new(object)));
            cache.handle((String::new(), HubEvent::Object(event)));
        };
        watch("1", ClusterPhase::Synced);
        watch("2", ClusterPhase::Failed);
        let due = due(&cache, &BTreeMap::new(), Timestamp::UNIX_EPOCH);
        let [(object, status)] = due.try_into().unwrap();
        assert_eq!(object.name_any(), "a.ns.shared");
        assert_eq!(status.phase, ClusterPhase::Synced);
    }

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
