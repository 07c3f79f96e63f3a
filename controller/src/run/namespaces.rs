//! Delivery into namespaces: watches, plans and writes.

use std::time::Duration;

use globalps_core::api::{Attach, ImagePullSecrets};
use globalps_core::names::STATE_SECRET;
use globalps_core::namespaces::Selection;
use globalps_core::rollout::Goal;
use globalps_core::state::{NamespaceObjects, State};
use globalps_planner::content::secret::{self, Global};
use globalps_planner::namespaces::identity::Parts;
use globalps_planner::namespaces::input::{Delivery, NamespacesInput};
use globalps_planner::namespaces::plan;
use globalps_planner::namespaces::report::{NamespacesReport, Problem};
use globalps_planner::nodes::plan::{Aim, Plan};
use globalps_planner::refused::title;
use globalps_planner::targets::STUCK_AFTER;
use globalps_planner::targets::plan::DeliveryPlan;
use globalps_provider::Pattern;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::Controller;
use super::clock::steady;
use super::delivering::DeliveryCache;
use super::known::ForNamespaces;
use crate::cache::{PullSecretsWatch, uptime};
use crate::leader::reconciling::RESYNC;

/// Interval between lookups of the admission policy while it doesn't exist.
const POLICY_RETRY: Duration = Duration::from_mins(1);
/// The same while its existence is unknown.
const UNKNOWN_RETRY: Duration = Duration::from_secs(5);

impl Controller {
    /// Whether a namespace may have room for service accounts that are not known.
    pub(super) fn lists_again(&self) -> bool {
        let accounts = &self.cache.pull_secrets.accounts;
        let listed = self.namespaces.listed;
        !accounts.full().is_empty() && listed.is_none_or(|at| at.elapsed() >= RESYNC)
    }

    /// The settings, and what namespaces may have.
    fn settings(&self) -> Option<(&ImagePullSecrets, Option<&NamespaceObjects>)> {
        let spec = self.cache.spec()?;
        Some((
            &spec.image_pull_secrets,
            self.cache.state().namespaces.as_ref(),
        ))
    }

    /// Nothing is watched once nothing is left. Secrets with an earlier name are removed first.
    pub(super) fn wanted_pull_secrets(&self) -> Option<PullSecretsWatch> {
        let (settings, objects) = self.settings()?;
        if !settings.enabled && objects.is_none() {
            return None;
        }
        let known = objects.map(|objects| &objects.secret_name);
        let secret_name = known.unwrap_or(&settings.secret_name).clone();
        let has_references = objects.is_some_and(|objects| objects.references);
        let uses_accounts = settings.enabled
            && match self.attach(settings) {
                Some((attach, _)) => attach == Attach::ServiceAccounts,
                None => self.cache.pull_secrets.watches_accounts(),
            };
        Some(PullSecretsWatch {
            secret_name,
            accounts: (uses_accounts || has_references).then(|| accounts(settings)),
        })
    }

    /// How Secrets are attached, and why not as specified. `None`: this depends on the admission policy, which was not looked up
    /// yet.
    fn attach(&self, settings: &ImagePullSecrets) -> Option<(Attach, Option<&'static str>)> {
        let has_policy = self.namespaces.policy.map(|(_, _, found)| found);
        match (settings.attach, has_policy) {
            (None, None) => None,
            (None, Some(false)) => Some((
                Attach::ServiceAccounts,
                Some("the admission policy is not installed, or the API server does not serve it"),
            )),
            (Some(Attach::Admission), Some(false)) => Some((
                Attach::Admission,
                Some(
                    "the admission policy is not installed: `kubectl globalps install --deliver-to-namespaces` installs it where the API server serves MutatingAdmissionPolicy v1",
                ),
            )),
            (wanted, _) => Some((wanted.unwrap_or(Attach::Admission), None)),
        }
    }

    /// Looks up the admission policy at long intervals.
    pub(super) async fn look_up_policy(&mut self) {
        let Some((settings, _)) = self.settings() else {
            return;
        };
        if !settings.enabled {
            return;
        }
        let generation = self.cache.generation();
        if let Some((at, of, found)) = self.namespaces.policy {
            let again = if found { RESYNC } else { POLICY_RETRY };
            if of == generation && at.elapsed() < again {
                return;
            }
        }
        match self.applier.has_admission_policy().await {
            Ok(found) => self.namespaces.policy = Some((Instant::now(), generation, found)),
            Err(error) => tracing::warn!(%error, "could not look up the admission policy"),
        }
    }

