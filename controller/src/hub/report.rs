//! `FleetPullSecret.status` from the plan. Pure.

use std::collections::BTreeMap;

use globalps_core::api::{
    ClusterFailure, ClusterPhase, ClusterPullSecret, Counts, FleetPullSecret,
    FleetPullSecretStatus, STATUS_CLUSTERS, condition,
};
use globalps_core::rollout::Goal;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::clusters::input::{ClusterKey, UNREADABLE, title};
use crate::clusters::limits::is_halted as halts;
use crate::clusters::plan::{FleetPlan, Hold};
use crate::clusters::revision::Revision;
use crate::content::source::Verdict;
use crate::refused::Failure;
use crate::report::statement::{Statement, dated, first, sentences, statement, with_refused};

/// Condition that only a `FleetPullSecret` has.
const SOURCE_VALID: &str = "SourceValid";

/// The failed write of the cluster's object.
pub(super) type Failed<'a> = &'a dyn Fn(&ClusterKey) -> Option<&'a Failure>;

#[derive(Default)]
struct Summary {
    counts: Counts,
    failed: Vec<ClusterFailure>,
    blocked: Vec<ClusterFailure>,
    unreachable: Vec<ClusterFailure>,
    /// Clusters with a revoked assignment.
    timed_out: Vec<ClusterFailure>,
    waiting: u32,
}

pub(super) fn report(
    fleet: &FleetPullSecret,
    plan: &FleetPlan,
    revisions: &[Revision],
    objects: &BTreeMap<ClusterKey, &ClusterPullSecret>,
    (refused, failure): (&[String], Failed),
    now: Timestamp,
) -> FleetPullSecretStatus {
    let generation = fleet.metadata.generation.unwrap_or_default();
    let before = fleet.status.as_ref();
    let summary = count(plan, objects, failure);
    let statements = [
        with_refused(ready(fleet, plan, revisions, &summary), refused),
        progressing(fleet, plan, &summary),
        source_valid(&plan.verdict, plan.revision.number > 0),
    ];
    let conditions = before.map_or(&[][..], |before| before.conditions.as_slice());
    let conditions: Vec<Condition> = statements
        .into_iter()
        .map(|new| dated(new, conditions, generation, now))
        .collect();
    if let Some(Hold::Hidden(_)) = &plan.hold {
        // What else it says may still be so.
        return FleetPullSecretStatus {
            observed_generation: generation,
            conditions,
            ..before.cloned().unwrap_or_default()
        };
    }
    let failures = [
        &summary.failed,
        &summary.blocked,
        &summary.unreachable,
        &summary.timed_out,
    ];
    let failures = failures.into_iter().flatten().take(STATUS_CLUSTERS);
    FleetPullSecretStatus {
        observed_generation: generation,
        observed_secret: String::new(),
        revision: plan.revision.number,
        revision_id: plan.revision.id,
        counts: summary.counts,
        failures: failures.cloned().collect(),
        conditions,
    }
}

fn count(
    plan: &FleetPlan,
    objects: &BTreeMap<ClusterKey, &ClusterPullSecret>,
    failure: Failed,
) -> Summary {
    let mut summary = Summary::default();
    for (key, member) in &plan.members {
        let status = objects.get(key).and_then(|object| object.status.as_ref());
        let obstacle = plan.obstacles.get(key);
        let refused = member.is_refused().then(|| failure(key)).flatten();
        let (reason, message) = match (obstacle, refused, status) {
            (Some((reason, message)), ..) => (*reason, message.as_str()),
            (None, Some(refused), _) => (refused.reason, refused.message.as_str()),
            (None, None, Some(status)) => (status.reason.as_str(), status.message.as_str()),
            (None, None, None) => ("", ""),
        };
        let failure = || ClusterFailure {
            cluster: title(key),
            reason: reason.to_owned(),
            message: message.to_owned(),
        };
        summary.counts.total += 1;
        let is_unreachable = status.is_some_and(|it| it.phase == ClusterPhase::Unreachable);
        if obstacle.is_some() || member.is_blocked() || member.is_refused() {
            summary.blocked.push(failure());
        } else if is_unreachable {
            summary.counts.unreachable += 1;
            summary.unreachable.push(failure());
        } else if member.is_done() {
            summary.counts.synced += 1;
        } else if member.has_failed() {
            summary.counts.failed += 1;
            summary.failed.push(failure());
        } else if member.assigned.is_some_and(|(goal, _)| goal == member.goal) {
            summary.counts.progressing += 1;
        } else {
            summary.waiting += 1;
            if member.is_revoked {
                summary.timed_out.push(ClusterFailure {
                    reason: "TimedOut".to_owned(),
                    message: "not done in time; other clusters continue first".to_owned(),
                    ..failure()
                });
            }
        }
    }
    summary
}

