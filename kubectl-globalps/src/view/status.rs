//! Derives the status from facts: rows, counts, readiness, and whether a wait is over. Pure.

mod advice;
mod conditions;
mod deliveries;
mod health;
mod left;
mod renewal;
mod rows;
mod sources;
mod summary;
mod verdict;

use globalps_core::api::{
    Counts, DeliveryType, GlobalPullSecret, GlobalPullSecretStatus, NodePullSecretSpec, Phase,
    condition,
};
use globalps_core::reasons::Reason;
use globalps_core::rollout::Revision;
use globalps_core::state::{RESTORE_CONFIGURATION, SOURCES_REMOVED, is_restore_meant};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Serialize;

use crate::cluster::facts::{Facts, Sight};
use crate::terminal::few;
use crate::terminal::layout::rfc3339;
use crate::view::members::{Member as _, Stage, count};

pub(crate) use advice::{ADD, advice};
pub(crate) use conditions::of_credentials;
use deliveries::deliveries;
pub(crate) use deliveries::{DeliveryRow, NODES, NamespacesRow, OperatorsRow};
pub(crate) use health::{Health, HealthState};
pub(crate) use left::left;
pub(crate) use renewal::renewal;
use rows::rows;
pub(crate) use rows::{Row, has_failed, stage};
use sources::source_row;
pub(crate) use sources::{SourceRow, sources_that_give};
pub(crate) use summary::Summary;
pub(crate) use verdict::{ANOTHER_CHANGED, NodesGoal, PAUSED, SELECTOR, verdict};

/// Hint for a rollout without errors; not shown to a user who follows it already.
pub(crate) const FOLLOW: &str = "follow it with `kubectl globalps status --watch`";

/// Hint while the controller has not reported on a change.
pub(crate) const STALE: &str = "if this lasts more than a minute, check that the controller runs: `kubectl -n globalps-system get pods`";

/// Maximum number of names of nodes that are being updated.
const ASIDE: usize = 5;

/// Hint if syncers don't run.
pub(crate) const SYNCERS: &str = "`kubectl globalps check` names the pods and the reason";

/// Hint if a cleanup waits only for unreachable nodes.
pub(crate) const SKIP: &str = "globalps restores them when they are ready again; to finish without them, add `--skip-unreachable` to `kubectl globalps remove --all` or `uninstall`";

/// Hint if a cleanup has nothing left but nodes that it can't restore.
pub(crate) const LEFT: &str = "repair the nodes and run `kubectl globalps retry --wait`; to finish without them, add `--skip-unreachable` to `kubectl globalps remove --all` or `uninstall`";

/// What the phases and counts of a status are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    Now,
    /// The controller has not reported on what is in the cluster now.
    Before,
    /// The same, where a client waits for the change: no node has it.
    Awaited,
    /// There is nothing to sync, so that nodes restore their own files.
    Restoration,
}

/// `status -o json`: scripts rely on its shape.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Status {
    pub ready: bool,
    #[serde(skip)]
    pub about: About,
    /// Nodes that are restored, and have no row any more.
    #[serde(skip)]
    pub gone: u32,
    pub revision: i64,
    pub paused: bool,
    pub counts: Counts,
    pub nodes: Vec<Row>,
    pub conditions: Vec<ConditionRow>,
    /// Further sources, if any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceRow>,
    /// Progress of each form of delivery.
    pub deliveries: Vec<DeliveryRow>,
    /// The status of the namespaces, as the `GlobalPullSecret` has it; absent: they get no pull secrets.
    #[serde(rename = "imagePullSecrets", skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<NamespacesRow>,
    /// The same of the operators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operators: Option<OperatorsRow>,
    /// `controller` and `syncers`; absent: not looked at.
    #[serde(flatten)]
    pub health: Option<Health>,
    /// Absent: not looked at.
    #[serde(flatten)]
    pub summary: Option<Summary>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ConditionRow {
    #[serde(rename = "type")]
    pub type_: String,
    pub status: String,
    pub reason: String,
    pub message: String,
    pub since: String,
}

