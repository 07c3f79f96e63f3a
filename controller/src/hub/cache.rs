//! Cache of the management cluster: fleets, clusters, kubeconfigs, revisions and `ClusterPullSecret`s.

use std::collections::{BTreeMap, BTreeSet};

use globalps_core::api::{ClusterPullSecret, ClusterPullSecretSpec, FleetPullSecret};
use globalps_core::decode::Unreadable;
use globalps_core::names::{FLEET_LABEL, fleet_revision};
use globalps_planner::clusters::input::{ClusterKey, Drift, Hidden, fleet_title};
use globalps_planner::clusters::revision::FleetRevision;
use globalps_planner::clusters::shard::Shard;
use globalps_runtime::list_events::Event;
use globalps_runtime::list_watch::Update;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;

use super::objects::{cluster_of, connects, owner_uid};
use super::scope::ScopeCache;
use super::views::{NamespaceLabels, RevisionSecret, key, pair, revision};
use super::watches::{HubEvent, Scoped, scopes};
use super::writes::object_name;
use crate::cache::kept::Bounded as _;
use crate::cache::store::Store;

pub(super) struct HubCache {
    /// By namespace; the empty string stands for all namespaces.
    pub(super) scopes: BTreeMap<String, ScopeCache>,
    namespaces: Store<NamespaceLabels>,
    /// Namespaces and names of Secrets that are named like revisions and have no label of them.
    taken: BTreeSet<ClusterKey>,
    /// The cache drops kubeconfigs of other shards.
    pub(super) shard: Shard,
}

impl HubCache {
    pub(super) fn new(namespaces: &[String], shard: Shard) -> Self {
        let scopes = scopes(namespaces).into_iter();
        Self {
            scopes: scopes.map(|scope| (scope, ScopeCache::default())).collect(),
            namespaces: Store::default(),
            taken: BTreeSet::new(),
            shard,
        }
    }

    /// Returns whether the event may change the plan.
    pub(super) fn handle(&mut self, (name, event): Scoped) -> bool {
        let is_hidden = |it: &Self| it.scopes.get(&name).is_some_and(ScopeCache::is_hidden);
        let before = is_hidden(self);
        let changed = self.store(&name, event);
        self.empty_deleted();
        changed || before != is_hidden(self)
    }

    fn store(&mut self, scope: &str, event: HubEvent) -> bool {
        if let HubEvent::Namespace(update) = event {
            return self.namespaces.handle(update);
        }
        let shard = self.shard;
        let Some(scope) = self.scopes.get_mut(scope) else {
            return false;
        };
        match event {
            HubEvent::Namespace(_) => false,
            HubEvent::Fleet(update) => scope.fleets.handle(update),
            HubEvent::Object(update) => {
                // A shard that doesn't plan only reacts to its own clusters.
                let is_relevant = match &update {
                    Update::Event(Event::Apply(object) | Event::Delete(object)) => {
                        let (namespace, name) = cluster_of(object);
                        shard.concerns(namespace, name)
                    }
                    _ => true,
                };
                scope.objects.handle(update, shard) && is_relevant
            }
            HubEvent::Cluster(update) => {
                let is_listed = matches!(&update, Update::Event(Event::InitDone));
                scope.has_no_clusters &= !is_listed;
                scope.clusters.handle(update)
            }
            HubEvent::NoClusterApi => !std::mem::replace(&mut scope.has_no_clusters, true),
            HubEvent::Kubeconfig(update) => {
                // Any Secret can have the label.
                let update = match update.map(|it| it.for_shard(shard)) {
                    Update::Event(Event::Apply(it)) if !it.is_of_cluster_api() => {
                        Update::Event(Event::Delete(it))
                    }
                    Update::Event(Event::InitApply(it)) if !it.is_of_cluster_api() => {
                        return false;
                    }
                    update => update,
                };
                scope.kubeconfigs.handle(update)
            }
            HubEvent::Registered(update) => scope
                .registered
                .handle(update.map(|it| it.for_shard(shard))),
            HubEvent::Revision(update) => scope.revisions.handle(update, shard.plans()),
        }
    }

    pub(super) fn synced(&self) -> bool {
        let is_known =
            |(name, it): (&String, &ScopeCache)| it.synced() || !name.is_empty() && it.is_hidden();
        self.namespaces.synced && self.scopes.iter().all(is_known)
    }

    pub(super) fn is_full(&self) -> bool {
        self.scopes.values().any(ScopeCache::is_full)
    }

