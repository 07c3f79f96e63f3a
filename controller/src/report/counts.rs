//! Counts the nodes by state, and lists those that need attention. Pure.

use globalps_core::api::Counts;
use globalps_core::rollout::{self, Goal, Progress};
use jiff::Timestamp;

use crate::nodes::input::Snapshot;

/// The nodes by state, and the names of those that need attention.
pub(crate) struct NodeCounts {
    /// As the status has them.
    pub(crate) status: Counts,
    pub(crate) failed: Vec<String>,
    /// Number of failed nodes that count towards `maxFailures`.
    pub(super) halting: usize,
    pub(super) unreachable: Vec<String>,
    pub(super) waiting: u32,
}

pub(crate) fn count(nodes: &[rollout::Node], goal: Goal, now: Timestamp) -> NodeCounts {
    let mut counts = NodeCounts {
        status: Counts::default(),
        failed: Vec::new(),
        halting: 0,
        unreachable: Vec::new(),
        waiting: 0,
    };
    // A node that left the selection is being restored, and does not count for the revision.
    for node in nodes.iter().filter(|node| node.goal == goal) {
        counts.status.total += 1;
        if node.has_failed() || node.is_foreign() {
            counts.status.failed += 1;
            counts.halting += usize::from(node.has_failed());
            counts.failed.push(node.name.clone());
        } else if node.is_done() {
            // A restored node is not synced.
            counts.status.synced += u32::from(goal != Goal::Restore);
        } else if node.ready.is_err() || node.is_silent(now) {
            counts.status.unreachable += 1;
            counts.unreachable.push(node.name.clone());
        } else if matches!(
            node.granted,
            Some((_, Progress::InFlight | Progress::Joining))
        ) {
            counts.status.progressing += 1;
        } else {
            counts.waiting += 1;
        }
    }
    counts
}

pub(super) fn rolling_out(revision: i64, counts: &NodeCounts) -> String {
    format!(
        "revision {revision} is in force on {} of {} nodes",
        counts.status.synced, counts.status.total
    )
}

pub(super) fn restoring(counts: &NodeCounts) -> String {
    let left = counts.waiting
        + counts.status.progressing
        + counts.status.unreachable
        + counts.status.failed;
    format!(
        "{left} of {} nodes are still to be restored",
        counts.status.total
    )
}

/// The failed nodes with the message of each.
pub(super) fn failed(snapshot: &Snapshot, counts: &NodeCounts) -> String {
    let say = |name: &String| {
        let status = snapshot
            .node_pull_secrets
            .get(name)
            .and_then(|object| object.status.as_ref());
        status.map_or(name.clone(), |status| {
            format!("{name}: {}: {}", status.phase, status.message)
        })
    };
    let mut text = counts
        .failed
        .iter()
        .take(3)
        .map(say)
        .collect::<Vec<_>>()
        .join("; ");
    if counts.failed.len() > 3 {
        text = format!("{text}; and {} more", counts.failed.len() - 3);
    }
    text
}

/// At most five names.
pub(super) fn list(names: &[String]) -> String {
    let mut text = names
        .iter()
        .take(5)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    if names.len() > 5 {
        text = format!("{text} and {} more", names.len() - 5);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOAL: Goal = Goal::Revision(2);

    fn node(name: &str, ready: bool, granted: Option<(Goal, Progress)>) -> rollout::Node {
        let ready = if ready {
            Ok(())
        } else {
            Err(Timestamp::UNIX_EPOCH)
        };
        rollout::Node {
            name: name.to_owned(),
            goal: GOAL,
            ready,
            granted,
            granted_at: Timestamp::UNIX_EPOCH,
            answers: true,
            retry: false,
        }
    }

    #[test]
    fn every_node_is_counted_once() {
        let goal = GOAL;
        let silent = rollout::Node {
            answers: false,
            ..node("silent", true, None)
        };
        let asked_again = rollout::Node {
            retry: true,
            ..node("asked-again", true, Some((goal, Progress::Failed)))
        };
        let nodes = [
            silent,
            asked_again,
            node("foreign", true, Some((goal, Progress::Foreign))),
            node("joining", true, Some((goal, Progress::Joining))),
            node("synced", true, Some((goal, Progress::Done))),
            node("synced-but-away", false, Some((goal, Progress::Done))),
            node("failed", true, Some((goal, Progress::Failed))),
            node("working", true, Some((goal, Progress::InFlight))),
            node(
                "working-on-the-last",
                true,
                Some((Goal::Revision(1), Progress::InFlight)),
            ),
            node("waiting", true, Some((Goal::Revision(1), Progress::Done))),
            node("new", true, None),
            node("away", false, None),
        ];
        let counts = count(&nodes, goal, Timestamp::UNIX_EPOCH + rollout::SILENT_AFTER);
        assert_eq!(
            counts.status,
            Counts {
                total: 12,
                synced: 2,
                progressing: 3,
                failed: 2,
                unreachable: 2
            }
        );
        assert_eq!(counts.waiting, 3);
        assert_eq!(counts.failed, ["foreign", "failed"]);
        assert_eq!(counts.halting, 1, "a file that is another's stops nobody");
    }
}
