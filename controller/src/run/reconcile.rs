//! One reconcile: plan, write, report.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use globalps_core::api::{GlobalPullSecretSpec, NodePullSecretSpec, Verify};
use globalps_core::manifests::Agent;
use globalps_core::rollout::{Goal, RevisionId};
use jiff::Timestamp;
use tokio::time::Instant;

use super::sources::Watched;
use super::status::until_next_expiry;
use super::{Controller, RESYNC};
use crate::cache::uptime;
use crate::content::history;
use crate::content::source::Source;
use crate::nodes::input::Snapshot;
use crate::nodes::plan::{Aim, Hold, Plan, plan};
use crate::objects::apply::ApplyError;
use crate::objects::managed::{Installed, ManagedObject, out_of_band_changes};
use crate::process::backoff::random_bits;

/// Interval for rechecking nodes in flight, because some of their conditions depend on time.
const IN_FLIGHT: Duration = Duration::from_secs(2);
/// Interval for rechecking nodes that are `NotReady` or blocked.
const UNSETTLED: Duration = Duration::from_secs(15);
/// Interval between lookups of the original without a response.
const ORIGINAL_RETRY: Duration = Duration::from_secs(2);
/// Maximum number of assignments in flight; each uses a connection.
const CONCURRENT_ASSIGNMENTS: usize = 16;
/// The assignments of one reconcile start within this time, so that events do not wait for long.
const ASSIGNING: Duration = Duration::from_secs(1);

impl Controller {
    /// Returns the time until the next reconcile without an event.
    pub(super) async fn reconcile(&mut self) -> Result<Duration, ApplyError> {
        self.cache.observe_clock(uptime());
        let has_no_config =
            self.cache.config().is_none() && self.cache.config_unreadable().is_none();
        let is_missing = has_no_config && self.cache.additional().is_some();
        if is_missing
            && !self
                .cache
                .snapshot(uptime(), Timestamp::now())
                .needs_configuration()
        {
            // First, since the response also has a user's configuration that the watch has not reported yet.
            let config = self.applier.default_config().await?;
            // The plan is made from it, so a change needs no further reconcile.
            let _ = self.cache.put_config(config);
        }
        self.watch_sources();
        self.look_up_policy().await;
        self.watch_pull_secrets();
        self.watch_operators();
        self.watch_namespaces();
        match self.watch_original().await {
            Watched::Unchanged if self.cache.caches_synced() => {}
            Watched::Unchanged | Watched::Replaced => return Ok(RESYNC),
            Watched::Unknown => return Ok(ORIGINAL_RETRY),
        }
        let now = Timestamp::now();
        let begun = Instant::now();
        let mut snapshot = self.cache.snapshot(uptime(), now);
        snapshot.new_id = RevisionId::from_random(random_bits());
        let mut plan = plan(&snapshot);
        if plan.needs_history {
            snapshot.last_rolled_out = Some(self.last_rolled_out(&snapshot).await?);
            plan = crate::nodes::plan::plan(&snapshot);
        }
        // Frees the thousands of members before the report creates its own.
        let is_unsettled = std::mem::take(&mut plan.members)
            .iter()
            .any(|member| !member.is_done() || member.not_ready.is_some());
        let mut spec = snapshot.spec.clone();
        if let Some(path) = snapshot.other_config_file() {
            path.clone_into(&mut spec.kubelet.config_file);
        }
        let forgets_rolled_out =
            plan.aim == Aim::Reach(Goal::Restore) && snapshot.rolled_out_revision.is_some();
        let is_without_nodes = snapshot.is_without_nodes();
        let interval = snapshot.spec.verify.as_ref().map(Verify::interval);
        self.verification.set(interval, snapshot.global.as_ref());
        let is_needed = snapshot.needs_configuration() || plan.global.is_some();
        self.planning += begun.elapsed();
        self.remember_configuration(&plan, is_needed).await?;
        if plan.aim == Aim::Hold(Hold::ConfigMissing) {
            if !std::mem::replace(&mut self.config_missing, true) {
                let is_remembered = self.cache.state().configuration.is_some();
                self.recorder.record_config_missing(is_remembered);
            }
            return Ok(RESYNC);
        }
        self.config_missing = false;
        if plan.aim == Aim::Hold(Hold::ConfigUnreadable) && self.cache.config().is_none() {
            // What it says of namespaces and operators is not known either.
            self.report_unreadable(now).await?;
            return Ok(RESYNC);
        }
        if plan.aim == Aim::Nothing
            && self.cache.config().is_none()
            && self.cache.additional().is_none()
        {
            return Ok(RESYNC);
        }
        self.write_content(&plan, spec.history_limit, forgets_rolled_out)
            .await?;
        let is_all_assigned = self.assign(&plan).await?;
        let retry_delay = self.deliver_to_namespaces(&plan).await;
        let operators_delay = self.deliver_to_operators().await;
        let revert_delay = self.manage(&plan, &spec, is_without_nodes).await?;
        self.record_reverted(&plan);
        let report_delay = self.report(now, &plan).await?;
        if !is_all_assigned {
            // The next reconcile has enough to do without more events.
            self.planning = Duration::ZERO;
        }
        // The watch events of these writes are no changes any more, but the next plan may depend on them.
        let wrote = plan.global.is_some() || !plan.assignments.is_empty();
        // So is the status after everything has been removed.
        let has_cleaned_up = plan.aim == Aim::CleanUp && self.cache.global_version().is_none();
        let pause = if wrote || has_cleaned_up {
            Duration::ZERO
        } else if matches!(plan.aim, Aim::Reach(_)) && !self.at_rest() {
            IN_FLIGHT
        } else if self.cache.down_since.is_some() || is_unsettled {
            UNSETTLED
        } else {
            RESYNC
        };
        let pause = pause.min(self.openshift_retry());
        let delays = [
            report_delay,
            revert_delay,
            retry_delay,
            operators_delay,
            until_next_expiry(&self.expiries.1, now),
        ];
        let sooner = delays.into_iter().flatten().min();
        Ok(sooner.map_or(pause, |sooner| pause.min(sooner)))
    }

