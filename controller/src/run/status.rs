//! Writes the status of the `GlobalPullSecret`, with its events and metrics.

use std::sync::Arc;
use std::time::Duration;

use globalps_core::api::{GlobalPullSecretStatus, condition};
use globalps_core::names::ROLLED_OUT_SECRET;
use globalps_planner::content::expiry::Expiries;
use globalps_planner::nodes::plan::{Aim, Hold, Plan};
use globalps_planner::refused::title;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::json;
use tokio::time::Instant;

use super::Controller;
use super::known::snapshot;
use crate::report::figures::{figures, rollout_seconds};
use crate::report::{only_counts, report, unreadable};

/// The status among the failed writes.
const STATUS: &str = "status of GlobalPullSecret";
/// Minimum interval between two writes of the status that differ only in numbers of nodes.
const BETWEEN_COUNTS: Duration = Duration::from_millis(500);

/// Time until the condition of the credentials' expiry changes. `now`: the time at which it was decided, so that no change between
/// the two is missed. If the clock is set meanwhile, the next reconcile corrects it.
pub(super) fn until_next_expiry(expiries: &Expiries, now: Timestamp) -> Option<Duration> {
    let next = expiries.next_change(now)?;
    Duration::try_from(next.duration_since(now)).ok()
}

impl Controller {
    /// Writes the status if it changed. Returns the time until it must be written, if it can wait.
    pub(super) async fn report(&mut self, now: Timestamp, plan: &Plan) -> Option<Duration> {
        let begun = Instant::now();
        let additional = self.cache.additional();
        let additional = additional.and_then(kube::ResourceExt::resource_version);
        let config = self.cache.config();
        let is_missing = config.is_none();
        let generation = self.cache.generation();
        let before = config.and_then(|config| config.status.clone());
        let snapshot = snapshot(&self.cache, &self.refusals, &self.earlier, now);
        let version = self.cache.global_version();
        if self.reported.expiries.0.as_deref() != version {
            let expiries = Expiries::of(snapshot.recorded.global.as_ref());
            self.reported.expiries = (version.map(str::to_owned), expiries);
        }
        let after = report(
            &snapshot,
            plan,
            (
                self.namespaces.report.as_ref(),
                self.operators.report.as_ref(),
                self.cluster_secret.report.as_ref(),
            ),
            (
                &self.reported.expiries.1,
                self.verification.verified().as_ref(),
            ),
            &additional.unwrap_or_default(),
            generation,
            before.as_ref(),
        );
        self.reported.at_rest = Some(is_at_rest(&after));
        self.metrics.set_fleet(
            figures(&snapshot, &after, &self.reported.expiries.1),
            rollout_seconds(before.as_ref(), &after, now),
            &snapshot.nodes.objects,
        );
        self.planning += begun.elapsed();
        if is_missing && snapshot.config.unreadable.is_some() {
            let conditions = unreadable(&snapshot, generation);
            let objects = snapshot.unreadable_objects;
            self.report_unreadable(generation, &conditions, &objects)
                .await;
            return None;
        }
        self.recorder
            .record_unreadable(&snapshot.unreadable_objects);
        // There is no object whose status to write.
        if is_missing || before.as_ref() == Some(&after) {
            return None;
        }
        if before
            .as_ref()
            .is_some_and(|before| only_counts(before, &after))
            && let Some(last) = self.reported.written
            && let Some(left) = BETWEEN_COUNTS.checked_sub(last.elapsed())
        {
            return Some(left);
        }
        let applier = Arc::clone(&self.applier);
        let call = applier.status(&after);
        let config = self.refusals.one(STATUS.to_owned(), call).await?;
        // After the write, so that retries do not repeat the events.
        let nodes = &self.cache.node_pull_secrets.live;
        let nodes: Vec<_> = nodes.values().map(AsRef::as_ref).collect();
        self.recorder.record(plan, before.as_ref(), &after, &nodes);
        let has_other_spec = config.is_some_and(|config| self.cache.put_config(config));
        self.reported.written = Some(Instant::now());
        has_other_spec.then_some(Duration::ZERO)
    }

    /// Writes only that the configuration can't be decoded. The rest of the status stays, since it is not known.
    async fn report_unreadable(
        &mut self,
        generation: i64,
        conditions: &[Condition],
        objects: &[String],
    ) {
        if self.recorder.knows(objects) {
            return;
        }
        let status = json!({"observedGeneration": generation, "conditions": conditions});
        let call = self.applier.status(&status);
        if self.refusals.one(STATUS.to_owned(), call).await.is_some() {
            self.recorder.record_unreadable(objects);
        }
    }

    /// Records events about the out-of-band changes that this reconcile reverted, and drops the others.
    pub(super) fn record_reverted(&mut self, plan: &Plan) {
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

    /// Records that the configuration was deleted, once.
    pub(super) fn record_missing_config(&mut self, plan: &Plan) {
        let is_missing = plan.aim == Aim::Hold(Hold::ConfigMissing);
        let missing = is_missing.then(|| self.cache.is_config_served());
        if let Some(is_served) = missing.filter(|_| missing != self.reported.config_missing) {
            let is_remembered = self.cache.state().configuration.is_some();
            self.recorder
                .record_config_missing(is_served, is_remembered);
        }
        self.reported.config_missing = missing;
    }

    /// Nothing is in progress. A refused write of the status must not keep an earlier answer, so the stored status counts only until
    /// this leader has computed one.
    pub(super) fn at_rest(&self) -> bool {
        let config = self.cache.config();
        let stored = config.and_then(|config| config.status.as_ref());
        self.reported
            .at_rest
            .unwrap_or_else(|| stored.is_some_and(is_at_rest))
    }
}

fn is_at_rest(status: &GlobalPullSecretStatus) -> bool {
    let mut conditions = status.conditions.iter();
    conditions.any(|it| it.type_ == condition::PROGRESSING && it.status == "False")
}

#[cfg(test)]
mod tests {
    use globalps_planner::content::expiry::ExpiryStage::{Expired, Soon, WithinAnHour};
    use globalps_planner::content::expiry::testing::{AT, DAY, HOUR, at, expiries};

    use super::*;

    /// Follows the delays from one reconcile to the next, as the loop does.
    #[test]
    fn the_next_reconcile_is_when_the_condition_changes() {
        let expiries = expiries(&[("r.io", AT, 0)]);
        let mut now = at(AT - 4 * DAY);
        let mut changes = Vec::new();
        while let Some(delay) = until_next_expiry(&expiries, now) {
            assert!(!delay.is_zero(), "no busy loop at {now}");
            now += delay;
            let stages = expiries.due(now).into_iter().map(|(stage, _)| stage);
            changes.push((now.as_second() - AT, stages.collect::<Vec<_>>()));
        }
        let expected = [
            (-3 * DAY, vec![Soon]),
            (-HOUR, vec![WithinAnHour]),
            (0, vec![Expired]),
        ];
        assert_eq!(changes, expected);
        // Timers may be early.
        let early = at(AT) - Duration::from_nanos(1);
        let delay = until_next_expiry(&expiries, early);
        assert_eq!(delay, Some(Duration::from_nanos(1)));
        // The clock was set.
        for (now, expected) in [(AT + 9 * DAY, None), (AT - 400 * DAY, Some(397 * DAY))] {
            let delay = until_next_expiry(&expiries, at(now)).map(|delay| delay.as_secs());
            assert_eq!(delay, expected.map(i64::unsigned_abs), "{now}");
        }
    }
}
