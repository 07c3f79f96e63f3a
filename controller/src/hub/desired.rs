//! The desired state of each member cluster, for its session.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use globalps_core::api::{
    ClusterPhase, ClusterPullSecret, ClusterPullSecretStatus, FleetPullSecret,
};
use globalps_core::names::HUB;
use globalps_core::reasons::Reason;
use globalps_core::rollout::Revision;
use globalps_planner::clusters::desired::{Desired, Release};
use globalps_planner::clusters::input::{ClusterKey, ClusterView, Selection, fleet_title, title};
use globalps_planner::clusters::known::Known;
use globalps_planner::clusters::limits::MOST_CONNECTIONS;
use globalps_planner::clusters::progress::up_to_date;
use globalps_planner::clusters::revision::FleetRevision;
use globalps_planner::clusters::trust::Trust;
use globalps_planner::targets::created;
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::Hub;
use super::cache::HubCache;
use super::messages::{MemberOutcome, MemberSpec, Pair};
use super::pins::Pins;
use super::views::pair;

impl Hub {
    /// Sends the desired state to each session of this shard.
    pub(super) fn update_sessions(&mut self, clusters: &BTreeMap<ClusterKey, ClusterView>) {
        let Some(own) = self.cache.identity() else {
            return;
        };
        let manager: Arc<str> = format!("{HUB}-{own}").into();
        let known = self.cache.known();
        // The sessions compare it at each reconcile.
        if *self.known != known {
            self.known = Arc::new(known);
        }
        let specs = member_specs(
            &self.cache,
            clusters,
            (&self.trust, &self.pins),
            &self.known,
        );
        let pairs: BTreeSet<Pair> = specs.iter().map(|(pair, _)| pair.clone()).collect();
        for (pair, spec) in specs {
            self.sessions.update(pair, spec, &manager);
        }
        self.sessions.keep(&pairs);
    }
}

/// The desired state of each member of this shard.
pub(super) fn member_specs(
    cache: &HubCache,
    clusters: &BTreeMap<ClusterKey, ClusterView>,
    (trust, pins): (&Trust, &Pins),
    known: &Arc<Known>,
) -> Vec<(Pair, MemberSpec)> {
    let namespaces = cache.namespaces();
    let fleets = cache.fleets().into_iter();
    let fleets: BTreeMap<String, (FleetPullSecret, Option<Selection>, Vec<FleetRevision>)> = fleets
        .map(|fleet| {
            let revisions = cache.revisions(&fleet);
            let selection = Selection::new(&fleet).ok();
            (fleet_title(&fleet), (fleet, selection, revisions))
        })
        .collect();
    let specs = cache.own_objects().filter_map(|object| {
        let pair = pair(object)?;
        let (fleet, selection, revisions) = fleets.get(&pair.0)?;
        let cluster = clusters.get(&pair.1)?;
        let status = object.status.as_ref();
        // Which clusters an invalid selector selects is unknown.
        let is_selected = selection
            .as_ref()
            .is_none_or(|it| it.selects(&pair.1, cluster, &namespaces));
        let desired = desired_state(object, is_selected, revisions);
        let reaches = object.spec.remove || trust.reaches(fleet, &pair.1.0);
        let spec = MemberSpec {
            kubeconfig: cache.kubeconfig(&pair.1),
            uid: object.uid().unwrap_or_default(),
            generation: object.metadata.generation.unwrap_or_default(),
            desired: trust.limited(fleet, desired),
            target: fleet.spec.target.clone(),
            fleet: pair.0.clone(),
            cluster: title(&pair.1),
            known: Arc::clone(known),
            require_nodes: fleet.spec.require_nodes,
            pin: pins.of(cache, object, &pair.1),
            may_write: cluster.obstacle.is_none() && !cluster.is_deleting && reaches,
            ignores_secret: cluster.ignores_secret,
            revision: status.map_or(Revision::NONE, ClusterPullSecretStatus::in_force),
            outcome: outcome(object),
        };
        Some((created(object), pair, spec))
    });
    connected(specs.collect())
}

/// At most [`MOST_CONNECTIONS`] per namespace, the oldest ones.
fn connected(mut specs: Vec<(Option<Timestamp>, Pair, MemberSpec)>) -> Vec<(Pair, MemberSpec)> {
    if specs.len() > MOST_CONNECTIONS {
        specs.sort_by(|one, other| (&one.0, &one.1).cmp(&(&other.0, &other.1)));
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        specs.retain(|(_, (_, (namespace, _)), _)| {
            let count = counts.entry(namespace.clone()).or_default();
            *count += 1;
            *count <= MOST_CONNECTIONS
        });
    }
    let specs = specs.into_iter();
    specs.map(|(_, pair, spec)| (pair, spec)).collect()
}

fn outcome(object: &ClusterPullSecret) -> MemberOutcome {
    match up_to_date(object) {
        Some(it) if it.phase == ClusterPhase::Synced => MemberOutcome::Synced,
        Some(it) if it.phase == ClusterPhase::Failed && it.reason == Reason::Installing => {
            MemberOutcome::NotInstalled
        }
        _ => MemberOutcome::Open,
    }
}

/// The hub writes nothing into a revoked cluster, which continues at its own pace. It never removes anything from a cluster that is selected:
/// another client may have written that, or the cluster was selected again.
fn desired_state(
    object: &ClusterPullSecret,
    is_selected: bool,
    revisions: &[FleetRevision],
) -> Desired {
    let spec = &object.spec;
    if spec.revoked {
        return Desired::Nothing;
    }
    if spec.remove {
        return if is_selected {
            Desired::Nothing
        } else {
            Desired::Removed
        };
    }
    let revision = revisions.iter().find(|it| it.revision() == spec.assigned());
    let revision = revision.filter(|it| it.revision().is_identified());
    revision.map_or(Desired::Nothing, |it| {
        Desired::Revision(Release {
            revision: it.revision(),
            content: Arc::clone(&it.content),
            install: it.install.clone(),
            retry: spec.retry.clone(),
        })
    })
}
