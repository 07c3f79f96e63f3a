//! The specs of `NodePullSecret`s to write: assignments and revocations of the rollout, and what disrupts no node. Pure.

use std::collections::{BTreeMap, BTreeSet};

use globalps_core::api::{NodePullSecret, NodePullSecretSpec, NodePullSecretStatus};
use globalps_core::rollout::{self, Goal, Member, Revision};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::input::{NodeView, Snapshot};
use super::progress::{Case, Context, has_new_owner, has_unassigned, min_ready, retry};

/// Maximum number of assignments in one plan.
const AT_ONCE: usize = 1024;

/// Specs to write, in this order: those that disrupt no node, revocations, then assignments.
pub(super) fn assignments(
    snapshot: &Snapshot,
    members: &[Member],
    canary_passed: bool,
) -> Vec<(String, NodePullSecretSpec)> {
    let next = rollout::next(&rollout::Fleet {
        members,
        limits: &snapshot.config.spec.rollout,
        canary_passed,
    });
    let goals: BTreeMap<&str, Goal> = members.iter().map(|m| (m.name.as_str(), m.goal)).collect();
    let revocations = next.revocations.into_iter().map(|name| {
        let spec = revoked(snapshot, &name);
        (name, spec)
    });
    let assignments = next
        .assignments
        .into_iter()
        // Thousands of nodes may change in place, more than one reconcile can write.
        .take(AT_ONCE);
    let assignments = assignments.map(|name| {
        let spec = assigned(snapshot, &name, goals.get(name.as_str()).copied());
        (name, spec)
    });
    let restores = members.iter().all(|member| member.goal == Goal::Restore);
    let rest: Vec<_> = revocations.chain(assignments).collect();
    let mut all = upkeep(snapshot, members, restores);
    let is_assigned: BTreeSet<&str> = rest.iter().map(|(name, _)| name.as_str()).collect();
    all.retain(|(name, _)| !is_assigned.contains(name.as_str()));
    all.extend(rest);
    all
}

/// Specs that disrupt no node, so no limit applies: missing objects; those with a new owner of the file; assignments that another client changed; the revision
/// that a node has already, though its object doesn't say so: the object was deleted, or restored from a backup.
pub(super) fn upkeep(
    snapshot: &Snapshot,
    members: &[Member],
    restores: bool,
) -> Vec<(String, NodePullSecretSpec)> {
    let changed = snapshot.nodes.changed_out_of_band.iter();
    let reverted = changed.filter_map(|name| {
        let object = snapshot.nodes.objects.get(name)?;
        Some((name.clone(), object.spec.clone()))
    });
    let had = members.iter().filter_map(|member| {
        let object = snapshot.nodes.objects.get(&member.name)?;
        let is_due = has_unassigned(object, member.goal) && !member.is_foreign();
        is_due.then(|| {
            let spec = assigned(snapshot, &member.name, Some(member.goal));
            (member.name.clone(), spec)
        })
    });
    let mut names = BTreeSet::new();
    missing(snapshot, restores)
        .chain(with_new_owner(snapshot))
        .chain(reverted)
        .chain(had)
        // What an unreadable one says is unknown.
        .filter(|(name, _)| {
            !snapshot.nodes.unreadable.contains_key(name) && names.insert(name.clone())
        })
        .collect()
}

/// Every node that can run a syncer gets an object, which initially assigns nothing; its syncer reports what the node has. A virtual
/// one gets back what was deleted: it may have had content before it was marked. `restores`: all nodes restore, and afterwards
/// nobody checks again.
pub(super) fn missing(
    snapshot: &Snapshot,
    restores: bool,
) -> impl Iterator<Item = (String, NodePullSecretSpec)> {
    let nodes = snapshot.nodes.views.values();
    let are_needed = !(snapshot.is_without_nodes() || restores && snapshot.agents.are_cleaned_up);
    let nodes = nodes.filter(move |node| {
        let is_wanted =
            node.can_run_syncer() || snapshot.nodes.deleted_out_of_band.contains(&node.name);
        are_needed && is_wanted && !snapshot.nodes.objects.contains_key(&node.name)
    });
    nodes.map(move |node| {
        let spec = NodePullSecretSpec {
            assigned_at: Some(Time(snapshot.clock.now)),
            // What it has is unknown until it has reported, unless it joined just now.
            revoked: restores && snapshot.is_in_force() && !snapshot.clock.leader.saw_join(node)
                || snapshot.may_have_something(node),
            foreign_owner: node.file_owner.to_owned(),
            ..NodePullSecretSpec::default()
        };
        (node.name.clone(), spec)
    })
}

/// Objects with a new owner of their node's file, outside every limit: an update of the node waits for nobody. After the update
/// the node gets what it had.
fn with_new_owner(snapshot: &Snapshot) -> impl Iterator<Item = (String, NodePullSecretSpec)> {
    snapshot.nodes.views.values().filter_map(|node| {
        let object = snapshot.nodes.objects.get(&node.name)?;
        has_new_owner(object, node).then(|| {
            let spec = NodePullSecretSpec {
                assigned_at: Some(Time(snapshot.clock.now)),
                foreign_owner: node.file_owner.to_owned(),
                ..object.spec.clone()
            };
            (node.name.clone(), spec)
        })
    })
}