    /// Writes the Secrets. Data that `global-pull-secret` will no longer have is saved elsewhere first.
    async fn write_content(
        &mut self,
        plan: &Plan,
        history_limit: u32,
        forgets_rolled_out: bool,
    ) -> Result<(), ApplyError> {
        if let Some(write) = &plan.history {
            let slots = self.applier.history(history_limit).await?;
            let slot = history::slot_for(write, &slots);
            self.applier.keep(slot, write).await?;
        }
        if let Some(write) = &plan.rolled_out {
            let owner = self.cache.global_uid();
            let secret = self.applier.rolled_out_secret(write, owner).await?;
            self.cache.put_rolled_out(Some(secret));
        } else if forgets_rolled_out {
            self.applier.forget_rolled_out().await?;
            self.cache.put_rolled_out(None);
        }
        if let Some(write) = &plan.global {
            tracing::info!(
                revision = write.global.revision.number,
                "writing global-pull-secret"
            );
            let secret = self.applier.global_secret(write).await?;
            self.cache.put_global(secret);
        }
        Ok(())
    }

    /// Applies or deletes the syncer's objects, and creates the configuration if nothing is in force. Returns the time until the
    /// next revert, if the rate limiter delays it.
    async fn manage(
        &mut self,
        plan: &Plan,
        spec: &GlobalPullSecretSpec,
        is_without_nodes: bool,
    ) -> Result<Option<Duration>, ApplyError> {
        let mut revert_delay = None;
        match plan.aim {
            Aim::Nothing | Aim::Hold(_) => {}
            Aim::Reach(Goal::Revision(_)) if plan.removes_agents => {
                tracing::info!("all nodes are restored; removing the syncers");
                let names = self.cache.node_pull_secrets.names();
                self.applier.remove_agents(&names).await?;
                self.cache.forget_agents();
                self.installed = None;
            }
            Aim::Reach(_) if is_without_nodes => {}
            Aim::Reach(goal) => {
                // Pods are not replaced while nodes change.
                let keeps = goal == Goal::Restore || !self.at_rest();
                let is_kept = |agent: &Agent| keeps && self.cache.has_daemon_set(*agent);
                let kept: Vec<Agent> = Agent::ALL.into_iter().filter(is_kept).collect();
                let restores = goal == Goal::Restore;
                revert_delay = self.install(spec, kept, restores).await?;
            }
            // Without `global-pull-secret`, leftovers in namespaces could not be found.
            Aim::CleanUp if !self.are_namespaces_clean() => {}
            Aim::CleanUp => {
                tracing::info!("all nodes are restored; removing all objects of globalps");
                let names = self.cache.node_pull_secrets.names();
                self.applier.clean_up(&names).await?;
                self.cache.forget_managed();
                self.installed = None;
            }
        }
        if self.cache.config().is_none() && self.cache.config_unreadable().is_none() {
            let config = self.applier.default_config().await?;
            if self.cache.put_config(config) {
                revert_delay = Some(Duration::ZERO);
            }
        }
        Ok(revert_delay)
    }

    /// Records events about the out-of-band changes that this reconcile reverted, and drops the others.
    fn record_reverted(&mut self, plan: &Plan) {
        let mut deleted = Vec::new();
        let mut changed = Vec::new();
        for change in self.cache.take_out_of_band_changes() {
            let is_reverted = match change.kind {
                "Secret" => plan.global.is_some(),
                "NodePullSecret" => plan
                    .assignments
                    .iter()
                    .any(|(node, _)| *node == change.name),
                _ => self.cache.additional().is_some(),
            };
            let object = format!("{} `{}`", change.kind, change.name);
            if is_reverted && change.is_deleted {
                deleted.push(object);
            } else if is_reverted {
                changed.push(object);
            }
        }
        self.recorder.record_reverted(&deleted, "deleted");
        self.recorder.record_reverted(&changed, "changed");
    }