    /// The namespaces that the hub serves; empty: all.
    pub(super) fn namespace_names(&self) -> Vec<String> {
        let names = self.scopes.keys().filter(|name| !name.is_empty());
        names.cloned().collect()
    }

    /// The namespaces that exist, and that the hub may not read.
    pub(super) fn hidden(&self) -> Hidden {
        let hidden = self.scopes.iter().filter(|(_, it)| it.is_hidden());
        let of = hidden.filter(|(name, _)| self.exists(name));
        of.map(|(name, _)| {
            let known = self.namespaces.get(&format!("/{name}"));
            (name.clone(), known.is_some_and(|it| it.is_deleting))
        })
        .collect()
    }

    fn exists(&self, namespace: &str) -> bool {
        let key = format!("/{namespace}");
        let namespaces = &self.namespaces;
        namespaces.live.contains_key(&key) || namespaces.unreadable.contains_key(&key)
    }

    /// The Roles of a namespace go with it, so no watch reports that the rest is gone, too.
    fn empty_deleted(&mut self) {
        if !self.namespaces.synced {
            return;
        }
        let hidden = self.scopes.iter().filter(|(_, it)| it.is_hidden());
        let deleted = hidden.filter(|(name, _)| !name.is_empty() && !self.exists(name));
        let deleted: Vec<String> = deleted.map(|(name, _)| name.clone()).collect();
        for name in deleted {
            self.scopes.entry(name).or_default().empty();
        }
    }

    /// Stores the response to a write of a status.
    pub(super) fn put_status(&mut self, object: ClusterPullSecret) {
        let shard = self.shard;
        let namespace = object.namespace().unwrap_or_default();
        if let Some(scope) = self.scope_mut(&namespace) {
            scope.objects.put_status(object, shard);
        }
    }

    /// Stores the response to a write of a spec.
    pub(super) fn put_object(&mut self, object: ClusterPullSecret) {
        let shard = self.shard;
        let namespace = object.namespace().unwrap_or_default();
        if let Some(scope) = self.scope_mut(&namespace) {
            scope.objects.put_written(object, shard);
        }
    }

    /// The write of the object with this name has no response: it may have taken effect.
    pub(super) fn wrote_without_response(
        &mut self,
        namespace: &str,
        name: &str,
        spec: ClusterPullSecretSpec,
    ) {
        if let Some(scope) = self.scope_mut(namespace) {
            let key = format!("{namespace}/{name}");
            scope.objects.wrote_without_response(&key, spec);
        }
    }

    /// The hub has deleted the object with this name.
    pub(super) fn release(&mut self, namespace: &str, name: &str) {
        if let Some(scope) = self.scope_mut(namespace) {
            scope.objects.release(&format!("{namespace}/{name}"));
        }
    }

    /// The cluster's object of this fleet.
    pub(super) fn object(
        &self,
        (namespace, cluster): &ClusterKey,
        fleet: &FleetPullSecret,
    ) -> Option<&ClusterPullSecret> {
        let scopes = &self.scopes;
        let scope = scopes.get(namespace).or_else(|| scopes.get(""))?;
        let key = format!("{namespace}/{}", object_name(cluster, fleet));
        scope.objects.store.get(&key).map(|it| &**it)
    }

    /// Changes by other clients to the fleet's objects and revisions.
    pub(super) fn drift(&self, fleet: &FleetPullSecret) -> Drift {
        let title = fleet_title(fleet);
        let of_fleet = |object: &ClusterPullSecret| {
            let (of, cluster) = pair(object)?;
            (of == title).then_some(cluster)
        };
        let mut drift = Drift::default();
        for ScopeCache {
            objects, revisions, ..
        } in self.scopes.values()
        {
            let own = revisions.store.live.values().filter(|it| it.is_of(fleet));
            let changed = own.filter(|it| revisions.is_changed(it));
            drift.revisions.extend(changed.map(|it| it.revision.number));
            for object in objects.store.live.values() {
                if objects.is_changed(object) {
                    drift.changed.extend(of_fleet(object));
                }
                if objects.is_recreated(object) {
                    drift.recreated.extend(of_fleet(object));
                }
            }
            // The garbage collector deletes the object of a deleted cluster.
            let deleted = objects.deleted().filter_map(|object| {
                let cluster = of_fleet(object)?;
                let is_current = self.owns(&cluster, owner_uid(object)?);
                is_current.then(|| (cluster, object.spec.clone()))
            });
            drift.deleted.extend(deleted);
        }
        drift
    }

