//! Nodes that a cleanup may finish without. Pure.

use std::collections::BTreeSet;

use globalps_core::rollout::{Goal, Member};
use jiff::SignedDuration;

use super::input::{Clock, Nodes};

/// The plugin gives the permission as soon as the Secret is deleted; this leader believes that later, and its two watches are in no order.
const CLEANUP_BEGINS_WITHIN: SignedDuration = SignedDuration::from_secs(30);

/// Nodes that a cleanup might have finished without, but which have a revision as their goal. The permission ends with that
/// cleanup: the next one must name the node.
pub(super) fn no_longer_abandoned(
    clock: &Clock,
    nodes: &Nodes,
    members: &[Member],
) -> BTreeSet<String> {
    let names = members.iter().filter(|member| {
        let abandoned_for = clock.leader.abandoned_for(&member.name, clock.uptime);
        member.goal != Goal::Restore
            && abandoned_for.unwrap_or_default() >= CLEANUP_BEGINS_WITHIN
            // What an unreadable one says is unknown.
            && !nodes.unreadable.contains_key(&member.name)
    });
    names.map(|member| member.name.clone()).collect()
}
