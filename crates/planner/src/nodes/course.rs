//! What a plan does, and what its members are to reach. Pure.

use globalps_core::api::{DeliveryType, GlobalPullSecretSpec, MAX_REVISION, NodePullSecret};
use globalps_core::rollout::{Goal, Ledger, Revision, RevisionId};
use globalps_provider::{Content, Delivery};

use super::absence::Absence;
use super::input::{Nodes, Recorded, Snapshot};
use super::members::RolloutTarget;
use super::node::{NodeView, matches_selector};
use crate::content::resolve::DesiredContent;
use crate::content::secret::Global;

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

/// The desired state of the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// No additional Secret, no source, and nothing to clean up.
    Nothing,
    /// Every node keeps its content.
    Hold(Hold),
    /// Nodes get this, one batch after the other.
    Reach(Goal),
    /// Every node is restored: the controller deletes the objects that it created.
    CleanUp,
}

/// What is decided before any node is assigned something.
#[derive(Clone, Copy, Debug)]
pub(super) struct Course {
    pub(super) aim: Aim,
    /// `None`: no node has a goal, or it is not known which ones are selected.
    pub(super) target: Option<RolloutTarget>,
    /// Objects of nodes are written.
    pub(super) assigns: bool,
}

/// Invalid content is not the same as absence: the nodes restore only if every source is absent, or if a restore has begun.
/// `before`: what is in force, or what a rollback leaves of it.
pub(super) fn course(
    snapshot: &Snapshot,
    before: Option<&Global>,
    desired: Option<&DesiredContent>,
) -> Course {
    let Snapshot {
        config,
        recorded,
        nodes,
        ..
    } = snapshot;
    let (is_in_force, is_on_nodes) = (snapshot.is_in_force(), snapshot.may_be_on_nodes());
    let absence = snapshot.absence();
    let is_restoring = recorded.is_restoring();
    // A new additional Secret does not end the hold of a removal: the sources would go without a word.
    let is_removal_held = !is_restoring && matches!(absence, Absence::OnlyUnnamed(_));
    let is_delivered = desired.is_some() && config.spec.kubelet.delivery != DeliveryType::None;
    let desired = desired.filter(|_| !is_removal_held);
    let held = if config.is_missing && (is_in_force || recorded.has_copies) {
        Some(Hold::ConfigMissing)
    } else if config.unreadable.is_some() {
        Some(Hold::ConfigUnreadable)
    } else if !nodes.are_known && (is_on_nodes || is_delivered) {
        Some(if is_removal_held {
            Hold::SourcesRemoved
        } else {
            Hold::NodesNotServed
        })
    } else if desired.is_some() {
        selects_nothing(&config.spec, nodes).then_some(Hold::NoNodeSelected)
    } else if !is_in_force || is_restoring {
        None
    } else {
        match absence {
            Absence::Yes => None,
            Absence::OnlyUnnamed(_) => Some(Hold::SourcesRemoved),
            Absence::No => Some(Hold::NoValidContent),
        }
    };
    match (held, desired) {
        (Some(reason), _) => {
            let assigns = nodes.are_known && is_on_nodes;
            let before = before.filter(|_| assigns && snapshot.is_configuration_known());
            Course {
                aim: Aim::Hold(reason),
                target: before.map(|global| {
                    if is_restoring {
                        RolloutTarget::RESTORE
                    } else {
                        RolloutTarget::of(global)
                    }
                }),
                assigns,
            }
        }
        (None, Some(desired)) => Course::to(recorded, before, desired, snapshot.new_id),
        // No additional Secret and no source: every node restores, then everything is deleted.
        (None, None) if is_in_force && is_on_nodes => Course {
            aim: Aim::Reach(Goal::Restore),
            target: Some(RolloutTarget::RESTORE),
            assigns: true,
        },
        (None, None) => Course {
            aim: if is_in_force {
                Aim::CleanUp
            } else {
                Aim::Nothing
            },
            target: None,
            assigns: false,
        },
    }
}

impl Course {
    /// Rolls out the desired content. `id`: of a new revision.
    fn to(
        recorded: &Recorded,
        before: Option<&Global>,
        desired: &DesiredContent,
        id: RevisionId,
    ) -> Self {
        let same =
            before.filter(|global| global.revision.is_identified() && global.has(&desired.content));
        let revision = same.map_or_else(|| next_revision(recorded, id), |global| global.revision);
        let goal = Goal::Revision(revision);
        let same = same.filter(|global| !global.restoring);
        let target = RolloutTarget {
            ledger: same.map_or(Ledger::new(goal), |global| RolloutTarget::of(global).ledger),
            provider_since: provider_since(before, &desired.content, revision.number),
        };
        Self {
            aim: Aim::Reach(goal),
            target: Some(target),
            assigns: true,
        }
    }
}

/// A new configuration of the provider restarts each kubelet; later revisions with the same one need no restart.
pub(super) fn provider_since(before: Option<&Global>, content: &Content, revision: i64) -> i64 {
    let known = before.filter(|global| {
        let before = global.content.as_ref().map(|content| &content.delivery);
        before == Some(&content.delivery)
    });
    match &content.delivery {
        Delivery::ConfigFile => 0,
        Delivery::CredentialProvider(_) => known
            .map(|global| global.provider_since)
            .filter(|since| *since > 0)
            .unwrap_or(revision),
    }
}

/// The next revision. Its number follows the last one that the controller wrote; if that is lost, it may repeat one, and the id
/// tells both apart. Numbers in the nodes' objects don't count: other clients can write those.
fn next_revision(recorded: &Recorded, id: RevisionId) -> Revision {
    let written = recorded
        .global
        .as_ref()
        .map(|global| global.revision.number);
    let written = written.filter(|number| *number > 0).unwrap_or_else(|| {
        let rolled_out = recorded.rolled_out_revision;
        rolled_out
            .map_or(0, |revision| revision.number)
            .max(recorded.reported_revision)
    });
    let next = written.checked_add(1);
    let number = next.filter(|number| (1..=MAX_REVISION).contains(number));
    Revision::new(number.unwrap_or(1), id)
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
