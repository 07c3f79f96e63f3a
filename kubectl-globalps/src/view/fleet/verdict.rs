//! What to do next about a `FleetPullSecret`, and whether a wait for it is over. Pure.

use globalps_core::api::{ClusterPhase, condition};
use globalps_core::names;
use globalps_core::reasons::Reason;
use jiff::{SignedDuration, Timestamp};

use super::{ClusterRow, FleetStatus, is_obstacle};
use crate::terminal::number;
use crate::view::status::{ConditionRow, waits_for_canary};

/// That no cluster is selected counts from here on: at first the hub has not looked.
const NEW: SignedDuration = SignedDuration::from_secs(15);

/// The goal of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Every cluster has the newest revision.
    Synced,
    /// The `FleetPullSecret` is gone.
    Removed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Going,
    Done,
    /// It needs a person: a message, and what to do.
    Stuck(Advice),
}

/// A message, and what to do.
pub(crate) type Advice = (String, String);

/// `kubectl globalps fleet VERB NAME -n NAMESPACE` for this `NAMESPACE/NAME`.
pub(crate) fn command(verb: &str, title: &str) -> String {
    let (namespace, name) = title.split_once('/').unwrap_or_default();
    format!("`kubectl globalps fleet {verb} {name} -n {namespace}`")
}

pub(crate) fn verdict(all: &[FleetStatus], goal: Goal, now: Timestamp) -> Verdict {
    if goal == Goal::Removed {
        return match all.iter().find_map(stuck_removal) {
            _ if all.is_empty() => Verdict::Done,
            Some(advice) => Verdict::Stuck(advice),
            None => Verdict::Going,
        };
    }
    let mut result = Verdict::Done;
    for one in all.iter().map(|status| synced(status, now)) {
        match one {
            Verdict::Stuck(_) => return one,
            Verdict::Going => result = one,
            Verdict::Done => {}
        }
    }
    result
}

fn synced(status: &FleetStatus, now: Timestamp) -> Verdict {
    if status.fleet.ready {
        return Verdict::Done;
    }
    if status.fleet.reason == Reason::NotReported || !is_at_rest(status) {
        return Verdict::Going;
    }
    match advice(status) {
        Some(advice) if !waits(status, now) => Verdict::Stuck(advice),
        _ => Verdict::Going,
    }
}

/// The rollout does not go on by itself.
fn is_at_rest(status: &FleetStatus) -> bool {
    let progressing = status.condition(condition::PROGRESSING);
    let is_answered = status
        .in_phase(ClusterPhase::Failed)
        .all(|row| row.is_asked);
    match Reason::parse(&status.fleet.reason) {
        // The clusters are ahead of the hub's report: one that tries again is not failed.
        Some(Reason::ClustersFailed) => {
            !is_answered && progressing.is_none_or(|it| it.status != "True")
        }
        Some(Reason::ClustersBlocked) => progressing.is_none_or(|it| it.status != "True"),
        _ => true,
    }
}

/// It may end well without a person, or with one who is at it.
fn waits(status: &FleetStatus, now: Timestamp) -> bool {
    match Reason::parse(&status.fleet.reason) {
        Some(Reason::RollingOut | Reason::Paused) => !stands_still(status),
        Some(Reason::ClustersUnreachable | Reason::Removing) => true,
        // The hub reports a new revision before it looks at the clusters.
        Some(Reason::NoClusters) => !has_no_cluster(status) || is_new(status, now),
        _ => false,
    }
}

/// Clusters in flight go on, but no further one begins.
fn stands_still(status: &FleetStatus) -> bool {
    let progressing = status.condition(condition::PROGRESSING);
    let is_stopped = progressing.is_some_and(|it| {
        let reason = Reason::parse(&it.reason);
        let stops = matches!(
            reason,
            Some(Reason::Paused | Reason::Halted | Reason::NoCanary)
        );
        it.status == "False" && stops
    });
    is_stopped && status.in_phase(ClusterPhase::Syncing).next().is_none()
}

/// The hub has something to do that it has not reported on.
pub(crate) fn is_stale(all: &[FleetStatus], goal: Goal) -> bool {
    let is_unreported = |status: &FleetStatus| status.fleet.reason == Reason::NotReported;
    goal == Goal::Removed || all.iter().any(is_unreported)
}

fn has_no_cluster(status: &FleetStatus) -> bool {
    status.fleet.counts.total == 0 && status.clusters.is_empty()
}