    pub(super) fn put_revision(&mut self, secret: &Secret) {
        let namespace = secret.namespace().unwrap_or_default();
        if let Some(scope) = self.scope_mut(&namespace) {
            scope.revisions.put_written(revision(secret));
        }
    }

    /// The hub writes this revision now. The response may get lost.
    pub(super) fn expect_revision(&mut self, fleet: &FleetPullSecret, revision: &FleetRevision) {
        let (namespace, name) = key(fleet);
        let key = format!("{namespace}/{}", fleet_revision(&name, revision.number));
        if let Some(scope) = self.scope_mut(&namespace) {
            scope.revisions.expect(key, revision.clone());
        }
    }

    /// The next revision gets another number.
    pub(super) fn put_taken(&mut self, fleet: &FleetPullSecret, number: i64) {
        let (namespace, name) = key(fleet);
        self.taken
            .insert((namespace, fleet_revision(&name, number)));
    }

    pub(super) fn put_fleet(&mut self, fleet: FleetPullSecret) {
        let namespace = fleet.namespace().unwrap_or_default();
        if let Some(scope) = self.scope_mut(&namespace) {
            scope.fleets.put(Box::new(fleet));
        }
    }

    fn scope_mut(&mut self, namespace: &str) -> Option<&mut ScopeCache> {
        let scope = if self.scopes.contains_key(namespace) {
            namespace
        } else {
            ""
        };
        self.scopes.get_mut(scope)
    }

    /// `ClusterPullSecret`s that can't be decoded.
    pub(super) fn unreadable_objects(&self) -> impl Iterator<Item = &Unreadable> {
        let scopes = self.scopes.values();
        scopes.flat_map(|it| it.objects.store.unreadable.values().map(AsRef::as_ref))
    }

    /// Every object that can't be decoded: kind, namespace and name, and why.
    pub(super) fn unreadable(&self) -> BTreeSet<String> {
        let of_scopes = self.scopes.values().flat_map(|it| {
            [
                ("FleetPullSecret", &it.fleets.unreadable),
                ("ClusterPullSecret", &it.objects.store.unreadable),
                ("Cluster", &it.clusters.unreadable),
                ("Secret", &it.kubeconfigs.unreadable),
                ("Secret", &it.registered.unreadable),
                ("Secret", &it.revisions.store.unreadable),
            ]
        });
        let all = of_scopes.chain([("Namespace", &self.namespaces.unreadable)]);
        all.flat_map(|(kind, objects)| objects.values().map(move |object| object.titled(kind)))
            .collect()
    }

    /// `ClusterPullSecret`s of all fleets.
    pub(super) fn objects(&self) -> impl Iterator<Item = &ClusterPullSecret> {
        let scopes = self.scopes.values();
        scopes.flat_map(|scope| scope.objects.store.live.values().map(|it| &**it))
    }

    /// The objects of the clusters that this shard connects to.
    pub(super) fn own_objects(&self) -> impl Iterator<Item = &ClusterPullSecret> {
        self.objects().filter(|it| connects(self.shard, it))
    }

    /// Oldest first. Without revisions of an earlier `FleetPullSecret` with the same name that are not yet garbage-collected.
    pub(super) fn revisions(&self, fleet: &FleetPullSecret) -> Vec<FleetRevision> {
        let mut revisions: Vec<FleetRevision> = self
            .revisions_of(fleet)
            .map(|it| it.revision.clone())
            .filter(|it| it.number > 0)
            .collect();
        revisions.sort_by_key(|it| it.number);
        revisions
    }

    fn revisions_of(&self, fleet: &FleetPullSecret) -> impl Iterator<Item = &RevisionSecret> {
        let scopes = self.scopes.values();
        let all = scopes.flat_map(|it| it.revisions.store.live.values());
        all.filter(|it| it.is_of(fleet))
    }

    /// Why the fleet can change nothing: the content of one of its revisions is not kept.
    pub(super) fn left_out(&self, fleet: &FleetPullSecret) -> Option<String> {
        let left_out = self.revisions_of(fleet).find(|it| it.is_left_out)?;
        let (namespace, name) = &left_out.id.key;
        Some(format!(
            "the revisions in namespace `{namespace}` have more than {} MiB, and the hub does not keep the content of Secret `{name}`: clusters keep what they have until other FleetPullSecrets or Secrets with the label `{FLEET_LABEL}` are deleted there",
            RevisionSecret::MOST_CONTENT >> 20
        ))
    }

