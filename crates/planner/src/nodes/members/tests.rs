use std::collections::BTreeMap;

use globalps_core::api::{DeliveryType, NodePullSecret, NodePullSecretSpec};
use globalps_core::names::{ABANDON_ANNOTATION, MACHINE_CONFIG_UPDATE, RETRY_ANNOTATION};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::super::assignments::{Batch, assignments};
use super::super::input::Snapshot;
use super::super::state::node_states;
use super::super::testing::snapshot;
use super::*;
use crate::content::secret::revision_of_test;
use crate::content::source::Source;

/// Members of a cluster with the nodes described as in [`snapshot`].
fn members_of(nodes: &str, goal: Goal, change: impl FnOnce(&mut Snapshot)) -> Vec<Member> {
    let mut snapshot = snapshot(Source::Absent, None, nodes);
    change(&mut snapshot);
    members(&snapshot, goal, true, 3)
}

fn members(
    snapshot: &Snapshot,
    goal: Goal,
    canary_passed: bool,
    provider_since: i64,
) -> Vec<Member> {
    let target = RolloutTarget {
        ledger: Ledger {
            canary_passed,
            ..Ledger::new(goal)
        },
        provider_since,
    };
    super::members(&node_states(snapshot), target)
}

#[test]
fn only_a_node_with_the_current_provider_changes_in_place() {
    let by_provider = DeliveryType::CredentialProvider.as_str();
    for (case, delivery, revision, version, now, since, expected) in [
        (
            "it runs the current provider",
            by_provider,
            5,
            "v1.36.3",
            "v1.36.3",
            3,
            true,
        ),
        (
            "since exactly that revision",
            by_provider,
            3,
            "v1.36.3",
            "v1.36.3",
            3,
            true,
        ),
        (
            "with an older configuration",
            by_provider,
            2,
            "v1.36.3",
            "v1.36.3",
            3,
            false,
        ),
        (
            "by the file",
            "ConfigFile",
            5,
            "v1.36.3",
            "v1.36.3",
            3,
            false,
        ),
        (
            "provider configuration not recorded",
            by_provider,
            5,
            "v1.36.3",
            "v1.36.3",
            0,
            false,
        ),
        (
            "upgraded to tokens",
            by_provider,
            5,
            "v1.33.1",
            "v1.34.0",
            3,
            false,
        ),
        (
            "without tokens, unchanged",
            by_provider,
            5,
            "v1.33.1",
            "v1.33.2",
            3,
            true,
        ),
    ] {
        let mut object = NodePullSecret::new("a", NodePullSecretSpec::default());
        object.spec.kubelet_version = version.to_owned();
        object.status = Some(globalps_core::api::NodePullSecretStatus {
            delivery: delivery.to_owned(),
            revision,
            revision_id: revision_of_test(revision).id,
            ..Default::default()
        });
        let mut snapshot = snapshot(Source::Absent, None, "a");
        let node = snapshot.nodes.views.to_mut().get_mut("a").unwrap();
        node.kubelet_version = now.into();
        let objects = snapshot.nodes.objects.to_mut();
        objects.insert("a".to_owned(), Box::new(object));
        let goal = Goal::Revision(revision_of_test(9));
        let found = members(&snapshot, goal, true, since)[0].in_place;
        assert!(!found, "{case}: the revision isn't known");
        snapshot.recorded.rolled_out_revision = Some(revision_of_test(revision));
        let found = members(&snapshot, goal, true, since)[0].in_place;
        assert_eq!(found, expected, "{case}");
    }
}

#[test]
fn members_are_selected_nodes_and_those_with_content() {
    let line = |nodes: &str, goal| {
        let members = members_of(nodes, goal, |snapshot| {
            snapshot.recorded.rolled_out_revision = Some(revision_of_test(5));
            for object in snapshot.nodes.objects.to_mut().values_mut() {
                let status = object.status.as_mut().unwrap();
                status.delivery = DeliveryType::CredentialProvider.as_str().to_owned();
                object.spec.kubelet_version = "v1.36.3".to_owned();
            }
        });
        let word = |member: &Member| {
            let canary = if member.is_canary { "*" } else { "" };
            let in_place = if member.in_place { "=" } else { "" };
            format!("{}{canary}{in_place}", member.name)
        };
        members.iter().map(word).collect::<Vec<_>>().join(" ")
    };
    let goal = Goal::Revision(revision_of_test(5));
    assert_eq!(line("a=5:Synced b=0 -c=0 -d=5:Synced", goal), "a*= b* d");
    assert_eq!(line("a=R:Restored b=0 -c=0", Goal::Restore), "a b c");
}

