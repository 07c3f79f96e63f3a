//! The facts on which the agent's decision is based.

use globalps_core::api::NodePullSecret;
use globalps_provider::Content;

use crate::delivery::credential_provider::ProviderFacts;
use crate::node::file::FileSnapshot;
use crate::node::replace::FileId;
use crate::node::state::{JournalState, Task};

/// What decides whether the credentials file may be replaced on a node that a daemon updates in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileGuard<'a> {
    /// Which file it is.
    pub(crate) found: &'a FileId,
    /// The file of another program that the controller has confirmed to be no part of an update; empty: none.
    pub(crate) confirmed: &'a str,
}

/// Whether a daemon may update the node in place. Before the assignment is known, what the last one said counts.
pub(super) fn in_place(object: Option<&NodePullSecret>, state: Option<&JournalState>) -> bool {
    match object {
        Some(object) => object.spec.updated_in_place,
        None => state.is_some_and(|state| state.in_place),
    }
}

impl NodeFacts<'_> {
    /// The last file that globalps wrote.
    pub(super) fn written(&self) -> FileId {
        let state = self.state.map(|state| &state.written);
        state.cloned().unwrap_or_default()
    }

    /// globalps wrote the file, or the controller has confirmed it.
    pub(super) fn may_replace(&self) -> bool {
        self.guard.is_none_or(|guard| {
            let written = self.written();
            *guard.found == written || guard.found.token(&written) == guard.confirmed
        })
    }
}

/// The input of the decision.
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts do not depend on each other"
)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeFacts<'a> {
    /// The object's assignment; `None`: there is none, or it is unknown.
    pub(crate) task: Option<&'a Task>,
    /// Another program is known to manage the file, so globalps does not change it.
    pub(crate) is_foreign: bool,
    /// Another program is about to change the file and must find nothing of globalps in it afterwards.
    pub(crate) is_updating: bool,
    /// A daemon may update the node in place. `None`: no.
    pub(crate) guard: Option<FileGuard<'a>>,
    /// The state in the journal; `None`: globalps has not changed this node.
    pub(crate) state: Option<&'a JournalState>,
    pub(crate) file: &'a FileSnapshot,
    /// Content of the assigned revision; `None`: not fetched, or superseded.
    pub(crate) desired: Option<&'a Content>,
    /// The cluster no longer has the content of the assigned revision.
    pub(crate) superseded: bool,
    /// Whether the kubelet may ever be restarted.
    pub(crate) restart: bool,
    /// Whether the kubelet may be restarted now.
    pub(crate) is_cooled_down: bool,
    /// The file was correct when its watch began, so every later change was noticed.
    pub(crate) is_watched: bool,
    /// Another process changed managed entries too often, so they are no longer restored.
    pub(crate) is_conflict_limit_reached: bool,
    /// The node is not selected: this agent restores it and can't read any content.
    pub(crate) restores_only: bool,
    /// The credential provider; `None`: neither requested nor on the node.
    pub(crate) provider: Option<&'a ProviderFacts>,
}

#[cfg(test)]
mod tests {
    use globalps_core::api::NodePullSecretSpec;

    use super::*;

    #[test]
    fn a_syncer_that_starts_knows_that_a_daemon_may_update_its_node() {
        let object = |updated_in_place| {
            let spec = NodePullSecretSpec {
                updated_in_place,
                ..NodePullSecretSpec::default()
            };
            NodePullSecret::new("n", spec)
        };
        let state = |in_place| {
            let mut state = JournalState::new(FileSnapshot::Absent, 0);
            state.in_place = in_place;
            state
        };
        for (assigned, journal, expected) in [
            (None, None, false),
            (None, Some(true), true),
            (None, Some(false), false),
            (Some(true), Some(false), true),
            (Some(false), Some(true), false),
        ] {
            let (object, state) = (assigned.map(object), journal.map(state));
            let found = in_place(object.as_ref(), state.as_ref());
            assert_eq!(found, expected, "{assigned:?} {journal:?}");
        }
    }
}
