//! The specs of `NodePullSecret`s to write: assignments and revocations of the rollout, and what disrupts no node. Pure.

use std::collections::BTreeSet;

use globalps_core::api::NodePullSecretSpec;
use globalps_core::rollout::{Goal, Member, Next, Revision};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::input::Nodes;
use super::state::NodeState;

/// Maximum number of assignments in one plan.
const AT_ONCE: usize = 1024;

/// What one reconcile assigns to nodes, besides what disrupts none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch<'a> {
    /// The members to write; `None`: the rollout does not continue.
    pub(super) next: Option<&'a Next>,
    /// All nodes restore, and afterwards nobody checks again.
    pub(super) restores: bool,
    /// New nodes get this revision immediately and outside the limits, because nothing runs on them yet.
    pub(super) for_new_nodes: Option<Revision>,
}

/// Specs to write, in this order: those that disrupt no node, revocations, assignments, then new nodes.
pub(super) fn assignments(
    states: &[NodeState],
    nodes: &Nodes,
    members: &[Member],
    batch: Batch,
    now: Timestamp,
) -> Vec<(String, NodePullSecretSpec)> {
    let next = batch.next.into_iter();
    let revocations = next.clone().flat_map(|next| &next.revocations);
    let revocations = revocations.filter_map(|name| {
        let state = state_of(states, name)?;
        Some((name.clone(), revoked(state, now)))
    });
    // Thousands of nodes may change in place, more than one reconcile can write.
    let assignments = next.flat_map(|next| &next.assignments).take(AT_ONCE);
    let assignments = assignments.filter_map(|name| {
        let member = members.binary_search_by(|member| member.name.cmp(name));
        let goal = members.get(member.ok()?)?.goal;
        Some((name.clone(), assigned(state_of(states, name)?, goal, now)))
    });
    let rest: Vec<_> = revocations.chain(assignments).collect();
    let mut all = upkeep(states, nodes, members, batch.restores, now);
    let is_assigned: BTreeSet<&str> = rest.iter().map(|(name, _)| name.as_str()).collect();
    all.retain(|(name, _)| !is_assigned.contains(name.as_str()));
    all.extend(rest);
    if let Some(revision) = batch.for_new_nodes {
        let new = states.iter().filter(|state| state.is_new);
        let goal = Goal::Revision(revision);
        all.extend(new.map(|state| (state.node.name.clone(), assigned(state, goal, now))));
    }
    all
}

/// The state of the node with this name.
fn state_of<'s, 'a>(states: &'s [NodeState<'a>], name: &str) -> Option<&'s NodeState<'a>> {
    let at = states.binary_search_by(|state| state.node.name.as_str().cmp(name));
    states.get(at.ok()?)
}

/// Specs that disrupt no node, so no limit applies: missing objects; those with a new owner of the file; assignments that another client changed; the revision
/// that a node has already, though its object doesn't say so: the object was deleted, or restored from a backup.
fn upkeep(
    states: &[NodeState],
    nodes: &Nodes,
    members: &[Member],
    restores: bool,
    now: Timestamp,
) -> Vec<(String, NodePullSecretSpec)> {
    let missing = states.iter().filter_map(|state| {
        let spec = missing(state, restores, now)?;
        Some((state.node.name.clone(), spec))
    });
    let with_new_owner = states.iter().filter_map(|state| {
        let spec = with_new_owner(state, now)?;
        Some((state.node.name.clone(), spec))
    });
    let changed = nodes.changed_out_of_band.iter();
    let reverted = changed.filter_map(|name| {
        let object = nodes.objects.get(name)?;
        Some((name.clone(), object.spec.clone()))
    });
    let had = members.iter().filter_map(|member| {
        let state = state_of(states, &member.name)?;
        let is_due = state.has_unassigned(member.goal) && !member.is_foreign();
        is_due.then(|| (member.name.clone(), assigned(state, member.goal, now)))
    });
    let mut names = BTreeSet::new();
    missing
        .chain(with_new_owner)
        .chain(reverted)
        .chain(had)
        // What an unreadable one says is unknown.
        .filter(|(name, _)| !nodes.unreadable.contains_key(name) && names.insert(name.clone()))
        .collect()
}

/// Every node that can run a syncer gets an object, which initially assigns nothing; its syncer reports what the node has. A virtual
/// one gets back what was deleted: it may have had content before it was marked. `restores`: all nodes restore, and afterwards
/// nobody checks again.
pub(super) fn missing(
    state: &NodeState,
    restores: bool,
    now: Timestamp,
) -> Option<NodePullSecretSpec> {
    let is_needed = state.lacks_object && !(restores && state.is_cleaned_up);
    is_needed.then(|| NodePullSecretSpec {
        assigned_at: Some(Time(now)),
        // What it has is unknown until it has reported, unless it joined just now.
        revoked: restores && state.was_there || state.may_have_something,
        foreign_owner: state.node.file_owner.to_owned(),
        ..NodePullSecretSpec::default()
    })
}