/// The member of this name.
fn named(members: Vec<Member>, name: &str) -> Member {
    let mut members = members.into_iter();
    members.find(|member| member.name == name).unwrap()
}

#[test]
fn progress_follows_from_object_and_node() {
    let to_5 = Goal::Revision(revision_of_test(5));
    let in_doubt = Goal::Revision(revision_of_test(0));
    for (case, nodes, goal, expected) in [
        ("done", "a=5:Synced", to_5, Some((to_5, Progress::Done))),
        (
            "another program manages its file",
            "%a=5:Synced",
            to_5,
            Some((to_5, Progress::Foreign)),
        ),
        (
            "which does not block a restore",
            "%a=5:Synced",
            Goal::Restore,
            Some((to_5, Progress::Done)),
        ),
        (
            "without an object: its content is unknown",
            "a b=5",
            to_5,
            Some((in_doubt, Progress::Unknown)),
        ),
        ("a new node has nothing", "+a b=5", to_5, None),
        ("a NotReady node is not waited for", "!a b=5", to_5, None),
        (
            "but keeps a restore open",
            "a b=5",
            Goal::Restore,
            Some((in_doubt, Progress::Blocked)),
        ),
    ] {
        let member = named(members_of(nodes, goal, |_| ()), "a");
        assert_eq!(member.assigned, expected, "{case}");
    }
}

#[test]
fn a_node_in_deletion_is_skipped_but_not_by_a_restore() {
    for (goal, expected) in [
        (Goal::Revision(revision_of_test(5)), true),
        (Goal::Restore, false),
    ] {
        let members = members_of("a=5:Synced", goal, |snapshot| {
            let node = snapshot.nodes.views.to_mut().get_mut("a").unwrap();
            node.is_being_deleted = true;
        });
        assert_eq!(named(members, "a").is_skipped, expected, "{goal:?}");
    }
}

/// Its clock has seen all objects unchanged for this long.
fn observe(snapshot: &mut Snapshot, seconds: i64) {
    let since = snapshot.clock.uptime - SignedDuration::from_secs(seconds);
    let objects = snapshot.nodes.objects.values();
    let objects = objects.map(|object| &**object);
    let nodes = snapshot.nodes.views.values().map(|node| &**node);
    snapshot
        .clock
        .leader
        .to_mut()
        .observe(objects, nodes, since);
}

#[test]
fn a_blocked_node_retries_on_request_or_after_a_while() {
    for (case, state, is_asked, seconds, expected) in [
        ("not yet", "Failed.DiskFull", false, 14, false),
        ("after a while", "Failed.DiskFull", false, 15, true),
        ("asked", "Failed.DiskFull", true, 14, true),
        ("both", "Failed.DiskFull", true, 15, true),
        (
            "a failed node only on request",
            "RolledBack",
            false,
            15,
            false,
        ),
        ("and on request", "RolledBack", true, 0, true),
    ] {
        let nodes = format!("a=5:{state}");
        let members = members_of(&nodes, Goal::Revision(revision_of_test(5)), |snapshot| {
            observe(snapshot, seconds);
            let objects = snapshot.nodes.objects.to_mut();
            let annotation = (RETRY_ANNOTATION.to_owned(), "1".to_owned());
            let annotations = is_asked.then(|| [annotation].into());
            objects.get_mut("a").unwrap().metadata.annotations = annotations;
        });
        assert_eq!(named(members, "a").retry, expected, "{case}");
    }
}

#[test]
fn a_failed_node_fails_no_later_revision_until_synced() {
    for (case, failed, state, expected) in [
        ("the first failure", 0, "5:RolledBack", (true, false)),
        ("a retry of the same", 5, "5:RolledBack", (true, false)),
        ("a later revision", 4, "5:RolledBack", (false, true)),
        (
            "its kubelet is down",
            4,
            "5:Failed.KubeletDown",
            (false, true),
        ),
        ("it is synced", 4, "5:Synced", (false, false)),
        ("it is changing", 4, "5:Syncing", (false, false)),
    ] {
        for is_asked in [false, true] {
            let goal = Goal::Revision(revision_of_test(5));
            let members = members_of(&format!("a={state}"), goal, |snapshot| {
                observe(snapshot, 3600);
                let object = snapshot.nodes.objects.to_mut().get_mut("a").unwrap();
                object.spec.failed_revision = failed;
                object.spec.failed_revision_id = revision_of_test(failed).id;
                let annotation = (RETRY_ANNOTATION.to_owned(), "1".to_owned());
                object.metadata.annotations = is_asked.then(|| [annotation].into());
            });
            let member = named(members, "a");
            let found = (member.has_failed(), member.is_blocked());
            let (has_failed, is_blocked) = expected;
            let expected = (has_failed && !is_asked, is_blocked);
            assert_eq!(found, expected, "{case}, asked: {is_asked}");
            assert_eq!(member.retry, is_asked, "{case}: each attempt is a restart");
        }
    }
}

