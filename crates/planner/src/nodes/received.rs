//! A node's report, as the leader received it.

use jiff::SignedDuration;

/// The newest heartbeat of a node's kubelet that the leader saw arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Heard {
    Nothing,
    SinceAssignment,
    SinceReport,
}

/// The report for the current assignment, as the leader received it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Received {
    /// How long ago.
    pub(super) ago: SignedDuration,
    /// How long ago the first report arrived that the assignment is done.
    pub(super) done_ago: SignedDuration,
    /// The leader saw the report arrive.
    pub(super) saw_report: bool,
    /// It saw the assignment, so it knows whether the kubelet was restarted since; `None`: it does not know.
    pub(super) has_restarted: Option<bool>,
    pub(super) heard: Heard,
    /// How long the node has been ready, or not.
    pub(super) unchanged_for: SignedDuration,
    /// The longest time that it stayed ready since this report or an earlier one that the assignment is done, also if it was lost
    /// afterwards.
    pub(super) longest_ready: SignedDuration,
    /// The node became `NotReady` this long after the report, negative: before it, but after the assignment. `None`: the leader
    /// did not see both, or the node is ready.
    pub(super) lost_after: Option<SignedDuration>,
    /// It has been `NotReady` since before the assignment.
    pub(super) was_not_ready: bool,
}

impl Default for Received {
    /// Nothing was observed.
    fn default() -> Self {
        Self {
            ago: SignedDuration::ZERO,
            done_ago: SignedDuration::ZERO,
            saw_report: false,
            has_restarted: None,
            heard: Heard::Nothing,
            unchanged_for: SignedDuration::ZERO,
            longest_ready: SignedDuration::ZERO,
            lost_after: None,
            was_not_ready: false,
        }
    }
}
