//! The nodes as members of the rollout. Pure.

use globalps_core::api::{DeliveryType, GlobalPullSecretSpec, NodePullSecret, Phase};
use globalps_core::rollout::{self, Goal, Member, Progress, Revision};
use globalps_provider::{MIN_KUBELET_FOR_SCOPES, kubelet_version};
use jiff::SignedDuration;

use super::abandoned::is_abandoned;
use super::clock::up_to_date;
use super::input::{NodeView, Snapshot, is_selected, is_skipped};
use super::progress::{
    Case, Context, has_new_owner, has_unassigned, is_retry_due, min_ready, retry,
};

/// The nodes with a goal: the selected ones, and those that restore. Nobody waits for the unsupported ones. `canary_passed`: enough canaries have had the goal.
/// `provider_since`: the first revision with the current configuration of the provider; 0: none.
pub fn members(
    snapshot: &Snapshot,
    goal: Goal,
    canary_passed: bool,
    provider_since: i64,
) -> Vec<Member> {
    if snapshot.is_without_nodes() {
        return Vec::new();
    }
    let restoring = goal == Goal::Restore;
    let canaries = Canaries::of(snapshot);
    let members = snapshot.nodes.views.values().filter_map(|node| {
        let object = snapshot.nodes.objects.get(&node.name);
        let object = object.map(AsRef::as_ref);
        let is_known = object.is_some() || snapshot.nodes.unreadable.contains_key(&node.name);
        if !is_known && !node.can_run_syncer() || snapshot.unsupported(node).is_some() {
            return None;
        }
        let is_selected = !restoring && is_selected(&snapshot.config.spec, node);
        let goal = if is_selected { goal } else { Goal::Restore };
        let is_canary = is_selected && canaries.has(node);
        let min_ready = min_ready(&snapshot.config.spec, is_canary && !canary_passed);
        let member = member(snapshot, node, object, goal, min_ready);
        let has_goal =
            is_selected || member.assigned.is_some() || restoring && node.can_run_syncer();
        let in_place = is_selected
            && object.is_some_and(|it| takes_in_place(snapshot, it, node, provider_since));
        has_goal.then_some(Member {
            is_canary,
            in_place,
            ..member
        })
    });
    // Grown by doubling it would take twice as much.
    let mut all = Vec::with_capacity(snapshot.nodes.views.len());
    all.extend(members);
    all
}

/// The node's kubelet runs the provider with the current configuration, so other content needs no restart. A node that reports
/// this wrongly harms only itself. The number of a revision that isn't known proves nothing.
fn takes_in_place(
    snapshot: &Snapshot,
    object: &NodePullSecret,
    node: &NodeView,
    provider_since: i64,
) -> bool {
    let gives_tokens = |version: &str| kubelet_version(version) >= Some(MIN_KUBELET_FOR_SCOPES);
    provider_since > 0
        && object.status.as_ref().is_some_and(|status| {
            status.delivery == DeliveryType::CredentialProvider.as_str()
                && status.revision >= provider_since
                && snapshot.recorded.knows(status.in_force())
        })
        // An upgraded kubelet gets one more provider.
        && gives_tokens(&object.spec.kubelet_version) == gives_tokens(&node.kubelet_version)
}

fn member(
    snapshot: &Snapshot,
    node: &NodeView,
    object: Option<&NodePullSecret>,
    goal: Goal,
    min_ready: SignedDuration,
) -> Member {
    let spec = &snapshot.config.spec;
    let clock = &snapshot.clock;
    let case = object.map(|object| {
        let context = Context::of(snapshot, node, object, min_ready);
        Case::of(object, node, context)
    });
    let unreadable = snapshot.nodes.unreadable.get(&node.name);
    let annotations = match (unreadable, object) {
        (Some(unreadable), _) => unreadable.metadata.annotations.as_ref(),
        (None, object) => object.and_then(|object| object.metadata.annotations.as_ref()),
    };
    let is_abandoned = goal == Goal::Restore && annotations.is_some_and(is_abandoned);
    let has_new_owner =
        goal != Goal::Restore && object.is_some_and(|object| has_new_owner(object, node));
    let refused = snapshot.refused(&node.name);
    let asked = retry(&snapshot.secrets, object);
    let is_asked = object.is_some_and(|object| !asked.is_empty() && asked != object.spec.retry);
    let progress = case.and_then(|case| case.progress());
    let mut member = Member {
        name: node.name.clone(),
        goal,
        not_ready: clock.not_ready_for(node),
        assigned: match object {
            _ if node.is_foreign() && goal != Goal::Restore => Some((goal, Progress::Foreign)),
            // It is left alone until the end of the update, or this plan writes its object.
            _ if node.is_updating() && goal != Goal::Restore || has_new_owner => {
                Some((goal, Progress::Blocked))
            }
            Some(_) => progress,
            // What is on it is unknown.
            None if goal == Goal::Restore && !snapshot.agents.are_cleaned_up => {
                Some((Goal::Revision(Revision::NONE), Progress::Blocked))
            }
            None if goal == Goal::Restore => None,
            // This plan writes its object, which says so from the next plan on.
            None if refused.is_some_and(|it| {
                it.lasts_for(snapshot.refused.now()) >= rollout::UNRESPONSIVE_AFTER
            }) && snapshot.may_have_something(node) =>
            {
                Some((Goal::Revision(Revision::NONE), Progress::Blocked))
            }
            None if node.ready.is_ok()
                && node.can_run_syncer()
                && snapshot.may_have_something(node) =>
            {
                Some((Goal::Revision(Revision::NONE), Progress::Unknown))
            }
            None => None,
        },
        assigned_for: object.map_or(SignedDuration::ZERO, |object| clock.assigned_for(object)),
        is_up_to_date: case.is_some_and(|case| case.status.is_some()),
        agent_down: snapshot.agents.syncers.down_for(&node.name, clock.uptime),
        unable: clock.leader.unable_for(&node.name, clock.uptime),
        awaits_agent: snapshot.agents.syncers.is_replaced(&node.name),
        is_revoked: object.is_some_and(|object| object.spec.revoked),
        retry: is_asked,
        has_failed_before: case.is_some_and(|case| {
            let failed = case.failed_revision(progress);
            rollout::has_failed_another(failed, goal)
        }),
        zone: node.zone().to_owned(),
        is_last: node.is_control_plane(),
        is_canary: false,
        // What it has is assigned outside the limits.
        is_skipped: goal != Goal::Restore && is_skipped(spec, node)
            || object.is_some_and(|object| has_unassigned(object, goal)),
        in_place: false,
        refused: refused.map(|refused| refused.of_member(snapshot.refused.now())),
    };
    if unreadable.is_some() {
        // What it does is unknown. It gets nothing until its object is readable, and nobody waits for it.
        member.assigned = (!is_abandoned).then_some((goal, Progress::Blocked));
        member.is_up_to_date = true;
        member.retry = false;
        return member;
    }
    let is_left = match member.assigned {
        // Its own restart makes it NotReady for a moment.
        Some((_, Progress::InFlight | Progress::Soaking)) => member.is_timed_out(),
        _ => {
            member.not_ready.is_some()
                || member.is_unresponsive()
                || matches!(member.at_goal(), Some(Progress::Failed | Progress::Blocked))
        }
    };
    if is_abandoned && is_left {
        // There is nothing to do for it, and it takes no slot: as done it would count as unavailable.
        member.assigned = None;
    }
    if object.is_some() && refused.is_some_and(|refused| refused.is_open(snapshot.refused.now())) {
        // Its assignment may still be written.
        member.assigned = match member.assigned {
            in_flight @ Some((_, Progress::InFlight)) => in_flight,
            _ => Some((Goal::Revision(Revision::NONE), Progress::Unknown)),
        };
    }
    if member.is_blocked() {
        member.retry |=
            object.is_some_and(|object| is_retry_due(object, &clock.leader, clock.uptime));
    }
    member.retry &= !has_new_owner && !node.is_updating();
    member
}