    /// Names of Secrets that are named like its revisions and have another owner.
    pub(super) fn foreign_revisions(&self, fleet: &FleetPullSecret) -> BTreeSet<String> {
        let (namespace, name) = key(fleet);
        let scopes = self.scopes.values();
        let all = scopes.flat_map(|it| it.revisions.store.live.values());
        let labelled = all.filter(|it| !it.is_of(fleet)).map(|it| &it.id.key);
        let foreign = labelled.chain(&self.taken);
        let foreign =
            foreign.filter(|(place, secret)| *place == namespace && secret.starts_with(&name));
        foreign.map(|(_, secret)| secret.clone()).collect()
    }

    pub(super) fn namespaces(&self) -> BTreeMap<String, BTreeMap<String, String>> {
        let namespaces = self.namespaces.live.values();
        namespaces
            .map(|it| (it.id.key.1.clone(), it.labels.clone()))
            .collect()
    }

    /// uid of the management cluster's own `kube-system`.
    pub(super) fn identity(&self) -> Option<&str> {
        let kube_system = self.namespaces.get("/kube-system")?;
        Some(&kube_system.id.uid)
    }
}

#[cfg(test)]
mod tests {
    use super::super::views::Id;
    use super::*;
    use globalps_runtime::list_watch::WatchError;

    #[test]
    fn clusters_of_other_shards_wake_only_a_shard_that_plans() {
        let event = |cluster: &str| {
            let spec = ClusterPullSecretSpec {
                cluster: cluster.to_owned(),
                ..ClusterPullSecretSpec::default()
            };
            let mut object = ClusterPullSecret::new(cluster, spec);
            object.metadata.namespace = Some("fleet".to_owned());
            let event = Event::Apply(Box::new(object));
            (String::new(), HubEvent::Object(Update::Event(event)))
        };
        let woken_by = |shard: &str| -> usize {
            let mut cache = HubCache::new(&[], shard.parse().unwrap());
            let names = (0..100).map(|number| format!("cluster-{number}"));
            names.filter(|name| cache.handle(event(name))).count()
        };
        assert_eq!(woken_by("0/4"), 100);
        let others = woken_by("1/4") + woken_by("2/4") + woken_by("3/4");
        assert!((50..100).contains(&others), "{others}");
    }

    /// Feeds the events of a namespace's watches, in this order.
    fn watch_all(cache: &mut HubCache, scope: &str, update: fn() -> Seen) -> bool {
        let mut changed = false;
        for event in [
            HubEvent::Fleet(update().of()),
            HubEvent::Object(update().of()),
            HubEvent::Cluster(update().of()),
            HubEvent::Kubeconfig(update().of()),
            HubEvent::Registered(update().of()),
            HubEvent::Revision(update().of()),
        ] {
            changed |= cache.handle((scope.to_owned(), event));
        }
        changed
    }

    enum Seen {
        Listed,
        Forbidden,
        Failed,
        Stale,
    }

    impl Seen {
        fn of<T>(self) -> Update<T> {
            let failed = |is_forbidden| {
                Update::Failed(WatchError {
                    message: String::new(),
                    is_forbidden,
                    is_not_served: false,
                })
            };
            match self {
                Self::Listed => Update::Event(Event::InitDone),
                Self::Forbidden => failed(true),
                Self::Failed => failed(false),
                Self::Stale => Update::Stale,
            }
        }
    }

    fn namespace(name: &str) -> NamespaceLabels {
        NamespaceLabels {
            id: Id {
                key: (String::new(), name.to_owned()),
                uid: name.to_owned(),
                version: 1,
                created: None,
            },
            labels: BTreeMap::new(),
            is_deleting: false,
        }
    }

    #[test]
    fn only_an_answer_without_cluster_api_means_no_clusters() {
        let mut cache = HubCache::new(&[], "0/1".parse().unwrap());
        let mut handle = |event| cache.handle((String::new(), event));
        handle(HubEvent::Namespace(Update::Event(Event::InitDone)));
        handle(HubEvent::Fleet(Seen::Listed.of()));
        handle(HubEvent::Object(Seen::Listed.of()));
        handle(HubEvent::Kubeconfig(Seen::Listed.of()));
        handle(HubEvent::Registered(Seen::Listed.of()));
        handle(HubEvent::Revision(Seen::Listed.of()));
        handle(HubEvent::Cluster(Update::Failed(WatchError {
            message: String::new(),
            is_forbidden: false,
            is_not_served: true,
        })));
        assert!(!cache.synced(), "the version may be another one");
        let mut handle = |event| cache.handle((String::new(), event));
        assert!(handle(HubEvent::NoClusterApi));
        assert!(!handle(HubEvent::NoClusterApi), "nothing new");
        assert!(cache.synced());
        // Cluster API was installed.
        let mut handle = |event| cache.handle((String::new(), event));
        assert!(handle(HubEvent::Cluster(Seen::Listed.of())));
        assert!(cache.synced());
        let mut handle = |event| cache.handle((String::new(), event));
        handle(HubEvent::Cluster(Seen::Failed.of()));
        handle(HubEvent::Cluster(Seen::Stale.of()));
        assert!(!cache.synced(), "then it is listed like the others");
    }

