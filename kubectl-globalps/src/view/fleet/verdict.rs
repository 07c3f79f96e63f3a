//! What to do next about a `FleetPullSecret`, and whether a wait for it is over. Pure.

use globalps_core::api::{ClusterPhase, condition};
use globalps_core::reasons::{
    CLUSTERS_BLOCKED, CLUSTERS_FAILED, CLUSTERS_LEFT, CLUSTERS_TAKEN, CLUSTERS_UNREACHABLE,
    FLEET_FOLLOW, Reason, of_fleet,
};
use jiff::{SignedDuration, Timestamp};

use super::{ClusterRow, FleetStatus, is_obstacle};
use crate::terminal::number;
use crate::view::members::{Advice, Verdict, said};
use crate::view::status::ConditionRow;

/// That no cluster is selected counts from here on: at first the hub has not looked.
const NEW: SignedDuration = SignedDuration::from_secs(15);

/// The goal of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FleetGoal {
    /// Every cluster has the newest revision.
    Synced,
    /// The `FleetPullSecret` is gone.
    Removed,
}

/// `kubectl globalps fleet VERB NAME -n NAMESPACE` for this `NAMESPACE/NAME`.
pub(crate) fn command(verb: &str, title: &str) -> String {
    let (namespace, name) = title.split_once('/').unwrap_or_default();
    format!("`kubectl globalps fleet {verb} {name} -n {namespace}`")
}

fn stuck((reason, hint): Advice) -> Verdict<String> {
    Verdict::Stuck { reason, hint }
}

pub(crate) fn verdict(all: &[FleetStatus], goal: FleetGoal, now: Timestamp) -> Verdict<String> {
    if goal == FleetGoal::Removed {
        return match all.iter().find_map(stuck_removal) {
            _ if all.is_empty() => Verdict::Done,
            Some(advice) => stuck(advice),
            None => Verdict::Going,
        };
    }
    let mut result = Verdict::Done;
    for one in all.iter().map(|status| synced(status, now)) {
        match one {
            Verdict::Stuck { .. } => return one,
            Verdict::Going => result = one,
            Verdict::Done => {}
        }
    }
    result
}

fn synced(status: &FleetStatus, now: Timestamp) -> Verdict<String> {
    if status.fleet.ready {
        return Verdict::Done;
    }
    if status.fleet.reason == Reason::NotReported || !is_at_rest(status) {
        return Verdict::Going;
    }
    match advice(status) {
        Some(advice) if !waits(status, now) => stuck(advice),
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
pub(crate) fn is_stale(all: &[FleetStatus], goal: FleetGoal) -> bool {
    let is_unreported = |status: &FleetStatus| status.fleet.reason == Reason::NotReported;
    goal == FleetGoal::Removed || all.iter().any(is_unreported)
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
    if fleet.ready {
        return None;
    }
    let title = format!("FleetPullSecret `{}`", fleet.name);
    let of_reason = |reason, message: &str| {
        let finding = of_fleet(reason);
        let hint = finding.map_or(FLEET_FOLLOW, |it| it.hint);
        let message = finding.map_or(message.to_owned(), |it| it.message(message));
        (message, filled(hint, status))
    };
    let reason = Reason::parse(&fleet.reason);
    Some(match reason {
        Some(reason @ Reason::NotReported) => {
            let (message, hint) = of_reason(reason, "");
            (format!("{message} {title} yet"), hint)
        }
        Some(Reason::Removing) => removing(status),
        Some(reason @ (Reason::NoSource | Reason::Held)) => {
            let (message, hint) = of_reason(reason, &fleet.message);
            (source_error(status).unwrap_or(message), hint)
        }
        Some(reason @ Reason::NoClusters) if has_no_cluster(status) => {
            let (message, hint) = of_reason(reason, "");
            (format!("{title} {message}"), hint)
        }
        Some(Reason::RollingOut) if let Some(why) = canary_wait(status) => {
            of_reason(Reason::NoCanary, why)
        }
        // Without a hint, its message says what to do.
        Some(
            reason @ (Reason::SelectorInvalid
            | Reason::NamespaceForbidden
            | Reason::NamespaceNotTrusted
            | Reason::TooLarge
            | Reason::RolledBack),
        ) => of_reason(reason, &fleet.message),
        _ => of_clusters(status).unwrap_or_else(|| match reason {
            Some(Reason::Paused) => of_reason(Reason::Paused, &fleet.message),
            _ => (fleet.message.clone(), filled(FLEET_FOLLOW, status)),
        }),
    })
}

/// A hint of the catalogue.
fn filled(hint: &str, status: &FleetStatus) -> String {
    let (namespace, name) = status.fleet.name.split_once('/').unwrap_or_default();
    hint.replace("{name}", name)
        .replace("{namespace}", namespace)
        .replace("{source}", &status.source)
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
            filled(of_fleet(Reason::Paused).map_or("", |it| it.hint), status),
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
            filled(CLUSTERS_BLOCKED, status),
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
    let is_all = unreachable > 0 && unreachable == status.clusters.len();
    let hint = if is_all { CLUSTERS_LEFT } else { FLEET_FOLLOW };
    (message, filled(hint, status))
}

fn source_error(status: &FleetStatus) -> Option<String> {
    let found = status.condition(condition::SOURCE_VALID)?;
    (found.status == "False").then(|| {
        let said = said(&found.reason, &found.message);
        format!("source Secret `{}` can't be used: {said}", status.source)
    })
}

/// Clusters with errors, the failed ones first.
fn of_clusters(status: &FleetStatus) -> Option<Advice> {
    let rows = |phase| -> Vec<&ClusterRow> { status.in_phase(phase).collect() };
    let blocked = rows(ClusterPhase::Blocked);
    let is_taken = blocked.iter().all(|row| is_obstacle(&row.reason));
    let is_last = status.fleet.counts.progressing == 0 && rows(ClusterPhase::Pending).is_empty();
    let hint_of_blocked = if is_taken {
        CLUSTERS_TAKEN
    } else {
        CLUSTERS_BLOCKED
    };
    let unreachable = if is_last {
        rows(ClusterPhase::Unreachable)
    } else {
        Vec::new()
    };
    let all = [
        (rows(ClusterPhase::Failed), "failed", CLUSTERS_FAILED),
        (blocked, "blocked", hint_of_blocked),
        (unreachable, "unreachable", CLUSTERS_UNREACHABLE),
    ];
    let (rows, what, hint) = all.into_iter().find(|(rows, ..)| !rows.is_empty())?;
    let message = format!("{} {what}: {}", clusters(rows.len()), list(&rows));
    Some((message, filled(hint, status)))
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

/// `1 cluster`, `2 clusters`.
pub(crate) fn clusters(number: usize) -> String {
    self::number(number, "cluster")
}
