//! The cache of one scope: a namespace, or all namespaces.

use globalps_core::api::FleetPullSecret;

use super::objects::ClusterPullSecrets;
use super::revisions::Revisions;
use super::views::{ClusterObject, KubeconfigSecret};
use crate::cache::kept::Kept;
use crate::cache::store::Store;

#[derive(Default)]
pub(super) struct ScopeCache {
    pub(super) fleets: Kept<Box<FleetPullSecret>>,
    pub(super) objects: ClusterPullSecrets,
    pub(super) clusters: Kept<ClusterObject>,
    pub(super) kubeconfigs: Kept<KubeconfigSecret>,
    pub(super) registered: Kept<KubeconfigSecret>,
    pub(super) revisions: Revisions,
    /// Cluster API is not installed, so the cache of `Cluster`s never syncs.
    pub(super) has_no_clusters: bool,
}

impl ScopeCache {
    /// For each watch: whether its list is complete, and whether the API server refused the last one.
    fn lists(&self) -> [(bool, bool); 6] {
        fn of<T>(store: &Store<T>) -> (bool, bool) {
            (store.synced, store.is_forbidden)
        }
        let (has_clusters, is_forbidden) = of(&self.clusters);
        [
            of(&self.fleets),
            of(&self.objects.store),
            (has_clusters || self.has_no_clusters, is_forbidden),
            of(&self.kubeconfigs),
            of(&self.registered),
            of(&self.revisions.store),
        ]
    }

    pub(super) fn synced(&self) -> bool {
        self.lists().into_iter().all(|(synced, _)| synced)
    }

    /// Whatever is not known of it, the hub may not list. There is nothing to wait for.
    pub(super) fn is_hidden(&self) -> bool {
        let mut lists = self.lists().into_iter();
        !self.synced() && lists.all(|(synced, is_forbidden)| synced || is_forbidden)
    }

    /// Whether some objects were dropped.
    pub(super) fn is_full(&self) -> bool {
        let full = [
            self.clusters.full(),
            self.kubeconfigs.full(),
            self.registered.full(),
            self.fleets.full(),
            self.objects.store.full(),
            self.revisions.store.full(),
        ];
        full.iter().any(|namespaces| !namespaces.is_empty())
    }

    /// Drops everything, because the namespace was deleted.
    pub(super) fn empty(&mut self) {
        self.fleets.empty();
        self.objects.empty();
        self.clusters.empty();
        self.kubeconfigs.empty();
        self.registered.empty();
        self.revisions.empty();
    }
}
