//! `ClusterPullSecret`: desired and observed state of one member cluster.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Counts;
use crate::decode;
use crate::rollout::{Revision, RevisionId};

/// Desired state (spec) and observed state (status) of one cluster, both written by the hub. The object's owner is the
/// `Cluster`, or the Secret that registers the cluster.
#[derive(
    CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema,
)]
#[kube(
    group = "globalps.io",
    version = "v1alpha1",
    kind = "ClusterPullSecret",
    namespaced,
    status = "ClusterPullSecretStatus",
    derive = "PartialEq",
    shortname = "cps",
    doc = "Registry credentials of one member cluster",
    printcolumn = r#"{"name":"Cluster","type":"string","jsonPath":".spec.cluster"}"#,
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"Revision","type":"integer","jsonPath":".status.revision"}"#,
    printcolumn = r#"{"name":"Nodes","type":"integer","jsonPath":".status.nodes.total"}"#,
    printcolumn = r#"{"name":"Synced","type":"integer","jsonPath":".status.nodes.synced"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.reason"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterPullSecretSpec {
    /// `NAMESPACE/NAME` of the `FleetPullSecret`.
    #[schemars(length(max = 317))]
    pub fleet: String,
    /// Name of the `Cluster`, or of the Secret that registers the cluster, in the namespace of this object.
    #[schemars(length(max = 253))]
    pub cluster: String,
    /// Desired revision; 0: none yet.
    #[serde(default)]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub revision: i64,
    /// Random id of that revision. Number and id together identify its content. Empty: none yet.
    #[serde(default)]
    pub revision_id: RevisionId,
    /// true: the hub removes the Secret from the cluster.
    #[serde(default)]
    pub remove: bool,
    /// When the hub made this assignment.
    #[serde(
        default,
        deserialize_with = "decode::time",
        skip_serializing_if = "Option::is_none"
    )]
    pub assigned_at: Option<Time>,
    /// true: the hub revoked the previous assignment because the cluster did not finish it in time.
    #[serde(default)]
    pub revoked: bool,
    /// Value of the annotation `globalps.io/retry` at the time of this assignment. A new value causes another attempt.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub retry: String,
    /// Revision that the cluster failed, without having been synced since; 0: none. Until then, the failure of another revision
    /// in this cluster does not count towards `maxFailures`.
    #[serde(default)]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub failed_revision: i64,
    /// Random id of that revision. Empty: none.
    #[serde(default)]
    pub failed_revision_id: RevisionId,
}

impl ClusterPullSecretSpec {
    /// The desired revision.
    pub fn assigned(&self) -> Revision {
        Revision::new(self.revision, self.revision_id)
    }

    /// The hub has assigned something to the cluster, or revoked it.
    pub fn has_assignment(&self) -> bool {
        self.revision > 0 || self.remove || self.revoked
    }

    /// The revision that the cluster failed, without having been synced since; `NONE`: none.
    pub fn failed(&self) -> Revision {
        Revision::new(self.failed_revision, self.failed_revision_id)
    }
}

impl ClusterPullSecretStatus {
    /// The revision in force.
    pub fn in_force(&self) -> Revision {
        Revision::new(self.revision, self.revision_id)
    }

    /// Number and id are set together, so that they never belong to two revisions.
    pub fn set_in_force(&mut self, revision: Revision) {
        (self.revision, self.revision_id) = (revision.number, revision.id);
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterPullSecretStatus {
    /// `metadata.generation` of the spec that `phase` refers to.
    #[serde(default, deserialize_with = "decode::number")]
    #[schemars(range(min = 0))]
    pub observed_generation: i64,
    /// Revision in force in the cluster; 0: none.
    #[serde(default, deserialize_with = "decode::number")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub revision: i64,
    /// Random id of the revision in force. Empty: none.
    #[serde(default)]
    pub revision_id: RevisionId,
    #[serde(default)]
    pub phase: ClusterPhase,
    /// uid of the cluster's namespace `kube-system`, pinned when the hub first reached the cluster. Empty: the hub can't read the
    /// namespace. Absent: not reached yet.
    // An absent value is written as null, here and below: a merge patch does not change an omitted field.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub identity: Option<String>,
    /// uid that the kubeconfig leads to now, if it is another one. The hub writes nothing there until an admin accepts it.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub found_identity: Option<String>,
    /// `CamelCase` reason for programs; empty if the phase needs none.
    #[serde(default)]
    #[schemars(length(max = 128))]
    pub reason: String,
    /// Human-readable details.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub message: String,
    /// Numbers of nodes that the cluster's own globalps reports.
    #[serde(default)]
    pub nodes: Option<Counts>,
    /// When `phase` last changed, by the hub's clock.
    #[serde(default, deserialize_with = "decode::time")]
    pub last_transition_time: Option<Time>,
    /// When `phase` or `nodes` last changed, by the hub's clock. Such a change extends the deadline of the assignment.
    #[serde(default, deserialize_with = "decode::time")]
    pub last_progress_time: Option<Time>,
}

/// State of the assignment in a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ClusterPhase {
    /// Waits for its turn.
    #[default]
    Pending,
    Syncing,
    /// The desired revision is in force.
    Synced,
    /// The cluster's own rollout failed, or it rejects the content.
    Failed,
    /// An error of the cluster itself prevents the change, for example a Secret of another client or an exceeded quota. The
    /// hub retries.
    Blocked,
    Removing,
    /// The Secret is removed.
    Removed,
    /// The cluster's API server can't be reached with its kubeconfig.
    Unreachable,
    /// A phase that this release does not know.
    #[serde(other)]
    Other,
}

impl ClusterPhase {
    /// As the API has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Syncing => "Syncing",
            Self::Synced => "Synced",
            Self::Failed => "Failed",
            Self::Blocked => "Blocked",
            Self::Removing => "Removing",
            Self::Removed => "Removed",
            Self::Unreachable => "Unreachable",
            Self::Other => "Other",
        }
    }
}

impl fmt::Display for ClusterPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
