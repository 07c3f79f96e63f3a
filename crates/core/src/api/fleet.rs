//! `FleetPullSecret`: one pull secret for many clusters, rolled out from a management cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Counts, OnFailure, default_key, default_max_failures, default_max_unavailable};
use crate::names;
use crate::rollout::{Revision, RevisionId};

/// Maximum length of `status.failures`.
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
        .message("the name must have at most 50 characters and no dot"),
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
    "message": "clusterSelector or registered is required; `clusterSelector: {}` selects every Cluster in the namespace",
}]))]
pub struct FleetPullSecretSpec {
    /// Secret in this namespace with the credentials.
    pub secret_ref: FleetSecretRef,
    /// Selects `Cluster`s of Cluster API by their labels. Empty: every `Cluster` in the selected namespaces. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_selector: Option<LabelSelector>,
    /// Selects namespaces with clusters by their labels. Absent: only this namespace. Only for namespaces that the hub's installation
    /// trusts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Clusters outside Cluster API. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registered: Option<Registered>,
    /// Secret that the hub writes into each cluster.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "self == oldSelf",
        "message": "target can't be changed: delete this FleetPullSecret and create another one",
    }]))]
    pub target: Target,
    /// true: a cluster is done when its own globalps reports that the credentials are in force on every node. false: a
    /// cluster is done when it has the Secret, even without globalps.
    #[serde(default = "default_require_nodes")]
    pub require_nodes: bool,
    #[serde(default)]
    pub rollout: FleetRollout,
    /// Installs globalps in clusters without it. A change of the images is a new revision, with the same canary and limits. Only for
    /// namespaces that the hub's installation trusts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install: Option<MemberInstall>,
    /// What happens to the Secret in clusters that are no longer selected, and in all clusters when this object is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
    /// How many earlier revisions to keep for a rollback. Only revisions that every cluster had are kept.
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

/// Installation of globalps in the member clusters. The kubeconfigs must allow it; those of Cluster API do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberInstall {
    /// false: the hub installs nothing. What it has installed stays.
    #[serde(default)]
    pub enabled: bool,
    #[schemars(length(min = 1, max = 512))]
    pub controller_image: String,
    #[schemars(length(min = 1, max = 512))]
    pub syncer_image: String,
    /// Secret in this namespace with the credentials for both images. The hub creates it in each cluster as
    /// `globalps-images` before the images are pulled. Absent: the images need no credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_secret: Option<FleetSecretRef>,
}

/// Clusters outside Cluster API. A Secret with the label `globalps.io/cluster: "true"` and a kubeconfig under the key
/// `value` or `kubeconfig` registers a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Registered {
    /// Selects these Secrets by their labels. Empty: all of them.
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
    /// Whether the cluster's own globalps uses this Secret as its additional pull secret, and so reports on it.
    pub fn is_additional(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FleetRollout {
    /// Maximum number of clusters that change at the same time: a number, or a percentage of the clusters; at least 1.
    #[serde(default = "default_max_unavailable")]
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "type(self) == int ? self >= 1 : self.matches('^([1-9][0-9]?|100)%$')",
        "message": "maxUnavailable must be a number of clusters, at least 1, or a percentage from 1% to 100%",
    }]))]
    pub max_unavailable: IntOrString,
    /// The rollout halts when this many clusters have failed: a number, or a percentage of the clusters; at least 1.
    /// Unreachable clusters don't count.
    #[serde(default = "default_max_failures")]
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "type(self) == int ? self >= 1 : self.matches('^([1-9][0-9]?|100)%$')",
        "message": "maxFailures must be a number of clusters, at least 1, or a percentage from 1% to 100%",
    }]))]
    pub max_failures: IntOrString,
    /// true: the hub changes no cluster.
    #[serde(default)]
    pub paused: bool,
    /// What happens to clusters with the new revision when the rollout halts.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// Clusters that get a new revision before all others.
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

/// First clusters of a rollout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterCanary {
    /// Selects canaries by their labels. Empty: any cluster.
    #[serde(default)]
    pub cluster_selector: LabelSelector,
    /// How many canaries must have the revision before other clusters get it.
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
    /// The hub removes the Secret, a few clusters at a time.
    #[default]
    Remove,
    /// The Secret stays in the clusters, unmanaged.
    Orphan,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FleetPullSecretStatus {
    /// `metadata.generation` of the spec that this status refers to.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub observed_generation: i64,
    /// `resourceVersion` of the source that this status refers to; empty: there is no source.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub observed_secret: String,
    /// Revision that is rolled out; 0: none.
    #[serde(default)]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub revision: i64,
    /// Random id of that revision. Also written when empty.
    #[serde(default)]
    pub revision_id: RevisionId,
    /// Numbers of clusters by state.
    #[serde(default)]
    pub counts: Counts,
    /// Clusters with an error, at most 20.
    // An empty list is written too: a merge patch does not change an omitted field.
    #[serde(default)]
    pub failures: Vec<ClusterFailure>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl FleetPullSecretStatus {
    /// The revision that is rolled out.
    pub fn rolled_out(&self) -> Revision {
        Revision::new(self.revision, self.revision_id)
    }
}

/// Why a cluster does not have its desired state.
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