/// The first three clusters, each with its message or reason.
fn list(failures: &[ClusterFailure]) -> String {
    let one = |it: &ClusterFailure| match (it.reason.as_str(), it.message.as_str()) {
        ("", "") => format!("`{}`", it.cluster),
        (reason, "") => format!("`{}`: {reason}", it.cluster),
        (_, message) => format!("`{}`: {message}", it.cluster),
    };
    first(failures.iter().map(one), 3)
}

/// A new revision that could not be written before.
fn unwritten(plan: &FleetPlan) -> Option<i64> {
    let mut numbers = plan.revisions.iter().map(|revision| revision.number);
    numbers.find(|number| *number > plan.revision.number)
}

fn ready(
    fleet: &FleetPullSecret,
    plan: &FleetPlan,
    revisions: &[Revision],
    summary: &Summary,
) -> Statement {
    let no = |reason, message| statement(condition::READY, "False", reason, message);
    if let Some(Hold::Hidden(reason)) = &plan.hold {
        return no("NamespaceForbidden", reason.clone());
    }
    if fleet.metadata.deletion_timestamp.is_some() {
        let left = plan.members.len();
        return no(
            "Removing",
            format!("clusters that still have the Secret: {left}"),
        );
    }
    let counts = &summary.counts;
    match &plan.hold {
        Some(Hold::Unreadable(reason)) => {
            let message = format!(
                "the FleetPullSecret can't be read: {reason}; clusters keep what they have until you correct it"
            );
            return no(UNREADABLE, message);
        }
        Some(Hold::Selector(reason)) => return no("SelectorInvalid", reason.clone()),
        Some(Hold::NothingYet) => {
            return no("NoSource", "there is no valid source yet".to_owned());
        }
        Some(Hold::Install(reason)) => return no("NoImagePullSecret", reason.clone()),
        Some(Hold::NoValidContent) => {
            let message = format!(
                "revision {} stays in force because the source is absent or invalid; to remove it, delete the FleetPullSecret",
                plan.revision.number
            );
            return no("Held", message);
        }
        Some(Hold::NoRevisionLeft) => {
            return no(
                "Held",
                "the revision number has reached its maximum".to_owned(),
            );
        }
        Some(Hold::Hidden(_)) | None => {}
    }
    if !summary.failed.is_empty() {
        return no("ClustersFailed", list(&summary.failed));
    }
    if !summary.blocked.is_empty() {
        return no("ClustersBlocked", list(&summary.blocked));
    }
    if let Some(number) = unwritten(plan) {
        return no(
            "RollingOut",
            format!("revision {number} is not written yet"),
        );
    }
    if summary.waiting + counts.progressing > 0 {
        let mut message = format!(
            "revision {} is in force in {} of {} clusters",
            plan.revision.number, counts.synced, counts.total
        );
        if !summary.timed_out.is_empty() {
            message = format!("{message}; timed out: {}", list(&summary.timed_out));
        }
        return no("RollingOut", message);
    }
    let rejected = revisions.iter().rev().find_map(|it| it.rejected.clone());
    if let Some(reason) = rejected.filter(|_| is_rolled_back(plan, revisions)) {
        let hint = "the previous content is in force until the source changes";
        return no("TakenBack", format!("{reason}; {hint}"));
    }
    let mut message = format!(
        "revision {} is in force in {} of {} clusters",
        plan.revision.number, counts.synced, counts.total
    );
    if counts.synced == 0 {
        return no("NoClusters", message);
    }
    if !summary.unreachable.is_empty() {
        message = format!("{message}; unreachable: {}", list(&summary.unreachable));
    }
    statement(condition::READY, "True", "Synced", message)
}

