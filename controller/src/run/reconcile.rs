//! One reconcile: plan, write, report. Its parts do not depend on each other's success, except where safety needs the order.

use std::collections::BTreeSet;
use std::time::Duration;

use globalps_core::api::{GlobalPullSecretSpec, Verify};
use globalps_core::rollout::{Goal, RevisionId};
use globalps_core::state::State;
use globalps_planner::content::history;
use globalps_planner::content::source::Source;
use globalps_planner::nodes::input::Snapshot;
use globalps_planner::nodes::plan::{Aim, Plan, judge};
use globalps_planner::refused::title;
use globalps_runtime::backoff::random_bits;
use jiff::Timestamp;
use tokio::time::Instant;

use super::Controller;
use super::known::snapshot;
use super::status::until_next_expiry;
use crate::cache::uptime;
use crate::leader::reconciling::RESYNC;

/// Interval for rechecking nodes in flight, because some of their conditions depend on time.
const IN_FLIGHT: Duration = Duration::from_secs(2);
/// Interval for rechecking nodes that are `NotReady` or blocked.
const UNSETTLED: Duration = Duration::from_secs(15);

/// What follows from the snapshot and the members besides the plan. Both are gone before the writes: these change the cache, and the
/// report has its own thousands of members.
#[expect(
    clippy::struct_excessive_bools,
    reason = "decisions do not depend on each other"
)]
pub(super) struct Decisions {
    /// What the syncer's objects are made from.
    pub(super) spec: GlobalPullSecretSpec,
    /// The configuration is to be remembered.
    is_needed: bool,
    /// Nodes get or have something, and `spec` is known.
    manages: bool,
    pub(super) forgets_rolled_out: bool,
    /// Some nodes are in the middle of a change.
    is_changing: bool,
    /// Some are not done, or `NotReady`.
    is_unsettled: bool,
    /// Objects whose failures stay known while they back off.
    open: BTreeSet<String>,
}

impl Decisions {
    fn of(snapshot: &Snapshot, plan: &Plan, state: &State) -> Self {
        let mut spec = snapshot.config.spec.clone();
        if let Some(path) = snapshot.other_config_file() {
            path.clone_into(&mut spec.kubelet.config_file);
        }
        let last = state.configuration.as_ref();
        if let Some(last) = last.filter(|_| plan.keeps_selector) {
            spec.node_selector.clone_from(&last.spec.node_selector);
        }
        // Without anything in force, a hold only remembers what is left in namespaces.
        let is_left = matches!(plan.aim, Aim::Hold(_)) && !snapshot.is_in_force();
        // A cleanup that finalizers prolong has deleted what it had remembered.
        let is_forgotten = plan.aim == Aim::CleanUp && state.is_empty();
        let members = || plan.members.iter();
        let open = members().filter(|member| !member.is_done() && member.refused.is_some());
        Self {
            spec,
            is_needed: !is_forgotten && (snapshot.needs_configuration() || plan.global.is_some()),
            manages: !snapshot.is_without_nodes() && snapshot.is_configuration_known() && !is_left,
            forgets_rolled_out: plan.aim == Aim::Reach(Goal::Restore)
                && snapshot.recorded.rolled_out_revision.is_some(),
            is_changing: members().any(|it| it.is_in_flight() && it.agent_down.is_none()),
            is_unsettled: members().any(|it| !it.is_done() || it.not_ready.is_some()),
            open: open.map(|it| title("NodePullSecret", &it.name)).collect(),
        }
    }
}

impl Controller {
    /// Returns the time until the next reconcile without an event.
    pub(super) async fn reconcile(&mut self) -> Duration {
        self.refusals.begin();
        self.wrote = false;
        self.cache.observe_clock(uptime());
        if let Some(delay) = self.create_missing_config().await {
            return delay;
        }
        if !self.watch().await {
            return RESYNC;
        }
        let now = Timestamp::now();
        let (plan, decisions) = self.plan(now).await;
        self.remember_configuration(&plan, decisions.is_needed)
            .await;
        self.record_missing_config(&plan);
        if plan.aim == Aim::Nothing
            && self.cache.config().is_none()
            && self.cache.additional().is_none()
            && !self.writes_cluster_secret()
        {
            return RESYNC;
        }
        self.write_content(&plan, &decisions).await;
        let is_all_assigned = self.assign(&plan).await & self.confirm(&plan).await;
        let namespaces = self.deliver_to_namespaces(&plan).await;
        let operators = self.deliver_to_operators().await;
        let cluster_secret = Box::pin(self.deliver_to_cluster(&plan)).await;
        let agents = self
            .manage(
                &plan,
                &decisions.spec,
                decisions.manages,
                decisions.is_changing,
            )
            .await;
        self.record_reverted(&plan);
        let status = self.report(now, &plan).await;
        if !is_all_assigned {
            // The next reconcile has enough to do without more events.
            self.planning = Duration::ZERO;
        }
        let refused = self.refusals.end(|object| decisions.open.contains(object));
        // The watch events of these writes are no changes any more, but the next plan may depend on them, and so may the status
        // after everything has been removed.
        let has_cleaned_up = plan.aim == Aim::CleanUp && self.cache.global_version().is_none();
        if self.wrote || has_cleaned_up {
            return Duration::ZERO;
        }
        let expiry = until_next_expiry(&self.reported.expiries.1, now);
        let delays = [
            namespaces,
            operators,
            cluster_secret,
            agents,
            status,
            refused,
            expiry,
        ];
        let pause = self.pause(&plan, decisions.is_unsettled);
        delays.into_iter().flatten().fold(pause, Duration::min)
    }

    /// Only a rollback reads the history.
    async fn plan(&mut self, now: Timestamp) -> (Plan, Decisions) {
        let begun = Instant::now();
        let mut snapshot = snapshot(&self.cache, &self.refusals, &self.earlier, now);
        snapshot.recorded.namespaces_have = self.namespaces.everywhere;
        snapshot.new_id = RevisionId::from_random(random_bits());
        snapshot.agents.are_cleaned_up = self.agents.cleans_up;
        let judged = judge(&snapshot);
        let last = if judged.needs_history() {
            self.last_rolled_out(&snapshot).await
        } else {
            Source::Absent
        };
        let mut next = judged.plan(&last);
        let decisions = Decisions::of(&snapshot, &next, self.cache.state());
        let interval = snapshot.config.spec.verify.as_ref().map(Verify::interval);
        self.verification
            .set(interval, snapshot.recorded.global.as_ref());
        drop(snapshot);
        next.members = Vec::new();
        self.planning += begun.elapsed();
        (next, decisions)
    }

    /// The last additional Secret that was rolled out.
    async fn last_rolled_out(&self, snapshot: &Snapshot<'_>) -> Source {
        let limit = snapshot.config.spec.history_limit;
        let revision = snapshot.recorded.rolled_out_revision.map(|it| it.number);
        match self.applier.history(limit).await {
            Ok(slots) => history::last(slots, revision).map_or(Source::Absent, Source::Found),
            Err(error) => {
                tracing::warn!(%error, "could not read the history for a rollback");
                Source::Absent
            }
        }
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
}
