//! One reconcile: plan, write, report. Its parts do not depend on each other's success, except where safety needs the order.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use globalps_core::api::Verify;
use globalps_core::names::{GLOBAL_SECRET, ROLLED_OUT_SECRET};
use globalps_core::rollout::{Goal, RevisionId};
use globalps_runtime::backoff::random_bits;
use jiff::Timestamp;
use tokio::time::Instant;

use super::status::until_next_expiry;
use super::{Controller, RESYNC};
use crate::cache::uptime;
use crate::content::history;
use crate::content::source::Source;
use crate::nodes::forget::Forgotten;
use crate::nodes::plan::{Aim, Hold, Plan, plan};
use crate::objects::agents::Leftover;
use crate::objects::apply::Applier;
use crate::refused::title;

/// Interval for rechecking nodes in flight, because some of their conditions depend on time.
const IN_FLIGHT: Duration = Duration::from_secs(2);
/// Interval for rechecking nodes that are `NotReady` or blocked.
const UNSETTLED: Duration = Duration::from_secs(15);

impl Controller {
    /// Returns the time until the next reconcile without an event.
    pub(super) async fn reconcile(&mut self) -> Duration {
        self.refusals.begin();
        self.wrote = false;
        self.cache.observe_clock(uptime());
        if let Some(delay) = self.create_missing_config().await {
            return delay;
        }
        if !self.watch_all().await {
            return RESYNC;
        }
        let now = Timestamp::now();
        let begun = Instant::now();
        let mut snapshot = self.cache.snapshot(uptime(), now);
        snapshot.new_id = RevisionId::from_random(random_bits());
        snapshot.refused = Cow::Borrowed(&self.refusals.failures);
        snapshot.cleans_up = self.cleans_up;
        Forgotten::add(self.forgotten, &mut snapshot);
        let mut plan = plan(&snapshot);
        if plan.needs_history {
            let limit = snapshot.spec.history_limit;
            let revision = snapshot.rolled_out_revision.map(|it| it.number);
            if let Some(found) = last_rolled_out(&self.applier, limit, revision).await {
                snapshot.last_rolled_out = Some(found);
                plan = crate::nodes::plan::plan(&snapshot);
            }
        }
        // Frees the thousands of members before the report creates its own.
        let members = std::mem::take(&mut plan.members);
        let is_unsettled = members
            .iter()
            .any(|member| !member.is_done() || member.not_ready.is_some());
        // Their failures stay known while they back off.
        let open: BTreeSet<String> = members
            .iter()
            .filter(|member| !member.is_done() && member.refused.is_some())
            .map(|member| title("NodePullSecret", &member.name))
            .collect();
        let is_changing = members
            .iter()
            .any(|member| member.is_in_flight() && member.agent_down.is_none());
        drop(members);
        let mut spec = snapshot.spec.clone();
        if let Some(path) = snapshot.other_config_file() {
            path.clone_into(&mut spec.kubelet.config_file);
        }
        let last = self.cache.state().configuration.as_ref();
        if let Some(last) = last.filter(|_| plan.keeps_selector) {
            spec.node_selector.clone_from(&last.spec.node_selector);
        }
        let forgets_rolled_out =
            plan.aim == Aim::Reach(Goal::Restore) && snapshot.rolled_out_revision.is_some();
        // Without anything in force, a hold only remembers what is left in namespaces.
        let is_left = matches!(plan.aim, Aim::Hold(_)) && !snapshot.is_in_force();
        let manages = !snapshot.is_without_nodes() && snapshot.is_configuration_known() && !is_left;
        let interval = snapshot.spec.verify.as_ref().map(Verify::interval);
        self.verification.set(interval, snapshot.global.as_ref());
        // A cleanup that finalizers prolong has deleted what it had remembered.
        let is_forgotten = plan.aim == Aim::CleanUp && self.cache.state().is_empty();
        let is_needed = !is_forgotten && (snapshot.needs_configuration() || plan.global.is_some());
        self.planning += begun.elapsed();
        self.remember_configuration(&plan, is_needed).await;
        let is_missing = plan.aim == Aim::Hold(Hold::ConfigMissing);
        let missing = is_missing.then(|| self.cache.is_config_served());
        if let Some(is_served) = missing.filter(|_| missing != self.config_missing) {
            let is_remembered = self.cache.state().configuration.is_some();
            self.recorder
                .record_config_missing(is_served, is_remembered);
        }
        self.config_missing = missing;
        if plan.aim == Aim::Nothing
            && self.cache.config().is_none()
            && self.cache.additional().is_none()
        {
            return RESYNC;
        }
        self.write_content(&plan, spec.history_limit, forgets_rolled_out)
            .await;
        let is_all_assigned = self.assign(&plan).await;
        let retry_delay = self.deliver_to_namespaces(&plan).await;
        let operators_delay = self.deliver_to_operators().await;
        let revert_delay = self.manage(&plan, &spec, manages, is_changing).await;
        self.record_reverted(&plan);
        let report_delay = self.report(now, &plan).await;
        if !is_all_assigned {
            // The next reconcile has enough to do without more events.
            self.planning = Duration::ZERO;
        }
        let refused_delay = self.refusals.end(|object| open.contains(object));
        // The watch events of these writes are no changes any more, but the next plan may depend on them, and so may the status
        // after everything has been removed.
        let has_cleaned_up = plan.aim == Aim::CleanUp && self.cache.global_version().is_none();
        let pause = if self.wrote || has_cleaned_up {
            Duration::ZERO
        } else {
            self.pause(&plan, is_unsettled)
        };
        let delays = [
            report_delay,
            revert_delay,
            retry_delay,
            operators_delay,
            refused_delay,
            until_next_expiry(&self.expiries.1, now),
        ];
        let sooner = delays.into_iter().flatten().min();
        sooner.map_or(pause, |sooner| pause.min(sooner))
    }

