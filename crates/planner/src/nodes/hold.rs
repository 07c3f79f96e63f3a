//! Plans that change nothing, and why. Pure.

use globalps_core::api::{DeliveryType, GlobalPullSecretSpec, NodePullSecret};
use globalps_core::rollout::{Goal, Member};

use super::absence::Absence;
use super::assignments::Scope;
use super::input::{Nodes, Recorded, Snapshot};
use super::members::members;
use super::node::{NodeView, matches_selector};
use super::outcome::{fleet_revision, has_halted};
use super::output::{Aim, Hold, Plan};
use super::state::NodeState;
use crate::content::resolve::Resolved;
use crate::content::secret::GlobalWrite;

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

/// Every node keeps its content; new nodes get the fleet's, if any node has some. What needs no limits continues. `in_force`: the
/// members of the revision in force.
pub(super) fn hold<'a>(
    snapshot: &'a Snapshot,
    states: &[NodeState],
    resolved: Resolved,
    reason: Hold,
    in_force: Vec<Member>,
) -> (Plan, Option<Scope<'a>>) {
    let (config, recorded) = (&snapshot.config, &snapshot.recorded);
    let mut plan = Plan::new(resolved, Aim::Hold(reason));
    plan.global = lost_global(recorded);
    if !snapshot.nodes.are_known || !snapshot.may_be_on_nodes() {
        return (plan, None);
    }
    let restores = recorded.is_restoring();
    let mut scope = Scope {
        limits: None,
        canary_passed: false,
        restores,
        for_new_nodes: None,
    };
    // Otherwise, which nodes are selected is not known.
    if let Some(global) = &recorded.global
        && snapshot.is_configuration_known()
    {
        plan.members = if restores {
            members(states, Goal::Restore, true, 0)
        } else {
            in_force
        };
        plan.canary_passed = global.canary_passed;
        let is_halted = has_halted(&config.spec, &plan.members);
        let older = recorded.rolled_out_revision;
        scope.for_new_nodes = fleet_revision(older, global, true, is_halted);
    }
    (plan, Some(scope))
}

/// `global-pull-secret` as it was, if another client deleted or changed it.
fn lost_global(recorded: &Recorded) -> Option<GlobalWrite> {
    let global = recorded.global.as_ref();
    let global = global.filter(|_| recorded.global_is_lost)?;
    Some(GlobalWrite {
        content: global.content.clone()?,
        global: global.clone(),
    })
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
