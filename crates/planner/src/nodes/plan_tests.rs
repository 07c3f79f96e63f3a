use std::collections::BTreeMap;

use globalps_core::api::{DeliveryType, MAX_REVISION, OnFailure, Phase};
use globalps_core::decode::Unreadable;
use globalps_core::names::RETRY_ANNOTATION;
use globalps_core::rollout;
use globalps_provider::{Content, Delivery, ProviderConfig};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::super::course::provider_since;
use super::super::input::{NodeView, NotReady};
use super::super::testing::{A, NOW, found, global, object, snapshot};
use super::*;
use crate::content::secret::{GlobalWrite, revision_of_test};

const A_SPELLED_OTHERWISE: &str = r#"{ "auths": {"https://a/": {"username":"u","password":"p"}} }"#;
const B: &str = r#"{"auths":{"b":{"auth":"dTpw"}}}"#;
const BAD: &str = r#"{"auths":{"c":{"auth":"cGFudHM="}}}"#;

/// Written, and no node has it yet.
fn without_canary(revision: i64, text: &str) -> Global {
    Global {
        canary_passed: false,
        rolled_out: None,
        ..global(revision, text)
    }
}

pub(crate) fn planned(snapshot: &Snapshot) -> Plan {
    plan(snapshot)
}

/// What is in force when the plan is written.
pub(crate) fn written(snapshot: &Snapshot) -> Global {
    let written = plan(snapshot).global.unwrap();
    Global {
        content: Some(written.content),
        ..written.global
    }
}

/// The plan in one line: aim, history, rolled-out revision that is kept, revision that is written, assignments (`?`: revoked, or
/// what the node has is unknown).
pub(crate) fn line(snapshot: &Snapshot) -> String {
    in_one_line(plan(snapshot))
}

/// The plan with the history, where that is needed.
pub(crate) fn with_history(snapshot: &Snapshot, last: &Source) -> Plan {
    judge(snapshot).plan(last)
}

fn in_one_line(plan: Plan) -> String {
    let mut words = vec![match plan.aim {
        Aim::Reach(Goal::Revision(revision)) => format!("Reach(Revision({}))", revision.number),
        aim => format!("{aim:?}"),
    }];
    words.extend(plan.history.map(|kept| format!("keep {}", kept.revision)));
    words.extend(
        plan.rolled_out
            .map(|kept| format!("slot {}", kept.revision.number)),
    );
    if let Some(GlobalWrite { global, .. }) = plan.global {
        words.push(format!("write {}", global.revision.number));
        let marks = [
            (global.restoring, "restoring"),
            (global.rejected.is_some(), "rejected"),
            (global.canary_passed, "passed"),
            (global.rolled_out.is_some(), "rolled out"),
        ];
        let marks = marks.into_iter().filter(|(holds, _)| *holds);
        words.extend(marks.map(|(_, mark)| mark.to_owned()));
    }
    words.extend(plan.assignments.into_iter().map(|(name, spec)| {
        let restore = if spec.restore { "R" } else { "" };
        let revoked = if spec.revoked { "?" } else { "" };
        format!("{name}={}{restore}{revoked}", spec.revision)
    }));
    words.join(" ")
}

#[test]
fn the_plan_follows_from_the_snapshot() {
    for (case, snapshot, expected) in vec![
        (
            "no content: nothing to do",
            snapshot(Source::Absent, None, "a b"),
            "Nothing",
        ),
        (
            "the first add writes revision 1, creates an object per node, and assigns nothing yet",
            snapshot(found(A), None, "a b -x"),
            "Reach(Revision(1)) write 1 a=0 b=0 x=0",
        ),
        (
            "then one node goes first",
            snapshot(found(A), Some(without_canary(1, A)), "a=0 b=0 -x=0"),
            "Reach(Revision(1)) a=1",
        ),
        (
            "a node whose syncer has not reported yet gets no assignment",
            snapshot(found(A), Some(without_canary(1, A)), "a=0:never b=0"),
            "Reach(Revision(1)) b=1",
        ),
        (
            "the first node that has it is the canary",
            snapshot(found(A), Some(without_canary(1, A)), "a=1:Synced b=0 c=0"),
            "Reach(Revision(1)) write 1 passed b=1",
        ),
        (
            "once all nodes have it, it is rolled out",
            snapshot(
                found(A),
                Some(without_canary(1, A)),
                "a=1:Synced b=1:Synced",
            ),
            "Reach(Revision(1)) write 1 passed rolled out",
        ),
        (
            "a node with a foreign owner never has it",
            snapshot(
                found(A),
                Some(without_canary(1, A)),
                "a=1:Synced %b=0:Pending",
            ),
            "Reach(Revision(1)) write 1 passed rolled out b=0",
        ),
        (
            "an old node whose object was deleted waits",
            snapshot(found(A), Some(global(1, A)), "a=1 b"),
            "Reach(Revision(1)) b=0?",
        ),
        (
            "a node with a foreign owner gets nothing",
            snapshot(found(A), Some(global(1, A)), "%a b=1:Synced"),
            "Reach(Revision(1)) a=0?",
        ),
        (
            "an invalid first add does nothing",
            snapshot(found(BAD), None, "a b"),
            "Nothing",
        ),
        (
            "the next node follows when the first is done",
            snapshot(found(A), Some(global(1, A)), "a=1:Synced b=0 c=0"),
            "Reach(Revision(1)) b=1",
        ),
        (
            "a node in flight delays the next",
            snapshot(found(A), Some(global(1, A)), "a=1:Syncing b=0"),
            "Reach(Revision(1))",
        ),
        (
            "all done: nothing to do",
            snapshot(found(A), Some(global(1, A)), "a=1:Synced b=1:Synced"),
            "Reach(Revision(1))",
        ),
        (
            "a rotation is a new revision, and the previous one stays available",
            snapshot(found(B), Some(global(1, A)), "a=1:Synced b=1:Synced"),
            "Reach(Revision(2)) keep 1 slot 1 write 2 a=2",
        ),
        (
            "a revision that was never rolled out does not stay",
            snapshot(found(B), Some(without_canary(2, A)), "a=1:Synced"),
            "Reach(Revision(3)) write 3 a=3",
        ),
        (
            "another spelling is not a new revision",
            snapshot(found(A_SPELLED_OTHERWISE), Some(global(1, A)), "a=1:Synced"),
            "Reach(Revision(1)) write 1 passed rolled out",
        ),
        (
            "an invalid rotation changes nothing",
            snapshot(found(BAD), Some(global(1, A)), "a=1:Synced"),
            "Reach(Revision(1))",
        ),
        (
            "a node that failed stops the rollout",
            snapshot(found(A), Some(global(1, A)), "a=1:RolledBack b=0"),
            "Reach(Revision(1))",
        ),
        (
            "a blocked node does not",
            snapshot(found(A), Some(global(1, A)), "a=1:Failed.DiskFull b=0"),
            "Reach(Revision(1)) b=1",
        ),
        (
            "and does not keep the rollout from completing",
            snapshot(
                found(A),
                Some(without_canary(1, A)),
                "a=1:Failed.DiskFull b=1:Synced",
            ),
            "Reach(Revision(1)) write 1 passed rolled out",
        ),
        (
            "a node that is excluded later restores",
            snapshot(found(A), Some(global(1, A)), "a=1:Synced -b=1:Synced"),
            "Reach(Revision(1)) b=1R",
        ),
        (
            "deletion restores one node after the other, and records that it has begun",
            snapshot(Source::Absent, Some(global(1, A)), "a=1:Synced b=1:Synced"),
            "Reach(Restore) keep 1 write 1 restoring a=1R",
        ),
        (
            "an excluded node is restored, too",
            snapshot(
                Source::Absent,
                Some(global(1, A)),
                "a=R:Restored -b=5:Synced",
            ),
            "Reach(Restore) keep 1 write 1 restoring b=5R",
        ),
        (
            "when all are restored, everything is removed",
            snapshot(Source::Absent, Some(global(1, A)), "a=R:Restored b=0"),
            "CleanUp write 1 restoring",
        ),
        (
            "a Secret recreated during the restore is rolled out again",
            snapshot(found(A), Some(global(5, A)), "a=R:Restored b=5:Synced"),
            "Reach(Revision(5)) a=5",
        ),
        (
            "an invalid one does not stop the restore",
            snapshot(found(BAD), Some(restoring(5)), "a=R:Restored b=5:Synced"),
            "Reach(Restore) b=5R",
        ),
        (
            "a valid one does, from its canary on",
            snapshot(found(A), Some(restoring(5)), "a=R:Restored b=R:Restored"),
            "Reach(Revision(5)) write 5 a=5",
        ),
        (
            "a NotReady node is passed over",
            snapshot(found(B), Some(global(1, A)), "!a=1:Synced b=1:Synced"),
            "Reach(Revision(2)) keep 1 slot 1 write 2 b=2",
        ),
    ] {
        assert_eq!(line(&snapshot), expected, "{case}");
    }
}