/// The newest revision follows one that was rolled back.
fn is_rolled_back(plan: &FleetPlan, revisions: &[Revision]) -> bool {
    let before = revisions
        .iter()
        .rev()
        .find(|it| it.number < plan.revision.number);
    before.is_some_and(|it| it.rejected.is_some())
}

fn progressing(fleet: &FleetPullSecret, plan: &FleetPlan, summary: &Summary) -> Statement {
    let open = summary.waiting + summary.counts.progressing;
    let selected = plan.members.iter().map(|(_, member)| member);
    let failed = selected.filter(|it| it.goal != Goal::Restore && it.has_failed());
    let is_halted = halts(&fleet.spec.rollout, failed.count(), plan.members.len());
    let (status, reason, message) = match () {
        () if plan.hold.is_some() => ("False", "Held", String::new()),
        () if open == 0 && unwritten(plan).is_none() => ("False", "Complete", String::new()),
        () if fleet.spec.rollout.paused => (
            "False",
            "Paused",
            "`spec.rollout.paused` is true".to_owned(),
        ),
        () if is_halted => ("False", "Halted", list(&summary.failed)),
        () => ("True", "RollingOut", format!("clusters left: {open}")),
    };
    statement(condition::PROGRESSING, status, reason, message)
}

fn source_valid(verdict: &Verdict, is_in_force: bool) -> Statement {
    let stays = if is_in_force {
        "; the last valid content stays in force"
    } else {
        ""
    };
    let (status, reason, message) = match verdict {
        Verdict::Absent => ("False", "Absent", "the Secret does not exist".to_owned()),
        Verdict::Forbidden => (
            "False",
            "Forbidden",
            "the hub is not allowed to read the Secret".to_owned(),
        ),
        Verdict::Unreadable(reason) => ("False", "Unreadable", reason.clone()),
        Verdict::Invalid(findings) | Verdict::Partly(findings) => {
            ("False", "Invalid", sentences(findings))
        }
        Verdict::RolledBack(_) => ("True", "Valid", String::new()),
        Verdict::Valid(findings) => {
            return statement(SOURCE_VALID, "True", "Valid", sentences(findings));
        }
    };
    let message = if message.is_empty() {
        message
    } else {
        format!("{message}{stays}")
    };
    statement(SOURCE_VALID, status, reason, message)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use globalps_core::rollout::{Member, Progress};
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn a_cluster_that_timed_out_is_named() {
        let member = Member {
            name: "ns/slow".to_owned(),
            goal: Goal::Revision(crate::content::secret::revision_of_test(2)),
            not_ready: None,
            assigned: Some((
                Goal::Revision(crate::content::secret::revision_of_test(1)),
                Progress::Done,
            )),
            assigned_for: SignedDuration::ZERO,
            is_up_to_date: true,
            agent_down: None,
            awaits_agent: false,
            is_revoked: true,
            retry: false,
            has_failed_before: false,
            zone: String::new(),
            is_last: false,
            is_canary: false,
            is_skipped: false,
            in_place: false,
            refused: None,
        };
        let plan = FleetPlan {
            verdict: Verdict::Valid(Vec::new()),
            hold: None,
            revision: crate::content::secret::revision_of_test(2),
            revisions: Vec::new(),
            outdated: Vec::new(),
            members: vec![(("ns".to_owned(), "slow".to_owned()), member)],
            obstacles: BTreeMap::new(),
            assignments: Vec::new(),
            released: Vec::new(),
            is_first_step: false,
            is_finished: false,
        };
        let spec = r#"{"secretRef": {"name": "shared"}}"#;
        let fleet = FleetPullSecret::new("shared", serde_json::from_str(spec).unwrap());
        let status = report(
            &fleet,
            &plan,
            &[],
            &BTreeMap::new(),
            (&[], &|_| None),
            Timestamp::UNIX_EPOCH,
        );
        let failure = &status.failures[0];
        assert_eq!(
            (&*failure.cluster, &*failure.reason),
            ("ns/slow", "TimedOut")
        );
        let ready = &status.conditions[0];
        assert_eq!(ready.reason, "RollingOut");
        assert!(
            ready.message.contains("timed out: `ns/slow`"),
            "{}",
            ready.message
        );
    }
}
