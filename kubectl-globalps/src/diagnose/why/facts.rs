//! The relevant fields of a pod and its node. Pure.

use globalps_core::api::{DeliveryType, GlobalPullSecret, NodePullSecret, Phase};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use crate::diagnose::owner::{is_static, kept, workload};
use crate::error::quoted;

/// The relevant fields of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodSeen {
    pub namespace: String,
    pub name: String,
    /// Empty if the pod is not scheduled yet.
    pub node: String,
    pub service_account: String,
    /// `deployment/web`; `None` if there is no workload that `kubectl` can restart.
    pub workload: Option<String>,
    /// The kubelet reads the pod from a file.
    pub is_static: bool,
    /// Why nothing would recreate the pod; `None` if its controller would.
    pub kept: Option<&'static str>,
}

impl PodSeen {
    pub(crate) fn of(pod: &Pod) -> Self {
        let spec = pod.spec.as_ref();
        let text = |found: Option<&String>| found.cloned().unwrap_or_default();
        let name = pod.name_any();
        Self {
            namespace: pod.namespace().unwrap_or_default(),
            node: text(spec.and_then(|spec| spec.node_name.as_ref())),
            service_account: text(spec.and_then(|spec| spec.service_account_name.as_ref())),
            workload: workload(pod),
            is_static: is_static(pod),
            kept: kept(pod),
            name,
        }
    }

    /// The command that replaces the pod; `None` if nothing would recreate it.
    pub(crate) fn restart(&self) -> Option<String> {
        let namespace = quoted(&self.namespace);
        match &self.workload {
            Some(workload) => Some(format!(
                "kubectl -n {namespace} rollout restart {}",
                quoted(workload)
            )),
            None if self.kept.is_none() => Some(format!(
                "kubectl -n {namespace} delete pod {}",
                quoted(&self.name)
            )),
            None => None,
        }
    }
}

/// A node that does not have the credentials that are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lag {
    pub phase: Phase,
    pub revision: i64,
    pub wanted: i64,
    pub is_paused: bool,
    /// The node has no `NodePullSecret`: it is new, excluded, not selected or unsupported.
    pub is_absent: bool,
}

impl Lag {
    /// `None` if the node has the newest revision, or nodes get none.
    pub(crate) fn of(gps: Option<&GlobalPullSecret>, object: &NodePullSecret) -> Option<Self> {
        let gps = gps.filter(|gps| gps.spec.kubelet.delivery != DeliveryType::None);
        let newest = gps?.status.as_ref()?.rolled_out();
        let wanted = newest.number;
        let status = object.status.clone().unwrap_or_default();
        let is_behind = status.phase != Phase::Synced || status.in_force() != newest;
        (wanted > 0 && is_behind).then(|| Self {
            phase: status.phase,
            revision: status.revision,
            wanted,
            is_paused: gps.is_some_and(|gps| gps.spec.rollout.paused),
            is_absent: object.name_any().is_empty(),
        })
    }

    /// Whether no rollout reaches the node in its present state.
    pub(super) fn is_left_out(&self) -> bool {
        use Phase::{Excluded, ForeignOwner, SteppedAside, Unreadable, Unsupported};
        self.is_absent
            || matches!(
                self.phase,
                Excluded | ForeignOwner | SteppedAside | Unreadable | Unsupported
            )
    }
}
