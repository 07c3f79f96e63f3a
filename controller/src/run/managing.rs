//! Applies and deletes the objects of the syncer and the restorer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use globalps_core::api::GlobalPullSecretSpec;
use globalps_core::names::{GLOBAL_SECRET, HISTORY_SLOTS, history_secret};
use globalps_core::reasons::Reason;
use globalps_core::rollout::Goal;
use globalps_manifests::Agent;
use globalps_planner::content::history;
use globalps_planner::nodes::plan::{Aim, Plan};
use jiff::Timestamp;
use tokio::time::Instant;

use super::Controller;
use super::state::needless;
use crate::cache::uptime;
use crate::leader::reconciling::RESYNC;
use crate::objects::agents::{Leftover, Removal};
use crate::objects::managed::{Installed, ManagedKind, ManagedObject, out_of_band_changes};

impl Controller {
    /// Applies or deletes the syncer's objects, and creates the configuration if nothing is in force. `manages`: nodes get or have something,
    /// and `spec` is known; `is_changing`: some are in the middle of a change. Returns the time until the next revert, if the rate
    /// limiter delays it.
    pub(super) async fn manage(
        &mut self,
        plan: &Plan,
        spec: &GlobalPullSecretSpec,
        manages: bool,
        is_changing: bool,
    ) -> Option<Duration> {
        let mut revert_delay = None;
        let mut cleans_up = false;
        match plan.aim {
            Aim::Nothing if !plan.removes_agents => {}
            // What a cleanup left is named, and removed once it can be.
            Aim::Nothing => cleans_up = self.remove_agents().await != Removal::Gone,
            Aim::Reach(Goal::Revision(_)) if plan.removes_agents => {
                tracing::info!("all nodes are restored; removing the syncers");
                cleans_up = self.remove_agents().await != Removal::Gone;
            }
            Aim::Reach(_) | Aim::Hold(_) if !manages => {}
            Aim::Reach(_) | Aim::Hold(_) => {
                let restores = plan.aim == Aim::Reach(Goal::Restore);
                // A syncer needs the directories in which it began to set up the provider.
                let pods = self.cache.provider_pods().and_then(|pods| pods.paths);
                let loses_paths = pods.is_some() && pods != spec.kubelet.credential_provider;
                let keeps = restores || is_changing && loses_paths;
                let is_kept = |agent: &Agent| keeps && self.cache.has_daemon_set(*agent);
                let agents = self.cache.agents().iter().copied();
                let kept: Vec<Agent> = agents.filter(is_kept).collect();
                revert_delay = self.install(spec, kept, restores).await;
                if self.earlier.is_too_long && !restores {
                    self.earlier.is_too_long = !self.shorten_history(spec.history_limit).await;
                }
            }
            Aim::CleanUp if !self.are_namespaces_over() => {}
            Aim::CleanUp => {
                tracing::info!("all nodes are restored; removing all objects of globalps");
                let mut removal = self.remove_agents().await;
                let others = needless(self.cache.state()).into_iter();
                let others = others.map(|name| Leftover::Secret(name.to_owned()));
                removal = removal.min(self.remove(others).await);
                removal = removal.min(self.forget_history(0).await);
                // The last one: while it exists, a new leader continues the cleanup. What only finalizers keep must not keep the
                // credentials as well.
                if removal != Removal::Refused {
                    let record = self.cache.delivery().record_secret();
                    let global = [Leftover::Secret(record.to_owned())];
                    removal = removal.min(self.remove(global).await);
                }
                cleans_up = removal != Removal::Gone;
            }
        }
        self.agents.cleans_up = cleans_up;
        let is_held = matches!(plan.aim, Aim::Hold(_));
        if self.cache.config().is_none() && !is_held && self.create_config().await {
            revert_delay = Some(Duration::ZERO);
        }
        revert_delay
    }

    /// Creates the configuration if there is none and nothing is in force. Returns when to try again, if that failed.
    pub(super) async fn create_missing_config(&mut self) -> Option<Duration> {
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
        if !errors.is_empty() && !std::mem::replace(&mut self.reported.config_refused, true) {
            self.recorder.record_config_refused(&errors);
        }
        Some(delay.unwrap_or(RESYNC))
    }

    /// Creates the configuration with defaults. Returns whether it has another spec than the known one.
    async fn create_config(&mut self) -> bool {
        let applier = Arc::clone(&self.applier);
        let object = format!("GlobalPullSecret `{GLOBAL_SECRET}`");
        let config = self.refusals.one(object, applier.default_config()).await;
        config.is_some_and(|config| self.cache.put_config(config))
    }

    /// Deletes these objects.
    pub(super) async fn remove(&mut self, objects: impl IntoIterator<Item = Leftover>) -> Removal {
        let applier = &self.applier;
        let objects: Vec<Leftover> = objects.into_iter().collect();
        let mut left: BTreeSet<String> = objects.iter().map(ToString::to_string).collect();
        let calls = objects
            .into_iter()
            .map(|object| (object.to_string(), applier.remove(object)));
        let removed = self.refusals.all(calls).await;
        for object in &removed.done {
            left.remove(&object.to_string());
            self.cache.forget(object);
        }
        let is_kept = |object: &String| {
            let failure = self.refusals.failures.get(object);
            failure.is_some_and(|failure| failure.reason == Reason::Terminating)
        };
        if left.is_empty() {
            Removal::Gone
        } else if left.iter().all(is_kept) {
            Removal::Kept
        } else {
            Removal::Refused
        }
    }