    /// Writes missing Secrets and references in namespaces and removes leftovers. Returns the time until the next attempt, if one
    /// is pending. Never fails: a failed namespace is in the report, and does not block others.
    pub(super) async fn deliver_to_namespaces(&mut self, plan: &Plan) -> Option<Duration> {
        self.namespaces.report = None;
        let (settings, objects) = self.settings()?;
        if !settings.enabled && objects.is_none() {
            return None;
        }
        let (settings, objects) = (settings.clone(), objects.cloned());
        let watch = self.cache.pull_secrets.watch()?.clone();
        let known = self.attach(&settings);
        let (attach, note) = known.unwrap_or((Attach::Admission, None));
        let mut report = NamespacesReport {
            secret_name: watch.secret_name.clone(),
            attach,
            note,
            is_forbidden: self.cache.pull_secrets.is_forbidden(),
            problem: None,
            summary: None,
            is_stuck: false,
        };
        let global = self.cache.decoded_global();
        let content = global
            .as_ref()
            .filter(|global| settings.enabled && has_content(plan, global));
        let is_known = (known.is_some() || content.is_none())
            && self.cache.pull_secrets.secrets.synced
            && self.cache.are_namespaces_synced();
        let has_references = objects.as_ref().is_some_and(|objects| objects.references);
        let adds_references = content.is_some() && attach == Attach::ServiceAccounts;
        let has_accounts =
            self.cache.pull_secrets.are_accounts_synced() || !has_references && !adds_references;
        let left = self.waits_for_lists(is_known && has_accounts);
        report.is_stuck = left.is_zero() && !(is_known && has_accounts);
        // References are removed before Secrets, but a list of service accounts that doesn't come stops no Secret.
        if !is_known || !left.is_zero() {
            self.namespaces.report = Some(report);
            let retry = known.is_none().then_some(UNKNOWN_RETRY);
            let left = Some(left).filter(|left| !left.is_zero());
            return left.into_iter().chain(retry).min();
        }
        // A removal needs no selection: an invalid one must not keep what is in the namespaces.
        let selection = match content.map(|_| Selection::new(&settings)).transpose() {
            Ok(selection) => selection,
            Err(problem) => {
                // Existing Secrets stay.
                report.problem = Some(Problem::Settings(problem));
                self.namespaces.report = Some(report);
                return None;
            }
        };
        let accounts = accounts(&settings);
        let rollout = self.cache.spec()?.rollout.clone();
        let is_wanted = settings.enabled && settings.secret_name == watch.secret_name;
        let parts = content.filter(|_| is_wanted).and_then(Parts::of);
        let delivery = selection.as_ref().zip(parts);
        let delivery = delivery.map(|(selection, parts)| Delivery {
            selection,
            parts,
            stable: None,
            attach,
            accounts: &accounts,
            canary: settings.canary_namespace.as_deref(),
            min_ready: SignedDuration::from_secs(rollout.canary.min_ready_seconds.into()),
            paused: rollout.paused,
        });
        // The state first: from it a new leader knows what to look for. A removal doesn't depend on it.
        let objects_with = |references| NamespaceObjects {
            secret_name: watch.secret_name.clone(),
            references: references || adds_references && has_accounts,
        };
        let needed = delivery.map(|_| objects_with(has_references)).or(objects);
        if !self.remember_namespaces(needed).await && delivery.is_some() {
            report.problem = Some(Problem::NotRemembered(self.not_remembered()));
            self.namespaces.report = Some(report);
            return Some(UNKNOWN_RETRY);
        }
        let namespaces = self
            .write_namespaces(delivery, global.as_ref(), &watch, has_accounts)
            .await;
        let summary = namespaces.summary;
        let is_empty = delivery.is_none() && summary.is_clean;
        let is_settled = has_accounts
            && namespaces.writes.is_empty()
            && self.namespaces.executor.pending.is_empty();
        let has_references = summary.accounts > 0 || has_references && !is_settled;
        let left = Some(objects_with(has_references)).filter(|_| !is_empty);
        let is_forgotten = left.is_none() && self.cache.state().namespaces.is_some();
        // It says at least what there is.
        let is_remembered = self.remember_namespaces(left).await;
        let revision = global.as_ref().map(|global| global.revision);
        let is_complete = delivery.is_some()
            && summary.waiting == 0
            && summary.synced > 0
            && summary.canary.is_none();
        self.namespaces.everywhere = revision.filter(|_| is_complete);
        report.summary = Some(summary);
        // Once nothing is left, the status entry is removed, and another name can be used.
        self.namespaces.report = Some(report).filter(|report| is_wanted || !report.is_clean());
        if !namespaces.writes.is_empty() || is_forgotten && is_remembered {
            return Some(Duration::ZERO);
        }
        let policy = note.map(|_| POLICY_RETRY);
        let state = (!is_remembered).then_some(UNKNOWN_RETRY);
        let times = [namespaces.again_at.map(until), policy, state];
        times.into_iter().flatten().min()
    }

    /// Whether the state says what namespaces may have.
    async fn remember_namespaces(&mut self, objects: Option<NamespaceObjects>) -> bool {
        let state = State {
            namespaces: objects,
            ..self.cache.state().clone()
        };
        self.remember(state).await
    }