    /// Watches what the configuration names. Returns whether all of it is known.
    async fn watch_all(&mut self) -> bool {
        self.watch_sources();
        self.look_up_policy().await;
        self.watch_pull_secrets();
        self.watch_operators();
        self.watch_namespaces();
        self.watch_original().await
    }

    /// Time until the next reconcile after one that wrote nothing.
    fn pause(&self, plan: &Plan, is_unsettled: bool) -> Duration {
        let pause = if matches!(plan.aim, Aim::Reach(_)) && !self.at_rest() {
            IN_FLIGHT
        } else if self.cache.waits_for_syncers(uptime()) || is_unsettled {
            UNSETTLED
        } else {
            RESYNC
        };
        pause.min(self.openshift_retry())
    }

    /// Creates the configuration if there is none and nothing is in force. Returns when to try again, if that failed.
    async fn create_missing_config(&mut self) -> Option<Duration> {
        let has_no_config =
            self.cache.config().is_none() && self.cache.config_unreadable().is_none();
        let is_missing = has_no_config && self.cache.additional().is_some();
        if !is_missing
            || self
                .cache
                .snapshot(uptime(), Timestamp::now())
                .needs_configuration()
        {
            return None;
        }
        // First, since the response also has a user's configuration that the watch has not reported yet. The plan is made from
        // it, so a change needs no further reconcile.
        let _ = self.create_config().await;
        if self.cache.config().is_some() {
            return None;
        }
        let delay = self.refusals.end(|_| false);
        let errors = self.refusals.failures.messages(|_| true);
        if !errors.is_empty() && !std::mem::replace(&mut self.config_refused, true) {
            self.recorder.record_config_refused(&errors);
        }
        Some(delay.unwrap_or(RESYNC))
    }

