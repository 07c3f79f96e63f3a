//! From a `FleetPullSecret` and its `ClusterPullSecret`s to what a user sees: rows, counts and readiness. Pure.

pub(crate) mod difference;
pub(crate) mod table;
pub(crate) mod verdict;

use globalps_core::api::{
    ClusterFailure, ClusterPhase, ClusterPullSecret, ClusterPullSecretStatus, Counts,
    DeletionPolicy, FleetPullSecret, FleetPullSecretStatus, condition,
};
use globalps_core::names;
use globalps_core::reasons::Reason;
use globalps_core::rollout::Revision;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::ResourceExt as _;
use serde::Serialize;

use crate::cluster::fleet::FleetFacts;
use crate::terminal::layout::rfc3339;
use crate::view::members::{Member as _, count};
use crate::view::status::{ConditionRow, Status, condition_row};

/// Whether the hub writes nothing into the cluster for this reason, whatever the cluster's state.
pub(crate) fn is_obstacle(reason: &str) -> bool {
    use Reason::{DuplicateCluster, IsHub, TargetTaken, TooManyClusters};
    let obstacles = [IsHub, DuplicateCluster, TargetTaken, TooManyClusters];
    obstacles.iter().any(|it| *reason == *it)
}

/// A `FleetPullSecret`, as `fleet status -o json` has it: scripts rely on its shape.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct FleetRow {
    /// `NAMESPACE/NAME`.
    pub name: String,
    pub ready: bool,
    pub revision: i64,
    pub paused: bool,
    pub counts: Counts,
    pub reason: String,
    pub message: String,
    pub conditions: Vec<ConditionRow>,
    #[serde(skip)]
    pub created: Option<Timestamp>,
    /// `True`, `False`, or `Unknown` where the hub has not reported on the present spec.
    #[serde(skip)]
    pub state: &'static str,
    /// It is being deleted, and the hub removes its Secret from the clusters.
    #[serde(skip)]
    pub is_removing: bool,
}

/// A member cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct ClusterRow {
    /// `NAMESPACE/NAME` of the `Cluster`, or of the Secret that registers it.
    pub name: String,
    /// `NAMESPACE/NAME` of the `FleetPullSecret`.
    pub fleet: String,
    pub phase: ClusterPhase,
    /// In force in the cluster; 0: none.
    pub revision: i64,
    pub reason: String,
    pub message: String,
    /// Nodes of the cluster; `null`: its globalps has not reported them.
    pub nodes: Option<NodesRow>,
    /// RFC 3339, seconds, UTC; empty: never changed.
    pub since: String,
    /// Of the cluster itself, as `status -o json` has it; absent: not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    #[serde(skip)]
    pub since_time: Option<Timestamp>,
    /// Name of the `ClusterPullSecret`; empty: there is none yet.
    #[serde(skip)]
    pub object: String,
    /// It was asked to try again, and the hub has not taken that up yet.
    #[serde(skip)]
    pub is_asked: bool,
    /// It has, or may have, something of the `FleetPullSecret`.
    #[serde(skip)]
    pub is_assigned: bool,
    /// It is assigned the removal.
    #[serde(skip)]
    pub is_removal: bool,
    /// `Cluster` or `Secret`.
    #[serde(skip)]
    pub kind: String,
    /// Identity that its kubeconfig leads to, if the hub does not accept it.
    #[serde(skip)]
    pub found_identity: Option<String>,
}

impl ClusterRow {
    pub(crate) fn namespace(&self) -> &str {
        self.name.split_once('/').map_or("", |(it, _)| it)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct NodesRow {
    pub total: u32,
    pub synced: u32,
}

/// `fleet status NAME -o json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct FleetStatus {
    #[serde(flatten)]
    pub fleet: FleetRow,
    pub clusters: Vec<ClusterRow>,
    /// Some of its clusters only.
    #[serde(skip)]
    pub is_part: bool,
    /// Name of the source Secret.
    #[serde(skip)]
    pub source: String,
}

/// `fleet status -o json`: every `FleetPullSecret` of a namespace, or of all.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Overview {
    /// Each one is.
    pub ready: bool,
    /// Of the only one; 0: there are several, or none.
    pub revision: i64,
    /// Of all.
    pub counts: Counts,
    /// Of all.
    pub clusters: Vec<ClusterRow>,
    pub fleets: Vec<FleetRow>,
}

impl Overview {
    pub(crate) fn of(all: &[FleetStatus]) -> Self {
        let mut counts = Counts::default();
        for FleetRow { counts: one, .. } in all.iter().map(|status| &status.fleet) {
            counts.total += one.total;
            counts.synced += one.synced;
            counts.progressing += one.progressing;
            counts.failed += one.failed;
            counts.unreachable += one.unreachable;
            counts.unsupported += one.unsupported;
        }
        Self {
            ready: is_ready(all),
            revision: match all {
                [one] => one.fleet.revision,
                _ => 0,
            },
            counts,
            clusters: all.iter().flat_map(|it| it.clusters.clone()).collect(),
            fleets: all.iter().map(|it| it.fleet.clone()).collect(),
        }
    }
}

