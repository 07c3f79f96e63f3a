//! New nodes get the fleet's revision immediately and outside the limits, because nothing runs on them yet. Pure.

use globalps_core::api::{NodePullSecret, NodePullSecretSpec, Phase};
use globalps_core::rollout::Goal;

use super::input::{NodeView, Snapshot, is_selected, is_skipped};
use super::members::assigned;
use super::progress::up_to_date;
use crate::content::secret::Global;

/// The revision for new nodes: the newest one if its rollout is past the canary and continues, otherwise the last one that was
/// rolled out to all nodes. `None`: there is neither. Before the first rollout, new nodes lack nothing that others have; in a new
/// cluster all nodes would otherwise change at once.
pub(super) fn fleet_revision(snapshot: &Snapshot, global: &Global, continues: bool) -> Option<i64> {
    if global.restoring {
        return None;
    }
    if global.rolled_out.is_some() {
        return Some(global.revision);
    }
    let older = snapshot.rolled_out_revision;
    let older = older.filter(|revision| (1..global.revision).contains(revision))?;
    let is_newest = continues && global.canary_passed;
    Some(if is_newest { global.revision } else { older })
}

/// New nodes that have reported that they have nothing.
pub(super) fn bootstrap(
    snapshot: &Snapshot,
    revision: Option<i64>,
) -> Vec<(String, NodePullSecretSpec)> {
    let Some(revision) = revision else {
        return Vec::new();
    };
    let nodes = snapshot.nodes.values().filter(|node| {
        let object = snapshot.node_pull_secrets.get(&node.name);
        object.is_some_and(|object| is_waiting(snapshot, node, object))
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
    let was_asked = spec.revision > 0 || spec.restore || spec.revoked;
    let has_nothing = up_to_date(object)
        .is_some_and(|status| status.revision == 0 && status.phase == Phase::Pending);
    node.is_new(snapshot.now)
        && !was_asked
        && has_nothing
        && node.file_owner.is_empty()
        && is_selected(&snapshot.spec, node)
        && !is_skipped(&snapshot.spec, node)
}
