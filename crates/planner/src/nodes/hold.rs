//! Why a plan changes nothing. Pure.

use globalps_core::api::{DeliveryType, NodePullSecret};

use super::absence::Absence;
use super::input::{NodeView, Snapshot};
use super::node::matches_selector;

/// Why nothing changes although content is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// The `GlobalPullSecret` was deleted. The defaults may have other limits than the user's.
    ConfigMissing,
    /// The configuration names no source any more, but the Secrets of those in force exist.
    SourcesRemoved,
    /// `spec.nodeSelector` matches no node, but nodes have content.
    NoNodeSelected,
    /// The newest `GlobalPullSecret` can't be decoded: its limits are unknown.
    ConfigUnreadable,
    /// The API server doesn't serve `NodePullSecret`s: what nodes have is not known, and nothing can be assigned.
    NodesNotServed,
    /// There is a Secret, but no valid content. Only absence restores.
    NoValidContent,
}

/// Why nothing may change; `None`: it may. Invalid content is not the same as absence: the nodes restore only if every source is absent,
/// or if a restore has begun.
pub(super) fn why_held(snapshot: &Snapshot, has_content: bool) -> Option<Hold> {
    let is_delivered = has_content && snapshot.spec.kubelet.delivery != DeliveryType::None;
    if snapshot.config_missing && snapshot.needs_configuration() {
        Some(Hold::ConfigMissing)
    } else if snapshot.config_unreadable.is_some() {
        Some(Hold::ConfigUnreadable)
    } else if !snapshot.are_nodes_known && (snapshot.may_be_on_nodes() || is_delivered) {
        let is_removal_held = is_removal_held(snapshot);
        Some(if is_removal_held {
            Hold::SourcesRemoved
        } else {
            Hold::NodesNotServed
        })
    } else if has_content && !is_removal_held(snapshot) {
        selects_nothing(snapshot).then_some(Hold::NoNodeSelected)
    } else if !snapshot.is_in_force() || snapshot.is_restoring() {
        None
    } else {
        match snapshot.absence() {
            Absence::Yes => None,
            Absence::OnlyUnnamed(_) => Some(Hold::SourcesRemoved),
            Absence::No => Some(Hold::NoValidContent),
        }
    }
}

/// A new additional Secret does not end the hold of a removal: the sources would go without a word.
pub(super) fn is_removal_held(snapshot: &Snapshot) -> bool {
    !snapshot.is_restoring() && matches!(snapshot.absence(), Absence::OnlyUnnamed(_))
}

/// `spec.nodeSelector` matches no node, which would restore all those that have content: it may be a typo. A node that is excluded
/// by its labels is restored on purpose, and one that is `NotReady` can't be assigned it. While it is not known what nodes have, each
/// counts.
fn selects_nothing(snapshot: &Snapshot) -> bool {
    is_on_other_nodes(snapshot, |node, object| {
        node.ready.is_ok() && !node.labels.is_excluded && object.is_none_or(has_content)
    })
}

/// Until it matches a node, or nodes have nothing: the syncers stay on the nodes that were selected before, also while these are
/// `NotReady` or being restored.
pub(super) fn keeps_selector(snapshot: &Snapshot) -> bool {
    is_on_other_nodes(snapshot, |_, object| object.is_none_or(has_anything))
}

/// `spec.nodeSelector` matches no node, and this is true of any. Without the object: it is not known.
fn is_on_other_nodes(
    snapshot: &Snapshot,
    is: impl Fn(&NodeView, Option<&NodePullSecret>) -> bool,
) -> bool {
    let spec = &snapshot.spec;
    if spec.kubelet.delivery == DeliveryType::None {
        return false;
    }
    let nodes = snapshot.nodes.values();
    let mut nodes = nodes.filter(|node| node.can_run_syncer());
    let mut is_any = false;
    nodes.all(|node| {
        let object = snapshot.node_pull_secrets.get(&node.name);
        is_any |= match object {
            _ if !snapshot.are_nodes_known => is(node, None),
            None => false,
            Some(object) => is(node, Some(object)),
        };
        !matches_selector(spec, node)
    }) && is_any
}

/// It has been assigned content, or reports some, and is not being restored.
fn has_content(object: &NodePullSecret) -> bool {
    !object.spec.restore && has_anything(object)
}

/// The same, or its restore has not ended.
fn has_anything(object: &NodePullSecret) -> bool {
    let status = object.status.as_ref();
    let reported = status.map_or(0, |status| status.revision);
    let is_restored = object.spec.restore && status.is_some_and(|status| status.restored);
    !is_restored && object.spec.revision.max(reported) > 0
}