fn restoring(revision: i64) -> Global {
    Global {
        restoring: true,
        last_additional: None,
        ..without_canary(revision, A)
    }
}

#[test]
fn a_new_node_bootstraps_once_and_only_without_an_assignment() {
    for (revision, restore, revoked, expected) in [
        (0, false, false, "Reach(Revision(1)) b=1"),
        (1, false, false, "Reach(Revision(1))"),
        (0, true, false, "Reach(Revision(1))"),
        (0, false, true, "Reach(Revision(1))"),
    ] {
        // `a` has the only slot.
        let mut snapshot = snapshot(found(A), Some(global(1, A)), "a=1 +b=0:Pending/0");
        let object = snapshot.nodes.objects.to_mut().get_mut("b").unwrap();
        object.spec.revision = revision;
        object.spec.revision_id = revision_of_test(revision).id;
        object.spec.restore = restore;
        object.spec.revoked = revoked;
        let asked = format!("{revision} {restore} {revoked}");
        assert_eq!(line(&snapshot), expected, "{asked}");
    }
}

#[test]
fn new_nodes_get_the_fleets_revision() {
    let on_a_new_cluster = |nodes| {
        let canary_passed = Global {
            canary_passed: true,
            ..without_canary(1, A)
        };
        let mut snapshot = snapshot(found(A), Some(canary_passed), nodes);
        snapshot.recorded.first_written = Some(NOW);
        snapshot
    };
    let rotated = |nodes| snapshot(found(B), Some(without_canary(2, B)), nodes);
    for (case, mut snapshot, slot, expected) in vec![
        (
            "a new node gets an object without an assignment",
            snapshot(found(A), Some(global(1, A)), "a=1:Synced +b"),
            None,
            "Reach(Revision(1)) b=0",
        ),
        (
            "and the rolled-out revision once it has reported, outside the limit",
            snapshot(found(A), Some(global(1, A)), "a=1 +b=0 +c=0"),
            None,
            "Reach(Revision(1)) b=1 c=1",
        ),
        (
            "it delays no other node",
            snapshot(found(A), Some(global(1, A)), "a=1:Synced +b=1 c=0"),
            None,
            "Reach(Revision(1)) c=1",
        ),
        (
            "before the canary has passed it gets the previous revision",
            rotated("a=2 b=1:Synced +c=0"),
            Some(1),
            "Reach(Revision(2)) c=1",
        ),
        (
            "after that it gets the newest",
            rotated("a=2:Synced b=2 c=1:Synced +d=0"),
            Some(1),
            "Reach(Revision(2)) write 2 passed d=2",
        ),
        (
            "but not a halted one",
            rotated("a=2:Synced b=2:RolledBack c=1:Synced +d=0"),
            Some(1),
            "Reach(Revision(2)) write 2 passed d=1",
        ),
        (
            "nothing if the fleet has nothing",
            rotated("a=2 b=0 +c=0"),
            None,
            "Reach(Revision(2))",
        ),
        (
            "the first rollout obeys the limits even if every node is new",
            on_a_new_cluster("+a=1:Synced +b=0 +c=0 +d=0"),
            None,
            "Reach(Revision(1)) b=1",
        ),
        (
            "and each node counts while it changes",
            on_a_new_cluster("+a=1:Synced +b=1 +c=0 +d=0"),
            None,
            "Reach(Revision(1))",
        ),
        (
            "a kept revision that is not older is ignored",
            rotated("a=2 b=0 +c=0"),
            Some(2),
            "Reach(Revision(2))",
        ),
        (
            "nothing while the fleet restores",
            snapshot(Source::Absent, Some(restoring(2)), "a=2:Synced +b=0"),
            Some(1),
            "Reach(Restore) a=2R",
        ),
        (
            "nothing for an excluded node",
            snapshot(found(A), Some(global(1, A)), "a=1:Synced -b=0"),
            None,
            "Reach(Revision(1))",
        ),
        (
            "a node with content waits",
            snapshot(found(A), Some(global(2, A)), "a=2 +b=0:Pending/1"),
            None,
            "Reach(Revision(2))",
        ),
    ] {
        snapshot.recorded.rolled_out_revision = slot.map(revision_of_test);
        assert_eq!(line(&snapshot), expected, "{case}");
    }
    let mut paused = rotated("a=2:Synced b=1:Synced +c=0");
    paused.recorded.global.as_mut().unwrap().canary_passed = true;
    paused.recorded.rolled_out_revision = Some(revision_of_test(1));
    assert_eq!(line(&paused), "Reach(Revision(2)) b=2 c=2");
    paused.config.spec.rollout.paused = true;
    assert_eq!(
        line(&paused),
        "Reach(Revision(2)) c=1",
        "a paused rollout does not continue"
    );
    let mut held = snapshot(found(BAD), Some(global(2, A)), "a=2:Synced +b=0");
    held.recorded.global.as_mut().unwrap().last_additional = Some(Data(Some(BAD.into())));
    assert_eq!(line(&held), "Hold(NoValidContent) b=2");
}

/// The plan in one line after the revision that it writes is written, for a node that has joined since.
fn then_a_node_joins(mut snapshot: Snapshot<'static>) -> String {
    let plan = plan(&snapshot);
    let slot = plan.rolled_out.map(|write| write.revision);
    snapshot.recorded.rolled_out_revision = slot.or(snapshot.recorded.rolled_out_revision);
    if let Some(write) = plan.global {
        snapshot.recorded.global = Some(Global {
            content: Some(write.content),
            ..write.global
        });
    }
    let name = "joined".to_owned();
    let node = NodeView::of_test(&name, NOW);
    snapshot
        .nodes
        .views
        .to_mut()
        .insert(name.clone(), Box::new(node));
    let object = Box::new(object(&name, "0"));
    snapshot.nodes.objects.to_mut().insert(name, object);
    line(&snapshot)
}

