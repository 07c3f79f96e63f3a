//! Which fleet writes a Secret that several name as their target.

use std::collections::BTreeMap;

use globalps_core::api::{ClusterPhase, ClusterPullSecret, FleetPullSecret};
use globalps_core::reasons::Reason;
use globalps_planner::clusters::input::{ClusterKey, fleet_title};
use globalps_planner::clusters::progress::has_nothing;

use super::cache::HubCache;

/// By target (`NAMESPACE/NAME`) and cluster.
#[derive(Default)]
pub(super) struct Targets(BTreeMap<(String, ClusterKey), String>);

impl Targets {
    /// The targets that have content of a fleet, or are about to: none loses one to an older fleet that selects the cluster later. Among
    /// the others, age decides. `fleets`: oldest first.
    pub(super) fn new(cache: &HubCache, fleets: &[FleetPullSecret]) -> Self {
        let mut targets = Self::default();
        for has in [|it: &_| !has_nothing(it), is_written] {
            for fleet in fleets {
                let objects = cache.objects_of(fleet);
                for (key, _) in objects.filter(|(_, object)| has(object)) {
                    targets.take(fleet, key);
                }
            }
        }
        targets
    }

    /// The fleet writes it, unless another one does.
    pub(super) fn take(&mut self, fleet: &FleetPullSecret, cluster: ClusterKey) {
        let known = self.0.entry((place_of(fleet), cluster));
        known.or_insert_with(|| fleet_title(fleet));
    }

    /// The clusters in which another fleet writes this one's target, with that fleet's name.
    pub(super) fn of_others(&self, fleet: &FleetPullSecret) -> BTreeMap<ClusterKey, String> {
        let (own, own_place) = (fleet_title(fleet), place_of(fleet));
        let taken = self.0.iter();
        let taken = taken.filter(|((place, _), by)| *place == own_place && **by != own);
        taken
            .map(|((_, cluster), by)| (cluster.clone(), by.clone()))
            .collect()
    }
}

/// The hub may have written there, though the revision is not in force yet.
fn is_written(object: &ClusterPullSecret) -> bool {
    let spec = &object.spec;
    let status = object
        .status
        .as_ref()
        .filter(|_| spec.revision > 0 && !spec.revoked);
    status.is_some_and(|status| match status.phase {
        ClusterPhase::Syncing | ClusterPhase::Failed => true,
        ClusterPhase::Blocked => status.reason != Reason::Conflict,
        _ => false,
    })
}

fn place_of(fleet: &FleetPullSecret) -> String {
    let target = &fleet.spec.target;
    format!("{}/{}", target.namespace, target.name)
}

#[cfg(test)]
mod tests {
    use globalps_core::api::{ClusterPullSecretSpec, ClusterPullSecretStatus};
    use globalps_core::names::cluster_pull_secret;
    use serde_json::json;

    use super::*;

    /// `fleet` has an object for the cluster, with this revision there.
    fn put(cache: &mut HubCache, fleet: &str, cluster: &str, revision: i64) {
        let spec = ClusterPullSecretSpec {
            fleet: format!("ns/{fleet}"),
            cluster: cluster.to_owned(),
            ..ClusterPullSecretSpec::default()
        };
        let name = cluster_pull_secret(cluster, "ns", fleet);
        let mut object = ClusterPullSecret::new(&name, spec);
        object.metadata.namespace = Some("ns".to_owned());
        object.status = Some(ClusterPullSecretStatus {
            revision,
            ..ClusterPullSecretStatus::default()
        });
        cache.put_object(object);
    }

    #[test]
    fn an_older_fleet_takes_no_target_that_has_content_of_another() {
        let fleet = |name: &str| {
            let spec = json!({"secretRef": {"name": "shared"}});
            let mut fleet = FleetPullSecret::new(name, serde_json::from_value(spec).unwrap());
            fleet.metadata.namespace = Some("ns".to_owned());
            fleet
        };
        let (older, newer) = (fleet("older"), fleet("newer"));
        let mut cache = HubCache::new(&[], "0/1".parse().unwrap());
        put(&mut cache, "older", "a", 0);
        put(&mut cache, "newer", "a", 3);
        let key = |cluster: &str| ("ns".to_owned(), cluster.to_owned());
        let mut targets = Targets::new(&cache, &[older.clone(), newer.clone()]);
        for cluster in ["a", "b"] {
            targets.take(&older, key(cluster));
            targets.take(&newer, key(cluster));
        }
        let other = |cluster: &str, by: &str| [(key(cluster), format!("ns/{by}"))].into();
        assert_eq!(targets.of_others(&older), other("a", "newer"));
        assert_eq!(targets.of_others(&newer), other("b", "older"));
        let mut elsewhere = fleet("elsewhere");
        elsewhere.spec.target.name = "another".to_owned();
        assert_eq!(targets.of_others(&elsewhere), BTreeMap::new());
    }
}
