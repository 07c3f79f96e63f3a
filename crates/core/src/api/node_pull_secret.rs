//! The desired state of one node, written by the controller, and the state that the node reports.

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::decode;
use crate::rollout::{Revision, RevisionId};

/// Largest revision: the largest integer that every JSON reader represents exactly.
pub const MAX_REVISION: i64 = (1 << 53) - 1;
/// Maximum length of `status.message` and other free text in a status, in characters.
pub const MESSAGE_LIMIT: usize = 1024;

/// Desired state of one node (spec, written by the controller) and its observed state (status, written by the syncer on that
/// node). The object has the node's name.
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
    /// Desired revision of `global-pull-secret`; 0: none yet.
    #[serde(default)]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub revision: i64,
    /// Random id of that revision. Number and id together identify its content. Empty: none yet.
    #[serde(default)]
    pub revision_id: RevisionId,
    /// Restore the node's own file as it was before its first revision.
    #[serde(default)]
    pub restore: bool,
    /// When the controller assigned this.
    #[serde(
        default,
        deserialize_with = "decode::time",
        skip_serializing_if = "Option::is_none"
    )]
    pub assigned_at: Option<Time>,
    /// The controller revoked the previous assignment because the node did not respond in time. It assigns again when the node
    /// responds.
    #[serde(default)]
    pub revoked: bool,
    /// Value of the annotation `globalps.io/retry` when this was assigned. A different value requests another attempt.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub retry: String,
    /// Revision that the node failed, without having been synced since; 0: none. Until then, the failure of another revision
    /// on this node does not count towards `maxFailures`.
    #[serde(default)]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub failed_revision: i64,
    /// Random id of that revision. Empty: none.
    #[serde(default)]
    pub failed_revision_id: RevisionId,
    /// Version of the node's kubelet when this was assigned, such as `v1.36.3`; empty: unknown.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub kubelet_version: String,
    /// Program that manages the credentials file of this node; globalps doesn't change the file then. Empty: none.
    #[serde(default)]
    #[schemars(length(max = 253))]
    pub foreign_owner: String,
    /// A daemon may update this node in place and write the credentials file: the syncer replaces files of others only once the
    /// controller has seen that no update runs.
    #[serde(default)]
    pub updated_in_place: bool,
    /// What the node's file should have, where another program writes it. Absent: globalps writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<Observed>,
}

/// What an observer compares the node's file with. Never a digest of content: passwords can be guessed from one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Observed {
    /// uid of the Secret `global-pull-secret` that has the assigned revision. Empty: no Secret has it yet.
    #[serde(default)]
    #[schemars(length(max = 128))]
    pub uid: String,
    /// `metadata.resourceVersion` of that Secret. Any other one may have other content.
    #[serde(default)]
    #[schemars(length(max = 128))]
    pub resource_version: String,
    /// Registries, in canonical form, that the file must no longer have. Only with `restore`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000), inner(length(max = 512)))]
    pub gone: Vec<String>,
    /// Only with the delivery `OpenShift`: how far the Machine Config Operator is with the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_config: Option<MachineConfigState>,
}

/// What keeps the Machine Config Operator from writing a node's file, as the node's annotations and its pool say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MachineConfigState {
    /// Nothing: it writes the file in a while.
    #[default]
    Applies,
    /// The node's pool is paused.
    Paused,
    /// The operator can't bring the node to its configuration.
    Degraded,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePullSecretStatus {
    /// `metadata.generation` of the spec that `phase` describes.
    #[serde(default, deserialize_with = "decode::number")]
    #[schemars(range(min = 0))]
    pub observed_generation: i64,
    /// Revision in force on the node; 0: none.
    #[serde(default, deserialize_with = "decode::number")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub revision: i64,
    /// Random id of the revision in force. Empty: none, or the content in force is not known.
    #[serde(default)]
    pub revision_id: RevisionId,
    #[serde(default)]
    pub phase: Phase,
    /// CamelCase word for programs; empty if the phase needs no explanation.
    #[serde(default)]
    #[schemars(length(max = 128))]
    pub reason: String,
    /// Message for humans.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub message: String,
    /// How the revision in force is delivered: `ConfigFile` or `CredentialProvider`. Empty: no revision is in force.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub delivery: String,
    /// When `phase` last changed, by the node's clock.
    #[serde(
        default,
        deserialize_with = "decode::time",
        skip_serializing_if = "Option::is_none"
    )]
    pub last_transition_time: Option<Time>,
    /// How often globalps has restarted this node's kubelet.
    #[serde(default, deserialize_with = "decode::number")]
    #[schemars(range(min = 0))]
    pub restarts: i64,
    /// When globalps last restarted the kubelet for the content in force, by the node's clock. The controller waits for a
    /// heartbeat of the Node at this time or later.
    #[serde(
        default,
        deserialize_with = "decode::time",
        skip_serializing_if = "Option::is_none"
    )]
    pub kubelet_restarted_at: Option<Time>,
    /// How often another process changed globalps' entries in the file and the syncer restored them.
    #[serde(default, deserialize_with = "decode::number")]
    #[schemars(range(min = 0))]
    pub drifts: i64,
    /// The node is as it was before its first revision; there is nothing to restore.
    #[serde(default)]
    pub restored: bool,
    /// The node has forgotten the content up to this revision on request; 0: none.
    #[serde(default, deserialize_with = "decode::number")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub forgotten_revision: i64,
    /// Which files of other programs the syncer is about to replace on a node that is updated in place: identities, not content.
    /// Empty: none. The controller answers in the annotation `globalps.io/may-replace`.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub found_file: String,
}

