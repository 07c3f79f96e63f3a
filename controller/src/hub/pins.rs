//! The identities that the clusters are pinned to: those in the statuses of their objects, also after another client has deleted such an
//! object. A cluster whose `Cluster` or Secret is a new one is a new cluster.

use std::collections::BTreeMap;

use globalps_core::api::ClusterPullSecret;
use globalps_core::names::ACCEPTED_IDENTITY_ANNOTATION;
use globalps_planner::clusters::identity::Pin;
use globalps_planner::clusters::input::ClusterKey;
use kube::ResourceExt as _;

use super::cache::HubCache;
use super::objects::owner_uid;
use super::views::pair;

#[derive(Default)]
pub(super) struct Pins(BTreeMap<ClusterKey, Pinned>);

struct Pinned {
    /// uid of the `Cluster`, or of the Secret that registers the cluster.
    owner: String,
    identity: String,
}

impl Pins {
    /// Learns what the objects of this shard say.
    pub(super) fn observe(&mut self, cache: &HubCache) {
        self.0
            .retain(|cluster, pinned| cache.owns(cluster, &pinned.owner));
        let own = cache.identity();
        for object in cache.own_objects() {
            let identity = identity_of(object).filter(|it| Some(*it) != own);
            let found = identity.zip(pair(object));
            let Some((identity, (_, cluster))) = found else {
                continue;
            };
            let is_current = owner_uid(object).is_some_and(|uid| cache.owns(&cluster, uid));
            let Some((_, owner)) = cache.owner(&cluster).filter(|_| is_current) else {
                continue;
            };
            let known = self.0.get(&cluster);
            if known.is_none_or(|it| it.owner != owner || it.identity != identity) {
                let identity = identity.to_owned();
                self.0.insert(cluster, Pinned { owner, identity });
            }
        }
    }

    /// A kubeconfig that led to the management cluster pins nothing: nothing was written there.
    pub(super) fn of(
        &self,
        cache: &HubCache,
        object: &ClusterPullSecret,
        cluster: &ClusterKey,
    ) -> Pin {
        let status = object.status.as_ref();
        let reported = status.and_then(|it| it.identity.clone());
        let reported = reported.filter(|it| Some(it.as_str()) != cache.identity());
        let remembered = || self.0.get(cluster).map(|it| it.identity.clone());
        let annotations = object.annotations();
        Pin {
            identity: reported.or_else(remembered),
            accepted: annotations.get(ACCEPTED_IDENTITY_ANNOTATION).cloned(),
        }
    }
}

/// The identity that a cluster reported; `None`: not known, or the hub can't read it.
pub(super) fn identity_of(object: &ClusterPullSecret) -> Option<&str> {
    let identity = object.status.as_ref()?.identity.as_deref()?;
    (!identity.is_empty()).then_some(identity)
}
