//! The nodes of the rollout, and the next assignment of each. Pure.

use std::collections::BTreeMap;

use globalps_core::api::{NodePullSecret, NodePullSecretSpec, Phase};
use globalps_core::names::RETRY_ANNOTATION;
use globalps_core::rollout::{self, Goal, Progress};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;

use super::input::{NodeView, Snapshot, is_selected};

/// The nodes with a goal: the selected ones and those to be restored.
pub(crate) fn members(snapshot: &Snapshot, goal: Goal) -> Vec<rollout::Node> {
    let nodes = snapshot.nodes.values();
    nodes
        .filter_map(|node| {
            let object = snapshot
                .node_pull_secrets
                .get(&node.name)
                .map(AsRef::as_ref);
            let is_selected = goal != Goal::Restore && is_selected(&snapshot.spec, node);
            let view = view(node, object, is_selected.then_some(goal));
            let is_here = is_selected
                || view.granted.is_some()
                || goal == Goal::Restore && (node.is_linux() || object.is_some());
            is_here.then_some(view)
        })
        .collect()
}

/// The node with its last assignment; `goal` `None`: restore.
fn view(node: &NodeView, object: Option<&NodePullSecret>, goal: Option<Goal>) -> rollout::Node {
    let goal = goal.unwrap_or(Goal::Restore);
    let granted = if node.is_foreign && goal != Goal::Restore {
        Some((goal, Progress::Foreign))
    } else {
        object.and_then(progress)
    };
    let asked = object.and_then(|object| object.annotations().get(RETRY_ANNOTATION));
    rollout::Node {
        name: node.name.clone(),
        goal,
        ready: node.ready.map(|_| ()).map_err(|not_ready| not_ready.since),
        granted,
        granted_at: object
            .and_then(|object| object.spec.granted_at.as_ref())
            .map_or(Timestamp::MAX, |time| time.0),
        answers: object.is_some_and(is_up_to_date),
        retry: object.is_some_and(|object| asked.is_some_and(|asked| *asked != object.spec.retry)),
    }
}

/// The status is about the present generation.
fn is_up_to_date(object: &NodePullSecret) -> bool {
    let status = object.status.as_ref();
    let observed = status.map(|status| status.observed_generation);
    observed.is_some() && observed == object.metadata.generation
}

/// The node's last assignment and its progress. A status about another generation does not count.
pub(crate) fn progress(object: &NodePullSecret) -> Option<(Goal, Progress)> {
    let spec = &object.spec;
    let goal = match (spec.restore, spec.revision) {
        (true, _) => Goal::Restore,
        (false, 0) => return without_assignment(object),
        (false, revision) => Goal::Revision(revision),
    };
    let Some(status) = object
        .status
        .as_ref()
        .filter(|status| status.observed_generation > 0)
    else {
        return Some((goal, Progress::Joining));
    };
    let progress = match (status.phase, goal) {
        // It had the assigned revision before the revocation.
        _ if !is_up_to_date(object) && spec.withdrawn => Progress::Done,
        _ if !is_up_to_date(object) => Progress::InFlight,
        (Phase::Synced, Goal::Revision(revision)) if status.revision == revision => Progress::Done,
        (Phase::Restored, Goal::Restore) => Progress::Done,
        (Phase::RolledBack | Phase::Failed | Phase::ForeignOwner, _) => Progress::Failed,
        _ => Progress::InFlight,
    };
    Some((goal, progress))
}

/// What a node without an assignment has: it may have bootstrapped itself, or completed a revoked assignment.
fn without_assignment(object: &NodePullSecret) -> Option<(Goal, Progress)> {
    let revision = object.status.as_ref().map_or(0, |status| status.revision);
    let may_have_some = if is_up_to_date(object) {
        revision > 0
    } else {
        object.spec.withdrawn
    };
    may_have_some.then_some((Goal::Revision(revision), Progress::Done))
}

/// A node without a status may have bootstrapped itself, if a canary ever passed. One that is not new had an object that was
/// deleted out of band, and may have any revision that was assigned.
fn may_have_some(snapshot: &Snapshot, node: &NodeView, is_unseen: bool) -> bool {
    let global = snapshot.global.as_ref();
    let may_have_bootstrapped =
        global.is_some_and(|global| global.canary_passed != 0 || global.last_additional.is_none());
    snapshot.daemon_set
        && (may_have_bootstrapped || is_unseen && is_without_known_object(snapshot, node))
}

