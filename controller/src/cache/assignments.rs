//! The `NodePullSecret`s: the controller writes their spec, the syncers their status.

use globalps_core::api::{NodePullSecret, NodePullSecretSpec};
use kube::runtime::watcher::Event;

use super::Cache;
use super::list_watch::Update;
use super::out_of_band::out_of_band_changes;
use super::versioned::Versioned as _;
use super::watches::stripped;

impl Cache {
    /// Whether the event may change the plan.
    pub(super) fn handle_assignment(&mut self, mut event: Update<Box<NodePullSecret>>) -> bool {
        #[allow(clippy::borrowed_box)] // As the store keeps them.
        let is_spec = |known: &Box<NodePullSecret>, new: &Box<NodePullSecret>| {
            known.metadata.generation != new.metadata.generation
        };
        let changes =
            out_of_band_changes("NodePullSecret", &self.node_pull_secrets, &event, is_spec);
        for change in changes {
            // The garbage collector deletes the object of a deleted Node.
            if self.nodes.get(&change.name).is_none() {
                continue;
            }
            if change.is_deleted {
                self.deleted_out_of_band.insert(change.name.clone());
            }
            self.out_of_band_changes.push(change);
        }
        let mut applied = None;
        match &mut event {
            Update::Event(Event::Apply(object)) => {
                self.keep_assignment(object);
                applied = Some(object.key());
            }
            Update::Event(Event::InitApply(object)) => self.keep_assignment(object),
            Update::Event(Event::Delete(object)) => {
                let name = object.key();
                self.changed_out_of_band.remove(&name);
                self.unanswered.remove(&name);
            }
            _ => {}
        }
        let is_changed = self.node_pull_secrets.handle(event);
        if let Some(name) = applied {
            self.observe_object(&name);
        }
        is_changed
    }

    /// An assignment that another client wrote is reverted, and nothing is planned from it.
    fn keep_assignment(&mut self, object: &mut NodePullSecret) {
        let name = object.key();
        let known = self.node_pull_secrets.get(&name).filter(|known| {
            let is_newer = known.version() < object.version();
            is_newer
                && known.metadata.uid == object.metadata.uid
                && known.metadata.generation != object.metadata.generation
        });
        let Some(known) = known else { return };
        let unanswered = self.unanswered.get(&name);
        if unanswered.is_some_and(|written| assigns_the_same(written, &object.spec)) {
            self.unanswered.remove(&name);
            self.changed_out_of_band.remove(&name);
        } else if known.spec == object.spec {
            self.changed_out_of_band.remove(&name);
        } else {
            object.spec = known.spec.clone();
            self.changed_out_of_band.insert(name);
        }
    }

    /// The write may have taken effect all the same.
    pub(crate) fn wrote_without_response(&mut self, node: &str, spec: NodePullSecretSpec) {
        self.unanswered.insert(node.to_owned(), spec);
    }

    pub(crate) fn put_node_pull_secret(&mut self, object: NodePullSecret) {
        let object = stripped(object);
        let name = object.key();
        self.deleted_out_of_band.remove(&name);
        self.changed_out_of_band.remove(&name);
        self.unanswered.remove(&name);
        self.node_pull_secrets.put(object);
        self.observe_object(&name);
    }
}

/// The API server stores times in whole seconds.
fn assigns_the_same(written: &NodePullSecretSpec, found: &NodePullSecretSpec) -> bool {
    let written = NodePullSecretSpec {
        assigned_at: found.assigned_at.clone(),
        ..written.clone()
    };
    written == *found
}
