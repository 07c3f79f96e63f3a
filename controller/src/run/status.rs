//! Writes the status of the `GlobalPullSecret`, with its events and metrics.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::Controller;
use crate::nodes::plan::Plan;
use crate::objects::apply::ApplyError;
use crate::report::figures::{figures, rollout_seconds};
use crate::report::{only_counts, report};

/// Minimum interval between two writes of the status that differ only in numbers of nodes.
const BETWEEN_COUNTS: Duration = Duration::from_millis(500);

impl Controller {
    /// Writes the status if it changed. Returns the time until it must be written, if it can wait.
    pub(super) async fn report(
        &mut self,
        now: Timestamp,
        plan: &Plan,
    ) -> Result<Option<Duration>, ApplyError> {
        let begun = Instant::now();
        let additional = self
            .cache
            .additional()
            .and_then(kube::ResourceExt::resource_version)
            .unwrap_or_default();
        let config = self.cache.config();
        let generation = self.generation();
        let before = config.and_then(|config| config.status.clone());
        let snapshot = self.cache.snapshot(now);
        let after = report(
            &snapshot,
            plan,
            (self.namespaces.as_ref(), self.operators.as_ref()),
            self.verification.verified().as_ref(),
            &additional,
            generation,
            before.as_ref(),
        );
        self.metrics.set_fleet(
            figures(&snapshot, &after),
            rollout_seconds(before.as_ref(), &after, now),
            &snapshot.node_pull_secrets,
        );
        self.planning += begun.elapsed();
        if before.as_ref() == Some(&after) {
            return Ok(None);
        }
        if before
            .as_ref()
            .is_some_and(|before| only_counts(before, &after))
            && let Some(last) = self.reported
            && let Some(left) = BETWEEN_COUNTS.checked_sub(last.elapsed())
        {
            return Ok(Some(left));
        }
        let config = self.applier.status(&after).await?;
        // After the write, so that retries do not repeat the events.
        let nodes: Vec<_> = snapshot
            .node_pull_secrets
            .values()
            .map(AsRef::as_ref)
            .collect();
        self.recorder.record(plan, before.as_ref(), &after, &nodes);
        let has_other_spec = self.cache.put_config(config);
        self.reported = Some(Instant::now());
        Ok(has_other_spec.then_some(Duration::ZERO))
    }
}