/// A node without an object that had one, which was deleted out of band.
fn is_without_known_object(snapshot: &Snapshot, node: &NodeView) -> bool {
    !node.is_new(snapshot.now) || snapshot.deleted_out_of_band.contains(&node.name)
}

/// Specs to write, in this order.
pub(crate) fn assignments(
    snapshot: &Snapshot,
    nodes: &[rollout::Node],
    goal: Goal,
    canary_passed: bool,
) -> Vec<(String, NodePullSecretSpec)> {
    let new = new_nodes(snapshot, goal, canary_passed);
    if !new.is_empty() && !canary_passed {
        // A syncer without an object takes a revision whose canary passed. So every node has an object before the canary
        // starts.
        return new;
    }
    let next = rollout::next(&rollout::Fleet {
        nodes,
        limits: &snapshot.spec.rollout,
        now: snapshot.now,
    });
    let goals: BTreeMap<&str, Goal> = nodes
        .iter()
        .map(|node| (node.name.as_str(), node.goal))
        .collect();
    let revocations = next.withdrawals.into_iter().map(|name| {
        let spec = revoked(snapshot, &name);
        (name, spec)
    });
    let assignments = next.grants.into_iter().map(|name| {
        let spec = assigned(snapshot, &name, goals.get(name.as_str()).copied());
        (name, spec)
    });
    // Revocations first, so that `maxUnavailable` holds at every moment.
    revocations.chain(new).chain(assignments).collect()
}

/// Objects for nodes without one, so that each waiting node is visible. With a passed canary the new node may take the
/// revision at once. A node that never reported anything has nothing in flight: its assignment follows the present goal.
fn new_nodes(
    snapshot: &Snapshot,
    goal: Goal,
    canary_passed: bool,
) -> Vec<(String, NodePullSecretSpec)> {
    let spec = |node: &NodeView| {
        let is_selected = is_selected(&snapshot.spec, node);
        let revision = match goal {
            Goal::Revision(revision)
                if canary_passed
                    && is_selected
                    && !node.is_foreign
                    && !is_without_known_object(snapshot, node) =>
            {
                revision
            }
            _ => 0,
        };
        NodePullSecretSpec {
            revision,
            // Its syncer may have bootstrapped itself in the meantime.
            restore: goal == Goal::Restore || !is_selected,
            granted_at: Some(Time(snapshot.now)),
            foreign_owner: node.foreign_owner(),
            ..NodePullSecretSpec::default()
        }
    };
    let wanted = |node: &&NodeView| match snapshot.node_pull_secrets.get(&node.name) {
        None => {
            let is_asked = goal != Goal::Restore || may_have_some(snapshot, node, true);
            node.is_linux() && is_asked
        }
        Some(object) if object.status.is_some() => false,
        Some(_) if goal == Goal::Restore && !may_have_some(snapshot, node, false) => false,
        Some(object) => {
            let is_to_restore = goal == Goal::Restore || !is_selected(&snapshot.spec, node);
            let asked = object.spec.revision;
            object.spec.restore != is_to_restore
                || !is_to_restore && asked > 0 && Goal::Revision(asked) != goal
        }
    };
    let nodes = snapshot.nodes.values().filter(wanted);
    nodes.map(|node| (node.name.clone(), spec(node))).collect()
}

/// A restore keeps the last assigned revision, so that the object shows what is being undone.
fn assigned(snapshot: &Snapshot, node: &str, goal: Option<Goal>) -> NodePullSecretSpec {
    let object = snapshot.node_pull_secrets.get(node);
    let last = object.map_or(0, |object| object.spec.revision);
    let retry = object.and_then(|object| object.annotations().get(RETRY_ANNOTATION));
    let view = snapshot.nodes.get(node);
    NodePullSecretSpec {
        revision: match goal {
            Some(Goal::Revision(revision)) => revision,
            Some(Goal::Restore) | None => last,
        },
        restore: goal == Some(Goal::Restore),
        granted_at: Some(Time(snapshot.now)),
        withdrawn: false,
        retry: retry.cloned().unwrap_or_default(),
        foreign_owner: view.map(NodeView::foreign_owner).unwrap_or_default(),
    }
}

/// The revision that the node reports, in place of its assignment.
fn revoked(snapshot: &Snapshot, node: &str) -> NodePullSecretSpec {
    let object = snapshot.node_pull_secrets.get(node);
    let status = object.and_then(|object| object.status.as_ref());
    NodePullSecretSpec {
        revision: status.map_or(0, |status| status.revision),
        withdrawn: true,
        ..assigned(snapshot, node, None)
    }
}
