//! Delivery into `OpenShift`'s own pull secret: merges, and writes.

use std::sync::Arc;
use std::time::Duration;

use globalps_core::api::DeliveryType;
use globalps_core::names::{APPLIED_SECRET, DATA_KEY, GLOBAL_SECRET, OPENSHIFT_ORIGINAL};
use globalps_core::reasons::Reason;
use globalps_dockerconfig::{DockerConfig, SharedMerge};
use globalps_planner::nodes::plan::Plan;
use globalps_planner::openshift::report::PullSecretReport;
use globalps_planner::openshift::{Wish, applied, in_force, merge};
use globalps_planner::refused::title;
use globalps_runtime::object_watch::ObjectState;
use k8s_openapi::api::core::v1::Secret;

use super::Controller;
use super::clock::steady;
use super::namespaces::until;
use crate::objects::agents::{Leftover, Removal};

/// Interval between attempts while something can't be written.
const RETRY: Duration = Duration::from_secs(5);

impl Controller {
    /// It should have entries of globalps, or may have some.
    pub(super) fn writes_cluster_secret(&self) -> bool {
        self.cache.delivery() == DeliveryType::OpenShift || self.cache.applied().is_some()
    }

    /// Writes what the pull secret lacks and removes leftovers. Returns the time until the next attempt, if one is pending. Never
    /// fails: what can't be done is in the report, and blocks nothing else.
    pub(super) async fn deliver_to_cluster(&mut self, plan: &Plan) -> Option<Duration> {
        self.cluster_secret.report = None;
        if !self.writes_cluster_secret() {
            return None;
        }
        let global = self.cache.decoded_global();
        let spec = self.cache.spec();
        let is_delivered = spec.map(|spec| spec.kubelet.delivery == DeliveryType::OpenShift);
        let wish = Wish::of(is_delivered, plan.aim, global.as_ref());
        let overrides = spec.map(|spec| spec.kubelet.override_registries.clone());
        let is_paused = spec.is_some_and(|spec| spec.rollout.paused);
        let entries = match wish {
            Wish::Keep => {
                let message = "it is not known what is in force";
                self.cluster_secret.report =
                    Some(PullSecretReport::problem(Reason::Listing, message));
                return None;
            }
            Wish::Nothing => None,
            Wish::Entries(entries) => Some(entries),
        };
        let secret = match self.found() {
            Ok(secret) => secret,
            Err(report) => {
                // Nothing can be left in what does not exist.
                let is_gone = matches!(self.cache.cluster_secret(), Some(ObjectState::Absent));
                if is_gone && entries.is_none() {
                    return self.forget_applied().await;
                }
                self.cluster_secret.report = Some(report);
                return None;
            }
        };
        let wanted = entries.clone().unwrap_or_default();
        let written = self.cache.applied().unwrap_or_default();
        let merged = merge(
            &document(&secret),
            &wanted,
            &written,
            &overrides.unwrap_or_default(),
            &self.cluster_secret.turns,
            steady(),
        );
        let merged = match merged {
            Ok(merged) => merged,
            Err(error) => {
                let message = format!("`openshift-config/pull-secret` is not edited: {error}");
                let report = PullSecretReport::problem(Reason::Unreadable, message);
                self.cluster_secret.report = Some(report);
                return None;
            }
        };
        self.cluster_secret.report = Some(PullSecretReport::of(&merged, is_paused));
        if merged.document.is_some() {
            if is_paused {
                return None;
            }
            return Some(Box::pin(self.write_cluster_secret(&secret, merged)).await);
        }
        match entries {
            None if merged.is_clean => self.forget_applied().await,
            None => self.next_turn(),
            Some(entries) => {
                let is_known = self
                    .deliver_to_observers(&in_force(&entries, &merged))
                    .await;
                let retry = (!is_known).then_some(RETRY);
                retry.into_iter().chain(self.next_turn()).min()
            }
        }
    }

    fn next_turn(&self) -> Option<Duration> {
        self.cluster_secret.turns.next(steady()).map(until)
    }

