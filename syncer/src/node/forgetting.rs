//! The earlier content that is dropped from the journal.

use super::state::JournalState;

impl JournalState {
    /// The state without earlier content, if the cluster requests to forget it up to this revision. `None` if this is
    /// done already, or not possible now: the content is in force, the change that replaces it can still be rolled
    /// back, or some of it counts as the node's own.
    pub(crate) fn without_old(&self, up_to: i64) -> Option<Self> {
        let is_due = self.forgotten < up_to
            && self.revision.number > up_to
            && self.change.is_none()
            && self.doubtful.is_empty();
        is_due.then(|| {
            let mut next = self.clone();
            next.managed.forget_others();
            next.forgotten = up_to;
            next
        })
    }

    /// Another node wrote the journal: this machine is a clone, or got its disk. What was there before globalps is still known, but
    /// this cluster may have given the revision's number to other content.
    pub(super) fn forget_revisions(&mut self) {
        self.revision = self.revision.unidentified();
        self.forgotten = 0;
        if let Some(change) = &mut self.change {
            change.task.revision = change.task.revision.unidentified();
            change.before_revision = change.before_revision.unidentified();
        }
    }
}
