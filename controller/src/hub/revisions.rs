//! The revisions of one scope. Only the hub writes them: what other clients do to their annotations is undone, and nothing is planned
//! from it.

use std::collections::{BTreeMap, BTreeSet};

use globalps_planner::clusters::revision::FleetRevision;
use globalps_runtime::list_events::Event;
use globalps_runtime::list_watch::Update;

use super::views::RevisionSecret;
use crate::cache::kept::Kept;
use crate::cache::versioned::Versioned as _;

#[derive(Default)]
pub(super) struct Revisions {
    pub(super) store: Kept<RevisionSecret>,
    /// Keys of those that another client changed, until the hub writes them again.
    changed: BTreeSet<String>,
    /// Revisions that the hub is about to write, or has written without a response.
    expected: BTreeMap<String, FleetRevision>,
}

impl Revisions {
    /// Whether the update changes anything. `plans`: this process writes the revisions. What it finds at its start, it can't tell from
    /// what an earlier hub wrote.
    pub(super) fn handle(&mut self, mut update: Update<RevisionSecret>, plans: bool) -> bool {
        match &mut update {
            Update::Event(Event::Apply(found) | Event::InitApply(found)) if plans => {
                self.keep(found);
            }
            Update::Event(Event::Delete(found)) => self.forget(&found.key()),
            _ => {}
        }
        self.store.handle(update)
    }

    fn keep(&mut self, found: &mut RevisionSecret) {
        let key = found.key();
        let known = self
            .store
            .get(&key)
            .filter(|known| known.id.uid == found.id.uid && known.version() <= found.version())
            // Nothing about it is known.
            .filter(|known| !known.is_left_out);
        let Some(known) = known else { return };
        if self.expected.get(&key) == Some(&found.revision) {
            self.forget(&key);
        } else if known.revision == found.revision {
            self.changed.remove(&key);
        } else {
            found.revision.clone_from(&known.revision);
            self.changed.insert(key);
        }
    }

    /// The hub writes this now.
    pub(super) fn expect(&mut self, key: String, revision: FleetRevision) {
        self.expected.insert(key, revision);
    }

    /// Stores the response to a write, which may arrive before the watch event.
    pub(super) fn put_written(&mut self, written: RevisionSecret) {
        self.forget(&written.key());
        self.store.put(written);
    }

    fn forget(&mut self, key: &str) {
        self.changed.remove(key);
        self.expected.remove(key);
    }

    /// The namespace was deleted.
    pub(super) fn empty(&mut self) {
        self.changed.clear();
        self.expected.clear();
        self.store.empty();
    }

    pub(super) fn is_changed(&self, revision: &RevisionSecret) -> bool {
        !revision.is_left_out && self.changed.contains(&revision.key())
    }

    /// Forgets the content of those that are of no fleet: each client that may write Secrets can set their label.
    pub(super) fn keep_content(&mut self, is_of_a_fleet: impl Fn(&RevisionSecret) -> bool) {
        for revisions in self.store.lists_mut() {
            let foreign = revisions.values_mut();
            let foreign = foreign.filter(|it| it.has_content() && !is_of_a_fleet(it));
            foreign.for_each(RevisionSecret::forget_content);
        }
    }
}
