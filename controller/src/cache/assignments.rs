//! The `NodePullSecret`s: the controller writes their spec, the syncers their status.

use globalps_core::api::{NodePullSecret, NodePullSecretSpec};
use globalps_runtime::list_events::Event;
use globalps_runtime::list_watch::Update;

use super::Cache;
use super::out_of_band::out_of_band_changes;
use super::versioned::Versioned as _;
use super::watches::stripped;

impl Cache {
    /// Whether the event may change the plan.
    pub(super) fn handle_assignment(&mut self, mut event: Update<Box<NodePullSecret>>) -> bool {
        #[expect(clippy::borrowed_box, reason = "as the store keeps them")]
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
        self.own_specs.keep(&self.node_pull_secrets, &mut event);
        let applied = match &event {
            Update::Event(Event::Apply(object)) => Some(object.key()),
            _ => None,
        };
        let is_changed = self.node_pull_secrets.handle_held(event);
        if let Some(name) = applied {
            self.observe_object(&name);
        }
        is_changed
    }

    /// The write may have taken effect all the same.
    pub(crate) fn wrote_without_response(&mut self, node: &str, spec: NodePullSecretSpec) {
        self.own_specs.wrote_without_response(node, spec);
    }

    pub(crate) fn put_node_pull_secret(&mut self, object: NodePullSecret) {
        let object = stripped(object);
        let name = object.key();
        self.deleted_out_of_band.remove(&name);
        self.own_specs.forget(&name);
        self.node_pull_secrets.put(object);
        self.observe_object(&name);
    }
}
