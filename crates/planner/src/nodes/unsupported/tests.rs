use std::collections::BTreeMap;

use globalps_core::rollout::{Goal, Ledger, Member, UNRESPONSIVE_AFTER};

use super::super::members::{self, RolloutTarget};
use super::super::plan::tests::line;
use super::super::state::node_states;
use super::super::syncers::Down;
use super::super::testing::{A, found, global, snapshot};
use super::*;
use crate::content::secret::revision_of_test;
use crate::content::source::Source;

/// A cluster with revision 1 and these nodes. `down`: `NAME` or `NAME:SECONDS` (5 minutes) for each node without a pod that runs;
/// `virtual`: nodes with a mark.
fn cluster(nodes: &str, down: &str, virtual_nodes: &str) -> Snapshot<'static> {
    let mut snapshot = snapshot(found(A), Some(global(1, A)), nodes);
    for word in down.split_whitespace() {
        let (name, seconds) = word.split_once(':').unwrap_or((word, "300"));
        let since = snapshot.clock.uptime - SignedDuration::from_secs(seconds.parse().unwrap());
        let cause = Cause::NotRunning("ErrImagePull".into());
        let down = &mut snapshot.agents.syncers.to_mut().down;
        down.insert(name.to_owned(), Down { since, cause });
    }
    for name in virtual_nodes.split_whitespace() {
        let node = snapshot.nodes.views.to_mut().get_mut(name).unwrap();
        node.virtual_by = Some(VirtualMark::Label("type", "kwok"));
    }
    snapshot
}

fn members(snapshot: &Snapshot, goal: Goal) -> Vec<Member> {
    let target = RolloutTarget {
        ledger: Ledger {
            canary_passed: true,
            ..Ledger::new(goal)
        },
        provider_since: 0,
    };
    members::members(&node_states(snapshot), target)
}

#[test]
fn only_nodes_with_a_syncer_get_a_slot() {
    for (case, nodes, down, virtual_nodes, expected) in [
        ("all run", "a=1:Synced b=0 c=0", "", "", "b=1"),
        (
            "another one takes the slot",
            "a=1:Synced b=0 c=0",
            "b:1",
            "",
            "c=1",
        ),
        (
            "for as long as it is down",
            "a=1:Synced b=0 c=0",
            "b",
            "",
            "c=1",
        ),
        ("nobody is left", "a=1:Synced b=0 c=0", "b:1 c:200", "", ""),
        (
            "a virtual node gets none",
            "a=1:Synced v w=0 c=0",
            "",
            "v w",
            "c=1",
        ),
        ("and no object", "a=1:Synced v", "", "v", ""),
        (
            "one with content restores",
            "a=1:Synced v=1:Synced",
            "",
            "v",
            "v=1R",
        ),
        ("if its syncer runs", "a=1:Synced v=1:Synced", "v", "v", ""),
    ] {
        let snapshot = cluster(nodes, down, virtual_nodes);
        let expected = format!("Reach(Revision(1)) {expected}");
        let found = line(&snapshot);
        assert_eq!(found.trim_end(), expected.trim_end(), "{case}");
    }
}

#[test]
fn a_pod_that_runs_has_a_minute_to_become_ready() {
    for (seconds, expected) in [(0, "b=1"), (59, "b=1"), (60, "c=1")] {
        let mut snapshot = cluster("a=1:Synced b=0 c=0", &format!("b:{seconds}"), "");
        let down = snapshot.agents.syncers.to_mut().down.get_mut("b").unwrap();
        down.cause = Cause::NotReady;
        let expected = format!("Reach(Revision(1)) {expected}");
        assert_eq!(line(&snapshot), expected, "{seconds}");
    }
}

#[test]
fn a_node_waits_while_its_syncer_is_replaced() {
    for (outdated, are_replaced, expected) in [
        ("b", true, "c=1"),
        ("b c", true, ""),
        ("b c", false, "b=1"),
        ("", true, "b=1"),
    ] {
        let mut snapshot = cluster("a=1:Synced b=0 c=0", "", "");
        let syncers = snapshot.agents.syncers.to_mut();
        syncers.are_replaced = are_replaced;
        syncers.outdated = outdated.split_whitespace().map(str::to_owned).collect();
        let expected = format!("Reach(Revision(1)) {expected}");
        assert_eq!(
            line(&snapshot).trim_end(),
            expected.trim_end(),
            "{outdated}"
        );
    }
}

#[test]
fn only_nodes_that_can_have_nothing_are_unsupported() {
    let image = Some("ErrImagePull");
    let mark = Some("it is virtual, by its label `type=kwok`");
    for (case, nodes, down, virtual_nodes, expected) in [
        ("its syncer runs", "n=0", "", "", None),
        ("it may still start", "n=0", "n:299", "", None),
        ("it has been down for long", "n=0", "n:300", "", image),
        ("it was restored", "n=R:Restored", "n", "", image),
        ("it restores", "n=R:Restoring", "n", "", None),
        ("it has content", "n=1:Synced", "n", "", None),
        ("it may have some", "n=1", "n", "", None),
        ("it is changing", "n=1:Syncing", "n", "", None),
        ("a new node without an object", "+n", "n", "", image),
        ("an older one may have content", "n", "n", "", None),
        ("a node that is not ready", "!n=0", "n", "", None),
        ("a virtual node", "n", "", "n", mark),
        ("at rest", "n=0", "", "n", mark),
        ("not ready", "!n", "", "n", mark),
        ("with content", "n=1:Synced", "", "n", None),
    ] {
        let snapshot = cluster(nodes, down, virtual_nodes);
        let node = snapshot.nodes.views.get("n").unwrap();
        let found = snapshot.unsupported(node).map(|why| why.to_string());
        assert_eq!(found.as_deref(), expected, "{case}");
        let goal = Goal::Restore;
        let is_member = !members(&snapshot, goal).is_empty();
        assert_eq!(
            is_member,
            expected.is_none(),
            "{case}: a restore waits for it"
        );
    }
}