    /// Time until nothing else waits any more for what can't be listed.
    fn waits_for_lists(&mut self, is_complete: bool) -> Duration {
        if is_complete {
            self.namespaces.unknown_since = None;
            return Duration::ZERO;
        }
        let since = self.namespaces.unknown_since;
        let since = since.unwrap_or_else(Instant::now);
        self.namespaces.unknown_since = Some(since);
        STUCK_AFTER.unsigned_abs().saturating_sub(since.elapsed())
    }

    /// Why no namespace gets anything: no other leader would find it.
    fn not_remembered(&self) -> String {
        let failure = self.refusals.failures.get(&title("Secret", STATE_SECRET));
        let why = failure.map_or("it was not written yet", |failure| &failure.message);
        format!("no namespace gets anything before Secret `{STATE_SECRET}` says so: {why}")
    }

    /// Executes the plan, and plans again. `has_accounts`: the service accounts are known.
    async fn write_namespaces(
        &mut self,
        delivery: Option<Delivery<'_>>,
        global: Option<&Global>,
        watch: &PullSecretsWatch,
        has_accounts: bool,
    ) -> DeliveryPlan {
        let live = self.cache.live_namespaces();
        let memory = &mut self.namespaces.executor.memory;
        memory.retain(|name| live.contains_key(name));
        let mut namespaces = self.plan_namespaces(delivery, &watch.secret_name, has_accounts);
        let stable = if namespaces.needs_stable {
            self.stable(global).await
        } else {
            None
        };
        let delivery = delivery.map(|delivery| Delivery {
            stable: stable.as_ref().and_then(Parts::of),
            ..delivery
        });
        if stable.is_some() {
            namespaces = self.plan_namespaces(delivery, &watch.secret_name, has_accounts);
        }
        let writes = std::mem::take(&mut namespaces.writes);
        let wrote = !writes.is_empty();
        if wrote {
            let key = self.cache.state().proof_key;
            let cache = DeliveryCache::Namespaces(&mut self.cache.pull_secrets);
            let executor = &mut self.namespaces.executor;
            executor
                .execute(writes, &self.applier, cache, key, delivery.as_ref())
                .await;
            namespaces = self.plan_namespaces(delivery, &watch.secret_name, has_accounts);
        }
        namespaces
    }

    /// Whether nothing that the controller created is left in any namespace, but what it can't remove.
    pub(super) fn are_namespaces_over(&self) -> bool {
        let report = self.namespaces.report.as_ref();
        report.is_none_or(NamespacesReport::is_over)
    }

    fn plan_namespaces(
        &mut self,
        delivery: Option<Delivery>,
        secret_name: &str,
        has_accounts: bool,
    ) -> DeliveryPlan {
        let secrets = &self.cache.pull_secrets.secrets.live;
        // Only the times that others wrote are by the wall clock.
        let wall = Timestamp::now();
        let ForNamespaces {
            executor,
            clock,
            ownership,
            digests,
            ..
        } = &mut self.namespaces;
        clock.observe(secrets, uptime(), wall);
        ownership.observe(secrets, self.cache.state().proof_key, secret_name);
        let input = NamespacesInput {
            delivery,
            own_namespace: &self.namespace,
            secret_name,
            namespaces: self.cache.live_namespaces(),
            secrets,
            accounts: has_accounts.then_some(&self.cache.pull_secrets.accounts.live),
            crowded: self.cache.pull_secrets.accounts.full(),
            memory: &executor.memory,
            clock,
            ownership,
            now: steady(),
        };
        plan::plan(&input, digests)
    }

    /// The last revision that was rolled out to all nodes, if the current one differs.
    async fn stable(&self, global: Option<&Global>) -> Option<Global> {
        let secret = self.applier.rolled_out().await;
        let secret = secret.inspect_err(
            |error| tracing::warn!(%error, "could not read the last revision that was rolled out"),
        );
        let stable = secret::decode(&secret.ok()??);
        let is_other = global.is_some_and(|global| stable.revision != global.revision);
        (stable.revision.is_identified() && is_other).then_some(stable)
    }
}

/// Time until then, with a minimum. `at`: by the clock of [`steady`], as all times of the plans.
pub(super) fn until(at: Timestamp) -> Duration {
    let left = at.duration_since(steady());
    let left = Duration::try_from(left).unwrap_or_default();
    left.max(Duration::from_millis(10))
}

/// Names or patterns of service accounts; an invalid pattern matches none.
fn accounts(settings: &ImagePullSecrets) -> Vec<Pattern> {
    let patterns = settings.service_accounts.iter();
    patterns
        .filter_map(|text| Pattern::try_from(text.clone()).ok())
        .collect()
}

/// Whether namespaces get the content of `global-pull-secret`.
fn has_content(plan: &Plan, global: &Global) -> bool {
    let is_in_force = matches!(plan.aim, Aim::Reach(Goal::Revision(_)) | Aim::Hold(_));
    is_in_force && !global.restoring
}
