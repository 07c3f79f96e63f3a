//! One round: look, plan, carry it out, report.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use globalps_core::api::{GlobalPullSecretSpec, NodePullSecretSpec};
use globalps_core::names::SYNCER;
use globalps_core::rollout::{Goal, UNREACHABLE_AFTER};
use jiff::Timestamp;
use tokio::time::Instant;

use super::sources::Followed;
use super::{Controller, RESYNC};
use crate::content::history;
use crate::content::resolve::Source;
use crate::nodes::plan::{Aim, Observed, Plan, plan};
use crate::objects::apply::ApplyError;
use crate::objects::managed::{Installed, PIECES, tampered};
use crate::report::{only_counts, report};

/// Between two questions for an original that nobody answered.
const ORIGINAL_RETRY: Duration = Duration::from_secs(2);
/// Grants under way at the same time; each has a connection of its own.
const GRANTS_AT_ONCE: usize = 16;
/// Grants of one round, so that the watches are not left alone for long.
const GRANTS_OF_A_ROUND: usize = 256;
/// Between two statuses that tell of no more than another number of nodes.
const BETWEEN_COUNTS: Duration = Duration::from_millis(500);

impl Controller {
    /// One round. Returns how long nothing needs to be looked at again unless something changes.
    pub(super) async fn reconcile(&mut self) -> Result<Duration, ApplyError> {
        if self.world.config().is_none() && self.world.additional().is_some() {
            // Before anything else: this also tells of one that the user wrote and the watch has not shown yet.
            let config = self.applier.default_config().await?;
            self.world.put_config(config);
        }
        self.follow_sources();
        match self.follow_original().await {
            Followed::Same if self.world.is_complete() => {}
            Followed::Same | Followed::Other => return Ok(RESYNC),
            Followed::Unknown => return Ok(ORIGINAL_RETRY),
        }
        let now = Timestamp::now();
        let begun = Instant::now();
        let mut observed = self.world.observed(now);
        let mut plan = plan(&observed);
        if plan.asks_history {
            observed.last_rolled_out = Some(self.last_rolled_out(&observed).await?);
            plan = crate::nodes::plan::plan(&observed);
        }
        let spec = observed.spec;
        self.planning += begun.elapsed();
        if plan.aim == Aim::Nothing
            && self.world.config().is_none()
            && self.world.additional().is_none()
        {
            return Ok(RESYNC);
        }
        if let Some(write) = &plan.history {
            let slots = self.applier.history(spec.history_limit).await?;
            let slot = history::slot_for(write, &slots);
            self.applier.keep(slot, write).await?;
        }
        if let Some(write) = &plan.global {
            tracing::info!(
                revision = write.global.revision,
                "writing global-pull-secret"
            );
            let secret = self.applier.global_secret(write).await?;
            self.world.put_global(secret);
        }
        self.grant(&plan).await?;
        let generation = self
            .world
            .config()
            .and_then(|config| config.metadata.generation)
            .unwrap_or_default();
        let mut rationed = None;
        match plan.aim {
            Aim::Nothing => {}
            Aim::Reach(goal) => {
                let restores = goal == Goal::Restore && self.world.has_daemon_set();
                rationed = self.install(&spec, generation, restores).await?;
            }
            Aim::CleanUp => {
                tracing::info!("every node is restored, removing what was created");
                let names = self.world.node_pull_secrets.names();
                self.applier.clean_up(&names).await?;
                self.world.forget_created();
                self.installed = None;
            }
        }
        if self.world.config().is_none() {
            let config = self.applier.default_config().await?;
            self.world.put_config(config);
        }
        self.tell_put_back(&plan);
        let owed = self.report(now, &plan).await?;
        // What was written here is no news when the watch shows it, and more may follow from it.
        let wrote = plan.global.is_some() || !plan.grants.is_empty();
        let pause = if wrote {
            Duration::ZERO
        } else if matches!(plan.aim, Aim::Reach(_)) && !self.at_rest() {
            UNREACHABLE_AFTER.unsigned_abs() / 10
        } else {
            RESYNC
        };
        let pause = pause.min(self.openshift_again());
        let sooner = owed.into_iter().chain(rationed).min();
        Ok(sooner.map_or(pause, |sooner| pause.min(sooner)))
    }

    /// Tells what was put back in this round. What was taken in and asked for nothing is forgotten.
    fn tell_put_back(&mut self, plan: &Plan) {
        let mut deleted = Vec::new();
        let mut changed = Vec::new();
        for tampered in self.world.take_tampered() {
            let is_put_back = match tampered.kind {
                "Secret" => plan.global.is_some(),
                "NodePullSecret" => plan.grants.iter().any(|(node, _)| *node == tampered.name),
                _ => self.world.additional().is_some(),
            };
            let what = format!("{} `{}`", tampered.kind, tampered.name);
            if is_put_back && tampered.is_deleted {
                deleted.push(what);
            } else if is_put_back {
                changed.push(what);
            }
        }
        self.teller.put_back(&deleted, "deleted");
        self.teller.put_back(&changed, "changed");
    }

