//! What this leader knows beyond the cache.

use std::borrow::Cow;

use globalps_core::rollout::Revision;
use globalps_planner::content::expiry::Expiries;
use globalps_planner::content::history::HistoryWrite;
use globalps_planner::content::secret::RolledOutWrite;
use globalps_planner::namespaces::clock::SecretClock;
use globalps_planner::namespaces::digest::Digests;
use globalps_planner::namespaces::ownership::Ownership;
use globalps_planner::namespaces::report::NamespacesReport;
use globalps_planner::nodes::forget::Forgotten;
use globalps_planner::nodes::input::Snapshot;
use globalps_planner::openshift::report::PullSecretReport;
use globalps_planner::openshift::turns::Turns;
use globalps_planner::operators::report::OperatorsReport;
use jiff::Timestamp;
use tokio::time::Instant;

use super::delivering::Executor;
use crate::cache::{Cache, uptime};
use crate::objects::managed::{Installed, PerObject, RateLimiter};
use crate::objects::refusals::Refusals;

/// What this leader knows of namespaces beyond the cache.
#[derive(Default)]
pub(super) struct ForNamespaces {
    /// Results of the last reconcile; `None`: namespaces get nothing and have nothing.
    pub(super) report: Option<NamespacesReport>,
    /// The newest revision that has reached every namespace that can get it.
    pub(super) everywhere: Option<Revision>,
    pub(super) executor: Executor,
    pub(super) clock: SecretClock,
    pub(super) ownership: Ownership,
    pub(super) digests: Digests,
    /// Time of the last lookup of the admission policy, the spec's generation then, and whether the policy is in force.
    pub(super) policy: Option<(Instant, i64, bool)>,
    /// When the Secrets and service accounts were last listed from the beginning.
    pub(super) listed: Option<Instant>,
    /// Since when it is not known what the namespaces have.
    pub(super) unknown_since: Option<Instant>,
}

/// What this leader knows of operators beyond the cache.
#[derive(Default)]
pub(super) struct ForOperators {
    /// Results of the last reconcile; `None`: operators get nothing and have nothing.
    pub(super) report: Option<OperatorsReport>,
    pub(super) executor: Executor,
}

/// What this leader knows of `OpenShift`'s own pull secret beyond the cache.
#[derive(Default)]
pub(super) struct ForClusterSecret {
    /// Results of the last reconcile; `None`: it gets nothing and has nothing.
    pub(super) report: Option<PullSecretReport>,
    pub(super) turns: Turns,
}

/// What this leader knows of the Secrets with earlier content.
#[derive(Default)]
pub(super) struct EarlierContent {
    /// What `global-pull-secret` no longer has, and could not be saved yet.
    pub(super) history: Option<HistoryWrite>,
    pub(super) rolled_out: Option<RolledOutWrite>,
    /// Slots of the history beyond the limit may exist.
    pub(super) is_too_long: bool,
    /// Content that was forgotten on request.
    pub(super) forgotten: Option<Forgotten>,
}

/// What this leader knows of the syncer's objects beyond the cache.
#[derive(Default)]
pub(super) struct Agents {
    /// The objects as this leader wrote them; `None`: not written yet.
    pub(super) installed: Option<Installed>,
    /// Rate limiter for reverts of each object.
    pub(super) reverts: PerObject<RateLimiter>,
    /// Some objects could not be deleted after all nodes were restored.
    pub(super) cleans_up: bool,
}

/// What this leader has reported.
#[derive(Default)]
pub(super) struct Reported {
    /// Whether nothing is in progress, as computed for the last status, written or not; `None`: not yet.
    pub(super) at_rest: Option<bool>,
    /// The last write of the status.
    pub(super) written: Option<Instant>,
    /// Expiries of the content in force, computed once per `resourceVersion` of `global-pull-secret`.
    pub(super) expiries: (Option<String>, Expiries),
    /// The `GlobalPullSecret` is missing, and an event has reported it. Whether its kind is served.
    pub(super) config_missing: Option<bool>,
    /// The configuration can't be created, and an event has reported it.
    pub(super) config_refused: bool,
}

/// The cache, with what this leader knows beyond it.
pub(super) fn snapshot<'a>(
    cache: &'a Cache,
    refusals: &'a Refusals,
    earlier: &EarlierContent,
    now: Timestamp,
) -> Snapshot<'a> {
    let mut snapshot = cache.snapshot(uptime(), now);
    snapshot.refused = Cow::Borrowed(&refusals.failures);
    Forgotten::add(earlier.forgotten, &mut snapshot.recorded);
    snapshot
}