impl Status {
    pub(crate) fn of(facts: &Facts, now: Timestamp) -> Self {
        let reported = facts.gps().and_then(|gps| gps.status.as_ref());
        let newest = match reported {
            Some(status) => status.rolled_out(),
            None => assigned(facts),
        };
        let revision = newest.number;
        let mut nodes = rows(facts, newest, now);
        nodes.retain(|row| facts.is_shown(&row.name));
        let spec = facts.gps().map(|gps| &gps.spec);
        let has_nodes = spec.is_none_or(|spec| spec.kubelet.delivery != DeliveryType::None);
        // Without delivery to nodes, the controller alone knows what is still to be done.
        let settled = !has_nodes && facts.filter.is_all()
            || nodes
                .iter()
                .all(|row| row.stage().is_settled() || row.refuses());
        // With a selection of nodes, only these count.
        let is_ready = |status: &GlobalPullSecretStatus| {
            is(status, condition::READY, "True")
                || (!facts.filter.is_all() && !is(status, condition::ADDITIONAL_VALID, "False"))
        };
        let ready = missing(facts, &nodes).is_none()
            && settled
            && matches!(current(facts), Current::Reported(status) if is_ready(status));
        let counts = count(&nodes);
        // Then the spec is not in force, and nothing is removed.
        let is_held = facts.gps().is_some_and(is_removal_held);
        let namespaces = spec.zip(reported).and_then(|(spec, status)| {
            let is_enabled = spec.image_pull_secrets.enabled || is_held;
            NamespacesRow::of(is_enabled, status.image_pull_secrets.as_ref()?)
        });
        let operators = spec.zip(reported).and_then(|(spec, status)| {
            // There are no counts before the first listing.
            let found = status.operators.clone();
            let found = found.filter(|_| !is(status, condition::OPERATORS_SYNCED, "Unknown"))?;
            Some(OperatorsRow {
                status: found,
                is_enabled: spec.operators.enabled || is_held,
            })
        });
        Self {
            ready,
            about: match current(facts) {
                Current::Nothing if facts.is_in_force() => About::Restoration,
                Current::Stale => About::Before,
                _ => About::Now,
            },
            gone: 0,
            revision,
            paused: spec.is_some_and(|spec| spec.rollout.paused),
            deliveries: deliveries(&counts, has_nodes, namespaces.as_ref(), operators.as_ref()),
            namespaces,
            operators,
            counts,
            conditions: reported
                .map(|status| status.conditions.iter().map(condition_row).collect())
                .unwrap_or_default(),
            sources: reported
                .map(|status| status.sources.iter().map(source_row).collect())
                .unwrap_or_default(),
            nodes,
            health: None,
            summary: None,
        }
    }

    /// A change waits for the controller.
    pub(crate) fn is_stale(&self) -> bool {
        matches!(self.about, About::Before | About::Awaited)
    }

    /// Nodes that have reached what is wanted of them.
    pub(crate) fn done(&self) -> u32 {
        let restored = self.nodes.iter().filter(|row| row.phase == Phase::Restored);
        match self.about {
            About::Now | About::Before => self.counts.synced,
            About::Awaited => 0,
            About::Restoration => self.gone + u32::try_from(restored.count()).unwrap_or(u32::MAX),
        }
    }

    /// Nodes that should have the current revision but don't.
    pub(crate) fn lagging(&self) -> impl Iterator<Item = &Row> {
        self.nodes
            .iter()
            .filter(|row| !row.stage().is_settled() && !row.refuses())
    }
}

/// What nodes get, where another program updates all that don't have it: nobody can do anything for them now.
pub(crate) fn only_aside(status: &Status) -> Option<(String, &'static str)> {
    let left: Vec<&Row> = status.lagging().collect();
    let is_met = !left.is_empty() && left.iter().all(|row| row.stage() == Stage::Aside);
    let names: Vec<&str> = left.iter().map(|row| row.name.as_str()).collect();
    is_met.then(|| {
        (
            format!(
                "only nodes are left that are being updated: {}",
                few(&names, ASIDE)
            ),
            "they get the credentials after the update",
        )
    })
}

/// Message and hint where nodes that were named have no row, or no node has the labels.
pub(crate) fn missing(facts: &Facts, rows: &[Row]) -> Option<(String, &'static str)> {
    let is_there = |name: &&String| rows.iter().any(|row| row.name == **name);
    let names = facts.filter.names.iter().filter(|name| !is_there(name));
    let names: Vec<&str> = names.map(String::as_str).collect();
    let message = if !names.is_empty() {
        format!("globalps has no node `{}`", names.join("`, `"))
    } else if !facts.filter.is_all() && rows.is_empty() {
        "globalps has no node with such labels".to_owned()
    } else {
        return None;
    };
    Some((
        message,
        "`kubectl globalps status` shows the nodes, `kubectl get nodes --show-labels` their labels",
    ))
}

/// The newest revision that a node is assigned, for where no status names it.
fn assigned(facts: &Facts) -> Revision {
    let objects = facts.node_secrets.iter();
    let specs = objects.map(|(_, object)| &object.spec);
    let assigned = specs.filter(|spec| !spec.restore);
    assigned
        .map(NodePullSecretSpec::assigned)
        .max()
        .unwrap_or_default()
}

