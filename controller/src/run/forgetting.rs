//! Deletes the controller's own copies of content that is to be forgotten.

use std::sync::Arc;

use globalps_core::names::{HISTORY_SLOTS, ROLLED_OUT_SECRET, history_secret};
use globalps_core::rollout::Revision;

use super::Controller;
use crate::content::history::{is_back, slots_up_to};
use crate::nodes::forget::{Forget, Forgotten};
use crate::nodes::plan::Plan;
use crate::objects::agents::{Leftover, Removal};

impl Controller {
    /// Deletes earlier content, if the plan says so: every slot of the history, what is not saved there yet, and the revision for
    /// new nodes. A new leader looks again, so that a Secret from a backup goes as well.
    pub(super) async fn forget_old(&mut self, plan: &Plan) {
        let Some(up_to) = plan.forget.up_to() else {
            if plan.forget == Forget::NotAsked {
                self.forgotten = None;
            }
            return;
        };
        let Some(global) = self.cache.decoded_global() else {
            return;
        };
        let is_known = |known: Forgotten| known.answers(up_to, global.revision);
        if self.forgotten.is_some_and(is_known) {
            return;
        }
        let applier = Arc::clone(&self.applier);
        let read = applier.history(HISTORY_SLOTS);
        let Some(slots) = self
            .refusals
            .one("history to forget".to_owned(), read)
            .await
        else {
            return;
        };
        let rolled_out = self.cache.rolled_out();
        let rolled_out = rolled_out.filter(|it| it.revision.number <= up_to);
        let forgotten = Forgotten {
            up_to,
            revision: global.revision,
            is_back: matches!(plan.forget, Forget::Due(_))
                && is_back(&slots, rolled_out.as_ref(), &global, up_to),
        };
        if forgotten.is_back {
            self.forgotten = Some(forgotten);
            self.wrote = true;
            return;
        }
        if self
            .unsaved
            .0
            .as_ref()
            .is_some_and(|it| it.revision <= up_to)
        {
            self.unsaved.0 = None;
        }
        let is_old = |revision: Revision| revision.number <= up_to;
        if self
            .unsaved
            .1
            .as_ref()
            .is_some_and(|it| is_old(it.revision))
        {
            self.unsaved.1 = None;
        }
        let slots = slots_up_to(&slots, up_to).map(history_secret);
        let second = rolled_out.map(|_| ROLLED_OUT_SECRET.to_owned());
        let objects = slots.chain(second).map(Leftover::Secret);
        if self.remove(objects).await != Removal::Gone {
            return;
        }
        tracing::info!(
            up_to,
            "deleted the Secrets with content that is to be forgotten"
        );
        self.forgotten = Some(forgotten);
        self.wrote = true;
    }
}
