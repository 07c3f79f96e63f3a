//! The custom resources of `globalps.io/v1alpha1`.

mod cluster;
mod fleet;
mod image_pull_secrets;
mod kubelet;
mod node_pull_secret;
mod operators;
mod source;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dockerconfig::Precedence;
use crate::names;

pub use cluster::{
    ClusterPhase, ClusterPullSecret, ClusterPullSecretSpec, ClusterPullSecretStatus,
};
pub use fleet::{
    ClusterCanary, ClusterFailure, DeletionPolicy, FleetPullSecret, FleetPullSecretSpec,
    FleetPullSecretStatus, FleetRollout, FleetSecretRef, MemberInstall, Registered,
    STATUS_CLUSTERS, Target,
};
pub use image_pull_secrets::{
    Attach, ImagePullSecrets, ImagePullSecretsStatus, NamespaceFailure, STATUS_NAMESPACES,
};
pub use kubelet::{DeliveryType, Kubelet, ProviderPaths, Restart};
pub use node_pull_secret::{
    MAX_REVISION, MESSAGE_LIMIT, NodePullSecret, NodePullSecretSpec, NodePullSecretStatus, Phase,
};
pub use operators::{OperatorFailure, Operators, OperatorsStatus, STATUS_OPERATORS};
pub use source::{SOURCE_REGISTRIES, SourceRef, SourceScope, SourceStatus};

/// Configuration (spec, all of it optional) and state (status) of the one global pull secret.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "globalps.io",
    version = "v1alpha1",
    kind = "GlobalPullSecret",
    namespaced,
    status = "GlobalPullSecretStatus",
    derive = "PartialEq",
    shortname = "gps",
    doc = "Registry credentials for every node: configuration and state",
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Revision","type":"integer","jsonPath":".status.revision"}"#,
    printcolumn = r#"{"name":"Nodes","type":"integer","jsonPath":".status.counts.total"}"#,
    printcolumn = r#"{"name":"Synced","type":"integer","jsonPath":".status.counts.synced"}"#,
    printcolumn = r#"{"name":"Failed","type":"integer","jsonPath":".status.counts.failed"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.rollout.onFailure != 'Rollback' || self.historyLimit > 0",
    "message": "rollout.onFailure: Rollback needs historyLimit of at least 1: with 0 there is nothing to go back to",
}]))]
pub struct GlobalPullSecretSpec {
    /// Who wins where the additional and the original pull secret both name a registry.
    #[serde(default)]
    pub precedence: Precedence,
    /// The cluster's original pull secret. Empty: `openshift-config/pull-secret` where the controller may
    /// read it, else each node's own file is the base.
    #[serde(default)]
    pub original: Original,
    /// More Secrets of the same namespace and form, after the additional one: where both name a registry, the earlier
    /// one wins. Each is validated by itself, and a bad one does not hold up the others.
    #[serde(default)]
    #[schemars(length(max = 32))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub sources: Vec<SourceRef>,
    /// Labels that a node must have. Empty: every Linux node.
    #[serde(default)]
    pub node_selector: BTreeMap<String, String>,
    #[serde(default)]
    pub kubelet: Kubelet,
    /// Delivery into namespaces.
    #[serde(default)]
    pub image_pull_secrets: ImagePullSecrets,
    /// Pull secrets of operators.
    #[serde(default)]
    pub operators: Operators,
    #[serde(default)]
    pub rollout: Rollout,
    /// So many additional Secrets that were rolled out before the present one are kept, to go back to.
    #[serde(default = "default_history_limit")]
    #[schemars(range(max = 10))]
    #[schemars(extend("format" = "int32"))]
    pub history_limit: u32,
    #[serde(default)]
    pub syncer: Syncer,
}

impl Default for GlobalPullSecretSpec {
    fn default() -> Self {
        Self {
            precedence: Precedence::default(),
            original: Original::default(),
            sources: Vec::new(),
            node_selector: BTreeMap::new(),
            kubelet: Kubelet::default(),
            image_pull_secrets: ImagePullSecrets::default(),
            operators: Operators::default(),
            rollout: Rollout::default(),
            history_limit: default_history_limit(),
            syncer: Syncer::default(),
        }
    }
}

