//! The plan's output: what the controller writes next.

use std::collections::BTreeSet;

use globalps_core::api::NodePullSecretSpec;
use globalps_core::rollout::{Goal, Member};

use super::forget::Forget;
use crate::content::history::HistoryWrite;
use crate::content::resolve::Resolved;
use crate::content::secret::{GlobalWrite, RolledOutWrite};

/// Why nothing changes although content is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// The `GlobalPullSecret` was deleted. The defaults may have other limits than the user's.
    ConfigMissing,
    /// The configuration names no source any more, but the Secrets of those in force exist.
    SourcesRemoved,
    /// `spec.nodeSelector` matches no node, but nodes have content.
    NoNodeSelected,
    /// The newest `GlobalPullSecret` can't be decoded: its limits are unknown.
    ConfigUnreadable,
    /// The API server doesn't serve `NodePullSecret`s: what nodes have is not known, and nothing can be assigned.
    NodesNotServed,
    /// There is a Secret, but no valid content. Only absence restores.
    NoValidContent,
}

/// The desired state of the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// No additional Secret, no source, and nothing to clean up.
    Nothing,
    /// Every node keeps its content.
    Hold(Hold),
    Reach(Goal),
    /// Every node is restored: the controller deletes the objects that it created.
    CleanUp,
}

#[expect(
    clippy::struct_excessive_bools,
    reason = "facts do not depend on each other"
)]
#[derive(Clone, Debug)]
pub struct Plan {
    pub resolved: Resolved,
    pub aim: Aim,
    /// The syncers stay on the nodes that were selected before.
    pub keeps_selector: bool,
    /// The nodes with their goals, for the plan and the report; empty for [`Aim::Nothing`].
    pub members: Vec<Member>,
    /// Enough canaries have had the revision.
    pub canary_passed: bool,
    /// A rollback is due, which needs the history: see [`roll_back`].
    pub needs_history: bool,
    /// Written before `global`, which no longer has this content.
    pub history: Option<HistoryWrite>,
    /// Written before `global`, which no longer has this revision.
    pub rolled_out: Option<RolledOutWrite>,
    pub global: Option<GlobalWrite>,
    /// Nodes no longer get anything, and all of them are restored: remove the syncers and their objects, or what is left of them.
    pub removes_agents: bool,
    /// `NodePullSecret`s to write: node and spec, in this order.
    pub assignments: Vec<(String, NodePullSecretSpec)>,
    /// Nodes with the permission of a cleanup that is over: their next write ends it.
    pub no_longer_abandoned: BTreeSet<String>,
    /// Whether earlier content may be forgotten.
    pub forget: Forget,
}

impl Plan {
    /// A plan without writes.
    pub(super) fn new(resolved: Resolved, aim: Aim) -> Self {
        Self {
            resolved,
            aim,
            keeps_selector: false,
            members: Vec::new(),
            canary_passed: false,
            needs_history: false,
            history: None,
            rolled_out: None,
            global: None,
            removes_agents: false,
            assignments: Vec::new(),
            no_longer_abandoned: BTreeSet::new(),
            forget: Forget::NotAsked,
        }
    }

    /// Nodes keep or get content.
    pub fn keeps_content(&self) -> bool {
        matches!(self.aim, Aim::Reach(Goal::Revision(_)) | Aim::Hold(_))
    }
}