#[test]
fn there_is_a_revision_for_new_nodes_from_the_first_canary_on() {
    let failed_twice = "a=2:Synced b=2:RolledBack c=1:Synced";
    for (case, global, slot, nodes, expected) in [
        (
            "all nodes have just reported it, and the content changes at once",
            without_canary(1, A),
            None,
            "a=1:Synced b=1:Synced",
            "Reach(Revision(2)) joined=1",
        ),
        (
            "only the canary has it",
            without_canary(1, A),
            None,
            "a=1:Synced b=0",
            "Reach(Revision(2)) joined=1",
        ),
        (
            "no canary has it: the fleet has nothing",
            without_canary(1, A),
            None,
            "a=1 b=0",
            "Reach(Revision(2))",
        ),
        (
            "a later revision without a canary leaves the earlier one",
            without_canary(2, A),
            Some(1),
            "a=2 b=1:Synced",
            "Reach(Revision(3)) joined=1",
        ),
        (
            "a later one with a canary replaces it",
            without_canary(2, A),
            Some(1),
            "a=2:Synced b=1:Synced",
            "Reach(Revision(3)) joined=2",
        ),
        (
            "but not if it failed",
            without_canary(2, A),
            Some(1),
            failed_twice,
            "Reach(Revision(3)) joined=1",
        ),
    ] {
        let mut snapshot = snapshot(found(B), Some(global), nodes);
        snapshot.recorded.rolled_out_revision = slot.map(revision_of_test);
        snapshot.config.spec.rollout.paused = true;
        assert_eq!(then_a_node_joins(snapshot), expected, "{case}");
    }
    let first = |nodes| {
        let mut snapshot = snapshot(found(A), Some(without_canary(1, A)), nodes);
        snapshot.config.spec.rollout.paused = true;
        then_a_node_joins(snapshot)
    };
    assert_eq!(
        first("a=1:Synced b=0"),
        "Reach(Revision(1)) joined=1",
        "the first revision, paused after its canary"
    );
    assert_eq!(first("a=1:RolledBack b=0"), "Reach(Revision(1))");
    for nodes in ["a=1:Synced", "a=1:Synced %b=0:Pending"] {
        let rolled_out = snapshot(found(B), Some(without_canary(1, A)), nodes);
        let history = plan(&rolled_out).history;
        assert_eq!(history.map(|kept| kept.revision), Some(1), "for a rollback");
    }
}

/// A node that joins gets content that can still be fetched when the writes of its plan are done, and another one otherwise.
#[test]
fn a_node_never_keeps_a_revision_replaced_before_the_fetch() {
    let older = |number| Some(revision_of_test(number));
    let mut replaced = snapshot(found(B), Some(global(6, A)), "a=6:Synced +c=0");
    replaced.recorded.rolled_out_revision = older(5);
    assert_eq!(
        line(&replaced),
        "Reach(Revision(7)) keep 6 slot 6 write 7 a=7 c=6",
        "the same plan replaces the older one"
    );
    for (case, assigned, revision, expected) in [
        (
            "it is in no Secret any more",
            "5:Syncing/0.Superseded",
            6,
            " c=6",
        ),
        ("the node has not said so yet", "5:Syncing/0", 6, ""),
        ("it is still there", "6:Syncing/0.Superseded", 6, ""),
        ("no other is known", "5:Syncing/0.Superseded", 5, ""),
    ] {
        let nodes = format!("a=6:Synced +c={assigned}");
        let mut paused = snapshot(found(B), Some(without_canary(7, B)), &nodes);
        paused.config.spec.rollout.paused = true;
        paused.recorded.rolled_out_revision = older(revision);
        assert_eq!(
            line(&paused),
            format!("Reach(Revision(7)){expected}"),
            "{case}"
        );
    }
}

#[test]
fn invalid_content_is_not_absence() {
    let strict = |source: Source| {
        // Content that an older release accepted is invalid now.
        let bad = Data(Some(BAD.as_bytes().to_vec()));
        let global = Global {
            last_additional: Some(bad),
            ..global(2, A)
        };
        snapshot(source, Some(global), "a=2:Synced b=1:Synced")
    };
    assert_eq!(line(&strict(found(BAD))), "Hold(NoValidContent)");
    assert_eq!(line(&strict(Source::Forbidden)), "Hold(NoValidContent)");
    assert_eq!(
        line(&strict(Source::Unreadable("away".to_owned()))),
        "Hold(NoValidContent)"
    );
    assert_eq!(
        line(&strict(Source::Absent)),
        "Reach(Restore) keep 2 write 2 restoring a=2R"
    );
    let mut with_source = strict(Source::Absent);
    with_source.secrets.sources = vec![("one".to_owned(), found(BAD))];
    assert_eq!(
        line(&with_source),
        "Hold(NoValidContent)",
        "a source still exists"
    );
    for nodes in ["a=2:Synced", "a", ""] {
        let mut lost = snapshot(found(BAD), None, nodes);
        lost.agents.daemon_set = true;
        let expected = "Hold(NoValidContent)";
        assert!(
            line(&lost).starts_with(expected),
            "{nodes}: no Secret has the last valid content"
        );
    }
}

#[test]
fn only_a_deleted_source_restores() {
    let of_source = |file: Option<String>| Global {
        last_additional: None,
        last_sources: [("one".to_owned(), Data(Some(A.as_bytes().to_vec())))].into(),
        config_file: file,
        ..global(2, A)
    };
    let on_nodes = || of_source(global(2, A).config_file);
    let held = |unnamed: Source| {
        let mut snapshot = snapshot(Source::Absent, Some(on_nodes()), "a=2:Synced +b=0");
        snapshot.secrets.unnamed_sources = vec![("one".to_owned(), unnamed)];
        snapshot
    };
    for still in [
        found(A),
        found(B),
        found(BAD),
        Source::Forbidden,
        Source::Unreadable("away".to_owned()),
    ] {
        let line = line(&held(still.clone()));
        assert_eq!(line, "Hold(SourcesRemoved) b=2", "{still:?}");
    }
    let deleted = line(&held(Source::Absent));
    assert!(
        deleted.starts_with("Reach(Restore) write 2 restoring"),
        "{deleted}"
    );
    let mut meant = held(found(A));
    meant.config.restore_is_meant = true;
    assert_eq!(line(&meant), deleted, "`remove` says so");

    let mut replaced = held(found(A));
    replaced.secrets.additional = found(B);
    let still = line(&replaced);
    assert_eq!(still, "Hold(SourcesRemoved) b=2", "a new additional Secret");
    replaced.config.restore_is_meant = true;
    let delivered = line(&replaced);
    assert!(delivered.starts_with("Reach(Revision(3))"), "{delivered}");
    replaced.config.restore_is_meant = false;
    replaced.recorded.global.as_mut().unwrap().last_additional = Some(Data(Some(B.into())));
    let ordinary = line(&replaced);
    assert!(ordinary.starts_with("Reach(Revision(3))"), "{ordinary}");

    let mut named = held(found(A));
    named.secrets.sources = std::mem::take(&mut named.secrets.unnamed_sources);
    assert!(
        line(&named).starts_with("Reach(Revision(2))"),
        "it is named again"
    );
    named.secrets.unnamed_sources = vec![("two".to_owned(), found(B))];
    assert!(
        line(&named).starts_with("Reach(Revision(2))"),
        "one of several"
    );

    // `delivery: None`, and a new configuration with the default delivery.
    let mut nothing = snapshot(Source::Absent, Some(of_source(None)), "a b");
    nothing.agents.daemon_set = false;
    nothing.secrets.unnamed_sources = vec![("one".to_owned(), found(A))];
    assert_eq!(line(&nothing), "Hold(SourcesRemoved)", "nodes stay without");
    nothing.secrets.unnamed_sources[0].1 = Source::Absent;
    assert_eq!(line(&nothing), "CleanUp", "no node has to be restored");
}