/// At most one of the fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(has(self.secretRef) && has(self.hostedControlPlane))",
    "message": "original takes secretRef or hostedControlPlane, not both",
}]))]
pub struct Original {
    /// A Secret of this cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
    /// The pull secret of a `HostedControlPlane` of `HyperShift`, on its management cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosted_control_plane: Option<HostedControlPlaneRef>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostedControlPlaneRef {
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Secret of the controller's own namespace with a kubeconfig for the management cluster.
    pub kubeconfig_secret_ref: KubeconfigRef,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeconfigRef {
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key of the Secret's data.
    #[serde(default = "default_kubeconfig_key")]
    #[schemars(length(min = 1))]
    pub key: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretRef {
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key of the Secret's data.
    #[serde(default = "default_key")]
    #[schemars(length(min = 1))]
    pub key: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// Nodes that may be unavailable at the same time: a number, or a percentage of the nodes; at least 1.
    #[serde(default = "default_max_unavailable")]
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "type(self) == int ? self >= 1 : self.matches('^([1-9][0-9]?|100)%$')",
        "message": "maxUnavailable is a number of nodes from 1, or a percentage from 1% to 100%",
    }]))]
    pub max_unavailable: IntOrString,
    /// The rollout halts when this many nodes have failed because of the revision: a number, or a percentage of the
    /// nodes; at least 1. A node with trouble of its own, such as a full disk, doesn't count.
    #[serde(default = "default_max_failures")]
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "type(self) == int ? self >= 1 : self.matches('^([1-9][0-9]?|100)%$')",
        "message": "maxFailures is a number of nodes from 1, or a percentage from 1% to 100%",
    }]))]
    pub max_failures: IntOrString,
    /// No node changes while this is true.
    #[serde(default)]
    pub paused: bool,
    /// What happens to nodes with the new revision when the rollout halts.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// The nodes that get a new revision before all others.
    #[serde(default)]
    pub canary: Canary,
    /// A node counts as done when it has been Ready for this many seconds after the change.
    #[serde(default)]
    #[schemars(range(min = 0, max = 3600))]
    #[schemars(extend("format" = "int32"))]
    pub min_ready_seconds: u32,
    /// Whether nodes that an admin cordoned change. Nodes that an autoscaler or Cluster API is deleting never do.
    #[serde(default)]
    pub cordoned: Cordoned,
}

/// The first nodes of a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Canary {
    /// Labels of the nodes to begin with. Empty: any node, but no control-plane node where there is another.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// How many of them must have the revision before the others get it.
    #[serde(default = "default_canary_nodes")]
    #[schemars(range(min = 1, max = 1000))]
    #[schemars(extend("format" = "int32"))]
    pub nodes: u32,
    /// A canary counts as done when it has been Ready for this many seconds after the change; `minReadySeconds` where
    /// that is more.
    #[serde(default)]
    #[schemars(range(min = 0, max = 86400))]
    #[schemars(extend("format" = "int32"))]
    pub min_ready_seconds: u32,
}