/// A restore keeps the last revision, so that the object shows what is being undone.
pub(super) fn assigned(snapshot: &Snapshot, node: &str, goal: Option<Goal>) -> NodePullSecretSpec {
    let object = snapshot.nodes.objects.get(node);
    let last = object.map_or(Revision::NONE, |object| object.spec.assigned());
    let revision = match goal {
        Some(Goal::Revision(revision)) => revision,
        Some(Goal::Restore) | None => last,
    };
    let view = snapshot.nodes.views.get(node).map(AsRef::as_ref);
    let failed = object.map_or(Revision::NONE, |object| failed(snapshot, object, view));
    NodePullSecretSpec {
        revision: revision.number,
        revision_id: revision.id,
        restore: goal == Some(Goal::Restore),
        assigned_at: Some(Time(snapshot.clock.now)),
        revoked: false,
        retry: retry(&snapshot.secrets, object.map(AsRef::as_ref)),
        failed_revision: failed.number,
        failed_revision_id: failed.id,
        kubelet_version: view.map_or_else(String::new, |view| view.kubelet_version.to_string()),
        foreign_owner: view.map_or("", |view| view.file_owner).to_owned(),
    }
}

/// What the next assignment records of earlier failures.
fn failed(snapshot: &Snapshot, object: &NodePullSecret, node: Option<&NodeView>) -> Revision {
    node.map_or_else(
        || object.spec.failed(),
        |node| {
            let min_ready = min_ready(&snapshot.config.spec, false);
            let case = Case::of(object, node, Context::of(snapshot, node, object, min_ready));
            case.failed_revision(case.progress())
        },
    )
}

/// Assigns what the node reports to have, instead of its last assignment. A revision that the controller can't have assigned
/// counts as none.
pub(super) fn revoked(snapshot: &Snapshot, node: &str) -> NodePullSecretSpec {
    let object = snapshot.nodes.objects.get(node);
    let status = object.and_then(|object| object.status.as_ref());
    let reported = status.map_or(Revision::NONE, NodePullSecretStatus::in_force);
    let is_own = snapshot.recorded.may_have_assigned(reported);
    let goal = Goal::Revision(if is_own { reported } else { Revision::NONE });
    NodePullSecretSpec {
        revoked: true,
        ..assigned(snapshot, node, Some(goal))
    }
}

#[cfg(test)]
mod tests {
    use globalps_core::api::DeliveryType;
    use globalps_core::names::{MACHINE_CONFIG_OPERATOR, RETRY_ANNOTATION};
    use globalps_core::rollout::RevisionId;

    use super::super::testing::snapshot;
    use super::*;
    use crate::content::secret::revision_of_test;
    use crate::content::source::Source;

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
            let written: Vec<_> = missing(&snapshot, restores).collect();
            assert_eq!(written, [("a".to_owned(), expected)], "{case}");
        }
        let mut joined = snapshot(Source::Absent, None, "+a x=5");
        let none: [NodeView; 0] = [];
        let clock = joined.clock.leader.to_mut();
        clock.observe(std::iter::empty(), none.iter(), joined.clock.uptime);
        let nodes = joined.nodes.views.values().map(|node| &**node);
        clock.observe(std::iter::empty(), nodes, joined.clock.uptime);
        let written: Vec<_> = missing(&joined, true).collect();
        assert!(
            !written[0].1.revoked,
            "the leader saw it join during the restore"
        );
        let mut windows = snapshot(Source::Absent, None, "a x=5");
        windows.nodes.views.to_mut().get_mut("a").unwrap().labels = (&BTreeMap::new()).into();
        assert_eq!(missing(&windows, false).count(), 0, "no syncer runs there");
        let mut without_nodes = snapshot(Source::Absent, None, "a");
        without_nodes.config.spec.kubelet.delivery = DeliveryType::None;
        assert_eq!(missing(&without_nodes, false).count(), 0);
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
        };
        let goal = Some(Goal::Revision(revision_of_test(6)));
        assert_eq!(assigned(&snapshot, "a", goal), expected);
        let restored = assigned(&snapshot, "b", Some(Goal::Restore));
        assert_eq!((restored.revision, restored.restore), (4, true));
        assert_eq!(restored.foreign_owner, "");
        let gone = assigned(&snapshot, "gone", None);
        assert_eq!((gone.revision, gone.restore), (0, false));
        assert_eq!(gone.kubelet_version, "");
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
                let next = assigned(&snapshot, "a", Some(goal));
                assert_eq!(next.failed(), expected, "{case}: {goal:?}");
            }
            assert_eq!(super::revoked(&snapshot, "a").failed(), expected, "{case}");
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
            let spec = revoked(&snapshot, "a");
            assert_eq!((spec.revision, spec.revoked), (expected, true), "{state}");
            assert_eq!(spec.kubelet_version, "v1.36.3");
        }
    }
}