/// Message and hint if the `GlobalPullSecret` is missing.
pub(crate) const NO_CONFIGURATION: (&str, &str) = (
    "there is no GlobalPullSecret, so the controller changes no node",
    RESTORE_CONFIGURATION,
);

/// Message and hint while the removal of the last sources from the spec is held.
pub(crate) const REMOVAL_HELD: (&str, &str) = (
    "`spec.sources` no longer names the sources in force, and the controller holds this change, so nothing else comes into force",
    "`kubectl globalps install --restore-configuration` if it is a mistake, `kubectl globalps remove --all` if it is meant",
);

/// Whether the controller's report is about the current objects.
enum Current<'a> {
    /// Content is in force, but the `GlobalPullSecret` is missing.
    NoConfiguration,
    /// No additional Secret, and no other source.
    Nothing,
    /// The controller has not processed the additional Secret or the spec yet.
    Stale,
    Reported(&'a GlobalPullSecretStatus),
}

fn current(facts: &Facts) -> Current<'_> {
    if facts.gps().is_none() && facts.is_in_force() {
        return Current::NoConfiguration;
    }
    let has_sources = facts.gps().is_some_and(|gps| !gps.spec.sources.is_empty());
    let Some((gps, status)) = reported(facts) else {
        return match facts.additional() {
            Sight::Absent if !has_sources => Current::Nothing,
            Sight::Absent | Sight::Here(_) | Sight::Hidden => Current::Stale,
        };
    };
    match additional_version(facts, status) {
        "" if is_removal_held(gps) => Current::Reported(status),
        "" if !has_sources => Current::Nothing,
        _ if !is_about_now(facts, gps, status) => Current::Stale,
        "" if !is_held(status) && sources_that_give(status).next().is_none() => Current::Nothing,
        _ => Current::Reported(status),
    }
}

/// `resourceVersion` of the additional Secret; empty: there is none. The reported one where this user may not see it.
fn additional_version<'a>(facts: &'a Facts, status: &'a GlobalPullSecretStatus) -> &'a str {
    match facts.additional() {
        Sight::Here(version) => version,
        Sight::Absent => "",
        Sight::Hidden => &status.observed_additional,
    }
}

/// Whether the status is about the spec and the additional Secret as they are.
fn is_about_now(facts: &Facts, gps: &GlobalPullSecret, status: &GlobalPullSecretStatus) -> bool {
    status.observed_generation >= gps.metadata.generation.unwrap_or_default()
        && additional_version(facts, status) == status.observed_additional
}

/// The controller changes nothing: no pull secret is valid, for example.
fn is_held(status: &GlobalPullSecretStatus) -> bool {
    find(status, condition::PROGRESSING).is_some_and(|found| found.reason == Reason::Held)
}

/// The controller holds the removal of the last sources from the spec, and nobody has said that it is meant.
pub(crate) fn is_removal_held(gps: &GlobalPullSecret) -> bool {
    let status = gps
        .status
        .as_ref()
        .filter(|status| status.observed_generation >= gps.metadata.generation.unwrap_or_default());
    let progressing = status.and_then(|status| find(status, condition::PROGRESSING));
    progressing.is_some_and(|found| found.message.starts_with(SOURCES_REMOVED))
        && !is_restore_meant(gps)
}

fn reported(facts: &Facts) -> Option<(&GlobalPullSecret, &GlobalPullSecretStatus)> {
    let gps = facts.gps()?;
    Some((gps, gps.status.as_ref()?))
}

fn find<'a>(status: &'a GlobalPullSecretStatus, type_: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|c| c.type_ == type_)
}

fn is(status: &GlobalPullSecretStatus, type_: &str, value: &str) -> bool {
    find(status, type_).is_some_and(|c| c.status == value)
}

pub(crate) fn condition_row(condition: &Condition) -> ConditionRow {
    ConditionRow {
        type_: condition.type_.clone(),
        status: condition.status.clone(),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        since: rfc3339(Some(condition.last_transition_time.0)),
    }
}

/// Whether every node restores its own file, as there is nothing to sync.
pub(crate) fn is_restoring(facts: &Facts) -> bool {
    matches!(current(facts), Current::Nothing)
}

/// Whether the controller has not reported on what is in the cluster now.
pub(crate) fn is_stale(facts: &Facts) -> bool {
    matches!(current(facts), Current::Stale)
}

/// As [`is_stale`], also where there is nothing to sync.
pub(crate) fn is_outdated(facts: &Facts) -> bool {
    is_stale(facts)
        || reported(facts).is_some_and(|(gps, status)| !is_about_now(facts, gps, status))
}

#[cfg(test)]
#[path = "status/tests.rs"]
mod tests;
