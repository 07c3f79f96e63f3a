//! What lets pods with Kubernetes' own priority classes run outside `kube-system`, where the API server is configured to admit them only
//! with a quota, as on GKE.

use globalps_core::names::CONTROLLER_NAMESPACE;
use k8s_openapi::api::core::v1::{
    ResourceQuota, ResourceQuotaSpec, ScopeSelector, ScopedResourceSelectorRequirement,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::Value;

use super::{named, value};

const NAME: &str = "globalps";
/// The classes of the Deployments and of the `DaemonSet`s.
pub(super) const CLUSTER_CRITICAL: &str = "system-cluster-critical";
pub(super) const NODE_CRITICAL: &str = "system-node-critical";
/// A million, as the API server writes it: more than any cluster has, so that it limits nothing.
const PODS: &str = "1M";

/// For the programs, and for the syncers, which run in this namespace. `kube-system` needs no quota for these classes.
pub(super) fn objects(syncers: &str) -> Vec<Value> {
    let mut namespaces = vec![CONTROLLER_NAMESPACE];
    if ![CONTROLLER_NAMESPACE, "kube-system"].contains(&syncers) {
        namespaces.push(syncers);
    }
    let quotas = namespaces.into_iter().map(quota);
    quotas.map(value).collect()
}

fn quota(namespace: &str) -> ResourceQuota {
    let requirement = ScopedResourceSelectorRequirement {
        scope_name: "PriorityClass".to_owned(),
        operator: "In".to_owned(),
        values: Some([NODE_CRITICAL, CLUSTER_CRITICAL].map(str::to_owned).into()),
    };
    ResourceQuota {
        spec: Some(ResourceQuotaSpec {
            hard: Some([("pods".to_owned(), Quantity(PODS.to_owned()))].into()),
            scope_selector: Some(ScopeSelector {
                match_expressions: Some(vec![requirement]),
            }),
            scopes: None,
        }),
        ..named(NAME, namespace)
    }
}