#[test]
fn nodes_whose_objects_are_not_served_wait_and_are_not_restored() {
    let held = "Hold(NodesNotServed)";
    let nothing_left = || Global {
        restoring: true,
        config_file: None,
        ..global(5, A)
    };
    for (case, additional, global, nodes, expected) in [
        (
            "at rest",
            found(A),
            Some(global(5, A)),
            "a=5:Synced b c=4:Synced",
            held,
        ),
        (
            "a leader that begins meanwhile",
            found(A),
            Some(global(5, A)),
            "a b",
            held,
        ),
        (
            "new content",
            found(B),
            Some(global(5, A)),
            "a=5:Synced",
            held,
        ),
        (
            "the Secret is deleted",
            Source::Absent,
            Some(global(5, A)),
            "a=R:Restored",
            held,
        ),
        ("the first content", found(A), None, "a", held),
        ("nothing", Source::Absent, None, "a", "Nothing"),
        (
            "a cleanup that has restored all",
            Source::Absent,
            Some(nothing_left()),
            "a",
            "CleanUp",
        ),
    ] {
        let mut snapshot = snapshot(additional, global, nodes);
        snapshot.nodes.are_known = false;
        snapshot.agents.daemon_set = false;
        assert_eq!(line(&snapshot), expected, "{case}");
    }
    let mut lost = snapshot(Source::Absent, None, "a");
    lost.nodes.are_known = false;
    lost.recorded.rolled_out_revision = Some(revision_of_test(4));
    assert_eq!(line(&lost), held, "the Secret with the content is lost");
    for additional in [Source::Absent, found(B)] {
        let of_sources = Global {
            last_additional: None,
            last_sources: [("one".to_owned(), Data(Some(A.into())))].into(),
            ..global(5, A)
        };
        let mut removed = snapshot(additional, Some(of_sources), "a b");
        removed.nodes.are_known = false;
        removed.secrets.unnamed_sources = vec![("one".to_owned(), found(A))];
        assert_eq!(line(&removed), "Hold(SourcesRemoved)", "and no object");
        removed.secrets.unnamed_sources[0].1 = Source::Absent;
        assert_eq!(line(&removed), held, "the source is deleted");
    }
    let mut only_namespaces = snapshot(found(B), Some(nothing_left()), "a");
    only_namespaces.nodes.are_known = false;
    only_namespaces.agents.daemon_set = false;
    only_namespaces.config.spec.kubelet.delivery = DeliveryType::None;
    let line = line(&only_namespaces);
    assert!(
        line.starts_with("Reach(Revision(6))"),
        "no delivery to nodes: {line}"
    );
}

/// `pool`: the nodes with the label that the configuration names.
fn with_node_selector(nodes: &str, pool: &[&str]) -> Snapshot<'static> {
    let mut snapshot = snapshot(found(A), Some(global(5, A)), nodes);
    let pool_a = || ("pool".to_owned(), "a".to_owned());
    snapshot.config.spec.node_selector = [pool_a()].into();
    for name in pool {
        let node = snapshot.nodes.views.to_mut().get_mut(*name).unwrap();
        let excluded = node.labels.is_excluded.to_string();
        let exclude = ("globalps.io/exclude".to_owned(), excluded);
        let linux = ("kubernetes.io/os".to_owned(), "linux".to_owned());
        node.labels = (&BTreeMap::from([pool_a(), exclude, linux])).into();
    }
    snapshot
}

#[test]
fn a_node_selector_that_matches_no_node_restores_none() {
    let held = "Hold(NoNodeSelected)";
    for (case, nodes, pool, expected) in [
        ("a typo", "a=5:Synced b=0", &[][..], held),
        ("during a rollout", "a=5:Syncing/4 b=4:Synced", &[], held),
        ("its object was deleted", "a=0:Synced/5 b=0", &[], held),
        (
            "a node beside an excluded one",
            "-a=5:Synced b=5:Synced",
            &[],
            held,
        ),
        (
            "one stays",
            "a=5:Synced b=5:Synced",
            &["b"],
            "Reach(Revision(5)) a=5R",
        ),
        (
            "the one that stays is NotReady",
            "a=5:Synced !b=5:Synced",
            &["b"],
            "Reach(Revision(5))",
        ),
        (
            "the one that stays is excluded",
            "a=0 -b=5:Synced",
            &["b"],
            "Reach(Revision(5)) b=5R",
        ),
        (
            "a deselected one is excluded",
            "-a=5:Synced b=0",
            &[],
            "Reach(Revision(5)) a=5R",
        ),
        ("a lost one", "!a=5:Synced b=0", &[], "Reach(Revision(5))"),
        ("beside another", "!a=5:Synced b=5:Synced", &[], held),
        (
            "they are being restored",
            "a=R:Restored b=R",
            &[],
            "Reach(Revision(5))",
        ),
        (
            "no node has anything",
            "a=0 b=0:never c",
            &[],
            "Reach(Revision(5)) c=0?",
        ),
        ("there is no node", "", &[], "Reach(Revision(5))"),
    ] {
        let mut snapshot = with_node_selector(nodes, pool);
        assert_eq!(line(&snapshot), expected, "{case}");
        let is_left = [
            "a lost one",
            "a deselected one is excluded",
            "they are being restored",
        ];
        let keeps = expected == held || is_left.contains(&case);
        assert_eq!(plan(&snapshot).keeps_selector, keeps, "{case}");
        let bad = Data(Some(BAD.into()));
        snapshot.recorded.global.as_mut().unwrap().last_additional = Some(bad);
        snapshot.secrets.additional = found(BAD);
        let invalid = plan(&snapshot);
        assert_eq!(invalid.aim, Aim::Hold(Hold::NoValidContent), "{case}");
        assert_eq!(invalid.keeps_selector, keeps, "{case}");
    }
    for pool in [&[][..], &["a"]] {
        let mut snapshot = with_node_selector("a b", pool);
        snapshot.nodes.are_known = false;
        assert_eq!(line(&snapshot), "Hold(NodesNotServed)");
        assert_eq!(plan(&snapshot).keeps_selector, pool.is_empty());
    }
    let mut restoring = with_node_selector("a=5:Synced b=R", &[]);
    restoring.secrets.additional = Source::Absent;
    let plan_of_restore = plan(&restoring);
    assert_eq!(plan_of_restore.aim, Aim::Reach(Goal::Restore));
    assert!(plan_of_restore.keeps_selector, "until they have nothing");
    let after = |change: fn(&mut Snapshot)| {
        let mut snapshot = with_node_selector("a=5:Synced b=5:Synced", &[]);
        change(&mut snapshot);
        line(&snapshot)
    };
    assert_eq!(
        after(|it| it.secrets.additional = found(B)),
        held,
        "new content"
    );
    // As by `remove --source`, and by `uninstall` before it deletes the additional Secret.
    let one_removed = after(|it| it.config.restore_is_meant = true);
    assert_eq!(one_removed, held, "others stay");
    let deleted = after(|it| it.secrets.additional = Source::Absent);
    let restored = "Reach(Restore) keep 5 write 5 restoring a=5R";
    assert_eq!(deleted, restored, "the Secret is deleted");
    let all_removed = after(|it| {
        it.secrets.additional = Source::Absent;
        it.secrets.unnamed_sources = vec![("one".to_owned(), found(A))];
        it.config.restore_is_meant = true;
    });
    assert_eq!(all_removed, restored, "all are removed on purpose");
    let none = after(|it| it.config.spec.kubelet.delivery = DeliveryType::None);
    assert_eq!(none, "Reach(Revision(5)) a=5R", "delivery");
}

