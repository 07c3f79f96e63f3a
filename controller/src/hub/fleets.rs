//! The `FleetPullSecret`s in the cache.

use std::collections::{BTreeMap, BTreeSet};

use globalps_core::api::{ClusterPullSecret, ClusterPullSecretSpec, FleetPullSecret};
use globalps_core::names::cluster_pull_secret;
use globalps_planner::clusters::input::{ClusterKey, ClusterView, fleet_title, title};
use globalps_planner::clusters::known::Known;

use super::cache::HubCache;
use super::scope::ScopeCache;
use super::views::{key, pair};

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

    /// The fleet's `ClusterPullSecret`s.
    pub(super) fn objects_of(
        &self,
        fleet: &FleetPullSecret,
    ) -> impl Iterator<Item = (ClusterKey, &ClusterPullSecret)> {
        let title = fleet_title(fleet);
        self.objects().filter_map(move |object| {
            // Most are of other fleets.
            let is_of = object.spec.fleet == title;
            let (_, key) = is_of.then(|| pair(object)).flatten()?;
            Some((key, object))
        })
    }

    /// How many more objects of clusters each namespace may have, so that a user with permissions in one of them can't
    /// make the hub connect to ever more clusters.
    pub(super) fn room(
        &self,
        clusters: &BTreeMap<ClusterKey, ClusterView>,
    ) -> BTreeMap<String, usize> {
        let most = self.shard.connections();
        let namespaces = clusters
            .keys()
            .map(|(namespace, _)| (namespace.clone(), most));
        let mut room: BTreeMap<String, usize> = namespaces.collect();
        for object in self.objects() {
            let left = object
                .metadata
                .namespace
                .as_ref()
                .and_then(|it| room.get_mut(it));
            if let Some(left) = left {
                *left = left.saturating_sub(1);
            }
        }
        room
    }

    /// Why the newest version of the fleet can't be decoded.
    pub(super) fn unreadable_fleet(&self, fleet: &FleetPullSecret) -> Option<String> {
        let (namespace, name) = key(fleet);
        let key = format!("{namespace}/{name}");
        let mut scopes = self.scopes.values();
        scopes.find_map(|it| Some(it.fleets.unreadable.get(&key)?.to_string()))
    }

    /// Forgets what no fleet and no cluster of the hub needs. Call it only with complete lists, and in the process that writes all of it:
    /// in another one, the event of a new fleet may come later than those of its objects.
    pub(super) fn forget_foreign(&mut self) {
        let known = self.known();
        let is_needed = |key: &str, spec: &ClusterPullSecretSpec| {
            let (Some((place, name)), Some((namespace, fleet))) =
                (key.split_once('/'), spec.fleet.split_once('/'))
            else {
                return false;
            };
            let cluster = (place.to_owned(), spec.cluster.clone());
            name == cluster_pull_secret(&spec.cluster, namespace, fleet)
                && (known.titles.contains(&spec.fleet) || known.hidden.contains(namespace))
                && (known.clusters.contains(&title(&cluster)) || known.hidden.contains(place))
        };
        for scope in self.scopes.values_mut() {
            scope.objects.forget_foreign(is_needed);
            let (fleets, revisions) = (&scope.fleets, &mut scope.revisions);
            let uids: BTreeSet<(&str, &str)> = fleets
                .unreadable
                .values()
                .map(|it| {
                    (
                        it.namespace(),
                        it.metadata.uid.as_deref().unwrap_or_default(),
                    )
                })
                .collect();
            let by_uid: BTreeMap<&str, &FleetPullSecret> = fleets
                .live
                .values()
                .filter_map(|it| Some((it.metadata.uid.as_deref()?, &**it)))
                .collect();
            revisions.keep_content(|revision| {
                let fleet = by_uid.get(revision.owner.as_str());
                fleet.is_some_and(|fleet| revision.is_of(fleet))
                    || uids.contains(&(revision.id.key.0.as_str(), revision.owner.as_str()))
            });
        }
    }

    pub(super) fn known(&self) -> Known {
        let name = |key: &String| key.clone();
        let of = |scope: &ScopeCache| {
            let fleets = &scope.fleets;
            let unreadable = fleets.unreadable.keys().map(name);
            let titles: Vec<String> = fleets.live.keys().map(name).chain(unreadable).collect();
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