fn is_new(status: &FleetStatus, now: Timestamp) -> bool {
    let ready = status.condition(condition::READY);
    let since = ready.and_then(|ready| ready.since.parse::<Timestamp>().ok());
    since.is_some_and(|since| now.duration_since(since) < NEW)
}

/// What is the matter, and what to do next; `None`: nothing.
pub(crate) fn advice(status: &FleetStatus) -> Option<Advice> {
    let fleet = &status.fleet;
    let title = fleet.name.as_str();
    if fleet.ready {
        return None;
    }
    let follow = || format!("follow it with {}", command_with_watch(title));
    let reason = Reason::parse(&fleet.reason);
    let (message, hint) = match reason {
        Some(Reason::NotReported) => (
            format!("the hub has not reported on FleetPullSecret `{title}` yet"),
            format!(
                "does the hub run? See `kubectl get deployment {} -n {}`",
                names::HUB,
                names::CONTROLLER_NAMESPACE
            ),
        ),
        Some(Reason::Removing) => removing(status),
        Some(Reason::SelectorInvalid) => (
            fleet.message.clone(),
            edit(title, "fix the selector"),
        ),
        // Its message says what to do.
        Some(Reason::NamespaceForbidden | Reason::NamespaceNotTrusted | Reason::TooLarge) => (fleet.message.clone(), follow()),
        Some(Reason::NoSource | Reason::Held) => source_advice(status),
        Some(Reason::RolledBack) => (
            fleet.message.clone(),
            format!("change source Secret `{}`; the hub rolls out what differs from the rejected revision", status.source),
        ),
        Some(Reason::NoClusters) if has_no_cluster(status) => (
            format!("FleetPullSecret `{title}` selects no cluster"),
            "compare `spec.clusterSelector` with `kubectl get clusters -A --show-labels`, and `spec.registered` with `kubectl get secrets -A -l globalps.io/cluster=true`".to_owned(),
        ),
        Some(Reason::RollingOut) if let Some(why) = canary_wait(status) => (
            waits_for_canary(why),
            edit(title, "`spec.rollout.canary.clusterSelector` must match a cluster that the hub reaches and that has no error"),
        ),
        _ => return of_clusters(status).or_else(|| {
            let hint = match reason {
                Some(Reason::Paused) => format!("go on with {}", command("resume", title)),
                _ => follow(),
            };
            let message = match reason {
                Some(Reason::Paused) => format!("the rollout is paused: {}", fleet.message),
                _ => fleet.message.clone(),
            };
            Some((message, hint))
        }),
    };
    Some((message, hint))
}

/// Why no cluster can be the canary; `None`: one can, or was.
fn canary_wait(status: &FleetStatus) -> Option<&str> {
    let progressing = status.condition(condition::PROGRESSING);
    let waits = |it: &&ConditionRow| {
        let reason = Reason::parse(&it.reason);
        matches!(reason, Some(Reason::NoCanary | Reason::WaitingForCanary))
    };
    progressing.filter(waits).map(|it| it.message.as_str())
}

/// Why nothing more is removed before a person has done something, and what.
fn stuck_removal(status: &FleetStatus) -> Option<Advice> {
    use ClusterPhase::{Blocked, Removed, Unreachable};
    let title = status.fleet.name.as_str();
    // Another program's finalizer may keep the object of a cluster that no longer has the Secret.
    let is_left = |row: &&ClusterRow| row.is_assigned && row.phase != Removed;
    let left = || status.managed().filter(is_left);
    let is_done = |row: &ClusterRow| matches!(row.phase, Blocked | Unreachable);
    let is_in_flight = left().any(|row| row.is_removal && !is_done(row));
    if !status.fleet.is_removing || is_in_flight || left().next().is_none() {
        return None;
    }
    let being_deleted = format!("FleetPullSecret `{title}` is being deleted, and");
    if status.fleet.paused {
        let number = clusters(left().count());
        return Some((
            format!("{being_deleted} its rollout is paused: the Secret stays in {number}"),
            format!("go on with {}", command("resume", title)),
        ));
    }
    let is_blocked = |row: &&ClusterRow| row.is_removal && row.phase == Blocked;
    let blocked: Vec<&ClusterRow> = left().filter(is_blocked).collect();
    let is_waited_for = left().any(|row| !row.is_removal && row.phase != Unreachable);
    (!blocked.is_empty() && !is_waited_for).then(|| {
        (
            format!(
                "{being_deleted} the Secret can't be removed from {}: {}",
                clusters(blocked.len()),
                list(&blocked)
            ),
            format!(
                "once the cause is gone the hub tries again within 30 s, or at once with {}",
                command("retry", title)
            ),
        )
    })
}