#[test]
fn without_a_global_pull_secret_no_node_changes() {
    for (case, additional, global, nodes, expected) in [
        (
            "nothing in force yet",
            found(A),
            None,
            "a",
            "Reach(Revision(1)) write 1 a=0",
        ),
        (
            "a rotation",
            found(B),
            Some(global(1, A)),
            "a=1:Synced +b",
            "Hold(ConfigMissing) b=0",
        ),
        (
            "a new node gets what the fleet has",
            found(B),
            Some(global(1, A)),
            "a=1:Synced +b=0",
            "Hold(ConfigMissing) b=1",
        ),
        (
            "a deletion",
            Source::Absent,
            Some(global(1, A)),
            "a=1:Synced",
            "Hold(ConfigMissing)",
        ),
        (
            "only objects are left",
            found(A),
            None,
            "a=1:Synced",
            "Hold(ConfigMissing)",
        ),
    ] {
        let mut snapshot = snapshot(additional, global, nodes);
        snapshot.config.is_missing = true;
        assert_eq!(line(&snapshot), expected, "{case}");
    }
}

#[test]
fn while_changes_are_held_everything_else_continues() {
    let held = |hold: &str| {
        let nodes = "a=1:Synced %b=1:Synced +c=0 +d";
        let mut snapshot = snapshot(found(B), Some(global(1, A)), nodes);
        match hold {
            "ConfigMissing" => snapshot.config.is_missing = true,
            _ => snapshot.config.unreadable = Some("no".to_owned()),
        }
        snapshot
    };
    for hold in ["ConfigMissing", "ConfigUnreadable"] {
        let mut held = held(hold);
        // Another program manages the file of `b`, `c` and `d` are new.
        let expected = format!("Hold({hold}) d=0 b=1 c=1");
        assert_eq!(line(&held), expected);
        held.nodes
            .changed_out_of_band
            .to_mut()
            .insert("a".to_owned());
        let expected = format!("Hold({hold}) d=0 b=1 a=1 c=1");
        assert_eq!(line(&held), expected, "changes by others are reverted");
        held.config.is_known = false;
        let expected = format!("Hold({hold}) d=0 b=1 a=1");
        let unknown = "which nodes are selected is not known";
        assert_eq!(line(&held), expected, "{unknown}");
        held.recorded.global_is_lost = true;
        let written = plan(&held).global.map(|write| write.global.revision);
        assert_eq!(written, Some(revision_of_test(1)), "its content is known");
        held.recorded.global.as_mut().unwrap().restoring = true;
        held.config.is_known = true;
        let restored = plan(&held);
        assert!(restored.members.iter().all(|it| it.goal == Goal::Restore));
    }
}

#[test]
fn provider_since_is_the_revision_of_the_last_configuration() {
    let content = |ports: &[&str]| Content {
        delivery: Delivery::CredentialProvider(ProviderConfig {
            ports: ports.iter().map(|port| (*port).to_owned()).collect(),
            scopes: false,
        }),
        ..Content::default()
    };
    let before = |content: Content, provider_since| Global {
        content: Some(content),
        provider_since,
        ..global(4, A)
    };
    let file = Content::default;
    for (case, before, content, expected) in [
        (
            "the first revision with the provider",
            Some(before(file(), 0)),
            content(&[]),
            5,
        ),
        ("nothing before", None, content(&[]), 5),
        (
            "as before",
            Some(before(content(&["1"]), 3)),
            content(&["1"]),
            3,
        ),
        (
            "with another port",
            Some(before(content(&["1"]), 3)),
            content(&["2"]),
            5,
        ),
        (
            "before it was recorded",
            Some(before(content(&["1"]), 0)),
            content(&["1"]),
            5,
        ),
        (
            "back to the file",
            Some(before(content(&["1"]), 3)),
            file(),
            0,
        ),
    ] {
        assert_eq!(
            provider_since(before.as_ref(), &content, 5),
            expected,
            "{case}"
        );
    }
}

#[test]
fn without_delivery_nodes_are_restored_and_syncers_removed() {
    let without_nodes = |global: Option<Global>, nodes| {
        let mut snapshot = snapshot(found(A), global, nodes);
        snapshot.config.spec.kubelet.delivery = DeliveryType::None;
        snapshot
    };
    let off_nodes = || Global {
        config_file: None,
        ..global(5, A)
    };
    for (case, global, nodes, expected, removes_agents) in [
        (
            "nodes get nothing",
            None,
            "a b",
            "Reach(Revision(1)) write 1",
            false,
        ),
        (
            "their content is restored within the limits",
            Some(global(5, A)),
            "a=5:Synced b=5:Synced",
            "Reach(Revision(5)) a=5R",
            false,
        ),
        (
            "a node without an object may have something",
            Some(global(5, A)),
            "a=R:Restored b",
            "Reach(Revision(5)) b=0?",
            false,
        ),
        (
            "first the state records that all are restored",
            Some(global(5, A)),
            "a=R:Restored b=0",
            "Reach(Revision(5)) write 5 passed rolled out",
            false,
        ),
        (
            "then the syncers are removed",
            Some(off_nodes()),
            "a=R:Restored b=0",
            "Reach(Revision(5))",
            true,
        ),
    ] {
        let snapshot = without_nodes(global, nodes);
        assert_eq!(line(&snapshot), expected, "{case}");
        assert_eq!(plan(&snapshot).removes_agents, removes_agents, "{case}");
    }
    let mut gone = without_nodes(Some(off_nodes()), "a b");
    gone.agents.daemon_set = false;
    assert!(plan(&gone).removes_agents, "a finalizer keeps something");
    gone.agents.has_leftovers = false;
    assert_eq!(line(&gone), "Reach(Revision(5))");
    assert!(!plan(&gone).removes_agents);
}

#[test]
fn a_restore_keeps_the_state_that_it_needs() {
    let before = Global {
        last_original: Some(Data(Some(A.as_bytes().to_vec()))),
        ..global(2, A)
    };
    let plan = plan(&snapshot(Source::Absent, Some(before), "a=2:Synced"));
    let written = plan.global.unwrap().global;
    assert!(written.restoring && written.revision.number == 2);
    assert!(written.last_original.is_some() && written.config_file.is_some());
    assert!(written.last_additional.is_none());
}

/// Until the nodes are restored, `undo` brings back what was deleted by mistake.
#[test]
fn a_restore_keeps_what_it_takes_away_for_an_undo() {
    for (case, global, limit, expected) in [
        ("it was rolled out", global(2, A), 2, Some(2)),
        ("it never reached every node", without_canary(2, A), 2, None),
        ("nothing is kept", global(2, A), 0, None),
    ] {
        let mut begins = snapshot(Source::Absent, Some(global), "a=2:Synced b=1:Synced");
        begins.config.spec.history_limit = limit;
        let kept = plan(&begins).history;
        assert_eq!(kept.map(|kept| kept.revision), expected, "{case}");
    }
    let mut continues = global(2, A);
    continues.restoring = true;
    let continues = snapshot(Source::Absent, Some(continues), "a=2:Synced");
    assert!(plan(&continues).history.is_none(), "once");
}

