//! Many clusters from one: what a management cluster asks of its member clusters.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Counts, OnFailure, default_key, default_max_failures, default_max_unavailable};
use crate::names;

/// Clusters in trouble that a [`FleetPullSecretStatus`] names at most.
pub const STATUS_CLUSTERS: usize = 20;

/// A pull secret for many clusters: where it comes from, which clusters get it, and how it is rolled out.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "globalps.io",
    version = "v1alpha1",
    kind = "FleetPullSecret",
    namespaced,
    status = "FleetPullSecretStatus",
    derive = "PartialEq",
    shortname = "fps",
    doc = "Registry credentials for many clusters: configuration and state",
    validation = Rule::new("self.metadata.name.size() <= 50 && !self.metadata.name.contains('.')")
        .message("the name has at most 50 characters, and no dot"),
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Revision","type":"integer","jsonPath":".status.revision"}"#,
    printcolumn = r#"{"name":"Clusters","type":"integer","jsonPath":".status.counts.total"}"#,
    printcolumn = r#"{"name":"Synced","type":"integer","jsonPath":".status.counts.synced"}"#,
    printcolumn = r#"{"name":"Failed","type":"integer","jsonPath":".status.counts.failed"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.clusterSelector) || has(self.registered)",
    "message": "clusterSelector or registered is needed: `clusterSelector: {}` selects every Cluster of the namespace",
}]))]
pub struct FleetPullSecretSpec {
    /// The Secret of this namespace with the credentials.
    pub secret_ref: FleetSecretRef,
    /// Labels of the `Cluster`s of Cluster API that get it. Empty: every one of the selected namespaces. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_selector: Option<LabelSelector>,
    /// Labels of the namespaces whose clusters are selected. Absent: only this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Clusters outside Cluster API. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registered: Option<Registered>,
    /// The Secret that is written into each cluster.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "self == oldSelf",
        "message": "target can't be changed: delete this FleetPullSecret and create another one",
    }]))]
    pub target: Target,
    /// Whether a cluster is done only when globalps has the credentials in force on all of its nodes. false: it is done when
    /// the Secret is there, also where globalps is not installed.
    #[serde(default = "default_require_nodes")]
    pub require_nodes: bool,
    #[serde(default)]
    pub rollout: FleetRollout,
    /// globalps itself, in each cluster where nobody else installed it. Other images are the next revision, rolled out like other
    /// credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install: Option<MemberInstall>,
    /// What becomes of the Secret in a cluster that is not selected any more, and when this object is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
    /// So many earlier revisions that every cluster had are kept, to go back to.
    #[serde(default = "default_history_limit")]
    #[schemars(range(max = 10))]
    #[schemars(extend("format" = "int32"))]
    pub history_limit: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FleetSecretRef {
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key of the Secret's data.
    #[serde(default = "default_key")]
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// globalps in the member clusters. The kubeconfigs must allow it, as those of Cluster API do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberInstall {
    /// false: nothing is installed, and what was installed stays.
    #[serde(default)]
    pub enabled: bool,
    #[schemars(length(min = 1, max = 512))]
    pub controller_image: String,
    #[schemars(length(min = 1, max = 512))]
    pub syncer_image: String,
    /// A Secret of this namespace with the credentials for both images. It is in each cluster, as `globalps-images`, before they
    /// are pulled. Absent: they need none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_secret: Option<FleetSecretRef>,
}

/// Clusters that a Secret with a kubeconfig registers: one with the label `globalps.io/cluster: "true"` and the kubeconfig
/// under the key `value` or `kubeconfig`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Registered {
    /// Labels of these Secrets. Empty: every one.
    #[serde(default)]
    pub selector: LabelSelector,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    #[serde(default = "default_target_namespace")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    #[serde(default = "default_target_name")]
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

impl Default for Target {
    fn default() -> Self {
        Self {
            namespace: default_target_namespace(),
            name: default_target_name(),
        }
    }
}

impl Target {
    /// globalps of the cluster takes it as the additional pull secret, and says which version of it is in force.
    pub fn is_additional(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FleetRollout {
    /// Clusters that may change at the same time: a number, or a percentage of the clusters; at least 1.
    #[serde(default = "default_max_unavailable")]
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "type(self) == int ? self >= 1 : self.matches('^([1-9][0-9]?|100)%$')",
        "message": "maxUnavailable is a number of clusters from 1, or a percentage from 1% to 100%",
    }]))]
    pub max_unavailable: IntOrString,
    /// The rollout halts when this many clusters have failed: a number, or a percentage of the clusters; at least 1. One
    /// that can't be reached does not count.
    #[serde(default = "default_max_failures")]
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "type(self) == int ? self >= 1 : self.matches('^([1-9][0-9]?|100)%$')",
        "message": "maxFailures is a number of clusters from 1, or a percentage from 1% to 100%",
    }]))]
    pub max_failures: IntOrString,
    /// No cluster changes while this is true.
    #[serde(default)]
    pub paused: bool,
    /// What happens to clusters with the new revision when the rollout halts.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// The clusters that get a new revision before all others.
    #[serde(default)]
    pub canary: ClusterCanary,
}

impl Default for FleetRollout {
    fn default() -> Self {
        Self {
            max_unavailable: default_max_unavailable(),
            max_failures: default_max_failures(),
            paused: false,
            on_failure: OnFailure::default(),
            canary: ClusterCanary::default(),
        }
    }
}

/// The first clusters of a rollout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterCanary {
    /// Labels of the clusters to begin with. Empty: any cluster.
    #[serde(default)]
    pub cluster_selector: LabelSelector,
    /// How many of them must have the revision before the others get it.
    #[serde(default = "default_canary_clusters")]
    #[schemars(range(min = 1, max = 1000))]
    #[schemars(extend("format" = "int32"))]
    pub clusters: u32,
}

impl Default for ClusterCanary {
    fn default() -> Self {
        Self {
            cluster_selector: LabelSelector::default(),
            clusters: default_canary_clusters(),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// It is removed from the clusters, a few at a time.
    #[default]
    Remove,
    /// It stays, and nobody manages it any more.
    Orphan,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FleetPullSecretStatus {
    /// `metadata.generation` of the spec that this status is about.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub observed_generation: i64,
    /// `resourceVersion` of the source that this status is about; empty: there is none.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub observed_secret: String,
    /// Revision that is rolled out; 0: none.
    #[serde(default)]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub revision: i64,
    /// Clusters by state.
    #[serde(default)]
    pub counts: Counts,
    /// Clusters in trouble, 20 at most. Written when empty too: a merge patch keeps what it omits.
    #[serde(default)]
    pub failures: Vec<ClusterFailure>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Why a cluster does not have what it should have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterFailure {
    /// `NAMESPACE/NAME` of the `Cluster`, or of the Secret that registers it.
    #[schemars(length(max = 317))]
    pub cluster: String,
    #[schemars(length(max = 64))]
    pub reason: String,
    #[schemars(length(max = 1024))]
    pub message: String,
}

fn default_require_nodes() -> bool {
    true
}
fn default_history_limit() -> u32 {
    2
}
fn default_target_namespace() -> String {
    names::NAMESPACE.to_owned()
}
fn default_target_name() -> String {
    names::ADDITIONAL_SECRET.to_owned()
}
fn default_canary_clusters() -> u32 {
    1
}