/// Whether there is one, and each one is ready.
pub(crate) fn is_ready(all: &[FleetStatus]) -> bool {
    !all.is_empty() && all.iter().all(|status| status.fleet.ready)
}

impl FleetFacts {
    /// By name.
    pub(crate) fn statuses(&self) -> Vec<FleetStatus> {
        let one = |fleet: &FleetPullSecret| {
            let objects = self.objects.iter().map(|(_, object)| object);
            FleetStatus::of(fleet, objects, &self.filter.clusters)
        };
        self.fleets.iter().map(|(_, fleet)| one(fleet)).collect()
    }
}

impl FleetStatus {
    /// `named`: these clusters only, each as `NAME` or `NAMESPACE/NAME`; none: all of them.
    pub(crate) fn of<'a>(
        fleet: &FleetPullSecret,
        objects: impl IntoIterator<Item = &'a ClusterPullSecret>,
        named: &[String],
    ) -> Self {
        let title = title(fleet);
        let reported = current(fleet);
        let status = fleet.status.as_ref();
        let newest = status.map_or(Revision::NONE, FleetPullSecretStatus::rolled_out);
        let failures = fleet.status.iter().flat_map(|status| &status.failures);
        let mut clusters: Vec<ClusterRow> = objects
            .into_iter()
            .filter(|object| object.spec.fleet == title)
            .map(|object| cluster_row(object, newest))
            .collect();
        // An obstacle is in this list only: the cluster's object does not name it, and often there is no such object.
        for failure in failures.filter(|it| is_obstacle(&it.reason)) {
            match clusters.iter_mut().find(|row| row.name == failure.cluster) {
                Some(row) => {
                    row.phase = ClusterPhase::Blocked;
                    row.reason.clone_from(&failure.reason);
                    row.message.clone_from(&failure.message);
                }
                None => clusters.push(obstacle_row(failure, &title)),
            }
        }
        clusters.retain(|row| is_named(&row.name, named));
        clusters.sort_by(|a, b| a.name.cmp(&b.name));
        let mut row = fleet_row(fleet, reported);
        let is_part = !named.is_empty();
        if is_part {
            row.counts = count(&clusters);
            let is_settled =
                !clusters.is_empty() && clusters.iter().all(|row| row.stage().is_settled());
            row.ready = reported.is_some() && newest.number > 0 && is_settled;
        }
        Self {
            fleet: row,
            clusters,
            is_part,
            source: fleet.spec.secret_ref.name.clone(),
        }
    }

    pub(crate) fn condition(&self, type_: &str) -> Option<&ConditionRow> {
        let mut conditions = self.fleet.conditions.iter();
        conditions.find(|condition| condition.type_ == type_)
    }

    /// Clusters that the hub writes into, or did.
    pub(crate) fn managed(&self) -> impl Iterator<Item = &ClusterRow> {
        self.clusters.iter().filter(|row| !row.object.is_empty())
    }

    pub(crate) fn in_phase(&self, phase: ClusterPhase) -> impl Iterator<Item = &ClusterRow> {
        self.clusters.iter().filter(move |row| row.phase == phase)
    }
}

/// Whether `NAMESPACE/NAME` is one of these, each of which is that or a name; none of them: every one is.
pub(crate) fn is_named(title: &str, named: &[String]) -> bool {
    let name = title.split_once('/').map_or(title, |(_, name)| name);
    named.is_empty() || named.iter().any(|it| it == title || it == name)
}

/// `NAMESPACE/NAME`.
pub(crate) fn title(fleet: &FleetPullSecret) -> String {
    let namespace = fleet.namespace().unwrap_or_default();
    format!("{namespace}/{}", fleet.name_any())
}

/// What the hub reports, if it is about the present spec.
fn current(fleet: &FleetPullSecret) -> Option<&FleetPullSecretStatus> {
    let generation = fleet.metadata.generation.unwrap_or_default();
    let status = fleet.status.as_ref();
    status.filter(|it| it.observed_generation >= generation && !it.conditions.is_empty())
}

