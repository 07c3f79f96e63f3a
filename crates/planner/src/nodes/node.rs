//! A Node, reduced to what matters.

use std::collections::BTreeMap;

use globalps_core::api::{Cordoned, DeliveryType, GlobalPullSecretSpec};
use globalps_core::machine_config::MachineConfig;
use globalps_core::names::{ABANDON_ANNOTATION, MACHINE_CONFIG_OPERATOR};
use globalps_core::phase;
use globalps_core::virtual_nodes::VirtualMark;
use jiff::{SignedDuration, Timestamp};

use super::labels::NodeLabels;

/// A `Ready` condition that is not True.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotReady {
    /// By the clock of the API server, or of the kubelet.
    pub since: Timestamp,
    /// The kubelet is unresponsive; otherwise it reports `NotReady` itself.
    pub unknown: bool,
}

/// The fields of a Node that the plan needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// Unique in the cluster.
    pub name: String,
    /// Another one under the same name is another node.
    pub uid: String,
    /// Its `resourceVersion`.
    pub version: u64,
    /// Those that the plan reads, and those that selectors may match.
    pub labels: NodeLabels,
    /// Since when it is ready, or not.
    pub ready: Result<Timestamp, NotReady>,
    /// `lastHeartbeatTime` of its `Ready` condition.
    pub heartbeat: Timestamp,
    /// Who manages its credentials file, as in `spec.foreignOwner`; empty: globalps.
    pub file_owner: &'static str,
    /// Of the Machine Config Operator; `None`: it does not manage the node, or globalps does not deliver by it.
    pub machine_config: Option<Box<MachineConfig>>,
    /// By what it is known that no machine is behind it.
    pub virtual_by: Option<VirtualMark>,
    /// Such as `v1.36.3`; empty: unknown.
    pub kubelet_version: Box<str>,
    /// An admin or a program cordoned it.
    pub unschedulable: bool,
    /// An autoscaler, Cluster API or another client is removing it.
    pub is_being_deleted: bool,
    /// By the clock of the API server.
    pub created: Timestamp,
}

/// The user lets the cleanup finish without this node.
pub(super) fn is_abandoned(annotations: &BTreeMap<String, String>) -> bool {
    annotations
        .get(ABANDON_ANNOTATION)
        .is_some_and(|value| value == "true")
}

impl NodeView {
    pub(super) fn has(&self, label: &str, value: &str) -> bool {
        self.labels.get(label) == Some(value)
    }

    /// Whether a syncer can run there, as far as its labels and taints say.
    pub fn can_run_syncer(&self) -> bool {
        self.is_linux() && self.virtual_by.is_none()
    }

    /// Neither Windows nor unknown.
    pub fn is_linux(&self) -> bool {
        self.labels.is_linux
    }

    pub(super) fn is_control_plane(&self) -> bool {
        self.labels.is_control_plane
    }

    /// Empty if it has none.
    pub(super) fn zone(&self) -> &str {
        &self.labels.zone
    }

    /// The Machine Config Operator manages its credentials file.
    pub fn is_foreign(&self) -> bool {
        self.file_owner == MACHINE_CONFIG_OPERATOR
    }

    /// It is of a pool whose nodes a Machine Config Daemon may update in place. Before its first update nothing tells it from others.
    pub(super) fn is_updated_in_place(&self) -> bool {
        self.labels.is_of_pool
    }

    /// The Machine Config Daemon updates it.
    pub(super) fn is_updating(&self) -> bool {
        !self.file_owner.is_empty() && !self.is_foreign()
    }

    /// The input of [`phase::phase`].
    pub fn phase_view(
        &self,
        spec: &GlobalPullSecretSpec,
        (unresponsive, unsupported): (bool, bool),
        not_ready_for: Option<SignedDuration>,
    ) -> phase::NodeView {
        let not_ready = not_ready_for.map(|duration| match self.ready {
            Err(NotReady { unknown: true, .. }) => phase::NotReady::Unknown(duration),
            _ => phase::NotReady::Reported(duration),
        });
        let unsupported = unsupported && is_selectable(spec, self);
        phase::NodeView {
            excluded: !unsupported && self.is_linux() && !is_selected(spec, self),
            unsupported,
            not_ready,
            unresponsive,
        }
    }

    /// A Linux node that has been Ready since then.
    #[cfg(any(test, feature = "testing"))]
    pub fn of_test(name: &str, created: Timestamp) -> Self {
        let labels =
            std::collections::BTreeMap::from([("kubernetes.io/os".to_owned(), "linux".to_owned())]);
        Self {
            name: name.to_owned(),
            uid: String::new(),
            version: 0,
            labels: (&labels).into(),
            ready: Ok(created),
            heartbeat: created,
            file_owner: "",
            machine_config: None,
            virtual_by: None,
            kubelet_version: "v1.36.3".into(),
            unschedulable: false,
            is_being_deleted: false,
            created,
        }
    }
}

/// Whether globalps manages the node.
pub fn is_selected(spec: &GlobalPullSecretSpec, node: &NodeView) -> bool {
    node.virtual_by.is_none() && is_selectable(spec, node)
}

/// Whether globalps would manage the node if a syncer can run there.
pub(super) fn is_selectable(spec: &GlobalPullSecretSpec, node: &NodeView) -> bool {
    node.is_linux()
        && spec.kubelet.delivery != DeliveryType::None
        && !node.labels.is_excluded
        && matches_selector(spec, node)
}

pub(super) fn matches_selector(spec: &GlobalPullSecretSpec, node: &NodeView) -> bool {
    let mut wanted = spec.node_selector.iter();
    wanted.all(|(key, value)| node.has(key, value))
}

/// Whether the node gets no new content: it is being removed, or it is cordoned and the spec says `Skip`.
pub(super) fn is_skipped(spec: &GlobalPullSecretSpec, node: &NodeView) -> bool {
    node.is_being_deleted || node.unschedulable && spec.rollout.cordoned == Cordoned::Skip
}