/// The owner of the node's file has changed, outside every limit: an update of the node waits for nobody. After the update the node
/// gets what it had.
fn with_new_owner(state: &NodeState, now: Timestamp) -> Option<NodePullSecretSpec> {
    let object = state.object.filter(|_| state.has_new_owner)?;
    Some(NodePullSecretSpec {
        assigned_at: Some(Time(now)),
        foreign_owner: state.node.file_owner.to_owned(),
        ..object.spec.clone()
    })
}

/// A restore keeps the last revision, so that the object shows what is being undone.
fn assigned(state: &NodeState, goal: Goal, now: Timestamp) -> NodePullSecretSpec {
    let last = state.object.map(|object| object.spec.assigned());
    let revision = match goal {
        Goal::Revision(revision) => revision,
        Goal::Restore => last.unwrap_or(Revision::NONE),
    };
    let failed = state.judged.failed;
    NodePullSecretSpec {
        revision: revision.number,
        revision_id: revision.id,
        restore: goal == Goal::Restore,
        assigned_at: Some(Time(now)),
        revoked: false,
        retry: state.retry.clone(),
        failed_revision: failed.number,
        failed_revision_id: failed.id,
        kubelet_version: state.node.kubelet_version.to_string(),
        foreign_owner: state.node.file_owner.to_owned(),
        observed: None,
    }
}