#[test]
fn a_node_that_refuses_a_restore_blocks_none_and_may_be_left() {
    let restored = Some(Progress::Done);
    for (case, state, is_abandoned, expected) in [
        ("restored", "a=R:Restored", false, restored),
        (
            "it refuses",
            "a=R:RolledBack",
            false,
            Some(Progress::Blocked),
        ),
        (
            "also for a reason of its own",
            "a=R:Failed.DiskFull",
            false,
            Some(Progress::Blocked),
        ),
        (
            "its kubelet is left down",
            "a=R:Failed.KubeletDown",
            false,
            Some(Progress::Failed),
        ),
        (
            "it became NotReady by it",
            "!a=R:RolledBack",
            false,
            Some(Progress::Failed),
        ),
        ("abandoned", "a=R:RolledBack", true, None),
        (
            "abandoned, its disk is full",
            "a=R:Failed.DiskFull",
            true,
            None,
        ),
        (
            "abandoned, its kubelet is down",
            "a=R:Failed.KubeletDown",
            true,
            None,
        ),
        (
            "still being restored",
            "a=R:Restoring",
            true,
            Some(Progress::InFlight),
        ),
        ("restored though abandoned", "a=R:Restored", true, restored),
    ] {
        // Also if it is only no longer selected.
        for excluded in [false, true] {
            let goal = if excluded {
                Goal::Revision(revision_of_test(6))
            } else {
                Goal::Restore
            };
            let members = members_of(state, goal, |snapshot| {
                let done = snapshot.clock.now - SignedDuration::from_secs(70);
                let object = snapshot.nodes.objects.to_mut().get_mut("a").unwrap();
                let annotation = (ABANDON_ANNOTATION.to_owned(), "true".to_owned());
                object.metadata.annotations = is_abandoned.then(|| [annotation].into());
                if state.starts_with('!') {
                    let status = object.status.as_mut().unwrap();
                    status.kubelet_restarted_at = Some(Time(done));
                    status.last_transition_time = Some(Time(done));
                }
                if excluded {
                    snapshot.config.spec.node_selector =
                        [("pool".to_owned(), "other".to_owned())].into();
                }
            });
            let member = members.into_iter().find(|member| member.name == "a");
            let found = member.as_ref().and_then(Member::at_goal);
            assert_eq!(found, expected, "{case}, excluded: {excluded}");
            let is_left = member.is_some_and(|member| !member.is_done());
            let expected = !matches!(expected, None | Some(Progress::Done));
            assert_eq!(is_left, expected, "{case}, excluded: {excluded}");
        }
    }
}

#[test]
fn a_node_that_reports_again_and_again_may_be_abandoned() {
    for (reports, expected) in [(10, Some(Progress::Soaking)), (11, None)] {
        let mut snapshot = snapshot(Source::Absent, None, "a=R:Restored");
        snapshot.config.spec.rollout.min_ready_seconds = 120;
        for minute in (0..reports).rev() {
            let object = snapshot.nodes.objects.to_mut().get_mut("a").unwrap();
            let annotation = (ABANDON_ANNOTATION.to_owned(), "true".to_owned());
            object.metadata.annotations = Some([annotation].into());
            let status = object.status.as_mut().unwrap();
            let ago = SignedDuration::from_mins(minute);
            status.last_transition_time = Some(Time(snapshot.clock.now - ago));
            observe(&mut snapshot, ago.as_secs());
        }
        let a = named(members(&snapshot, Goal::Restore, true, 0), "a");
        let expected = expected.map(|progress| (Goal::Restore, progress));
        assert_eq!(a.assigned, expected, "{reports}");
    }
}

