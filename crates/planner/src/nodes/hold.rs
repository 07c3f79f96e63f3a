//! Why a plan changes nothing. Pure.

use globalps_core::api::{DeliveryType, GlobalPullSecretSpec, NodePullSecret};

use super::absence::Absence;
use super::input::{NodeView, Nodes, Snapshot};
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
pub(super) fn why_held(snapshot: &Snapshot, absence: &Absence, has_content: bool) -> Option<Hold> {
    let Snapshot { config, nodes, .. } = snapshot;
    let is_delivered = has_content && config.spec.kubelet.delivery != DeliveryType::None;
    let is_removal_held = snapshot.is_removal_held(absence);
    if config.is_missing && snapshot.needs_configuration() {
        Some(Hold::ConfigMissing)
    } else if config.unreadable.is_some() {
        Some(Hold::ConfigUnreadable)
    } else if !nodes.are_known && (snapshot.may_be_on_nodes() || is_delivered) {
        Some(if is_removal_held {
            Hold::SourcesRemoved
        } else {
            Hold::NodesNotServed
        })
    } else if has_content && !is_removal_held {
        selects_nothing(&config.spec, nodes).then_some(Hold::NoNodeSelected)
    } else if !snapshot.is_in_force() || snapshot.recorded.is_restoring() {
        None
    } else {
        match absence {
            Absence::Yes => None,
            Absence::OnlyUnnamed(_) => Some(Hold::SourcesRemoved),
            Absence::No => Some(Hold::NoValidContent),
        }
    }
}

/// `spec.nodeSelector` matches no node, which would restore all those that have content: it may be a typo. A node that is excluded
/// by its labels is restored on purpose, and one that is `NotReady` can't be assigned it. While it is not known what nodes have, each
/// counts.
fn selects_nothing(spec: &GlobalPullSecretSpec, nodes: &Nodes) -> bool {
    is_on_other_nodes(spec, nodes, |node, object| {
        node.ready.is_ok() && !node.labels.is_excluded && object.is_none_or(has_content)
    })
}

/// Until it matches a node, or nodes have nothing: the syncers stay on the nodes that were selected before, also while these are
/// `NotReady` or being restored.
pub(super) fn keeps_selector(spec: &GlobalPullSecretSpec, nodes: &Nodes) -> bool {
    is_on_other_nodes(spec, nodes, |_, object| object.is_none_or(has_anything))
}

/// `spec.nodeSelector` matches no node, and this is true of any. Without the object: it is not known.
fn is_on_other_nodes(
    spec: &GlobalPullSecretSpec,
    nodes: &Nodes,
    is: impl Fn(&NodeView, Option<&NodePullSecret>) -> bool,
) -> bool {
    if spec.kubelet.delivery == DeliveryType::None {
        return false;
    }
    let views = nodes.views.values();
    let mut views = views.filter(|node| node.can_run_syncer());
    let mut is_any = false;
    views.all(|node| {
        let object = nodes.objects.get(&node.name);
        is_any |= match object {
            _ if !nodes.are_known => is(node, None),
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