/// Assigns what the node reports to have, instead of its last assignment.
fn revoked(state: &NodeState, now: Timestamp) -> NodePullSecretSpec {
    NodePullSecretSpec {
        revoked: true,
        ..assigned(state, Goal::Revision(state.reported), now)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use globalps_core::api::DeliveryType;
    use globalps_core::names::{MACHINE_CONFIG_OPERATOR, RETRY_ANNOTATION};
    use globalps_core::rollout::RevisionId;

    use super::super::input::{NodeView, Snapshot};
    use super::super::state::node_states;
    use super::super::testing::snapshot;
    use super::*;
    use crate::content::secret::revision_of_test;
    use crate::content::source::Source;

    /// The spec for the node with this name.
    fn of(
        snapshot: &Snapshot,
        name: &str,
        spec: impl FnOnce(&NodeState, Timestamp) -> NodePullSecretSpec,
    ) -> NodePullSecretSpec {
        let states = node_states(snapshot);
        spec(state_of(&states, name).unwrap(), snapshot.clock.now)
    }

    /// The objects that are missing.
    fn all_missing(snapshot: &Snapshot, restores: bool) -> Vec<(String, NodePullSecretSpec)> {
        let states = node_states(snapshot);
        let missing = states.iter().filter_map(|state| {
            let spec = missing(state, restores, snapshot.clock.now)?;
            Some((state.node.name.clone(), spec))
        });
        missing.collect()
    }

    #[test]
    fn a_new_object_has_its_time_and_if_its_node_may_have_content() {
        for (case, nodes, restores, revoked, owner) in [
            ("nothing is in force", "a", true, false, ""),
            ("a new node", "+a x=5", false, false, ""),
            ("a new node during a restore", "+a x=5", true, true, ""),
            ("an old node", "a x=5", false, true, ""),
            (
                "another program manages its file",
                "%a",
                false,
                false,
                MACHINE_CONFIG_OPERATOR,
            ),
        ] {
            let snapshot = snapshot(Source::Absent, None, nodes);
            let expected = NodePullSecretSpec {
                assigned_at: Some(Time(snapshot.clock.now)),
                revoked,
                foreign_owner: owner.to_owned(),
                ..NodePullSecretSpec::default()
            };
            let written = all_missing(&snapshot, restores);
            assert_eq!(written, [("a".to_owned(), expected)], "{case}");
        }
        let mut joined = snapshot(Source::Absent, None, "+a x=5");
        let none: [NodeView; 0] = [];
        let clock = joined.clock.leader.to_mut();
        clock.observe(std::iter::empty(), none.iter(), joined.clock.uptime);
        let nodes = joined.nodes.views.values().map(|node| &**node);
        clock.observe(std::iter::empty(), nodes, joined.clock.uptime);
        let written = all_missing(&joined, true);
        assert!(
            !written[0].1.revoked,
            "the leader saw it join during the restore"
        );
        let mut windows = snapshot(Source::Absent, None, "a x=5");
        windows.nodes.views.to_mut().get_mut("a").unwrap().labels = (&BTreeMap::new()).into();
        assert_eq!(all_missing(&windows, false), [], "no syncer runs there");
        let mut without_nodes = snapshot(Source::Absent, None, "a");
        without_nodes.config.spec.kubelet.delivery = DeliveryType::None;
        assert_eq!(all_missing(&without_nodes, false), []);
    }

    #[test]
    fn an_assignment_has_everything_that_the_syncer_needs() {
        let mut snapshot = snapshot(Source::Absent, None, "%a=5:Synced b=4");
        let object = snapshot.nodes.objects.to_mut().get_mut("a").unwrap();
        object.spec.revoked = true;
        let annotation = (RETRY_ANNOTATION.to_owned(), "3".to_owned());
        object.metadata.annotations = Some([annotation].into());
        let expected = NodePullSecretSpec {
            revision: 6,
            revision_id: revision_of_test(6).id,
            restore: false,
            assigned_at: Some(Time(snapshot.clock.now)),
            revoked: false,
            retry: "3".to_owned(),
            failed_revision: 0,
            failed_revision_id: RevisionId::UNKNOWN,
            kubelet_version: "v1.36.3".to_owned(),
            foreign_owner: MACHINE_CONFIG_OPERATOR.to_owned(),
            observed: None,
        };
        let goal = Goal::Revision(revision_of_test(6));
        let found = of(&snapshot, "a", |it, now| assigned(it, goal, now));
        assert_eq!(found, expected);
        let restored = of(&snapshot, "b", |it, now| assigned(it, Goal::Restore, now));
        assert_eq!((restored.revision, restored.restore), (4, true));
        assert_eq!(restored.foreign_owner, "");
    }

    /// The spec is all that the next leader knows.
    #[test]
    fn the_failed_revision_stays_in_the_spec_until_synced() {
        for (case, failed, state, revoked, expected) in [
            ("nothing failed", 0, "5:Synced", false, 0),
            ("it failed", 0, "5:RolledBack/4", false, 5),
            ("its kubelet is down", 0, "5:Failed.KubeletDown", false, 5),
            ("an error of its own", 0, "5:Failed.DiskFull", false, 0),
            ("it has not responded", 0, "5", false, 0),
            ("the first failure stays", 4, "5:RolledBack", false, 4),
            ("while it changes", 4, "5:Syncing", false, 4),
            ("while it does not respond", 4, "5", false, 4),
            ("with an error of its own", 4, "5:Failed.DiskFull", false, 4),
            ("when it is restored", 4, "R:Restored", false, 4),
            ("when it gets back what it has", 4, "3:Synced", true, 4),
            ("until it is synced", 4, "5:Synced", false, 0),
            ("not with another revision", 4, "5:Synced/3", false, 4),
            (
                "a failed restore is no revision",
                0,
                "R:RolledBack",
                false,
                0,
            ),
        ] {
            let mut snapshot = snapshot(Source::Absent, None, &format!("a={state}"));
            let spec = &mut snapshot.nodes.objects.to_mut().get_mut("a").unwrap().spec;
            spec.failed_revision = failed;
            spec.failed_revision_id = revision_of_test(failed).id;
            spec.revoked = revoked;
            let expected = if expected == 0 {
                Revision::NONE
            } else {
                revision_of_test(expected)
            };
            for goal in [Goal::Revision(revision_of_test(6)), Goal::Restore] {
                let next = of(&snapshot, "a", |it, now| assigned(it, goal, now));
                assert_eq!(next.failed(), expected, "{case}: {goal:?}");
            }
            assert_eq!(
                of(&snapshot, "a", super::revoked).failed(),
                expected,
                "{case}"
            );
        }
    }

    #[test]
    fn a_revoked_node_gets_its_reported_revision_if_ever_assigned() {
        for (newest, state, expected) in [
            (7, "7:Syncing/6", 6),
            (7, "7:Syncing/7", 7),
            (7, "7:Syncing/1", 1),
            (7, "7:Syncing/8", 0),
            (7, "7:Syncing/0", 0),
            (7, "7:never", 0),
        ] {
            let mut snapshot = snapshot(Source::Absent, None, &format!("a={state}"));
            snapshot.recorded.global = Some(crate::content::secret::Global {
                revision: revision_of_test(newest),
                ..Default::default()
            });
            let spec = of(&snapshot, "a", revoked);
            assert_eq!((spec.revision, spec.revoked), (expected, true), "{state}");
            assert_eq!(spec.kubelet_version, "v1.36.3");
        }
    }
}
