//! The clusters in the cache: `Cluster`s of Cluster API, and Secrets that register clusters. A Secret with the name of a `Cluster` takes
//! its place only if the `Cluster` names it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use globalps_core::names::{CLUSTER_LABEL, KUBECONFIG_ANNOTATION};
use globalps_core::reasons::{Reason, ReasonAndMessage};
use globalps_planner::clusters::input::{ClusterKey, ClusterView, title};
use globalps_planner::content::source::Data;

use super::cache::HubCache;
use super::scope::ScopeCache;
use super::views::{Id, Kubeconfig, KubeconfigSecret, MAX_KUBECONFIG};
use crate::cache::kept::Bounded as _;

/// Why a Secret has no effect, and the command that changes this.
pub(super) fn ignored_secret((namespace, name): &ClusterKey) -> String {
    format!(
        "the Secret `{name}` with the label `{CLUSTER_LABEL}` has no effect, because a Cluster has its name: `kubectl annotate clusters.cluster.x-k8s.io {name} -n {namespace} {KUBECONFIG_ANNOTATION}={name}` makes the hub use its kubeconfig"
    )
}

impl HubCache {
    /// The clusters that this shard plans for or connects to, without obstacles.
    pub(super) fn clusters(&self) -> BTreeMap<ClusterKey, ClusterView> {
        let is_relevant = |id: &Id| {
            let (namespace, name) = &id.key;
            self.shard.concerns(namespace, name)
        };
        let mut clusters: BTreeMap<ClusterKey, ClusterView> = BTreeMap::new();
        for scope in self.scopes.values() {
            let of_cluster_api = scope.clusters.live.values();
            for cluster in of_cluster_api.filter(|it| is_relevant(&it.id)) {
                let view = clusters.entry(cluster.id.key.clone()).or_default();
                view.labels = Some(cluster.labels.clone());
                view.is_deleting = cluster.is_deleting;
                view.created = cluster.id.created;
                view.owners.push(cluster.id.uid.clone());
            }
            let registered = scope.registered.live.values();
            for secret in registered.filter(|it| is_relevant(&it.id)) {
                let view = clusters.entry(secret.id.key.clone()).or_default();
                view.owners.push(secret.id.uid.clone());
                let cluster = scope.clusters.get(&title(&secret.id.key));
                if cluster.is_some_and(|it| !it.names(&secret.id.key.1)) {
                    view.ignores_secret = true;
                    continue;
                }
                view.registered = Some(secret.labels.clone());
                view.created = view.created.into_iter().chain(secret.id.created).min();
            }
        }
        clusters
    }

    /// `NAMESPACE/NAME` of each cluster of the hub, whichever shard it belongs to.
    pub(super) fn cluster_titles(&self) -> BTreeSet<String> {
        let all = self.scopes.values().flat_map(|it| {
            let (clusters, registered) = (&it.clusters, &it.registered);
            let live = clusters.live.keys().chain(registered.live.keys());
            let unreadable = clusters.unreadable.keys();
            live.chain(unreadable).chain(registered.unreadable.keys())
        });
        all.cloned().collect()
    }

    /// The kubeconfig of a `Cluster` is Cluster API's, unless the `Cluster` names the Secret that registers it, e.g. because
    /// Cluster API's has all permissions there.
    pub(super) fn kubeconfig(&self, key: &ClusterKey) -> Result<Arc<Data>, ReasonAndMessage> {
        let name = title(key);
        let found = self
            .scope_of(key)
            .and_then(|scope| match scope.clusters.get(&name) {
                Some(cluster) if cluster.kubeconfig.is_none() => {
                    scope.kubeconfigs.get(&format!("{name}-kubeconfig"))
                }
                Some(cluster) if !cluster.names(&key.1) => None,
                _ => scope.registered.get(&name),
            });
        match found.map(|it| &it.kubeconfig) {
            Some(Kubeconfig::Found(data)) => Ok(Arc::clone(data)),
            None | Some(Kubeconfig::None) => Err((
                Reason::NoKubeconfig,
                "the Secret with its kubeconfig does not exist or has no kubeconfig".to_owned(),
            )),
            Some(Kubeconfig::TooLarge(size)) => Err((
                Reason::KubeconfigTooLarge,
                format!(
                    "its kubeconfig has {size} bytes, more than {MAX_KUBECONFIG}: leave only this cluster and its own CA in it"
                ),
            )),
            Some(Kubeconfig::LeftOut) => Err((
                Reason::KubeconfigTooLarge,
                format!(
                    "the kubeconfigs of namespace `{}` have more than {} MiB, and the hub keeps those of the oldest Secrets: remove some, or move clusters to another namespace",
                    key.0,
                    KubeconfigSecret::MOST_CONTENT >> 20
                ),
            )),
        }
    }

