//! Nodes whose syncer doesn't run, or is about to be replaced. A wait concerns only those that must wait. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::SignedDuration;

use super::clock::Uptime;

/// Maximum time for a syncer's pod to start.
pub const START: SignedDuration = SignedDuration::from_mins(1);
/// A Ready node on which no syncer has run for this long, and none before, is unsupported until one does.
pub const UNSUPPORTED_AFTER: SignedDuration = SignedDuration::from_mins(5);

/// The pods of the syncers and restorers, reduced to what deviates. Empty if nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Syncers {
    /// Ready nodes whose pod doesn't run.
    pub down: BTreeMap<String, Down>,
    /// Ready nodes whose pod runs with an earlier template.
    pub outdated: BTreeSet<String>,
    /// Such pods are being replaced, and the last replacement was not long ago.
    pub are_replaced: bool,
}

/// A pod that doesn't run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Down {
    /// Since when the leader has seen that, with whatever cause.
    pub since: Uptime,
    /// As the pod says, or the events of the `DaemonSet`.
    pub cause: Cause,
}

/// Why a node has no pod that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It wasn't created.
    NoPod,
    /// No kubelet has begun to run it, and why.
    NotTaken(Box<str>),
    /// A kubelet has, and why it doesn't run.
    NotRunning(Box<str>),
    /// It runs, and isn't ready: it may have started just now.
    NotReady,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPod => f.write_str("it has no pod"),
            Self::NotReady => f.write_str("its pod is not ready"),
            Self::NotTaken(reason) | Self::NotRunning(reason) => f.write_str(reason),
        }
    }
}

impl Syncers {
    /// How long the leader has seen that no syncer runs there; `None`: one does, or that isn't known.
    pub fn down_for(&self, node: &str, now: Uptime) -> Option<SignedDuration> {
        let down = self.down.get(node)?;
        let down_for = now - down.since;
        // The kubelet asks a new pod every 10 seconds, and again after its own restart. What the pod can do, its report says.
        let may_be_starting = down.cause == Cause::NotReady && down_for < START;
        (!may_be_starting).then_some(down_for)
    }

    /// The node's syncer is about to be replaced. What it begins now, the next one would have to finish.
    pub(super) fn is_replaced(&self, node: &str) -> bool {
        self.are_replaced && self.outdated.contains(node)
    }
}