    /// Applies the objects of the syncer and the restorer if they differ. While nodes change, pods keep their template (`kept`),
    /// unless another client changed it. Returns the time until the next revert, if the rate limiter delays it.
    async fn install(
        &mut self,
        spec: &GlobalPullSecretSpec,
        mut kept: Vec<Agent>,
        restores: bool,
    ) -> Result<Option<Duration>, ApplyError> {
        let generation = self.generation();
        let found = self.cache.fingerprints();
        let mut changes = Vec::new();
        if let Some(installed) = &self.installed {
            changes = out_of_band_changes(&installed.fingerprints, &found);
            let is_current = installed.generation == generation
                && installed.provider == spec.kubelet.credential_provider
                && !installed.kept;
            if changes.is_empty() && (!kept.is_empty() || is_current) {
                return Ok(None);
            }
            if !changes.is_empty() && !restores {
                kept.clear();
            }
        }
        let now = Instant::now();
        if !changes.is_empty() {
            let delays = changes
                .iter()
                .map(|(object, _)| self.reverts.get(*object).delay(now));
            if let Some(delay) = delays.min().filter(|delay| !delay.is_zero()) {
                return Ok(Some(delay));
            }
            for (object, _) in &changes {
                self.reverts.get_mut(*object).reverted(now);
            }
        }
        let written = self.applier.syncer(spec, &kept).await?;
        for (object, live) in written.iter() {
            // An out-of-band change that the write did not revert does not concern managed fields.
            let is_reverted = found.get(object).as_ref() != Some(&live.fingerprint);
            let change = changes.iter().find(|(changed, _)| *changed == object);
            if let Some((_, done)) = change.filter(|_| is_reverted) {
                self.recorder.record_reverted(&[object.to_string()], done);
            }
        }
        for object in ManagedObject::all() {
            self.cache.put_managed(object, written.get(object).clone());
        }
        if !restores {
            self.applier.forget_history(spec.history_limit).await?;
        }
        self.installed = Some(Installed {
            generation,
            provider: spec.kubelet.credential_provider.clone(),
            kept: !kept.is_empty(),
            fingerprints: self.cache.fingerprints(),
        });
        Ok(None)
    }

    /// Writes the assignments, revocations first. Returns whether all of them were written.
    async fn assign(&mut self, plan: &Plan) -> Result<bool, ApplyError> {
        let (revocations, others): (Vec<_>, Vec<_>) =
            plan.assignments.iter().partition(|(_, spec)| spec.revoked);
        let until = Instant::now() + ASSIGNING;
        Ok(self.assign_concurrently(revocations, until).await?
            && self.assign_concurrently(others, until).await?)
    }

    async fn assign_concurrently(
        &mut self,
        assignments: Vec<&(String, NodePullSecretSpec)>,
        until: Instant,
    ) -> Result<bool, ApplyError> {
        let (applier, nodes) = (&self.applier, &self.cache);
        let assignments: Vec<_> = assignments
            .into_iter()
            .filter_map(|(node, spec)| Some((node, spec, nodes.node_uid(node)?.to_owned())))
            .collect();
        let mut waiting = assignments.into_iter();
        let mut in_flight = FuturesUnordered::new();
        let mut failed = None;
        loop {
            while failed.is_none()
                && in_flight.len() < CONCURRENT_ASSIGNMENTS
                && Instant::now() < until
                && let Some((node, spec, uid)) = waiting.next()
            {
                if spec.revision > 0 {
                    tracing::info!(
                        node,
                        revision = spec.revision,
                        restore = spec.restore,
                        "assigning"
                    );
                }
                in_flight.push(async move { (node, spec, applier.assign(node, &uid, spec).await) });
            }
            match in_flight.next().await {
                Some((.., Ok(object))) => self.cache.put_node_pull_secret(object),
                // Completes the requests in flight; otherwise their results would be unknown.
                Some((node, spec, Err(error))) => {
                    self.cache.wrote_without_response(node, spec.clone());
                    failed = Some(error);
                }
                None => return failed.map_or(Ok(waiting.len() == 0), Err),
            }
        }
    }

    /// The additional Secret that the fleet had last.
    async fn last_rolled_out(&self, snapshot: &Snapshot<'_>) -> Result<Source, ApplyError> {
        let slots = self.applier.history(snapshot.spec.history_limit).await?;
        let last = history::last(slots, snapshot.rolled_out_revision.map(|it| it.number));
        Ok(last.map_or(Source::Absent, Source::Found))
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

    fn at_rest(&self) -> bool {
        let ready = self
            .cache
            .config()
            .and_then(|config| config.status.as_ref());
        ready.is_some_and(|status| {
            status
                .conditions
                .iter()
                .any(|condition| condition.type_ == "Progressing" && condition.status == "False")
        })
    }
}