impl Default for Canary {
    fn default() -> Self {
        Self {
            node_selector: BTreeMap::new(),
            nodes: default_canary_nodes(),
            min_ready_seconds: 0,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Cordoned {
    /// They change like the others.
    #[default]
    Update,
    /// They change when they are schedulable again.
    Skip,
}

impl Default for Rollout {
    fn default() -> Self {
        Self {
            max_unavailable: default_max_unavailable(),
            max_failures: default_max_failures(),
            paused: false,
            on_failure: OnFailure::default(),
            canary: Canary::default(),
            min_ready_seconds: 0,
            cordoned: Cordoned::default(),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnFailure {
    /// They keep it; the others keep the one before.
    #[default]
    Halt,
    /// The whole fleet goes back to the last revision that every node had.
    Rollback,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Syncer {
    /// Run the syncer in the node's network, for clusters whose pod network itself needs the credentials.
    #[serde(default)]
    pub host_network: bool,
    /// Pull secret of the syncer's own image, in this namespace. Nothing makes it: whoever installs globalps does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub image_pull_secret: Option<String>,
}

fn default_history_limit() -> u32 {
    2
}
fn default_kubeconfig_key() -> String {
    names::KUBECONFIG_KEY.to_owned()
}
fn default_key() -> String {
    names::DATA_KEY.to_owned()
}
fn default_max_unavailable() -> IntOrString {
    IntOrString::String("10%".to_owned())
}
fn default_max_failures() -> IntOrString {
    IntOrString::Int(1)
}
fn default_canary_nodes() -> u32 {
    1
}

/// Conflicts that a [`GlobalPullSecretStatus`] names at most.
pub const STATUS_CONFLICTS: usize = 100;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GlobalPullSecretStatus {
    /// `metadata.generation` of the spec that this status is about.
    #[serde(default)]
    pub observed_generation: i64,
    /// `resourceVersion` of the additional Secret that this status is about; empty: there is none.
    #[serde(default)]
    pub observed_additional: String,
    /// Revision of `global-pull-secret` that is rolled out; 0: none.
    #[serde(default)]
    pub revision: i64,
    #[serde(default)]
    pub counts: Counts,
    /// Registries that both pull secrets name, and who won; 100 at most. Written when empty too: a merge patch keeps what it
    /// omits.
    #[serde(default)]
    pub conflicts: Vec<ConflictStatus>,
    /// How many registries that are.
    #[serde(default)]
    #[schemars(extend("format" = "int32"))]
    pub conflicts_total: u32,
    /// What became of each of `spec.sources`, in their order. Written when empty too.
    #[serde(default)]
    pub sources: Vec<SourceStatus>,
    /// The namespaces. Written when absent too, as null: a merge patch keeps what it omits.
    #[serde(default)]
    pub image_pull_secrets: Option<ImagePullSecretsStatus>,
    /// The operators. Written when absent too.
    #[serde(default)]
    pub operators: Option<OperatorsStatus>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Nodes by state. `total` is the sum of the others and of those that wait for their turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    #[serde(default)]
    #[schemars(extend("format" = "int32"))]
    pub total: u32,
    #[serde(default)]
    #[schemars(extend("format" = "int32"))]
    pub synced: u32,
    #[serde(default)]
    #[schemars(extend("format" = "int32"))]
    pub progressing: u32,
    #[serde(default)]
    #[schemars(extend("format" = "int32"))]
    pub failed: u32,
    #[serde(default)]
    #[schemars(extend("format" = "int32"))]
    pub unreachable: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConflictStatus {
    pub registry: String,
    /// Whose credentials are in force. A source counts as additional.
    pub winner: Precedence,
    /// Where the original is none of the two: the Secret whose credentials are in force.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// Where the original is none of the two: the Secret whose credentials are not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub over: String,
}

/// Types of the conditions of a `GlobalPullSecret`.
pub mod condition {
    pub const READY: &str = "Ready";
    pub const PROGRESSING: &str = "Progressing";
    pub const DEGRADED: &str = "Degraded";
    pub const ADDITIONAL_VALID: &str = "AdditionalValid";
    pub const ORIGINAL_VALID: &str = "OriginalValid";
    /// Only where `spec.sources` names one.
    pub const SOURCES_VALID: &str = "SourcesValid";
    /// The syncer runs on every node where it should.
    pub const SYNCERS_HEALTHY: &str = "SyncersHealthy";
    /// Only while namespaces get pull secrets, or have some left.
    pub const NAMESPACES_SYNCED: &str = "NamespacesSynced";
    /// Only while operators get pull secrets, or have some left.
    pub const OPERATORS_SYNCED: &str = "OperatorsSynced";
}