/// Which nodes may be canaries.
struct Canaries<'a> {
    spec: &'a GlobalPullSecretSpec,
    /// A node outside the control plane may be one.
    has_worker: bool,
}

impl<'a> Canaries<'a> {
    fn of(snapshot: &'a Snapshot) -> Self {
        let spec = &snapshot.config.spec;
        let can_go = |node: &NodeView| {
            let object = snapshot.nodes.objects.get(&node.name);
            let is_unresponsive = object.is_some_and(|object| {
                let assigned_for = snapshot.clock.assigned_for(object);
                up_to_date(object).is_none() && assigned_for >= rollout::UNRESPONSIVE_AFTER
            });
            let down_for = snapshot
                .agents
                .syncers
                .down_for(&node.name, snapshot.clock.uptime);
            is_selected(spec, node)
                && !is_skipped(spec, node)
                && !snapshot.nodes.unreadable.contains_key(&node.name)
                && node.file_owner.is_empty()
                && node.ready.is_ok()
                && !is_unresponsive
                && down_for.is_none_or(|time| time < rollout::UNRESPONSIVE_AFTER)
                && snapshot.unsupported(node).is_none()
                && snapshot.refused(&node.name).is_none()
        };
        let mut nodes = snapshot.nodes.views.values();
        Self {
            spec,
            has_worker: nodes.any(|node| !node.is_control_plane() && can_go(node)),
        }
    }

    fn has(&self, node: &NodeView) -> bool {
        let selector = &self.spec.rollout.canary.node_selector;
        if selector.is_empty() {
            return !node.is_control_plane() || !self.has_worker;
        }
        selector.iter().all(|(key, value)| node.has(key, value))
    }
}

/// Why a failed or blocked node doesn't reach its goal, as text.
pub fn failure(snapshot: &Snapshot, name: &str) -> String {
    if let Some(unreadable) = snapshot.nodes.unreadable.get(name) {
        return format!("{name}: its NodePullSecret can't be read: {unreadable}");
    }
    if let Some(refused) = snapshot.refused(name) {
        return format!("{name}: {}", refused.message);
    }
    let object = snapshot.nodes.objects.get(name);
    let (Some(object), Some(node)) = (object, snapshot.nodes.views.get(name)) else {
        return name.to_owned();
    };
    let Some(status) = object.status.as_ref() else {
        return name.to_owned();
    };
    let min_ready = min_ready(&snapshot.config.spec, false);
    let case = Case::of(object, node, Context::of(snapshot, node, object, min_ready));
    let reason = case.lost().unwrap_or_else(|| match status.phase {
        Phase::Synced | Phase::Restored => {
            "it does not stay Ready and unchanged: `minReadySeconds` has not passed once since the change"
                .to_owned()
        }
        _ => format!("{}: {}", status.phase, status.message),
    });
    let failed = object.spec.failed();
    let counts = match case.progress() {
        Some((goal, Progress::Failed)) if rollout::has_failed_another(failed, goal) => {
            format!(
                "; it failed revision {} before and has not been synced since, so this does not halt the rollout",
                failed.number
            )
        }
        _ => String::new(),
    };
    let asked = retry(&snapshot.secrets, Some(object));
    let waits = if !asked.is_empty() && asked != object.spec.retry && node.ready.is_err() {
        "; it is tried again once it is Ready"
    } else {
        ""
    };
    format!("{name}: {reason}{counts}{waits}")
}

#[cfg(test)]
mod tests;
