//! Why a plan changes nothing. Pure.

use globalps_core::api::{DeliveryType, NodePullSecret};

use super::absence::Absence;
use super::input::Snapshot;
use super::node::matches_selector;

/// Why nothing changes although content is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
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

/// A new additional Secret does not end the hold of a removal: the sources would go without a word.
pub(super) fn is_removal_held(snapshot: &Snapshot) -> bool {
    let is_held = || matches!(snapshot.absence(), Absence::OnlyUnnamed(_));
    !snapshot.is_restoring() && is_held()
}

/// `spec.nodeSelector` matches no node, which would restore all those that have content: it may be a typo. A node that is excluded
/// by its labels is restored on purpose, and one that is `NotReady` can't be assigned it. While it is not known what nodes have, each
/// counts.
pub(super) fn selects_nothing(snapshot: &Snapshot) -> bool {
    let spec = &snapshot.spec;
    if spec.kubelet.delivery == DeliveryType::None {
        return false;
    }
    let nodes = snapshot.nodes.values();
    let mut nodes = nodes.filter(|node| node.can_run_syncer());
    let mut loses_content = false;
    nodes.all(|node| {
        let object = snapshot.node_pull_secrets.get(&node.name);
        let may_have =
            !snapshot.are_nodes_known || object.is_some_and(|object| has_content(object));
        loses_content |= node.ready.is_ok() && !node.labels.is_excluded && may_have;
        !matches_selector(spec, node)
    }) && loses_content
}

/// It has been assigned content, or reports some, and is not being restored.
fn has_content(object: &NodePullSecret) -> bool {
    let reported = object.status.as_ref().map_or(0, |status| status.revision);
    !object.spec.restore && object.spec.revision.max(reported) > 0
}