    /// Owner of the cluster's `ClusterPullSecret`: the `apiVersion` of its `Cluster` (`None`: it is the Secret that registers the
    /// cluster), and its uid.
    pub(super) fn owner(&self, key: &ClusterKey) -> Option<(Option<String>, String)> {
        let scope = self.scope_of(key)?;
        let name = title(key);
        let cluster = scope.clusters.get(&name);
        let cluster = cluster.map(|it| (Some(it.api_version.clone()), it.id.uid.clone()));
        let registered = || Some((None, scope.registered.get(&name)?.id.uid.clone()));
        cluster.or_else(registered)
    }

    /// Whether this is the uid of the cluster's `Cluster`, or of the Secret with its name.
    pub(super) fn owns(&self, key: &ClusterKey, uid: &str) -> bool {
        let name = title(key);
        self.scope_of(key).is_some_and(|scope| {
            let cluster = scope.clusters.get(&name).map(|it| &it.id.uid);
            let registered = scope.registered.get(&name).map(|it| &it.id.uid);
            cluster.into_iter().chain(registered).any(|it| it == uid)
        })
    }

    fn scope_of(&self, (namespace, _): &ClusterKey) -> Option<&ScopeCache> {
        self.scopes.get(namespace).or_else(|| self.scopes.get(""))
    }
}

#[cfg(test)]
mod tests {
    use globalps_runtime::list_events::Event;
    use globalps_runtime::list_watch::Update;
    use k8s_openapi::ByteString;
    use k8s_openapi::api::core::v1::Secret;
    use kube::api::DynamicObject;
    use serde_json::{Value, json};

    use super::super::views::{cluster, kubeconfig};
    use super::super::watches::HubEvent;
    use super::*;

    fn metadata(name: &str, uid: &str, annotation: Option<&str>) -> Value {
        let labels = json!({
            "globalps.io/cluster": "true", "of": uid, "cluster.x-k8s.io/cluster-name": "m",
        });
        let annotations = annotation.map(|it| json!({"globalps.io/kubeconfig": it}));
        json!({
            "name": name, "namespace": "ns", "uid": uid, "labels": labels, "annotations": annotations,
        })
    }

    fn secret(name: &str, uid: &str) -> Secret {
        let fields = json!({
            "metadata": metadata(name, uid, None), "data": {"value": ByteString(uid.into())},
        });
        serde_json::from_value(fields).unwrap()
    }

    /// The `Cluster` `m` with this annotation, Cluster API's kubeconfig, and a Secret that is named like the `Cluster`.
    fn cache(annotation: Option<&str>) -> HubCache {
        let mut cache = HubCache::new(&[], "0/1".parse().unwrap());
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": metadata("m", "cluster", annotation),
        }))
        .unwrap();
        let object = cluster(&object, "cluster.x-k8s.io/v1beta2");
        let (theirs, own) = (secret("m", "secret"), secret("m-kubeconfig", "own"));
        for event in [
            HubEvent::Cluster(Update::Event(Event::Apply(object))),
            HubEvent::Registered(Update::Event(Event::Apply(kubeconfig(&theirs)))),
            HubEvent::Kubeconfig(Update::Event(Event::Apply(kubeconfig(&own)))),
        ] {
            cache.handle((String::new(), event));
        }
        cache
    }

    #[test]
    fn a_secret_takes_the_place_of_a_cluster_only_if_that_names_it() {
        let key = ("ns".to_owned(), "m".to_owned());
        for (annotation, is_used, has_kubeconfig) in [
            (None, false, true),
            (Some("m"), true, true),
            (Some("other"), false, false),
        ] {
            let cache = cache(annotation);
            let view = &cache.clusters()[&key];
            assert_eq!(view.registered.is_some(), is_used, "{annotation:?}");
            assert_eq!(view.ignores_secret, !is_used, "{annotation:?}");
            let of = |uid: &str| {
                let scope = &cache.scopes[""];
                let mut all = scope
                    .kubeconfigs
                    .live
                    .values()
                    .chain(scope.registered.live.values());
                all.find(|it| it.id.uid == uid)
                    .map(|it| it.kubeconfig.clone())
            };
            let expected = if is_used { of("secret") } else { of("own") };
            let found = cache.kubeconfig(&key);
            let found = found.ok().map(Kubeconfig::Found);
            assert_eq!(found.is_some(), has_kubeconfig, "{annotation:?}");
            assert!(found.is_none() || found == expected, "{annotation:?}");
            assert_eq!(cache.owner(&key).unwrap().1, "cluster");
            assert!(cache.owns(&key, "secret") && !cache.owns(&key, "own"));
        }
    }
}
