//! What the controller and one node tell each other.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What one node is to do (spec, by the controller) and what it did (status, by that node's syncer).
/// Its name is the node's.
#[derive(
    CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema,
)]
#[kube(
    group = "globalps.io",
    version = "v1alpha1",
    kind = "NodePullSecret",
    namespaced,
    status = "NodePullSecretStatus",
    derive = "PartialEq",
    shortname = "nps",
    doc = "Registry credentials of one node; the object has the node's name",
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"Revision","type":"integer","jsonPath":".status.revision"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".status.lastTransitionTime"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.reason"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct NodePullSecretSpec {
    /// Revision of `global-pull-secret` that the node may put in force; 0: none yet.
    #[serde(default)]
    pub revision: i64,
    /// The node is to be put back as it was before its first revision.
    #[serde(default)]
    pub restore: bool,
    /// When the node was granted this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted_at: Option<Time>,
    /// The grant before this one was taken back, since the node did not answer: it gets another one when it does.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withdrawn: bool,
    /// Value of the annotation `globalps.io/retry` that this grant answers. Another one is another try.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub retry: String,
    /// Program that manages the credentials file of this node, so that globalps leaves it alone; empty: none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub foreign_owner: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePullSecretStatus {
    /// `metadata.generation` of the spec that `phase` is about.
    #[serde(default)]
    pub observed_generation: i64,
    /// Revision in force on the node; 0: none.
    #[serde(default)]
    pub revision: i64,
    #[serde(default)]
    pub phase: Phase,
    /// `CamelCase` word for programs; empty where the phase says all.
    #[serde(default)]
    pub reason: String,
    /// Sentence for people.
    #[serde(default)]
    pub message: String,
    /// When `phase` changed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// How often this node's kubelet was restarted for globalps.
    #[serde(default)]
    pub restarts: i64,
    /// How often somebody else changed what globalps had put into the file, and it was put back.
    #[serde(default)]
    pub drifts: i64,
    /// The node is as it was before its first revision.
    #[serde(default)]
    pub restored: bool,
}

/// What a node is at. `Excluded` and `Unreachable` are never reported by a node: whoever looks computes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// Waits for its turn.
    #[default]
    Pending,
    Syncing,
    /// The granted revision is in force and the kubelet serves.
    Synced,
    /// The kubelet did not come up with the revision; the file is what it was and the kubelet runs.
    RolledBack,
    /// The revision could not be put in force, or the way back failed too.
    Failed,
    Restoring,
    Restored,
    /// Somebody else manages the file.
    ForeignOwner,
    Excluded,
    /// The node is not ready, or its syncer is silent.
    Unreachable,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
