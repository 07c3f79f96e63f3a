//! The syncers, and the nodes without one. Pure.

use globalps_core::api::{NodeWithoutSyncer, Phase, STATUS_NODES, condition};
use globalps_core::names::{NAMESPACE, SYNCER};
use globalps_core::reasons::Reason;
use globalps_core::rollout::{Goal, Member};
use globalps_planner::nodes::input::Snapshot;
use globalps_planner::nodes::syncers::Cause;
use globalps_planner::nodes::unsupported::Unsupported;

use super::statement::NAMED;
use super::statement::{Statement, first, list, statement};

/// Nodes without a syncer: those that lag behind because of that, then those that nothing waits for, the known virtual
/// ones last. At most as many as fit into the status, and the total number of unsupported ones.
pub(super) fn nodes_without_syncer(
    snapshot: &Snapshot,
    members: &[Member],
    goal: Goal,
) -> (Vec<NodeWithoutSyncer>, u32) {
    let of = |name: &str, phase, reason: Reason, message: String| NodeWithoutSyncer {
        name: name.to_owned(),
        phase,
        reason: reason.into(),
        message,
    };
    let lagging = members
        .iter()
        .filter(|it| it.goal == goal && it.is_without_agent());
    let lagging = lagging.filter_map(|member| {
        let down = snapshot.agents.syncers.down.get(&member.name)?;
        let message = down.cause.to_string();
        Some(of(
            &member.name,
            Phase::Unreachable,
            Reason::NoSyncer,
            message,
        ))
    });
    let unsupported: Vec<_> = snapshot.unsupported_nodes().collect();
    let total = u32::try_from(unsupported.len()).unwrap_or(u32::MAX);
    let is_virtual = |why: &Unsupported| matches!(why, Unsupported::Virtual(_));
    let kinds = [false, true].into_iter().flat_map(|kind| {
        let of_kind = unsupported.iter();
        of_kind.filter(move |(_, why)| is_virtual(why) == kind)
    });
    let unsupported = kinds.map(|(name, why)| {
        let reason = if is_virtual(why) {
            Reason::VirtualNode
        } else {
            Reason::NoSyncer
        };
        of(name, Phase::Unsupported, reason, why.to_string())
    });
    let all = lagging.chain(unsupported).take(STATUS_NODES);
    (all.collect(), total)
}

/// Whether the syncers run; `None`: there are none.
pub(super) fn syncers_healthy(snapshot: &Snapshot) -> Option<Statement> {
    let new = |status, reason, message: String| {
        statement(condition::SYNCERS_HEALTHY, status, reason, message)
    };
    let refused = snapshot.refused_syncer();
    if let Some(refused) = refused {
        return Some(new("False", Reason::NotWritten, refused.message.clone()));
    }
    if !snapshot.agents.daemon_set {
        return None;
    }
    let down = snapshot.down_syncers();
    if down.is_empty() {
        let reason = if snapshot.agents.syncers.are_replaced {
            (Reason::RollingOut, "pods are being replaced".to_owned())
        } else {
            (Reason::AllRunning, unsupported(snapshot))
        };
        return Some(new("True", reason.0, reason.1));
    }
    let (missing, stopped): (Vec<_>, Vec<_>) = down
        .into_iter()
        .partition(|(_, cause)| matches!(cause, Cause::NoPod));
    let mut parts = Vec::new();
    if !stopped.is_empty() {
        let names = stopped
            .iter()
            .map(|(name, cause)| format!("{name}: {cause}"));
        parts.push(format!(
            "{} not running: {}",
            counted(
                stopped.len(),
                "syncer on Ready nodes is",
                "syncers on Ready nodes are"
            ),
            first(names, NAMED)
        ));
    }
    if !missing.is_empty() {
        let names: Vec<String> = missing.iter().map(|(name, _)| (*name).to_owned()).collect();
        parts.push(format!(
            "{} no pod: {}; `kubectl -n {NAMESPACE} describe daemonset {SYNCER}` shows the reason",
            counted(missing.len(), "syncer has", "syncers have"),
            list(&names, NAMED)
        ));
    }
    let reason = if stopped.is_empty() {
        Reason::PodsNotCreated
    } else {
        Reason::NotRunning
    };
    Some(new("False", reason, parts.join("; ")))
}

fn counted(number: usize, one: &str, more: &str) -> String {
    let what = if number == 1 { one } else { more };
    format!("{number} {what}")
}