fn fleet_row(fleet: &FleetPullSecret, reported: Option<&FleetPullSecretStatus>) -> FleetRow {
    let status = fleet.status.as_ref();
    let counts = status.map_or_else(Counts::default, |status| status.counts);
    let find = |type_: &str| -> Option<&Condition> {
        let mut conditions = reported?.conditions.iter();
        conditions.find(|condition| condition.type_ == type_)
    };
    let ready = find(condition::READY);
    let is_true = ready.is_some_and(|it| it.status == "True");
    let is_paused = find(condition::PROGRESSING).is_some_and(|it| it.reason == Reason::Paused);
    let is_away = is_true && counts.unreachable > 0;
    let reason = match ready {
        None => Reason::NotReported.into(),
        Some(_) if is_away => Reason::ClustersUnreachable.into(),
        Some(ready) if is_paused && ready.reason == Reason::RollingOut => Reason::Paused.into(),
        Some(ready) => ready.reason.clone(),
    };
    let is_ready = is_true && !is_away && fleet.metadata.deletion_timestamp.is_none();
    FleetRow {
        name: title(fleet),
        ready: is_ready,
        revision: status.map_or(0, |status| status.revision),
        paused: fleet.spec.rollout.paused,
        counts,
        reason,
        message: ready.map_or_else(
            || "the hub has not reported on this spec yet".to_owned(),
            |ready| ready.message.clone(),
        ),
        conditions: status
            .map(|status| status.conditions.iter().map(condition_row).collect())
            .unwrap_or_default(),
        created: fleet.creation_timestamp().map(|Time(time)| time),
        state: match (ready, is_ready) {
            (None, _) => "Unknown",
            (_, true) => "True",
            (_, false) => "False",
        },
        is_removing: fleet.metadata.deletion_timestamp.is_some()
            && fleet.spec.deletion_policy == DeletionPolicy::Remove,
    }
}

fn cluster_row(object: &ClusterPullSecret, newest: Revision) -> ClusterRow {
    let none = ClusterPullSecretStatus::default();
    let status = object.status.as_ref().unwrap_or(&none);
    let (phase, is_own) = phase(object, status, newest);
    let or_empty = |text: &String| if is_own { text.clone() } else { String::new() };
    let (mut reason, mut message) = (or_empty(&status.reason), or_empty(&status.message));
    if object.spec.revoked && !has_error(phase) {
        reason = Reason::Revoked.into();
        "the cluster made no progress, so the hub revoked its last assignment"
            .clone_into(&mut message);
    }
    let since_time = status.last_transition_time.as_ref().map(|Time(time)| *time);
    let asked = names::requested_retry(object.annotations());
    let owner = object.owner_references().first();
    let namespace = object.namespace().unwrap_or_default();
    ClusterRow {
        name: format!("{namespace}/{}", object.spec.cluster),
        fleet: object.spec.fleet.clone(),
        phase,
        revision: status.revision,
        reason,
        message,
        nodes: status.nodes.map(|counts| NodesRow {
            total: counts.total,
            synced: counts.synced,
        }),
        since: rfc3339(since_time),
        status: None,
        since_time,
        object: object.name_any(),
        is_asked: asked.is_some_and(|asked| asked != object.spec.retry),
        is_assigned: object.spec.revision > 0 || object.spec.remove || object.spec.revoked,
        is_removal: object.spec.remove,
        kind: owner.map(|it| it.kind.clone()).unwrap_or_default(),
        found_identity: status.found_identity.clone(),
    }
}

/// A cluster that the hub never wrote into.
fn obstacle_row(failure: &ClusterFailure, fleet: &str) -> ClusterRow {
    ClusterRow {
        name: failure.cluster.clone(),
        fleet: fleet.to_owned(),
        phase: ClusterPhase::Blocked,
        reason: failure.reason.clone(),
        message: failure.message.clone(),
        ..ClusterRow::default()
    }
}

/// The phase, and whether it is the one that was reported. `newest`: of the rollout.
fn phase(
    object: &ClusterPullSecret,
    status: &ClusterPullSecretStatus,
    newest: Revision,
) -> (ClusterPhase, bool) {
    let spec = &object.spec;
    let generation = object.metadata.generation.unwrap_or_default();
    let is_up_to_date = status.observed_generation >= generation;
    match status.phase {
        ClusterPhase::Unreachable => (ClusterPhase::Unreachable, true),
        _ if !is_up_to_date && spec.remove => (ClusterPhase::Removing, false),
        _ if !is_up_to_date && spec.revision > 0 => (ClusterPhase::Syncing, false),
        _ if !is_up_to_date => (ClusterPhase::Pending, false),
        // It has another revision, and waits for its turn.
        ClusterPhase::Synced if status.in_force() != newest => (ClusterPhase::Pending, false),
        phase => (phase, true),
    }
}

fn has_error(phase: ClusterPhase) -> bool {
    use ClusterPhase::{Blocked, Failed, Unreachable};
    matches!(phase, Blocked | Failed | Unreachable)
}

#[cfg(test)]
#[path = "fleet/tests.rs"]
pub(crate) mod tests;
