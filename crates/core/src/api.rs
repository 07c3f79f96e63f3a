//! The custom resources of `globalps.io/v1alpha1`.

mod cluster;
pub mod condition;
mod counts;
mod fleet;
mod image_pull_secrets;
mod kubelet;
mod node_pull_secret;
mod operators;
mod source;
mod syncer;
mod verify;

use std::collections::BTreeMap;

pub use globalps_dockerconfig::Precedence;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rollout::{Revision, RevisionId};
use crate::{labels, names};

pub use cluster::{
    ClusterPhase, ClusterPullSecret, ClusterPullSecretSpec, ClusterPullSecretStatus,
};
pub use counts::{Counts, NodeWithoutSyncer, STATUS_NODES};
pub use fleet::{
    ClusterCanary, ClusterFailure, DeletionPolicy, FleetPullSecret, FleetPullSecretSpec,
    FleetPullSecretStatus, FleetRollout, FleetSecretRef, MemberInstall, Registered,
    STATUS_CLUSTERS, Target,
};
pub use image_pull_secrets::{Attach, ImagePullSecrets, ImagePullSecretsStatus, NamespaceFailure};
pub use kubelet::{DeliveryType, Kubelet, ProviderPaths, Restart};
pub use node_pull_secret::{
    MAX_REVISION, MESSAGE_LIMIT, MachineConfigState, NodePullSecret, NodePullSecretSpec,
    NodePullSecretStatus, Observed, Phase,
};
pub use operators::{OperatorFailure, Operators, OperatorsStatus};
pub use source::{SOURCE_REGISTRIES, SourceRef, SourceScope, SourceStatus};
pub use syncer::{NODE_TERMS, Syncer};
pub use verify::Verify;