    /// The Secret, or why it can't be merged into.
    fn found(&self) -> Result<Secret, PullSecretReport> {
        let problem = |reason, message: &str| Err(PullSecretReport::problem(reason, message));
        match self.cache.cluster_secret() {
            Some(ObjectState::Present(secret)) => Ok(secret.clone()),
            None => problem(
                Reason::Listing,
                "`openshift-config/pull-secret` is being read",
            ),
            Some(ObjectState::Absent) => problem(
                Reason::NotFound,
                "there is no Secret `openshift-config/pull-secret`",
            ),
            Some(ObjectState::Forbidden) => problem(
                Reason::Forbidden,
                "the controller may not read `openshift-config/pull-secret`: `kubectl globalps install --delivery OpenShift` allows it",
            ),
            Some(ObjectState::Unreadable(why) | ObjectState::Unknown(why)) => problem(
                Reason::Unreadable,
                &format!("`openshift-config/pull-secret` can't be read: {why}"),
            ),
            Some(ObjectState::Stale) => problem(
                Reason::Unreadable,
                "`openshift-config/pull-secret` can't be read: the API server has not answered for long",
            ),
        }
    }

    /// The record first: from it another leader knows what is of globalps, and what that replaced.
    async fn write_cluster_secret(&mut self, secret: &Secret, merged: SharedMerge) -> Duration {
        let applier = Arc::clone(&self.applier);
        let record = applied::encode(&merged.applied);
        if !self.cache.has_applied(&record) {
            let object = title("Secret", APPLIED_SECRET);
            let call = applier.own_secret(APPLIED_SECRET, record);
            let Some(stored) = self.refusals.one(object.clone(), call).await else {
                return self.not_written(&object);
            };
            self.cache.put_applied(stored);
        }
        let (namespace, name) = OPENSHIFT_ORIGINAL;
        let object = title("Secret", &format!("{namespace}/{name}"));
        let document = merged.document.unwrap_or_default();
        let call = applier.cluster_secret(secret, document);
        let Some(stored) = self.refusals.one(object.clone(), call).await else {
            return self.not_written(&object);
        };
        tracing::info!(
            keys = merged.edits.len(),
            "changed the pull secret of the cluster"
        );
        self.cluster_secret.turns.wrote(merged.edits, steady());
        self.cache.put_cluster_secret(stored);
        self.wrote = true;
        Duration::ZERO
    }

    fn not_written(&mut self, object: &str) -> Duration {
        let failure = self.refusals.failures.get(object);
        let why = failure.map_or("it was not written yet", |failure| &failure.message);
        let report = PullSecretReport::problem(Reason::WriteFailed, why);
        self.cluster_secret.report = Some(report);
        RETRY
    }

    /// What observers compare the nodes' files with. Returns whether it is stored.
    async fn deliver_to_observers(&mut self, entries: &DockerConfig) -> bool {
        if self.cache.has_delivered(entries) {
            return true;
        }
        let applier = Arc::clone(&self.applier);
        let call = applier.delivered(entries);
        let object = title("Secret", GLOBAL_SECRET);
        let stored = self.refusals.one(object, call).await;
        let is_stored = stored.is_some();
        if let Some(secret) = stored {
            self.cache.put_delivered(secret);
            self.wrote = true;
        }
        is_stored
    }

    /// Nothing of globalps is left in the pull secret.
    async fn forget_applied(&mut self) -> Option<Duration> {
        let is_ours = self.cache.delivery() == DeliveryType::OpenShift && self.cache.is_delivered();
        let mut secrets = Vec::new();
        if is_ours {
            secrets.push(GLOBAL_SECRET);
        }
        if self.cache.applied().is_some() {
            secrets.push(APPLIED_SECRET);
        }
        if secrets.is_empty() {
            self.cluster_secret.report = None;
            return None;
        }
        let secrets = secrets.into_iter().map(str::to_owned);
        if self.remove(secrets.map(Leftover::Secret)).await == Removal::Gone {
            self.cluster_secret.report = None;
            self.wrote = true;
            return Some(Duration::ZERO);
        }
        Some(RETRY)
    }
}

fn document(secret: &Secret) -> Vec<u8> {
    let data = secret.data.as_ref();
    let value = data.and_then(|data| data.get(DATA_KEY));
    value.map(|value| value.0.clone()).unwrap_or_default()
}