    /// Writes the Secrets. Data that `global-pull-secret` will no longer have is saved elsewhere first; if that fails, the rotation
    /// goes first, and this leader saves it later.
    async fn write_content(&mut self, plan: &Plan, history_limit: u32, forgets_rolled_out: bool) {
        let applier = Arc::clone(&self.applier);
        let is_kept = plan.keeps_content();
        if !is_kept {
            self.unsaved.1 = None;
        }
        if matches!(plan.aim, Aim::Nothing | Aim::CleanUp) {
            self.unsaved.0 = None;
        }
        if plan.history.is_some() {
            self.unsaved.0.clone_from(&plan.history);
        }
        if plan.rolled_out.is_some() {
            self.unsaved.1.clone_from(&plan.rolled_out);
        } else if self.unsaved.1.is_none() && is_kept {
            self.unsaved.1 = self.cache.lost_rolled_out();
        }
        if let Some(write) = &self.unsaved.0 {
            let keep = async {
                let slots = applier.history(history_limit).await?;
                applier.keep(history::slot_for(write, &slots), write).await
            };
            let kept = self.refusals.one("history".to_owned(), keep).await;
            if kept.is_some() {
                self.unsaved.0 = None;
            }
        }
        if forgets_rolled_out {
            let object = Leftover::Secret(ROLLED_OUT_SECRET.to_owned());
            self.remove([object]).await;
        } else if let Some(write) = &self.unsaved.1 {
            let object = title("Secret", ROLLED_OUT_SECRET);
            let call = applier.rolled_out_secret(write);
            if let Some(secret) = self.refusals.one(object, call).await {
                self.cache.put_rolled_out(secret);
                self.unsaved.1 = None;
            }
        }
        if let Some(write) = &plan.global {
            let object = title("Secret", GLOBAL_SECRET);
            let call = async {
                let revision = write.global.revision.number;
                tracing::info!(revision, "writing global-pull-secret");
                applier.global_secret(write).await
            };
            if let Some(secret) = self.refusals.one(object, call).await {
                self.cache.put_global(secret);
                self.wrote = true;
            }
        }
        self.forget_old(plan).await;
    }

    /// Records events about the out-of-band changes that this reconcile reverted, and drops the others.
    fn record_reverted(&mut self, plan: &Plan) {
        let mut deleted = Vec::new();
        let mut changed = Vec::new();
        for change in self.cache.take_out_of_band_changes() {
            let is_reverted = match change.kind {
                "Secret" if change.name == ROLLED_OUT_SECRET => {
                    plan.keeps_content() && !self.cache.is_rolled_out_lost()
                }
                "Secret" => plan.global.is_some(),
                "NodePullSecret" => plan
                    .assignments
                    .iter()
                    .any(|(node, _)| *node == change.name),
                _ => self.cache.additional().is_some() && self.cache.config().is_some(),
            };
            let object = title(change.kind, &change.name);
            let is_reverted = is_reverted && !self.refusals.has(&object);
            if is_reverted && change.is_deleted {
                deleted.push(object);
            } else if is_reverted {
                changed.push(object);
            }
        }
        self.recorder.record_reverted(&deleted, "deleted");
        self.recorder.record_reverted(&changed, "changed");
    }

    /// Generation of the spec; 0: there is none.
    pub(super) fn generation(&self) -> i64 {
        let unreadable = self.cache.config_unreadable();
        let metadata = unreadable.map(|unreadable| &unreadable.metadata);
        let metadata = metadata.or(self.cache.config().map(|config| &config.metadata));
        metadata
            .and_then(|metadata| metadata.generation)
            .unwrap_or_default()
    }
}

/// The additional Secret that the fleet had last. `None`: the history can't be read.
async fn last_rolled_out(applier: &Applier, limit: u32, revision: Option<i64>) -> Option<Source> {
    match applier.history(limit).await {
        Ok(slots) => Some(history::last(slots, revision).map_or(Source::Absent, Source::Found)),
        Err(error) => {
            tracing::warn!(%error, "could not read the history for a rollback");
            None
        }
    }
}