#[test]
fn a_node_that_became_virtual_is_not_forgotten_with_its_object() {
    for (deleted, expected) in [(false, false), (true, true)] {
        let mut snapshot = cluster("n", "", "n");
        if deleted {
            let names = snapshot.nodes.deleted_out_of_band.to_mut();
            names.insert("n".to_owned());
        }
        let node = snapshot.nodes.views.get("n").unwrap();
        assert_ne!(snapshot.unsupported(node).is_some(), expected, "{deleted}");
        let now = snapshot.clock.now;
        let states = node_states(&snapshot);
        let written = states.iter();
        let written =
            written.filter_map(|state| super::super::assignments::missing(state, true, now));
        let revoked: Vec<_> = written.map(|spec| spec.revoked).collect();
        let expected = if expected { vec![true] } else { vec![] };
        assert_eq!(revoked, expected, "{deleted}");
    }
}

#[test]
fn a_node_without_a_syncers_report_becomes_unsupported() {
    let mut snapshot = cluster("n=0:never", "", "");
    for (seconds, expected) in [(299, false), (300, true)] {
        let since = snapshot.clock.uptime - SignedDuration::from_secs(seconds);
        let objects = snapshot.nodes.objects.values().map(|it| &**it);
        let mut clock = super::super::clock::LeaderClock::default();
        let nodes = snapshot.nodes.views.values().map(|node| &**node);
        clock.observe(objects, nodes, since);
        snapshot.clock.leader = std::borrow::Cow::Owned(clock);
        let node = snapshot.nodes.views.get("n").unwrap();
        assert_eq!(snapshot.unsupported(node).is_some(), expected, "{seconds}");
    }
}

#[test]
fn nodes_without_a_machine_are_no_members() {
    let mut snapshot = snapshot(Source::Absent, Some(global(1, A)), "a=1:Synced w");
    let windows = snapshot.nodes.views.to_mut().get_mut("w").unwrap();
    windows.labels = (&BTreeMap::new()).into();
    for goal in [Goal::Restore, Goal::Revision(revision_of_test(1))] {
        assert_eq!(members(&snapshot, goal).len(), 1, "{goal:?}");
    }
}

#[test]
fn a_rollout_is_done_without_nodes_whose_syncer_is_down() {
    for (seconds, expected) in [
        (0, ""),
        (UNRESPONSIVE_AFTER.as_secs(), " write 1 passed rolled out"),
    ] {
        let mut snapshot = cluster("a=1:Synced b=0:Pending", &format!("b:{seconds}"), "");
        let global = snapshot.recorded.global.as_mut().unwrap();
        global.rolled_out = None;
        assert_eq!(
            line(&snapshot),
            format!("Reach(Revision(1)){expected}"),
            "{seconds}"
        );
    }
}

#[test]
fn syncers_count_as_down_on_supported_nodes() {
    for (case, nodes, down, not_taken, virtual_nodes, expected) in [
        ("all run", "a=1:Synced b=0", "", "", "", ""),
        ("one starts", "a=1:Synced b=0", "b:59", "", "", ""),
        ("it doesn't", "a=1:Synced b=0", "b:60", "", "", "b"),
        (
            "a kubelet took it long ago",
            "a=1:Synced b=0",
            "b",
            "",
            "",
            "b",
        ),
        ("no kubelet did", "a=1:Synced b=0", "b:299", "b", "", "b"),
        ("for long", "a=1:Synced b=0", "b", "b", "", ""),
        (
            "where there is content",
            "a=1:Synced b=1:Synced",
            "b",
            "b",
            "",
            "b",
        ),
        ("nowhere", "a=0 b=0", "a b", "a b", "", "a b"),
        ("on virtual nodes", "a=1:Synced v", "v", "v", "v", ""),
        ("on excluded nodes", "a=1:Synced -e=0", "e", "", "", ""),
        (
            "on nodes that are not ready",
            "a=1:Synced !b=0",
            "b",
            "",
            "",
            "",
        ),
    ] {
        let mut snapshot = cluster(nodes, down, virtual_nodes);
        for name in not_taken.split_whitespace() {
            let down = snapshot.agents.syncers.to_mut().down.get_mut(name).unwrap();
            down.cause = Cause::NotTaken("Unschedulable".into());
        }
        let found = snapshot.down_syncers().into_iter().map(|it| it.0);
        let found: Vec<&str> = found.collect();
        assert_eq!(found.join(" "), expected, "{case}");
    }
}
