//! Delivery to operators: plans and writes.

use std::collections::BTreeSet;
use std::time::Duration;

use globalps_core::names::operator_secret;
use globalps_core::state::State;
use globalps_planner::operators::input::OperatorsInput;
use globalps_planner::operators::plan;
use globalps_planner::operators::report::OperatorsReport;
use globalps_planner::targets::plan::DeliveryPlan;

use super::Controller;
use super::clock::steady;
use super::delivering::DeliveryCache;
use super::namespaces::until;

/// Interval between attempts to write the state.
const RETRY: Duration = Duration::from_secs(5);

impl Controller {
    /// Whether operators should get pull secrets. `None`: they get nothing and have nothing.
    pub(super) fn operator_settings(&self) -> Option<bool> {
        let has_some = self.cache.state().operators;
        let is_enabled = self.cache.spec()?.operators.enabled;
        (is_enabled || has_some).then_some(is_enabled)
    }

    /// Writes what operators lack and removes leftovers. Returns the time until the next attempt, if one is pending. Never fails:
    /// a failed operator is in the report, and does not block others.
    pub(super) async fn deliver_to_operators(&mut self) -> Option<Duration> {
        self.operators.report = None;
        let is_enabled = self.operator_settings()?;
        let objects = &self.cache.operators;
        let mut report = OperatorsReport {
            is_forbidden: objects.is_forbidden(),
            is_served: objects.is_served(),
            summary: None,
        };
        if !objects.is_synced() || !self.cache.are_namespaces_synced() {
            self.operators.report = Some(report);
            return None;
        }
        let live = self.cache.live_namespaces();
        let memory = &mut self.operators.executor.memory;
        memory.retain(|name| live.contains_key(name));
        let names = self.operator_secrets(is_enabled);
        self.cache.operators.believe(&names);
        let mut plan = self.plan_operators(is_enabled);
        if !plan.writes.is_empty() {
            // The state first: from it a new leader knows that there may be leftovers.
            if !self.remember_operators(Some(names)).await {
                self.operators.report = Some(report);
                return Some(RETRY);
            }
            let key = self.cache.state().proof_key;
            let cache = DeliveryCache::Operators(&mut self.cache.operators);
            let executor = &mut self.operators.executor;
            executor
                .execute(plan.writes, &self.applier, cache, key, None)
                .await;
            plan = self.plan_operators(is_enabled);
        }
        let is_over = plan.summary.is_clean;
        report.summary = Some(plan.summary);
        if is_over && !self.remember_operators(None).await {
            self.operators.report = Some(report);
            return Some(RETRY);
        }
        self.operators.report = Some(report).filter(|_| !is_over);
        if !plan.writes.is_empty() || is_over {
            return Some(Duration::ZERO);
        }
        plan.again_at.map(until)
    }

    /// Names of the Secrets that operators may have or get.
    fn operator_secrets(&self, is_enabled: bool) -> BTreeSet<String> {
        let mut names = self.cache.state().operator_secrets.clone();
        let sources = self.cache.operators.watched.iter();
        let sources = sources.filter(|_| is_enabled);
        names.extend(sources.map(|(namespace, name)| operator_secret(namespace, name)));
        names
    }

    /// Whether the state says that operators may have these Secrets; `None`: they have nothing.
    async fn remember_operators(&mut self, names: Option<BTreeSet<String>>) -> bool {
        let state = State {
            operators: names.is_some(),
            operator_secrets: names.unwrap_or_default(),
            ..self.cache.state().clone()
        };
        self.remember(state).await
    }

    fn plan_operators(&mut self, is_enabled: bool) -> DeliveryPlan {
        let objects = &mut self.cache.operators;
        plan::forget(&mut objects.copies, &objects.accounts.live);
        let objects = &self.cache.operators;
        let spec = self.cache.spec();
        plan::plan(&OperatorsInput {
            is_enabled,
            paused: spec.is_some_and(|spec| spec.rollout.paused),
            namespaces: self.cache.live_namespaces(),
            subscriptions: &objects.subscriptions.live,
            catalogs: &objects.catalogs.live,
            csvs: &objects.csvs.live,
            secrets: &objects.secrets,
            accounts: &objects.accounts.live,
            copies: &objects.copies,
            memory: &self.operators.executor.memory,
            now: steady(),
        })
    }
}
