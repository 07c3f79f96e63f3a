//! Finds the unit that runs the kubelet.

use super::Agent;
use crate::node::kubelet::Restartable;
use crate::node::state::{JournalState, NodeError};

impl Agent {
    /// Finds the unit to restart, once a change is assigned or in progress. A found unit is kept until a restart is due.
    pub(super) async fn find_unit(&mut self, is_asked: bool) -> Result<(), NodeError> {
        let is_begun = self
            .node
            .state
            .as_ref()
            .is_some_and(|state| state.change.is_some());
        if self.kubelet.unit.is_found || !self.options.restart || !(is_asked || is_begun) {
            return Ok(());
        }
        let (restarted, is_owed) = restarted(self.node.state.as_ref());
        let found = self.kubelet.unit.restartable(restarted, is_owed).await;
        self.take_unit(found.map_err(NodeError::from)?);
        Ok(())
    }

    /// Before a restart: whether the kubelet runs in another unit by now, or its unit may no longer be restarted. Then the change
    /// is decided again.
    pub(super) async fn has_moved(&mut self) -> Result<bool, NodeError> {
        if !self.kubelet.unit.is_found || self.kubelet.no_restart.is_some() {
            return Ok(false);
        }
        let known = self.kubelet.unit.systemd.unit().to_owned();
        let (restarted, is_owed) = restarted(self.node.state.as_ref());
        let moved = self.kubelet.unit.moved(restarted, is_owed).await;
        let Some(found) = moved.map_err(NodeError::from)? else {
            return Ok(false);
        };
        self.take_unit(found);
        Ok(self.kubelet.no_restart.is_some() || known != self.kubelet.unit.systemd.unit())
    }

    fn take_unit(&mut self, found: Restartable) {
        self.kubelet.unit.is_found = matches!(found, Restartable::Yes | Restartable::Never(_));
        self.kubelet.no_restart = match found {
            Restartable::Yes => None,
            Restartable::No(reason) => Some(reason),
            Restartable::Elsewhere(reason) => {
                // The same rule as for a change that begins now.
                if self
                    .node
                    .state
                    .as_ref()
                    .is_some_and(JournalState::awaits_restart)
                {
                    self.waive_restart();
                }
                Some(reason)
            }
            Restartable::Never(reason) => {
                self.kubelet.is_server = true;
                self.waive_restart();
                Some(reason)
            }
        };
    }
}

/// The unit whose restart was last requested, and whether it may be down because of that.
fn restarted(state: Option<&JournalState>) -> (Option<&str>, bool) {
    let unit = state.and_then(|state| state.unit.as_deref());
    (unit, state.is_some_and(JournalState::owes_start))
}
