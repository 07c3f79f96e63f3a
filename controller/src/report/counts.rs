//! How many nodes are at what, which ones somebody has to look at, and that in words. Pure.

use globalps_core::api::Counts;
use globalps_core::rollout::{self, Goal, Progress};
use jiff::Timestamp;

use crate::nodes::plan::Observed;

/// The nodes as counted, and by name where somebody has to look.
pub(crate) struct Tally {
    pub(crate) counts: Counts,
    pub(crate) failed: Vec<String>,
    /// Those of the failed ones that count towards `maxFailures`.
    pub(super) halting: usize,
    pub(super) unreachable: Vec<String>,
    pub(super) waiting: u32,
}

pub(crate) fn tally(nodes: &[rollout::Node], goal: Goal, now: Timestamp) -> Tally {
    let mut tally = Tally {
        counts: Counts::default(),
        failed: Vec::new(),
        halting: 0,
        unreachable: Vec::new(),
        waiting: 0,
    };
    // One that left the selection is put back meanwhile, and is none of those that are to have the revision.
    for node in nodes.iter().filter(|node| node.goal == goal) {
        tally.counts.total += 1;
        if node.has_failed() || node.is_foreign() {
            tally.counts.failed += 1;
            tally.halting += usize::from(node.has_failed());
            tally.failed.push(node.name.clone());
        } else if node.is_done() {
            // Restored nodes are not synced any more; they only leave the others.
            tally.counts.synced += u32::from(goal != Goal::Restore);
        } else if node.ready.is_err() || node.is_silent(now) {
            tally.counts.unreachable += 1;
            tally.unreachable.push(node.name.clone());
        } else if matches!(
            node.granted,
            Some((_, Progress::InFlight | Progress::Joining))
        ) {
            tally.counts.progressing += 1;
        } else {
            tally.waiting += 1;
        }
    }
    tally
}

pub(super) fn rolling_out(revision: i64, tally: &Tally) -> String {
    format!(
        "revision {revision} is in force on {} of {} nodes",
        tally.counts.synced, tally.counts.total
    )
}

pub(super) fn restoring(tally: &Tally) -> String {
    let left =
        tally.waiting + tally.counts.progressing + tally.counts.unreachable + tally.counts.failed;
    format!(
        "{left} of {} nodes are still to be restored",
        tally.counts.total
    )
}

/// The failed nodes with what each of them says.
pub(super) fn failed(observed: &Observed, tally: &Tally) -> String {
    let say = |name: &String| {
        let status = observed
            .node_pull_secrets
            .get(name)
            .and_then(|object| object.status.as_ref());
        status.map_or(name.clone(), |status| {
            format!("{name}: {}: {}", status.phase, status.message)
        })
    };
    let mut text = tally
        .failed
        .iter()
        .take(3)
        .map(say)
        .collect::<Vec<_>>()
        .join("; ");
    if tally.failed.len() > 3 {
        text = format!("{text}; and {} more", tally.failed.len() - 3);
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