    /// The syncer's objects as they shall be, where they are not. Returns after what time they are to be put back, where
    /// that was done too often of late.
    async fn install(
        &mut self,
        spec: &GlobalPullSecretSpec,
        generation: i64,
        restores: bool,
    ) -> Result<Option<Duration>, ApplyError> {
        let marks = self.world.marks();
        let mut done = Vec::new();
        if let Some(installed) = &self.installed {
            done = tampered(&installed.marks, &marks);
            if done.is_empty() && (restores || installed.generation == generation) {
                return Ok(None);
            }
        }
        let now = Instant::now();
        if !done.is_empty() {
            let pauses = done
                .iter()
                .map(|(piece, _)| self.rations[*piece as usize].pause(now));
            if let Some(pause) = pauses.min().filter(|pause| !pause.is_zero()) {
                return Ok(Some(pause));
            }
            for (piece, _) in &done {
                self.rations[*piece as usize].repaired(now);
            }
        }
        let created = self.applier.syncer(spec, restores).await?;
        for (piece, created) in PIECES.into_iter().zip(created) {
            // Where nothing had to be done, what somebody did is none of our business.
            let is_put_back = marks[piece as usize].as_ref() != Some(&created.mark);
            let was = done.iter().find(|(tampered, _)| *tampered == piece);
            if let Some((_, done)) = was.filter(|_| is_put_back) {
                let what = format!("{piece:?} `{SYNCER}`");
                self.teller.put_back(&[what], done);
            }
            self.world.put_created(piece, created);
        }
        if !restores {
            self.applier.forget_history(spec.history_limit).await?;
        }
        self.installed = Some(Installed {
            generation,
            marks: self.world.marks(),
        });
        Ok(None)
    }

    /// As many as a round may have. What is taken back is done before anything is granted.
    async fn grant(&mut self, plan: &Plan) -> Result<(), ApplyError> {
        let (back, others): (Vec<_>, Vec<_>) = plan
            .grants
            .iter()
            .take(GRANTS_OF_A_ROUND)
            .partition(|(_, spec)| spec.withdrawn);
        self.grant_at_once(back).await?;
        self.grant_at_once(others).await
    }

    async fn grant_at_once(
        &mut self,
        grants: Vec<&(String, NodePullSecretSpec)>,
    ) -> Result<(), ApplyError> {
        let (applier, nodes) = (&self.applier, &self.world);
        let grants: Vec<_> = grants
            .into_iter()
            .filter_map(|(node, spec)| Some((node, spec, nodes.node_uid(node)?.to_owned())))
            .collect();
        let mut waiting = grants.into_iter();
        let mut under_way = FuturesUnordered::new();
        let mut failed = None;
        loop {
            while failed.is_none()
                && under_way.len() < GRANTS_AT_ONCE
                && let Some((node, spec, uid)) = waiting.next()
            {
                if spec.revision > 0 {
                    tracing::info!(
                        node,
                        revision = spec.revision,
                        restore = spec.restore,
                        "granting"
                    );
                }
                under_way.push(async move { applier.grant(node, &uid, spec).await });
            }
            match under_way.next().await {
                Some(Ok(object)) => self.world.put_node_pull_secret(object),
                // What is under way is not given up: whether it was granted would not be known.
                Some(Err(error)) => failed = Some(error),
                None => return failed.map_or(Ok(()), Err),
            }
        }
    }

    /// The newest additional Secret of the history.
    async fn last_rolled_out(&self, observed: &Observed<'_>) -> Result<Source, ApplyError> {
        let slots = self.applier.history(observed.spec.history_limit).await?;
        Ok(history::newest(slots).map_or(Source::Absent, Source::Found))
    }

    fn at_rest(&self) -> bool {
        let ready = self
            .world
            .config()
            .and_then(|config| config.status.as_ref());
        ready.is_some_and(|status| {
            status
                .conditions
                .iter()
                .any(|condition| condition.type_ == "Progressing" && condition.status == "False")
        })
    }

    /// Writes the status, where it is news. Returns after what time it is to be written, where it can wait so long.
    async fn report(
        &mut self,
        now: Timestamp,
        plan: &Plan,
    ) -> Result<Option<Duration>, ApplyError> {
        let begun = Instant::now();
        let additional = self
            .world
            .additional()
            .and_then(kube::ResourceExt::resource_version)
            .unwrap_or_default();
        let config = self.world.config();
        let generation = config
            .and_then(|config| config.metadata.generation)
            .unwrap_or_default();
        let before = config.and_then(|config| config.status.clone());
        let observed = self.world.observed(now);
        let after = report(&observed, plan, &additional, generation, before.as_ref());
        self.metrics.fleet(&observed, before.as_ref(), &after);
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
        // Only what is written is told, or every retry would tell it anew.
        let nodes: Vec<_> = observed
            .node_pull_secrets
            .values()
            .map(AsRef::as_ref)
            .collect();
        self.teller.tell(plan, before.as_ref(), &after, &nodes);
        self.world.put_config(config);
        self.reported = Some(Instant::now());
        Ok(None)
    }
}