/// The nodes that nothing waits for; empty if there are none.
fn unsupported(snapshot: &Snapshot) -> String {
    let found: Vec<_> = snapshot.unsupported_nodes().collect();
    if found.is_empty() {
        return String::new();
    }
    let named = found.iter().map(|(name, why)| format!("{name}: {why}"));
    format!(
        "{} unsupported: {}",
        counted(found.len(), "node is", "nodes are"),
        first(named, NAMED)
    )
}

#[cfg(test)]
mod tests {
    use globalps_core::rollout::{Goal, Ledger};
    use globalps_core::virtual_nodes::VirtualMark;
    use globalps_planner::content::secret::revision_of_test;
    use globalps_planner::content::source::Source;
    use globalps_planner::nodes::members::{RolloutTarget, members};
    use globalps_planner::nodes::state::node_states;
    use globalps_planner::nodes::syncers::Down;
    use globalps_planner::nodes::testing::snapshot;
    use jiff::SignedDuration;

    use super::*;

    /// Node `v` is virtual; those in `down` have had no pod that runs for 5 minutes.
    fn cluster(nodes: &str, down: &str) -> Snapshot<'static> {
        let mut snapshot = snapshot(Source::Absent, None, nodes);
        snapshot.agents.daemon_set = true;
        for word in down.split_whitespace() {
            let (name, reason) = word.split_once(':').unwrap_or((word, ""));
            let cause = if reason.is_empty() {
                Cause::NoPod
            } else {
                Cause::NotRunning(reason.into())
            };
            let since = snapshot.clock.uptime - SignedDuration::from_mins(5);
            let down = &mut snapshot.agents.syncers.to_mut().down;
            down.insert(name.to_owned(), Down { since, cause });
        }
        if let Some(node) = snapshot.nodes.views.to_mut().get_mut("v") {
            node.virtual_by = Some(VirtualMark::Label("type", "kwok"));
        }
        snapshot
    }

    #[test]
    fn the_condition_names_nodes_and_reasons() {
        let found = |nodes, down| {
            let statement = syncers_healthy(&cluster(nodes, down)).unwrap();
            format!(
                "{} {}: {}",
                statement.status, statement.reason, statement.message
            )
        };
        assert_eq!(found("a=5:Synced b=5:Synced", ""), "True AllRunning: ");
        assert_eq!(
            found("a=5:Synced b=5:Synced v", "b:ErrImagePull v"),
            "False NotRunning: 1 syncer on Ready nodes is not running: b: ErrImagePull"
        );
        assert_eq!(
            found("a=5:Synced b=5:Synced c=5:Synced", "b:CrashLoopBackOff a c"),
            "False NotRunning: 1 syncer on Ready nodes is not running: b: CrashLoopBackOff; 2 syncers have no pod: a, c; \
             `kubectl -n kube-system describe daemonset global-pull-secret-syncer` shows the reason"
        );
        assert_eq!(
            found("a=5:Synced b=5:Synced", "a"),
            "False PodsNotCreated: 1 syncer has no pod: a; `kubectl -n kube-system describe daemonset global-pull-secret-syncer` shows the reason"
        );
        assert_eq!(
            found("a=5:Synced v", ""),
            "True AllRunning: 1 node is unsupported: v: it is virtual, by its label `type=kwok`"
        );
    }

    #[test]
    fn nodes_that_lag_are_listed_first_and_virtual_ones_last() {
        let snapshot = cluster(
            "a=5:Synced b=4:Synced n=0 v -e=0",
            "b:ErrImagePull n:Pending e",
        );
        let goal = Goal::Revision(revision_of_test(5));
        let target = RolloutTarget {
            ledger: Ledger {
                canary_passed: true,
                ..Ledger::new(goal)
            },
            provider_since: 0,
        };
        let members = members(&node_states(&snapshot), target);
        let (found, total) = nodes_without_syncer(&snapshot, &members, goal);
        let found = found.into_iter();
        let found =
            found.map(|it| format!("{} {} {}: {}", it.name, it.phase, it.reason, it.message));
        let expected = [
            "b Unreachable NoSyncer: ErrImagePull",
            "n Unsupported NoSyncer: Pending",
            "v Unsupported VirtualNode: it is virtual, by its label `type=kwok`",
        ];
        assert_eq!(
            (found.collect::<Vec<_>>(), total),
            (expected.map(str::to_owned).into(), 2)
        );
    }
}
