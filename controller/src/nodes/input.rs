//! What the plan depends on: the cluster at one moment, cut down to what matters.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use globalps_core::api::{GlobalPullSecretSpec, NodePullSecret};
use globalps_core::names::{EXCLUDE_LABEL, MACHINE_CONFIG_OPERATOR};
use jiff::{SignedDuration, Timestamp};

use super::labels::Labels;
use crate::content::secret::Global;
use crate::content::source::Source;

/// The input of the plan.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot<'a> {
    pub(crate) spec: GlobalPullSecretSpec,
    pub(crate) additional: Source,
    /// Type of the additional Secret.
    pub(crate) additional_type: Option<String>,
    pub(crate) original: Source,
    /// `spec.sources` by name, in their order.
    pub(crate) sources: Vec<(String, Source)>,
    pub(crate) global: Option<Global>,
    /// Another client deleted it; `global` is its last state.
    pub(crate) global_deleted_out_of_band: bool,
    /// The newest additional Secret of the history; `None`: not read.
    pub(crate) last_rolled_out: Option<Source>,
    /// The syncer's `DaemonSet` is there.
    pub(crate) daemon_set: bool,
    pub(crate) nodes: Cow<'a, BTreeMap<String, NodeView>>,
    /// Nodes whose `NodePullSecret` another client deleted.
    pub(crate) deleted_out_of_band: Cow<'a, BTreeSet<String>>,
    pub(crate) node_pull_secrets: Cow<'a, BTreeMap<String, Box<NodePullSecret>>>,
    pub(crate) now: Timestamp,
}

/// The fields of a Node that the plan needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeView {
    pub(crate) name: String,
    pub(crate) uid: String,
    /// Its `resourceVersion`.
    pub(crate) version: u64,
    pub(crate) labels: Labels,
    /// `Ok`: ready since then.
    pub(crate) ready: Result<Timestamp, NotReady>,
    /// When the kubelet last posted its status, by the node's clock. Kubelets post every few minutes, and at once after a
    /// restart.
    pub(crate) heartbeat: Timestamp,
    /// Cordoned.
    pub(crate) unschedulable: bool,
    /// An autoscaler, Cluster API or an admin is removing it.
    pub(crate) is_being_deleted: bool,
    /// The Machine Config Operator manages its credentials file.
    pub(crate) is_foreign: bool,
    pub(crate) created: Timestamp,
}

/// Why a Node is not ready, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotReady {
    pub(crate) since: Timestamp,
    /// The kubelet is silent; else the kubelet itself reports that it is not ready.
    pub(crate) unknown: bool,
}

/// An older Node without an object had one that was deleted out of band, and does not bootstrap.
const NEW_FOR: SignedDuration = SignedDuration::from_mins(10);

impl NodeView {
    fn has(&self, label: &str, value: &str) -> bool {
        self.labels.get(label) == Some(value)
    }

    /// A syncer runs there.
    pub(super) fn is_linux(&self) -> bool {
        self.has("kubernetes.io/os", "linux")
    }

    pub(super) fn is_new(&self, now: Timestamp) -> bool {
        now.duration_since(self.created) < NEW_FOR
    }

    pub(super) fn foreign_owner(&self) -> String {
        let owner = if self.is_foreign {
            MACHINE_CONFIG_OPERATOR
        } else {
            ""
        };
        owner.to_owned()
    }
}

/// Whether globalps manages the node.
pub(crate) fn is_selected(spec: &GlobalPullSecretSpec, node: &NodeView) -> bool {
    node.is_linux()
        && !node.has(EXCLUDE_LABEL, "true")
        && spec
            .node_selector
            .iter()
            .all(|(key, value)| node.has(key, value))
}