/// Configuration (spec, all fields optional) and state (status) of the cluster's global pull secret.
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
    "message": "rollout.onFailure: Rollback needs a historyLimit of at least 1: 0 keeps no earlier revision to roll back to",
}, {
    "rule": "self.kubelet.delivery != 'Observe' || self.precedence == 'Original'",
    "message": "kubelet.delivery: Observe: HyperShift's controller merges, and there the original pull secret wins: set precedence: Original",
}, {
    "rule": "self.kubelet.delivery != 'Observe' || self.sources.size() == 0",
    "message": "kubelet.delivery: Observe: HyperShift's controller reads additional-pull-secret alone, so sources can't be delivered: add their entries there",
}, {
    "rule": "self.kubelet.delivery != 'Observe' || self.nodeSelector.size() == 0",
    "message": "kubelet.delivery: Observe: HyperShift's controller chooses the nodes, so nodeSelector must be empty",
}, {
    "rule": "self.kubelet.delivery != 'Observe' || (self.kubelet.unit == 'Auto' && self.kubelet.restart == 'Always' && !has(self.kubelet.credentialProvider))",
    "message": "kubelet.delivery: Observe: HyperShift's syncer restarts the kubelet, so unit, restart and credentialProvider can't apply",
}, {
    "rule": "self.kubelet.delivery != 'Observe' || (!self.rollout.paused && self.rollout.onFailure == 'Halt' && self.rollout.minReadySeconds == 0 && self.rollout.cordoned == 'Update' && self.rollout.maxUnavailable == '10%' && self.rollout.maxFailures == 1 && self.rollout.canary.nodes == 1 && self.rollout.canary.minReadySeconds == 0 && !has(self.rollout.canary.nodeSelector))",
    "message": "kubelet.delivery: Observe: HyperShift's syncer changes all nodes at once, so fields of rollout can't apply: leave them out",
}, {
    "rule": "self.kubelet.delivery != 'OpenShift' || !(has(self.original.secretRef) || has(self.original.hostedControlPlane))",
    "message": "kubelet.delivery: OpenShift: the entries are merged into openshift-config/pull-secret itself, so original must be empty",
}, {
    "rule": "self.kubelet.delivery != 'OpenShift' || self.nodeSelector.size() == 0",
    "message": "kubelet.delivery: OpenShift: the Machine Config Operator writes every node's file, so nodeSelector must be empty",
}, {
    "rule": "self.kubelet.delivery != 'OpenShift' || self.sources.all(s, !has(s.scope))",
    "message": "kubelet.delivery: OpenShift: a node's file has no scopes, so sources can't have any",
}, {
    "rule": "self.kubelet.delivery != 'OpenShift' || (self.kubelet.unit == 'Auto' && self.kubelet.restart == 'Always' && !has(self.kubelet.credentialProvider))",
    "message": "kubelet.delivery: OpenShift: nothing restarts the kubelet, so unit, restart and credentialProvider can't apply",
}, {
    "rule": "self.kubelet.delivery != 'OpenShift' || (self.rollout.onFailure == 'Halt' && self.rollout.minReadySeconds == 0 && self.rollout.cordoned == 'Update' && self.rollout.maxUnavailable == '10%' && self.rollout.maxFailures == 1 && self.rollout.canary.nodes == 1 && self.rollout.canary.minReadySeconds == 0 && !has(self.rollout.canary.nodeSelector))",
    "message": "kubelet.delivery: OpenShift: the Machine Config Operator changes the nodes, so of rollout only paused applies: leave out the others",
}, {
    "rule": "self.kubelet.delivery == 'OpenShift' || !has(self.kubelet.overrideRegistries) || self.kubelet.overrideRegistries.size() == 0",
    "message": "kubelet.overrideRegistries needs kubelet.delivery: OpenShift",
}]))]
pub struct GlobalPullSecretSpec {
    /// Which pull secret is effective for a registry that both the additional and the original one contain.
    #[serde(default)]
    pub precedence: Precedence,
    /// The cluster's original pull secret. Empty: `openshift-config/pull-secret` if the controller may read it, else each node's file.
    #[serde(default)]
    pub original: Original,
    /// More Secrets of the same namespace and format. For a registry in several of them, the additional Secret is effective,
    /// then the first of these. Each is validated on its own: an invalid one doesn't block the others.
    #[serde(default)]
    #[schemars(length(max = 32))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub sources: Vec<SourceRef>,
    /// Labels that a node must have to be selected. Empty: every Linux node.
    #[serde(default, deserialize_with = "labels::node_selector")]
    pub node_selector: BTreeMap<String, String>,
    #[serde(default)]
    pub kubelet: Kubelet,
    /// Delivery as pull secrets in namespaces.
    #[serde(default)]
    pub image_pull_secrets: ImagePullSecrets,
    /// Delivery of catalogs' pull secrets to operators.
    #[serde(default)]
    pub operators: Operators,
    /// Ask each registry regularly whether it accepts the credentials. Absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<Verify>,
    #[serde(default)]
    pub rollout: Rollout,
    /// How many earlier additional Secrets that were rolled out are kept for a rollback.
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
            verify: None,
            rollout: Rollout::default(),
            history_limit: default_history_limit(),
            syncer: Syncer::default(),
        }
    }
}

/// At most one of the fields may be set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(has(self.secretRef) && has(self.hostedControlPlane))",
    "message": "original: set secretRef or hostedControlPlane, not both",
}]))]
pub struct Original {
    /// A Secret of this cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
    /// The pull secret of a `HyperShift` `HostedControlPlane` on its management cluster.
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
    /// Secret in the controller's own namespace with a kubeconfig for the management cluster.
    pub kubeconfig_secret_ref: KubeconfigRef,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeconfigRef {
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in the Secret's data.
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
    /// Key in the Secret's data.
    #[serde(default = "default_key")]
    #[schemars(length(min = 1))]
    pub key: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// How many nodes may be unavailable at the same time: a number, or a percentage of the nodes; at least 1.
    #[serde(default = "default_max_unavailable")]
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "type(self) == int ? self >= 1 : self.matches('^([1-9][0-9]?|100)%$')",
        "message": "maxUnavailable must be a number of nodes, at least 1, or a percentage from 1% to 100%",
    }]))]
    pub max_unavailable: IntOrString,
    /// The rollout halts when the revision has failed on this many nodes: a number, or a percentage of the nodes; at least 1.
    /// Nodes with an error of their own, such as a full disk, don't count.
    #[serde(default = "default_max_failures")]
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "type(self) == int ? self >= 1 : self.matches('^([1-9][0-9]?|100)%$')",
        "message": "maxFailures must be a number of nodes, at least 1, or a percentage from 1% to 100%",
    }]))]
    pub max_failures: IntOrString,
    /// While true, no node changes, except new ones, which get what the fleet has.
    #[serde(default)]
    pub paused: bool,
    /// What happens to the nodes that have the new revision when the rollout halts.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// The nodes that get a new revision before the others.
    #[serde(default)]
    pub canary: Canary,
    /// A node counts as updated once it has been Ready for this many seconds after the change.
    #[serde(default)]
    #[schemars(range(min = 0, max = 3600))]
    #[schemars(extend("format" = "int32"))]
    pub min_ready_seconds: u32,
    /// Whether cordoned nodes change. Nodes that an autoscaler or Cluster API is deleting never change.
    #[serde(default)]
    pub cordoned: Cordoned,
}

