//! The desired state of each member cluster, for its session.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use globalps_core::api::{
    ClusterPhase, ClusterPullSecret, ClusterPullSecretStatus, FleetPullSecret,
};
use globalps_core::names::HUB;
use globalps_core::rollout;

use super::Hub;
use super::messages::MemberSpec;
use super::views::pair;
use crate::clusters::input::{ClusterKey, ClusterView, fleet_title};
use crate::clusters::member::{Desired, Release};
use crate::clusters::progress::up_to_date;
use crate::clusters::revision::Revision;

impl Hub {
    /// Sends the desired state to each session of this shard.
    pub(super) fn update_sessions(&mut self, clusters: &BTreeMap<ClusterKey, ClusterView>) {
        let fleets = self.cache.fleets().into_iter();
        let fleets: BTreeMap<String, (FleetPullSecret, Vec<Revision>)> = fleets
            .map(|fleet| {
                let revisions = self.cache.revisions(&fleet);
                (fleet_title(&fleet), (fleet, revisions))
            })
            .collect();
        let Some(own) = self.cache.identity() else {
            return;
        };
        let manager: Arc<str> = format!("{HUB}-{own}").into();
        let mut pairs = BTreeSet::new();
        let mut specs = Vec::new();
        for object in self.cache.own_objects() {
            let Some(pair) = pair(object) else {
                continue;
            };
            let (Some((fleet, revisions)), Some(cluster)) =
                (fleets.get(&pair.0), clusters.get(&pair.1))
            else {
                continue;
            };
            let status = object.status.as_ref();
            let spec = MemberSpec {
                kubeconfig: self.cache.kubeconfig(&pair.1),
                generation: object.metadata.generation.unwrap_or_default(),
                desired: desired_state(object, revisions),
                target: fleet.spec.target.clone(),
                fleet: pair.0.clone(),
                require_nodes: fleet.spec.require_nodes,
                identity: status
                    .filter(|_| cluster.obstacle.is_none() && !cluster.is_deleting)
                    .and_then(|status| status.identity.clone()),
                revision: status.map_or(rollout::Revision::NONE, ClusterPullSecretStatus::in_force),
                is_settled: up_to_date(object)
                    .is_some_and(|status| status.phase == ClusterPhase::Synced),
            };
            pairs.insert(pair.clone());
            specs.push((pair, spec));
        }
        for (pair, spec) in specs {
            self.sessions.update(pair, spec, &manager);
        }
        self.sessions.keep(&pairs);
    }
}

/// The hub writes nothing into a revoked cluster, which continues at its own pace.
fn desired_state(object: &ClusterPullSecret, revisions: &[Revision]) -> Desired {
    let spec = &object.spec;
    if spec.revoked {
        return Desired::Nothing;
    }
    if spec.remove {
        return Desired::Removed;
    }
    let revision = revisions.iter().find(|it| it.revision() == spec.assigned());
    revision.map_or(Desired::Nothing, |it| {
        Desired::Revision(Release {
            revision: it.revision(),
            content: Arc::clone(&it.content),
            install: it.install.clone(),
            retry: spec.retry.clone(),
        })
    })
}
