//! A Node, reduced to the relevant fields while it is decoded. Pure.

use std::collections::BTreeMap;

use globalps_core::virtual_nodes::{VirtualMark, virtual_mark};
use globalps_core::{decode, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;

use super::store::NodeFacts;

#[derive(Deserialize)]
pub(super) struct SlimNode {
    pub(super) metadata: SlimMeta,
    #[serde(default)]
    spec: SlimSpec,
    #[serde(default)]
    status: SlimStatus,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct SlimMeta {
    pub(super) name: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

impl SlimMeta {
    /// True for nodes with an excluding label, and for Linux nodes without the labels of `spec.nodeSelector`.
    pub(super) fn is_excluded(&self, node_selector: &BTreeMap<String, String>) -> bool {
        let label = |label: &str| self.labels.get(label).map(String::as_str);
        let is_selected = || {
            let mut wanted = node_selector.iter();
            wanted.all(|(key, value)| label(key) == Some(value))
        };
        let (os, linux) = names::LINUX_LABEL;
        names::is_node_excluded(label) || label(os) == Some(linux) && !is_selected()
    }

    pub(super) fn virtual_by(&self, taints: &[SlimTaint]) -> Option<VirtualMark> {
        let taints = taints.iter();
        virtual_mark(
            |label| self.labels.get(label).map(String::as_str),
            taints.map(|taint| (taint.key.as_str(), taint.value.as_str())),
        )
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct SlimSpec {
    taints: Vec<SlimTaint>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct SlimTaint {
    key: String,
    value: String,
}

#[derive(Default, Deserialize)]
pub(super) struct SlimStatus {
    #[serde(default)]
    conditions: Vec<SlimCondition>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SlimCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    #[serde(default, deserialize_with = "decode::time")]
    last_transition_time: Option<Time>,
}

impl SlimNode {
    pub(super) fn facts(&self, node_selector: &BTreeMap<String, String>) -> NodeFacts {
        let ready = self.status.conditions.iter().find(|c| c.type_ == "Ready");
        NodeFacts::new(
            (
                self.metadata.is_excluded(node_selector),
                self.metadata.virtual_by(&self.spec.taints),
            ),
            ready.map(|c| {
                let since = c.last_transition_time.as_ref();
                (c.status.as_str(), since.map(|since| since.0))
            }),
        )
    }
}