/// The first nodes of a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Canary {
    /// Labels of the canary nodes. Empty: any node; a control-plane node only if there is no other.
    #[serde(
        default,
        deserialize_with = "labels::node_selector",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub node_selector: BTreeMap<String, String>,
    /// How many canaries must have the revision before other nodes get it.
    #[serde(default = "default_canary_nodes")]
    #[schemars(range(min = 1, max = 1000))]
    #[schemars(extend("format" = "int32"))]
    pub nodes: u32,
    /// A canary counts as updated once it has been Ready for this many seconds after the change. If `minReadySeconds` is larger,
    /// it applies instead.
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
    /// They change like other nodes.
    #[default]
    Update,
    /// They change once they are schedulable again.
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
    /// They keep it; the other nodes keep the previous one.
    #[default]
    Halt,
    /// All nodes go back to the last revision that was rolled out.
    Rollback,
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

/// Maximum number of conflicts in a [`GlobalPullSecretStatus`].
pub const STATUS_CONFLICTS: usize = 100;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GlobalPullSecretStatus {
    /// `metadata.generation` of the spec that this status describes.
    #[serde(default)]
    pub observed_generation: i64,
    /// `resourceVersion` of the additional Secret that this status describes; empty: there is none.
    #[serde(default)]
    pub observed_additional: String,
    /// Revision of `global-pull-secret` that is rolled out; 0: none.
    #[serde(default)]
    pub revision: i64,
    /// Random id of that revision. Also written when empty.
    #[serde(default)]
    pub revision_id: RevisionId,
    /// Content up to this revision is forgotten on request: no Secret of the controller has it. 0: none.
    #[serde(default)]
    pub forgotten_revision: i64,
    #[serde(default)]
    pub counts: Counts,
    /// Nodes without a syncer that runs, at most 100: first those that lag behind because of that, then those that nobody waits for.
    /// Also written when empty.
    #[serde(default)]
    pub nodes_without_syncer: Vec<NodeWithoutSyncer>,
    /// Registries that several pull secrets contain, and which one is effective; at most 100. Also written when empty, because a
    /// merge patch keeps omitted fields.
    #[serde(default)]
    pub conflicts: Vec<ConflictStatus>,
    /// Number of such registries, including those not listed in `conflicts`.
    #[serde(default)]
    #[schemars(extend("format" = "int32"))]
    pub conflicts_total: u32,
    /// The state of each of `spec.sources`, in the same order. Also written when empty.
    #[serde(default)]
    pub sources: Vec<SourceStatus>,
    /// The state of delivery into namespaces. Written as null when absent, because a merge patch keeps omitted fields.
    #[serde(default)]
    pub image_pull_secrets: Option<ImagePullSecretsStatus>,
    /// The state of delivery to operators. Also written when absent.
    #[serde(default)]
    pub operators: Option<OperatorsStatus>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl GlobalPullSecretStatus {
    /// The revision that is rolled out.
    pub fn rolled_out(&self) -> Revision {
        Revision::new(self.revision, self.revision_id)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConflictStatus {
    pub registry: String,
    /// Whose credentials are effective. A source counts as additional.
    pub effective: Precedence,
    /// The Secret whose credentials are effective; set if the original isn't involved.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// The Secret whose credentials are shadowed; set if the original isn't involved.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub shadowed: String,
}