#[test]
fn no_history_is_kept_with_a_history_limit_of_zero() {
    let mut snapshot = snapshot(found(B), Some(global(1, A)), "a=1:Synced");
    assert!(plan(&snapshot).history.is_some());
    snapshot.config.spec.history_limit = 0;
    assert!(plan(&snapshot).history.is_none());
}

#[test]
#[expect(clippy::large_stack_arrays, reason = "cases")]
fn deleted_objects_are_recreated_and_only_own_numbers_count() {
    let mut deleted = snapshot(found(A), Some(global(2, A)), "a=2:Synced b=2:Synced");
    deleted.recorded.global_is_lost = true;
    let edited = Global {
        last_additional: global(2, A).last_additional,
        config_file: global(2, A).config_file,
        ..Global::default()
    };
    let mut edited = snapshot(found(A), Some(edited), "a=7:Synced");
    edited.recorded.global_is_lost = true;
    edited.recorded.reported_revision = 7;
    let mut reported = snapshot(found(A), None, "a=0:Pending/3");
    reported.recorded.reported_revision = 7;
    let mut known = snapshot(found(A), Some(global(2, A)), "a=2:Synced");
    known.recorded.reported_revision = 7;
    for (case, snapshot, expected) in [
        (
            "deleted out of band: written again",
            deleted,
            "Reach(Revision(2)) write 2 passed rolled out",
        ),
        (
            "edited while no controller ran: what it has is no earlier revision",
            edited,
            "Reach(Revision(8)) write 8 a=8",
        ),
        ("the written state counts", known, "Reach(Revision(2))"),
        (
            "without a known revision it starts again",
            snapshot(found(A), Some(without_canary(0, A)), "a=0"),
            "Reach(Revision(1)) write 1 a=1",
        ),
        (
            "deleted while no controller ran: what nodes are assigned doesn't count",
            snapshot(found(B), None, "a=2:Synced"),
            "Reach(Revision(1)) write 1 a=1",
        ),
        (
            "but what the controller reported does",
            reported,
            "Reach(Revision(8)) write 8 a=8",
        ),
        (
            "a node has a higher one",
            snapshot(found(A), Some(global(1, A)), "a=2:Synced"),
            "Reach(Revision(1)) a=1",
        ),
        (
            "revisions that nodes report don't count",
            snapshot(
                found(A),
                Some(global(2, A)),
                "a=2:Synced b=2:Synced/9223372036854775806 c=0:Pending/99",
            ),
            "Reach(Revision(2))",
        ),
        (
            "a deleted object is written again: its node may be in the middle of a change and takes the only slot",
            snapshot(
                found(B),
                Some(without_canary(3, B)),
                "a=3:Synced b c=2:Synced d=2:Synced",
            ),
            "Reach(Revision(3)) write 3 passed b=0?",
        ),
        (
            "deleted objects, and then the Secret: every node reports first",
            snapshot(Source::Absent, Some(global(2, A)), "a b"),
            "Reach(Restore) keep 2 write 2 restoring a=0? b=0?",
        ),
        (
            "then one node restores",
            snapshot(
                Source::Absent,
                Some(restoring(2)),
                "a=0:Pending/2 b=0:Pending/2",
            ),
            "Reach(Restore) a=0R",
        ),
        (
            "a node that has never reported is waited for",
            snapshot(Source::Absent, Some(restoring(2)), "a=R:Restored b"),
            "Reach(Restore) b=0?",
        ),
    ] {
        assert_eq!(line(&snapshot), expected, "{case}");
    }
    let last = snapshot(found(B), Some(global(MAX_REVISION, A)), "a=1:Synced");
    let first = "Reach(Revision(1)) keep 9007199254740991 slot 9007199254740991 write 1";
    assert!(
        line(&last).starts_with(first),
        "numbers start again: the id tells them apart"
    );
}

#[test]
fn a_cleanup_finishes_without_an_abandoned_unreachable_node() {
    let mut left = snapshot(
        Source::Absent,
        Some(restoring(2)),
        "a=R:Restored !b=2:Synced",
    );
    assert_eq!(line(&left), "Reach(Restore)");
    let abandon = |snapshot: &mut Snapshot| {
        let objects = snapshot.nodes.objects.to_mut();
        let annotation = ("globalps.io/abandon".to_owned(), "true".to_owned());
        objects.get_mut("b").unwrap().metadata.annotations = Some([annotation].into());
    };
    abandon(&mut left);
    assert_eq!(line(&left), "CleanUp write 2 restoring");
    let mut here = snapshot(
        Source::Absent,
        Some(restoring(2)),
        "a=R:Restored b=2:Synced",
    );
    abandon(&mut here);
    assert_eq!(
        line(&here),
        "Reach(Restore) b=2R",
        "a reachable node restores"
    );
    let mut asked = snapshot(
        Source::Absent,
        Some(restoring(2)),
        "a=R:Restored !b=R c=2:Synced",
    );
    assert_eq!(line(&asked), "Reach(Restore)", "it may be in flight");
    abandon(&mut asked);
    let clock = asked.clock.leader.to_mut();
    let objects = asked.nodes.objects.values();
    let objects = objects.map(|object| &**object);
    clock.observe(
        objects,
        asked.nodes.views.values().map(|node| &**node),
        asked.clock.uptime,
    );
    asked.clock.uptime += rollout::UNRESPONSIVE_AFTER - SignedDuration::from_secs(1);
    assert_eq!(
        line(&asked),
        "Reach(Restore)",
        "it may be NotReady because its kubelet restarts"
    );
    asked.clock.uptime += SignedDuration::from_secs(1);
    assert_eq!(
        line(&asked),
        "Reach(Restore) c=2R",
        "it no longer delays the others"
    );
    let mut added = snapshot(found(A), Some(global(1, A)), "a=1:Synced !b=1:Synced");
    abandon(&mut added);
    for (seconds, expected) in [(0, ""), (29, ""), (1, " b=1")] {
        added.clock.uptime += SignedDuration::from_secs(seconds);
        let clock = added.clock.leader.to_mut();
        let objects = added.nodes.objects.values();
        let objects = objects.map(|object| &**object);
        clock.observe(
            objects,
            added.nodes.views.values().map(|node| &**node),
            added.clock.uptime,
        );
        assert_eq!(
            line(&added),
            format!("Reach(Revision(1)){expected}"),
            "a later cleanup must name it: its object is written again, without the permission"
        );
    }
    let mut excluded = snapshot(found(A), Some(global(1, A)), "a=1:Synced -b=R:RolledBack");
    abandon(&mut excluded);
    assert_eq!(line(&excluded), "Reach(Revision(1))", "it is still left");
}

/// Its syncer, which only restores, answers a new object and one that still assigns a revision.
#[test]
fn a_deselected_node_is_restored_once_its_syncer_answers() {
    for (nodes, expected) in [
        ("a=1:Synced -b=0:Pending/1", "b=0R"),
        ("a=1:Synced -b=1:Pending/1", "b=1R"),
        ("a=1:Synced -b=1:Pending/0", "b=1R"),
        ("a=1:Synced -b=0:Pending", ""),
    ] {
        let snapshot = snapshot(found(A), Some(global(1, A)), nodes);
        let expected = format!("Reach(Revision(1)) {expected}");
        assert_eq!(line(&snapshot), expected.trim_end(), "{nodes}");
    }
}

