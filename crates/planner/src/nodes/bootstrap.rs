//! New nodes get the fleet's revision immediately and outside the limits, because nothing runs on them yet. Pure.

use globalps_core::api::{NodePullSecret, NodePullSecretSpec};
use globalps_core::rollout::{Goal, Revision};

use super::assignments::assigned;
use super::clock::up_to_date;
use super::input::{NodeView, Snapshot, is_selected, is_skipped};
use super::progress::is_at_rest;
use crate::content::secret::Global;

/// The revision for new nodes: the newest one if it has passed its canary and its rollout continues, otherwise the last one before
/// it that passed its canary, `older`. A paused rollout without an earlier one keeps its revision. `None`: no revision has passed,
/// or only one that failed.
pub(super) fn fleet_revision(
    older: Option<Revision>,
    global: &Global,
    is_paused: bool,
    is_halted: bool,
) -> Option<Revision> {
    if global.restoring {
        return None;
    }
    let newest = Some(global.revision);
    if global.rolled_out.is_some() {
        return newest;
    }
    let older = older.filter(|older| older.is_identified() && *older != global.revision);
    let passed = newest.filter(|_| global.canary_passed && !is_halted);
    if is_paused {
        older.or(passed)
    } else {
        passed.or(older)
    }
}

/// New nodes that have reported that they have nothing: without an assignment, or with one whose content was replaced before they
/// fetched it.
pub(super) fn bootstrap(
    snapshot: &Snapshot,
    revision: Option<Revision>,
) -> Vec<(String, NodePullSecretSpec)> {
    let Some(revision) = revision else {
        return Vec::new();
    };
    let nodes = snapshot.nodes.views.values().filter(|node| {
        let object = snapshot.nodes.objects.get(&node.name);
        !snapshot.nodes.unreadable.contains_key(&node.name)
            && object.is_some_and(|object| is_waiting(snapshot, node, object))
    });
    nodes
        .map(|node| {
            let goal = Some(Goal::Revision(revision));
            (node.name.clone(), assigned(snapshot, &node.name, goal))
        })
        .collect()
}

fn is_waiting(snapshot: &Snapshot, node: &NodeView, object: &NodePullSecret) -> bool {
    let spec = &object.spec;
    let can_be_fetched = spec.revision > 0 && snapshot.recorded.knows(spec.assigned());
    let was_asked = can_be_fetched || spec.restore || spec.revoked;
    let has_nothing =
        up_to_date(object).is_some_and(|status| status.revision == 0 && is_at_rest(status));
    snapshot.joins_the_fleet(node)
        && !was_asked
        && has_nothing
        && node.file_owner.is_empty()
        && is_selected(&snapshot.config.spec, node)
        && !is_skipped(&snapshot.config.spec, node)
}