#[test]
fn the_control_plane_goes_first_only_if_no_worker_can() {
    for (case, worker, is_being_deleted, seconds, expected) in [
        ("a worker can", "w=5:Synced", false, 200, false),
        ("a worker without an object", "w", false, 200, false),
        ("it may still respond", "w=5", false, 119, false),
        ("it does not respond", "w=5", false, 120, true),
        ("excluded", "-w=5:Synced", false, 0, true),
        ("with a foreign owner", "%w=5:Synced", false, 0, true),
        ("not ready", "!w=5:Synced", false, 0, true),
        ("being deleted", "w=5:Synced", true, 0, true),
        ("no worker", "", false, 0, true),
    ] {
        let nodes = format!("m=5:Synced {worker}");
        let members = members_of(&nodes, Goal::Revision(revision_of_test(5)), |snapshot| {
            observe(snapshot, seconds);
            let nodes = snapshot.nodes.views.to_mut();
            if let Some(worker) = nodes.get_mut("w") {
                worker.is_being_deleted = is_being_deleted;
            }
            let labels = ["kubernetes.io/os", "node-role.kubernetes.io/control-plane"];
            let labels = labels.map(|key| (key.to_owned(), "linux".to_owned()));
            nodes.get_mut("m").unwrap().labels = (&BTreeMap::from(labels)).into();
        });
        assert_eq!(named(members, "m").is_canary, expected, "{case}");
    }
}

#[test]
fn canary_min_ready_applies_until_the_canary_has_passed() {
    let mut snapshot = snapshot(Source::Absent, None, "a=5:Synced b=5:Synced");
    let canary = &mut snapshot.config.spec.rollout.canary;
    canary.min_ready_seconds = 60;
    canary.node_selector = [("canary".to_owned(), "true".to_owned())].into();
    let labels = [("kubernetes.io/os", "linux"), ("canary", "true")];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let node = snapshot.nodes.views.to_mut().get_mut("a").unwrap();
    node.labels = (&BTreeMap::from(labels)).into();
    let goal = Goal::Revision(revision_of_test(5));
    for (name, has_passed, expected) in [
        ("a", false, Progress::Soaking),
        ("a", true, Progress::Done),
        ("b", false, Progress::Done),
        ("b", true, Progress::Done),
    ] {
        let member = named(members(&snapshot, goal, has_passed, 0), name);
        assert_eq!(
            member.assigned,
            Some((goal, expected)),
            "{name} {has_passed}"
        );
    }
}

#[test]
fn a_node_is_left_alone_in_its_update_then_gets_what_it_had() {
    let goal = Goal::Revision(revision_of_test(5));
    for (case, owner, in_spec, expected, written) in [
        ("no update", "", "", Progress::Done, None),
        (
            "it begins",
            MACHINE_CONFIG_UPDATE,
            "",
            Progress::Aside,
            Some(MACHINE_CONFIG_UPDATE),
        ),
        (
            "it runs",
            MACHINE_CONFIG_UPDATE,
            MACHINE_CONFIG_UPDATE,
            Progress::Aside,
            None,
        ),
        (
            "it ended",
            "",
            MACHINE_CONFIG_UPDATE,
            Progress::Aside,
            Some(""),
        ),
    ] {
        for paused in [false, true] {
            let mut snapshot = snapshot(Source::Absent, None, "a=5:Synced b=5:Synced");
            snapshot.config.spec.rollout.paused = paused;
            snapshot.secrets.retry = Some("now".to_owned());
            let objects = snapshot.nodes.objects.to_mut();
            let spec = &mut objects.get_mut("a").unwrap().spec;
            in_spec.clone_into(&mut spec.foreign_owner);
            let before = spec.clone();
            snapshot
                .nodes
                .views
                .to_mut()
                .get_mut("a")
                .unwrap()
                .file_owner = owner;
            let members = members(&snapshot, goal, true, 0);
            let (nodes, now) = (&snapshot.nodes, snapshot.clock.now);
            let expected_writes: Vec<_> = written
                .map(|owner| NodePullSecretSpec {
                    assigned_at: Some(Time(snapshot.clock.now)),
                    foreign_owner: owner.to_owned(),
                    ..before
                })
                .into_iter()
                .collect();
            let ledger = Ledger {
                canary_passed: true,
                ..Ledger::new(goal)
            };
            let step = step(ledger, &members, &snapshot.config.spec.rollout, false, now);
            let batch = Batch {
                next: Some(&step.next),
                restores: false,
                for_new_nodes: None,
            };
            let states = node_states(&snapshot);
            let writes = assignments(&states, nodes, &members, batch, now);
            let writes = writes.into_iter().filter(|(name, _)| name == "a");
            let writes: Vec<_> = writes.map(|(_, spec)| spec).collect();
            assert_eq!(writes, expected_writes, "{case}");
            let member = named(members, "a");
            assert_eq!(member.assigned, Some((goal, expected)), "{case}");
        }
    }
}