#[test]
fn the_additional_secret_may_request_a_retry_on_failed_nodes() {
    let nodes = "a=1:RolledBack b=1:Synced";
    let mut snapshot = snapshot(found(A), Some(global(1, A)), nodes);
    snapshot.config.spec.rollout.max_failures = IntOrString::Int(2);
    let assigned = |snapshot: &Snapshot| -> Vec<(String, String)> {
        let assignments = plan(snapshot).assignments.into_iter();
        assignments.map(|(name, spec)| (name, spec.retry)).collect()
    };
    assert_eq!(assigned(&snapshot), []);
    snapshot.secrets.retry = Some("again".to_owned());
    assert_eq!(assigned(&snapshot), [("a".to_owned(), "again".to_owned())]);
    let object = snapshot.nodes.objects.to_mut().get_mut("a").unwrap();
    object.spec.retry = "again".to_owned();
    assert_eq!(assigned(&snapshot), [], "once for each value");
    let object = snapshot.nodes.objects.to_mut().get_mut("a").unwrap();
    object.metadata.annotations = Some([(RETRY_ANNOTATION.to_owned(), "own".to_owned())].into());
    let both = "own again".to_owned();
    assert_eq!(assigned(&snapshot), [("a".to_owned(), both)]);
    let longest = "x".repeat(4000);
    snapshot.secrets.retry = Some(longest);
    assert!(assigned(&snapshot)[0].1.len() <= 1024);
}

#[test]
fn a_failed_rollout_is_rolled_back_if_configured() {
    let failed = || {
        let nodes = "a=2:Synced b=2:RolledBack c=1:Synced";
        let mut snapshot = snapshot(found(B), Some(without_canary(2, B)), nodes);
        snapshot.config.spec.rollout.on_failure = OnFailure::Rollback;
        snapshot
    };
    let padded = |text: &str| format!("{text}{}", " ".repeat(600_000));
    let data = |text: &str| Data(Some(text.as_bytes().to_vec()));
    assert!(judge(&failed()).needs_history());
    for (case, snapshot, last, expected) in [
        (
            "there is no earlier revision",
            failed(),
            Source::Absent,
            "Reach(Revision(2)) write 2 passed",
        ),
        (
            "the kept content is the failed one",
            failed(),
            found(B),
            "Reach(Revision(2)) write 2 passed",
        ),
        (
            "both do not fit into one Secret",
            {
                let mut snapshot = failed();
                snapshot.secrets.additional = found(&padded(B));
                snapshot.recorded.global.as_mut().unwrap().last_additional = Some(data(&padded(B)));
                snapshot
            },
            found(&padded(A)),
            "Reach(Revision(2)) write 2 passed",
        ),
        (
            "the previous content becomes a new revision",
            failed(),
            found(A),
            "Reach(Revision(3)) write 3 rejected a=3",
        ),
    ] {
        let plan = with_history(&snapshot, &last);
        assert_eq!(in_one_line(plan), expected, "{case}");
    }
    let mut blocked_node = failed();
    let objects = blocked_node.nodes.objects.to_mut();
    let blocked = object("b", "2:Failed.DiskFull");
    objects.insert("b".to_owned(), Box::new(blocked));
    assert_eq!(
        in_one_line(with_history(&blocked_node, &found(A))),
        "Reach(Revision(2)) write 2 passed c=2",
        "a blocked node causes no rollback"
    );
    let back = with_history(&failed(), &found(A)).global.unwrap().global;
    assert_eq!(back.last_additional, Some(data(A)));
    let mut other_source = failed();
    let global_before = other_source.recorded.global.as_mut().unwrap();
    global_before.additional_was_rolled_out = true;
    assert_eq!(
        in_one_line(with_history(&other_source, &found(A))),
        "Reach(Revision(2)) write 2 passed",
        "an additional Secret that was rolled out is not rolled back"
    );
    let reason = back.rejected_reason.clone().unwrap();
    assert_eq!(
        reason,
        "revision 2 failed on b and was rolled back on every node"
    );
    let rejecting = |additional| {
        let content = global(3, A).content;
        let global = Global {
            content,
            ..back.clone()
        };
        line(&snapshot(
            found(additional),
            Some(global),
            "a=3:Synced b=3:Synced c=3",
        ))
    };
    assert_eq!(
        rejecting(B),
        "Reach(Revision(3)) write 3 rejected passed",
        "while unchanged, it stays rejected"
    );
    assert_eq!(
        rejecting(A_SPELLED_OTHERWISE),
        "Reach(Revision(3)) write 3 passed",
        "another one is accepted"
    );
}

#[test]
fn the_restore_begins_only_when_there_is_no_source_either() {
    let sources = |source| {
        let global = Global {
            last_additional: None,
            last_sources: BTreeMap::from([("one".to_owned(), Data(Some(A.into())))]),
            ..global(1, A)
        };
        let mut snapshot = snapshot(Source::Absent, Some(global), "a=1:Synced b=1:Synced");
        snapshot.secrets.sources = vec![("one".to_owned(), source)];
        line(&snapshot)
    };
    assert_eq!(sources(found(A)), "Reach(Revision(1))");
    assert_eq!(sources(found(B)), "Reach(Revision(2)) slot 1 write 2 a=2");
    assert_eq!(sources(found(BAD)), "Reach(Revision(1))");
    assert_eq!(sources(Source::Forbidden), "Reach(Revision(1))");
    assert_eq!(
        sources(Source::Absent),
        "Reach(Restore) write 1 restoring a=1R"
    );
}

#[test]
fn a_rolled_out_secret_is_recorded_when_a_source_changes() {
    let mut snapshot = snapshot(found(A), Some(global(1, A)), "a=1:Synced");
    snapshot.secrets.sources = vec![("one".to_owned(), found(B))];
    let next = plan(&snapshot).global.unwrap().global;
    assert!(next.additional_was_rolled_out && next.rolled_out.is_none());
    snapshot.secrets.additional = found(B);
    let next = plan(&snapshot).global.unwrap().global;
    assert!(!next.additional_was_rolled_out);
}

#[test]
fn a_rolled_out_secret_is_kept_though_a_later_source_is_not() {
    for (was_rolled_out, expected) in [(true, Some(2)), (false, None)] {
        let global = Global {
            additional_was_rolled_out: was_rolled_out,
            ..without_canary(2, A)
        };
        let plan = plan(&snapshot(found(B), Some(global), "a=2 b=1:Synced"));
        let kept = plan.history.map(|kept| kept.revision);
        assert_eq!(kept, expected, "{was_rolled_out}");
    }
}

#[test]
fn the_path_of_the_credentials_file_stays() {
    let mut snapshot = snapshot(found(B), Some(global(1, A)), "a=1:Synced");
    snapshot.config.spec.kubelet.config_file = "/var/lib/k0s/kubelet/config.json".to_owned();
    let next = plan(&snapshot).global.unwrap().global;
    assert_eq!(
        next.config_file.as_deref(),
        Some("/var/lib/kubelet/config.json")
    );
    assert_eq!(
        snapshot.other_config_file(),
        Some("/var/lib/kubelet/config.json")
    );
    snapshot.recorded.global.as_mut().unwrap().config_file = None;
    let next = plan(&snapshot).global.unwrap().global;
    assert_eq!(
        next.config_file.as_deref(),
        Some("/var/lib/k0s/kubelet/config.json")
    );
}