fn removing(status: &FleetStatus) -> Advice {
    if let Some(advice) = stuck_removal(status) {
        return advice;
    }
    let title = status.fleet.name.as_str();
    let message = format!(
        "FleetPullSecret `{title}` is being deleted: {}",
        status.fleet.message
    );
    let unreachable = status.in_phase(ClusterPhase::Unreachable).count();
    let hint = if unreachable > 0 && unreachable == status.clusters.len() {
        "only unreachable clusters are left: the hub finishes when they are back, or when their `Cluster` or the Secret that registers them is deleted".to_owned()
    } else {
        format!("follow it with {}", command_with_watch(title))
    };
    (message, hint)
}

fn command_with_watch(title: &str) -> String {
    let command = command("status", title);
    format!("{} --watch`", command.trim_end_matches('`'))
}

fn edit(title: &str, what: &str) -> String {
    let (namespace, name) = title.split_once('/').unwrap_or_default();
    format!("{what}: `kubectl edit fleetpullsecret {name} -n {namespace}`")
}

fn source_advice(status: &FleetStatus) -> Advice {
    let fleet = &status.fleet;
    let source = status
        .condition(condition::SOURCE_VALID)
        .filter(|it| it.status == "False");
    let message = match source {
        Some(found) => format!(
            "source Secret `{}` can't be used: {}",
            status.source,
            said(&found.reason, &found.message)
        ),
        None => fleet.message.clone(),
    };
    let hint = if fleet.revision > 0 {
        format!(
            "fix the Secret, or go back to an earlier revision with {}",
            command("undo", &fleet.name)
        )
    } else {
        "create the Secret, of type `kubernetes.io/dockerconfigjson`".to_owned()
    };
    (message, hint)
}

/// Clusters with errors, the failed ones first.
fn of_clusters(status: &FleetStatus) -> Option<Advice> {
    let title = status.fleet.name.as_str();
    let rows = |phase| -> Vec<&ClusterRow> { status.in_phase(phase).collect() };
    let failed = rows(ClusterPhase::Failed);
    if !failed.is_empty() {
        return Some((
            format!("{} failed: {}", clusters(failed.len()), list(&failed)),
            format!(
                "in that cluster `kubectl globalps check` names the cause; try it and its nodes again with {}, or go back with {}",
                command("retry", title),
                command("undo", title)
            ),
        ));
    }
    let blocked = rows(ClusterPhase::Blocked);
    if !blocked.is_empty() {
        let hint = if blocked.iter().all(|row| is_obstacle(&row.reason)) {
            "change the selectors or the kubeconfigs so that one FleetPullSecret selects each cluster, under one name; the hub then continues".to_owned()
        } else {
            format!(
                "once the cause is gone the hub tries again within 30 s, or at once with {}",
                command("retry", title)
            )
        };
        return Some((
            format!("{} blocked: {}", clusters(blocked.len()), list(&blocked)),
            hint,
        ));
    }
    let unreachable = rows(ClusterPhase::Unreachable);
    let is_all = status.fleet.counts.progressing == 0 && rows(ClusterPhase::Pending).is_empty();
    (!unreachable.is_empty() && is_all).then(|| {
        (
            format!(
                "{} unreachable: {}",
                clusters(unreachable.len()),
                list(&unreachable)
            ),
            "does its API server respond, and is the kubeconfig in the hub's Secret valid? The hub updates the cluster when it is back".to_owned(),
        )
    })
}

/// The first three, each with its reason.
fn list(rows: &[&ClusterRow]) -> String {
    let one = |row: &&ClusterRow| match said(&row.reason, &row.message) {
        "" => format!("`{}`", row.name),
        said => format!("`{}`: {said}", row.name),
    };
    let mut texts: Vec<String> = rows.iter().take(3).map(one).collect();
    if rows.len() > 3 {
        texts.push(format!("and {} more", rows.len() - 3));
    }
    texts.join("; ")
}

fn said<'a>(reason: &'a str, message: &'a str) -> &'a str {
    if message.is_empty() { reason } else { message }
}

/// `1 cluster`, `2 clusters`.
pub(crate) fn clusters(number: usize) -> String {
    self::number(number, "cluster")
}
