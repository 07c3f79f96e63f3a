//! The `FleetPullSecret`s in the cache.

use globalps_core::api::{ClusterPullSecret, FleetPullSecret};

use super::cache::HubCache;
use super::scope::Scope;
use super::views::{key, pair};
use crate::clusters::input::{ClusterKey, fleet_title};
use crate::clusters::known::Known;

impl HubCache {
    /// Oldest first: if two have the same target, the older one writes it.
    pub(super) fn fleets(&self) -> Vec<FleetPullSecret> {
        let fleets = self.scopes.values().flat_map(|it| it.fleets.live.values());
        let mut fleets: Vec<FleetPullSecret> = fleets.map(|fleet| (**fleet).clone()).collect();
        fleets.sort_by_key(|fleet| {
            let created = fleet.metadata.creation_timestamp.as_ref();
            (created.map(|time| time.0), key(fleet))
        });
        fleets
    }

    /// Its `ClusterPullSecret`s.
    pub(super) fn objects_of(
        &self,
        fleet: &FleetPullSecret,
    ) -> impl Iterator<Item = (ClusterKey, &ClusterPullSecret)> {
        let title = fleet_title(fleet);
        self.objects().filter_map(move |object| {
            let (of, key) = pair(object)?;
            (of == title).then_some((key, object))
        })
    }

    /// Why the newest version of the fleet can't be decoded.
    pub(super) fn unreadable_fleet(&self, fleet: &FleetPullSecret) -> Option<String> {
        let (namespace, name) = key(fleet);
        let key = format!("{namespace}/{name}");
        let mut scopes = self.scopes.values();
        scopes.find_map(|it| Some(it.fleets.unreadable.get(&key)?.to_string()))
    }

    pub(super) fn known(&self) -> Known {
        let title = |key: &String| key.clone();
        let of = |scope: &Scope| {
            let fleets = &scope.fleets;
            let unreadable = fleets.unreadable.keys().map(title);
            let titles: Vec<String> = fleets.live.keys().map(title).chain(unreadable).collect();
            titles
        };
        let is_all = self.scopes.contains_key("");
        Known {
            titles: self.scopes.values().flat_map(of).collect(),
            clusters: self.cluster_titles(),
            namespaces: (!is_all).then(|| self.scopes.keys().cloned().collect()),
            hidden: self.hidden().into_keys().collect(),
        }
    }
}
