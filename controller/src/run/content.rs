//! Writes the Secrets with content, and deletes the controller's own copies of what is to be forgotten.

use std::sync::Arc;

use globalps_core::names::{HISTORY_SLOTS, ROLLED_OUT_SECRET, history_secret};
use globalps_planner::content::history::{self, is_back, slots_up_to};
use globalps_planner::nodes::forget::{Forget, Forgotten};
use globalps_planner::nodes::plan::{Aim, Plan};
use globalps_planner::refused::title;

use super::Controller;
use super::reconcile::Decisions;
use crate::objects::agents::{Leftover, Removal};

impl Controller {
    /// Writes the Secrets. Data that `global-pull-secret` will no longer have is saved elsewhere first; if that fails, the rotation
    /// goes first, and this leader saves it later.
    pub(super) async fn write_content(&mut self, plan: &Plan, decisions: &Decisions) {
        let applier = Arc::clone(&self.applier);
        let is_kept = plan.keeps_content();
        if !is_kept {
            self.earlier.rolled_out = None;
        }
        if matches!(plan.aim, Aim::Nothing | Aim::CleanUp) {
            self.earlier.history = None;
        }
        if plan.history.is_some() {
            self.earlier.history.clone_from(&plan.history);
        }
        if plan.rolled_out.is_some() {
            self.earlier.rolled_out.clone_from(&plan.rolled_out);
        } else if self.earlier.rolled_out.is_none() && is_kept {
            let rolled_out = self.cache.rolled_out();
            self.earlier.rolled_out = rolled_out.filter(|_| self.cache.is_rolled_out_lost());
        }
        if let Some(write) = &self.earlier.history {
            let keep = async {
                let slots = applier.history(decisions.spec.history_limit).await?;
                applier.keep(history::slot_for(write, &slots), write).await
            };
            let kept = self.refusals.one("history".to_owned(), keep).await;
            if kept.is_some() {
                self.earlier.history = None;
            }
        }
        if decisions.forgets_rolled_out {
            let object = Leftover::Secret(ROLLED_OUT_SECRET.to_owned());
            self.remove([object]).await;
        } else if let Some(write) = &self.earlier.rolled_out {
            let object = title("Secret", ROLLED_OUT_SECRET);
            let call = applier.rolled_out_secret(write);
            if let Some(secret) = self.refusals.one(object, call).await {
                self.cache.put_rolled_out(secret);
                self.earlier.rolled_out = None;
            }
        }
        if let Some(write) = &plan.global {
            let name = self.cache.delivery().record_secret();
            let object = title("Secret", name);
            let call = async {
                let revision = write.global.revision.number;
                tracing::info!(revision, "writing {name}");
                applier.global_secret(name, write).await
            };
            if let Some(secret) = self.refusals.one(object, call).await {
                self.cache.put_global(secret);
                self.wrote = true;
            }
        }
        self.forget_old(plan).await;
    }

    /// Deletes earlier content, if the plan says so: every slot of the history, what is not saved there yet, and the revision for
    /// new nodes. A new leader looks again, so that a Secret from a backup goes as well.
    async fn forget_old(&mut self, plan: &Plan) {
        let Some(up_to) = plan.forget.up_to() else {
            if plan.forget == Forget::NotAsked {
                self.earlier.forgotten = None;
            }
            return;
        };
        let Some(global) = self.cache.decoded_global() else {
            return;
        };
        let is_known = |known: Forgotten| known.answers(up_to, global.revision);
        if self.earlier.forgotten.is_some_and(is_known) {
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
            self.earlier.forgotten = Some(forgotten);
            self.wrote = true;
            return;
        }
        let earlier = &mut self.earlier;
        earlier.history.take_if(|it| it.revision <= up_to);
        earlier.rolled_out.take_if(|it| it.revision.number <= up_to);
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
        self.earlier.forgotten = Some(forgotten);
        self.wrote = true;
    }
}