impl NodePullSecretSpec {
    /// The desired revision.
    pub fn assigned(&self) -> Revision {
        Revision::new(self.revision, self.revision_id)
    }

    /// The revision that the node failed, without having been synced since; `NONE`: none.
    pub fn failed(&self) -> Revision {
        Revision::new(self.failed_revision, self.failed_revision_id)
    }
}

impl NodePullSecretStatus {
    /// The reported revision in force.
    pub fn in_force(&self) -> Revision {
        Revision::new(self.revision, self.revision_id)
    }
}

/// State of a node. Nodes never report `Excluded`, `Unreachable`, `Unreadable` and `Unsupported`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Not assigned yet.
    #[default]
    Pending,
    /// The change is under way.
    Syncing,
    /// The desired revision is in force and the kubelet serves.
    Synced,
    /// The kubelet did not come up with the revision; the previous file is back and the kubelet runs.
    RolledBack,
    /// The revision could not be applied, or the rollback failed too.
    Failed,
    /// The node's own file is being restored.
    Restoring,
    /// Nothing of globalps is in the node's file.
    Restored,
    /// Another program manages the file.
    ForeignOwner,
    /// Another program updates the node, and the node's own file is back until the end of that.
    SteppedAside,
    /// The node's label or the node selector excludes it.
    Excluded,
    /// The node is not ready, or its syncer is unresponsive.
    Unreachable,
    /// Its `NodePullSecret` can't be decoded.
    Unreadable,
    /// It can't run a syncer, or none has ever run there. Nobody waits for it.
    Unsupported,
    /// A phase of a newer release, as reported.
    Other(Box<str>),
}

impl Phase {
    /// Every phase of this release.
    pub const ALL: [Self; 13] = [
        Self::Pending,
        Self::Syncing,
        Self::Synced,
        Self::RolledBack,
        Self::Failed,
        Self::Restoring,
        Self::Restored,
        Self::ForeignOwner,
        Self::SteppedAside,
        Self::Excluded,
        Self::Unreachable,
        Self::Unreadable,
        Self::Unsupported,
    ];

    /// As the API has it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Pending => "Pending",
            Self::Syncing => "Syncing",
            Self::Synced => "Synced",
            Self::RolledBack => "RolledBack",
            Self::Failed => "Failed",
            Self::Restoring => "Restoring",
            Self::Restored => "Restored",
            Self::ForeignOwner => "ForeignOwner",
            Self::SteppedAside => "SteppedAside",
            Self::Excluded => "Excluded",
            Self::Unreachable => "Unreachable",
            Self::Unreadable => "Unreadable",
            Self::Unsupported => "Unsupported",
            Self::Other(text) => text,
        }
    }
}

impl From<&str> for Phase {
    fn from(text: &str) -> Self {
        let known = Self::ALL.into_iter().find(|phase| phase.as_str() == text);
        known.unwrap_or_else(|| Self::Other(text.chars().take(64).collect()))
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Phase {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// Never an error: one status of a newer release must not make the whole list unreadable.
impl<'de> Deserialize<'de> for Phase {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::from(&*Cow::<str>::deserialize(deserializer)?))
    }
}

/// Any string, so that the API server accepts the phases of a newer syncer.
impl JsonSchema for Phase {
    fn schema_name() -> Cow<'static, str> {
        "Phase".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "maxLength": 64})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_phase_round_trips() {
        let text = r#"{"phase": "Dreaming", "dreams": ["of", "sheep"], "revision": 3}"#;
        let status: NodePullSecretStatus = serde_json::from_str(text).expect("readable");
        assert_eq!(status.phase, Phase::Other("Dreaming".into()));
        assert_eq!(status.phase.to_string(), "Dreaming");
        assert_eq!(serde_json::json!(status)["phase"], "Dreaming");
        for phase in Phase::ALL {
            let text = serde_json::json!(phase);
            assert_eq!(serde_json::from_value::<Phase>(text).ok(), Some(phase));
        }
    }
}