    /// A cache with a fleet in each of two namespaces.
    fn cache_of_two() -> HubCache {
        let names = ["team-a".to_owned(), "team-b".to_owned()];
        let mut cache = HubCache::new(&names, "0/1".parse().unwrap());
        let mut handle = |event| cache.handle((String::new(), HubEvent::Namespace(event)));
        handle(Update::Event(Event::InitDone));
        for name in &names {
            handle(Update::Event(Event::Apply(namespace(name))));
        }
        for name in &names {
            watch_all(&mut cache, name, || Seen::Listed);
            let spec = serde_json::from_str(r#"{"secretRef": {"name": "shared"}}"#).unwrap();
            let mut fleet = FleetPullSecret::new("shared", spec);
            fleet.metadata.namespace = Some(name.clone());
            cache.put_fleet(fleet);
        }
        assert!(cache.synced() && cache.hidden().is_empty());
        cache
    }

    fn hidden(cache: &HubCache) -> Vec<String> {
        cache.hidden().into_keys().collect()
    }

    #[test]
    fn a_namespace_that_the_hub_may_not_read_is_not_waited_for() {
        let mut cache = cache_of_two();
        watch_all(&mut cache, "team-b", || Seen::Forbidden);
        assert!(cache.synced() && cache.hidden().is_empty(), "not stale yet");
        let changed = watch_all(&mut cache, "team-b", || Seen::Stale);
        assert!(changed && cache.synced(), "the others go on at once");
        assert_eq!(hidden(&cache), ["team-b"]);
        assert_eq!(cache.fleets().len(), 2, "what is known of it stays");
        assert!(watch_all(&mut cache, "team-b", || Seen::Listed));
        assert!(cache.synced() && cache.hidden().is_empty(), "granted again");

        watch_all(&mut cache, "team-b", || Seen::Failed);
        watch_all(&mut cache, "team-b", || Seen::Stale);
        assert!(!cache.synced(), "no answer is waited for");
    }

    #[test]
    fn a_hub_that_starts_without_a_right_does_not_wait_for_it() {
        let mut cache = cache_of_two();
        cache
            .scopes
            .insert("team-b".to_owned(), ScopeCache::default());
        assert!(!cache.synced());
        assert!(watch_all(&mut cache, "team-b", || Seen::Forbidden));
        assert!(cache.synced());
        assert_eq!(hidden(&cache), ["team-b"]);
    }

    #[test]
    fn a_namespace_that_is_gone_is_empty() {
        let mut cache = cache_of_two();
        watch_all(&mut cache, "team-b", || Seen::Forbidden);
        watch_all(&mut cache, "team-b", || Seen::Stale);
        let mut handle = |event| cache.handle((String::new(), HubEvent::Namespace(event)));
        assert!(handle(Update::Event(Event::Delete(namespace("team-b")))));
        assert!(cache.synced() && cache.hidden().is_empty());
        let left = cache.fleets();
        let left: Vec<_> = left.iter().map(|it| key(it).0).collect();
        assert_eq!(left, ["team-a"]);
        // Another one with its name.
        cache.handle((
            String::new(),
            HubEvent::Namespace(Update::Event(Event::Apply(namespace("team-b")))),
        ));
        assert_eq!(
            (cache.synced(), hidden(&cache)),
            (true, vec!["team-b".to_owned()])
        );
    }

    #[test]
    fn without_any_right_the_hub_of_all_namespaces_waits() {
        let mut cache = HubCache::new(&[], "0/1".parse().unwrap());
        let event = HubEvent::Namespace(Update::Event(Event::InitDone));
        cache.handle((String::new(), event));
        watch_all(&mut cache, "", || Seen::Forbidden);
        assert!(!cache.synced() && cache.hidden().is_empty());
    }
}
