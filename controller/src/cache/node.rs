//! Reduces a Node to the fields that the plan needs.

use globalps_core::names::{MCO_ANNOTATION, NODE_POOL_LABEL};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;

use super::store::Versioned;
use super::version;
use crate::nodes::input::NodeView;

impl Versioned for NodeView {
    fn key(&self) -> String {
        self.name.clone()
    }

    fn version(&self) -> u64 {
        self.version
    }

    /// A kubelet renews its status every few minutes without a change.
    fn means_the_same(&self, other: &Self) -> bool {
        let Self {
            name,
            uid,
            version: _,
            labels,
            ready,
            is_foreign,
            // It never changes.
            created: _,
        } = self;
        (name, uid, labels) == (&other.name, &other.uid, &other.labels)
            && (ready, is_foreign) == (&other.ready, &other.is_foreign)
    }
}

pub(super) fn node_view(node: &Node) -> NodeView {
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let ready = conditions.and_then(|conditions| {
        conditions
            .iter()
            .find(|condition| condition.type_ == "Ready")
    });
    let ready = match ready {
        Some(condition) if condition.status == "True" => Ok(()),
        Some(condition) => Err(condition
            .last_transition_time
            .as_ref()
            .map_or(Timestamp::UNIX_EPOCH, |time| time.0)),
        None => Err(node
            .creation_timestamp()
            .map_or(Timestamp::UNIX_EPOCH, |time| time.0)),
    };
    NodeView {
        name: node.name_any(),
        uid: node.uid().unwrap_or_default(),
        version: version(node),
        labels: node.labels().into(),
        ready,
        created: node
            .creation_timestamp()
            .map_or(Timestamp::UNIX_EPOCH, |time| time.0),
        is_foreign: node.annotations().contains_key(MCO_ANNOTATION)
            && !node.labels().contains_key(NODE_POOL_LABEL),
    }
}