#[test]
fn only_number_and_id_together_are_a_revision() {
    for (case, snapshot, expected) in [
        (
            "A6: another installation gave the number to other content",
            snapshot(found(A), Some(global(1, A)), "a=0:Pending/1x"),
            "Reach(Revision(1)) a=1",
        ),
        (
            "a node that reports it as in force has not reached the goal",
            snapshot(found(A), Some(global(1, A)), "a=1:Synced/1x b=0:Pending"),
            "Reach(Revision(1))",
        ),
        (
            "A5: the object is new, and its node has the goal: no limit applies",
            snapshot(
                found(A),
                Some(global(1, A)),
                "a=0:Pending/1 +b=0:Pending/1 c=1:Synced d=1:Synced",
            ),
            "Reach(Revision(1)) a=1 b=1",
        ),
        (
            "A7: another client wrote a high number",
            snapshot(
                found(A),
                Some(global(1, A)),
                "a=9007199254740991:Syncing/1.Superseded b=99:Syncing/1.Superseded c=1:Synced",
            ),
            "Reach(Revision(1)) a=1 b=1",
        ),
        (
            "or the number with another id",
            snapshot(
                found(A),
                Some(global(1, A)),
                "a=1x:Syncing/1.Superseded c=1:Synced",
            ),
            "Reach(Revision(1)) a=1",
        ),
        (
            "or one that the node has not answered yet: it gets nothing, and counts",
            snapshot(
                found(B),
                Some(without_canary(2, B)),
                "a=99 b=1:Synced c=1:Synced",
            ),
            "Reach(Revision(2))",
        ),
        (
            "an earlier revision waits for its turn",
            snapshot(
                found(B),
                Some(without_canary(3, B)),
                "a=2x:Synced b=1:Synced",
            ),
            "Reach(Revision(3)) a=3",
        ),
    ] {
        assert_eq!(line(&snapshot), expected, "{case}");
    }
    let mut paused = snapshot(
        found(A),
        Some(global(1, A)),
        "a=99:Syncing/1.Superseded b=1:Synced",
    );
    paused.config.spec.rollout.paused = true;
    assert_eq!(line(&paused), "Reach(Revision(1)) a=1", "also while paused");
}

#[test]
fn a_foreign_assignment_is_reverted_outside_the_limits() {
    let mut changed = snapshot(
        found(A),
        Some(global(1, A)),
        "a=1:Synced b=1:Synced c=1:Synced",
    );
    changed
        .nodes
        .changed_out_of_band
        .to_mut()
        .extend(["a".to_owned(), "c".to_owned()]);
    assert_eq!(line(&changed), "Reach(Revision(1)) a=1 c=1");
    changed.config.spec.rollout.paused = true;
    assert_eq!(line(&changed), "Reach(Revision(1)) a=1 c=1");
}

#[test]
fn a_secret_without_a_valid_id_becomes_another_revision() {
    let mut changed = global(3, A);
    changed.revision = changed.revision.unidentified();
    let changed = snapshot(found(A), Some(changed), "a=3:Synced");
    assert_eq!(line(&changed), "Reach(Revision(4)) slot 3 write 4 a=4");
}

fn unreadable(snapshot: &mut Snapshot, name: &str, field: &str) {
    let unreadable = Unreadable {
        metadata: ObjectMeta::default(),
        field: field.to_owned(),
    };
    let unreadable = Box::new(unreadable);
    snapshot
        .nodes
        .unreadable
        .to_mut()
        .insert(name.to_owned(), unreadable);
}

#[test]
fn an_unreadable_object_gets_nothing_and_takes_no_slot() {
    for (case, global, nodes, expected) in [
        (
            "it was in flight",
            global(1, A),
            "a=1:Syncing b=0",
            "Reach(Revision(1)) b=1",
        ),
        (
            "its readable version was never seen",
            global(1, A),
            "a b=0",
            "Reach(Revision(1)) b=1",
        ),
        (
            "it is the first node",
            without_canary(1, A),
            "a=0 b=0",
            "Reach(Revision(1)) b=1",
        ),
        (
            "it is new",
            global(1, A),
            "+a=0 b=1:Synced",
            "Reach(Revision(1))",
        ),
        (
            "the others are done",
            Global {
                rolled_out: None,
                ..global(1, A)
            },
            "a=0 b=1:Synced",
            "Reach(Revision(1)) write 1 passed rolled out",
        ),
    ] {
        let mut snapshot = snapshot(found(A), Some(global), nodes);
        unreadable(&mut snapshot, "a", "status.x");
        assert_eq!(line(&snapshot), expected, "{case}");
        let members = plan(&snapshot).members;
        let member = members.iter().find(|member| member.name == "a");
        assert!(member.is_some_and(rollout::Member::is_blocked), "{case}");
    }
}

#[test]
fn an_unreadable_configuration_holds() {
    for (case, additional, global, nodes, known, expected) in [
        (
            "a rotation",
            found(B),
            Some(global(1, A)),
            "a=1:Synced b=0",
            true,
            "Hold(ConfigUnreadable)",
        ),
        (
            "a new node gets what the fleet has",
            found(B),
            Some(global(1, A)),
            "a=1:Synced +b=0",
            true,
            "Hold(ConfigUnreadable) b=1",
        ),
        (
            "unless it is not known which nodes are selected",
            found(B),
            Some(global(1, A)),
            "a=1:Synced +b=0",
            false,
            "Hold(ConfigUnreadable)",
        ),
        (
            "a deletion",
            Source::Absent,
            Some(global(1, A)),
            "a=1:Synced",
            true,
            "Hold(ConfigUnreadable)",
        ),
        (
            "a first add",
            found(A),
            None,
            "a",
            false,
            "Hold(ConfigUnreadable)",
        ),
    ] {
        let mut snapshot = snapshot(additional, global, nodes);
        snapshot.config.unreadable = Some("its field `spec` can't be decoded".to_owned());
        snapshot.config.is_known = known;
        assert_eq!(line(&snapshot), expected, "{case}");
    }
}

/// The test profile checks for overflows.
#[test]
fn no_time_or_number_of_others_overflows() {
    let at = |second| Timestamp::from_second(second).expect("a time");
    let now = NOW.as_second();
    // The first and last that are decoded, and those around the leader's.
    let times = [0, now - 1, now, now + 1, 7_258_118_399].map(at);
    let numbers = [0, 1, 2, (1 << 53) - 1];
    let phases = [
        Phase::Pending,
        Phase::Syncing,
        Phase::Synced,
        Phase::RolledBack,
        Phase::Failed,
        Phase::Restored,
    ];
    let mut plans = 0;
    for phase in phases {
        for (reported, own) in times.iter().flat_map(|a| times.map(|b| (*a, b))) {
            for number in numbers {
                for ready in [true, false] {
                    let nodes = "a=1:Synced b=1 c=R d=0";
                    let mut snapshot = snapshot(found(A), Some(global(1, A)), nodes);
                    for object in snapshot.nodes.objects.to_mut().values_mut() {
                        let status = object.status.get_or_insert_default();
                        status.phase = phase.clone();
                        status.revision = number;
                        status.restarts = number;
                        status.drifts = number;
                        status.last_transition_time = Some(Time(reported));
                        status.kubelet_restarted_at = Some(Time(own));
                        object.metadata.generation = Some(number);
                        status.observed_generation = number;
                    }
                    for node in snapshot.nodes.views.to_mut().values_mut() {
                        (node.heartbeat, node.created) = (own, reported);
                        node.ready = if ready {
                            Ok(reported)
                        } else {
                            Err(NotReady {
                                since: reported,
                                unknown: number == 0,
                            })
                        };
                    }
                    snapshot.config.spec.rollout.min_ready_seconds = u32::MAX;
                    snapshot.config.spec.rollout.max_unavailable = IntOrString::Int(i32::MAX);
                    plan(&snapshot);
                    plans += 1;
                }
            }
        }
    }
    assert_eq!(plans, 6 * 25 * 4 * 2);
}