    /// Deletes the agents, with their objects.
    async fn remove_agents(&mut self) -> Removal {
        let (pods, others): (Vec<_>, Vec<_>) = ManagedObject::of(self.cache.agents())
            .partition(|object| object.kind == ManagedKind::DaemonSet);
        let nodes = self.cache.node_pull_secrets.names().into_iter();
        let stopped = self.remove(pods.into_iter().map(Leftover::Managed)).await;
        let unassigned = self.remove(nodes.map(Leftover::NodePullSecret)).await;
        let rest = self.remove(others.into_iter().map(Leftover::Managed)).await;
        self.agents.installed = None;
        stopped.min(unassigned).min(rest)
    }

    /// Keeps only the newest revisions of the history. Returns whether the others are gone.
    async fn shorten_history(&mut self, limit: u32) -> bool {
        let applier = Arc::clone(&self.applier);
        let compact = async {
            let slots = applier.history(HISTORY_SLOTS).await?;
            for (slot, write) in history::compacted(&slots, limit) {
                applier.keep(slot, &write).await?;
            }
            Ok(())
        };
        let compacted = self
            .refusals
            .one("shorter history".to_owned(), compact)
            .await;
        compacted.is_some() && self.forget_history(limit).await == Removal::Gone
    }

    /// Deletes the slots of the history from this one on.
    async fn forget_history(&mut self, from: u32) -> Removal {
        let slots = (from..HISTORY_SLOTS).map(|slot| Leftover::Secret(history_secret(slot)));
        self.remove(slots).await
    }

    /// Applies the objects of the syncer and the restorer if they differ. Pods may keep their template (`kept`), unless another
    /// client changed it. Returns the time until the next revert, if the rate limiter delays it.
    async fn install(
        &mut self,
        spec: &GlobalPullSecretSpec,
        mut kept: Vec<Agent>,
        restores: bool,
    ) -> Option<Duration> {
        let generation = self.cache.generation();
        let found = self.cache.fingerprints();
        let mut changes = Vec::new();
        let mut objects: Vec<_> = ManagedObject::of(self.cache.agents()).collect();
        if let Some(installed) = &self.agents.installed {
            changes = out_of_band_changes(&installed.fingerprints, &found);
            let is_current = installed.generation == generation
                && installed.provider == spec.kubelet.credential_provider
                && installed.node_selector == spec.node_selector
                && !installed.kept;
            if changes.is_empty() && (!kept.is_empty() || is_current) {
                if installed.refused.is_empty() {
                    return None;
                }
                objects.clone_from(&installed.refused);
            }
            if !changes.is_empty() && !restores {
                kept.clear();
            }
        }
        let now = Instant::now();
        if !changes.is_empty() {
            let delays = changes
                .iter()
                .map(|(object, _)| self.agents.reverts.get(*object).delay(now));
            if let Some(delay) = delays.min().filter(|delay| !delay.is_zero()) {
                return Some(delay);
            }
            for (object, _) in &changes {
                self.agents.reverts.get_mut(*object).reverted(now);
            }
        }
        let is_all = objects.len() == ManagedObject::of(self.cache.agents()).count();
        let refused = self.apply_managed(objects, spec, &kept).await;
        let mut fingerprints = self.cache.fingerprints();
        for (object, done) in changes {
            // An out-of-band change that the write did not revert does not concern managed fields.
            if !refused.contains(&object) && found.get(object) != fingerprints.get(object) {
                self.recorder.record_reverted(&[object.to_string()], done);
            }
        }
        for object in &refused {
            *fingerprints.get_mut(*object) = None;
        }
        match &mut self.agents.installed {
            Some(installed) if !is_all => {
                installed.fingerprints = fingerprints;
                installed.refused = refused;
            }
            installed => {
                self.earlier.is_too_long |= !restores;
                *installed = Some(Installed {
                    generation,
                    provider: spec.kubelet.credential_provider.clone(),
                    node_selector: spec.node_selector.clone(),
                    kept: !kept.is_empty(),
                    fingerprints,
                    refused,
                });
            }
        }
        None
    }

    /// Applies these objects, each after those that it needs: pods run as a service account, and the API server looks up the role
    /// of a binding. Returns those that could not be written.
    async fn apply_managed(
        &mut self,
        objects: Vec<ManagedObject>,
        spec: &GlobalPullSecretSpec,
        kept: &[Agent],
    ) -> Vec<ManagedObject> {
        use ManagedKind::{DaemonSet, Role, RoleBinding, ServiceAccount};
        let mut refused = objects.clone();
        for kinds in [&[ServiceAccount, Role][..], &[RoleBinding], &[DaemonSet]] {
            let objects: Vec<_> = objects
                .iter()
                .copied()
                .filter(|object| kinds.contains(&object.kind))
                .collect();
            let (applier, cache) = (&self.applier, &self.cache);
            let calls: Vec<_> = objects
                .into_iter()
                .map(|object| {
                    let account = ManagedObject {
                        kind: ManagedKind::ServiceAccount,
                        ..object
                    };
                    let account = cache.managed_uid(account).unwrap_or_default().to_owned();
                    let is_kept = kept.contains(&object.agent);
                    let call = async move {
                        let live = applier
                            .managed_object(object, spec, &account, is_kept)
                            .await?;
                        Ok((object, live))
                    };
                    (object.to_string(), call)
                })
                .collect();
            for (object, live) in self.refusals.all(calls).await.done {
                refused.retain(|it| *it != object);
                self.cache.put_managed(object, live);
            }
        }
        refused
    }
}
