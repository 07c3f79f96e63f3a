//! `FleetPullSecret.status` from the plan. Pure.

use std::collections::BTreeMap;

use globalps_core::api::{
    ClusterFailure, ClusterPhase, ClusterPullSecret, Counts, FleetPullSecret,
    FleetPullSecretStatus, MESSAGE_LIMIT, STATUS_CLUSTERS, condition,
};
use globalps_core::reasons::Reason;
use globalps_core::rollout::{Goal, Member, stuck_canaries};
use globalps_planner::clusters::input::{ClusterKey, title};
use globalps_planner::clusters::limits::limits;
use globalps_planner::clusters::plan::{FleetHold, FleetPlan};
use globalps_planner::content::source::Verdict;
use globalps_planner::refused::Failure;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::report::statement::{
    Statement, dated, first, sentences, statement, waits_for_canary, with_refused,
};

/// The failed write of the cluster's object.
pub(super) type Failed<'a> = &'a dyn Fn(&ClusterKey) -> Option<&'a Failure>;

#[derive(Default)]
struct FleetSummary {
    counts: Counts,
    failed: Vec<ClusterFailure>,
    blocked: Vec<ClusterFailure>,
    unreachable: Vec<ClusterFailure>,
    /// Unreachable clusters that lack their desired content.
    unreached: Vec<ClusterFailure>,
    /// Clusters with a revoked assignment.
    timed_out: Vec<ClusterFailure>,
    waiting: u32,
}

pub(super) fn report(
    fleet: &FleetPullSecret,
    plan: &FleetPlan,
    objects: &BTreeMap<ClusterKey, &ClusterPullSecret>,
    (refused, failure): (&[String], Failed),
    now: Timestamp,
) -> FleetPullSecretStatus {
    let generation = fleet.metadata.generation.unwrap_or_default();
    let before = fleet.status.as_ref();
    let summary = count(plan, objects, failure);
    let statements = [
        with_refused(ready(fleet, plan, &summary), refused),
        progressing(fleet, plan, &summary),
        source_valid(&plan.verdict, plan.revision.number > 0),
    ];
    let conditions = before.map_or(&[][..], |before| before.conditions.as_slice());
    let conditions: Vec<Condition> = statements
        .into_iter()
        .map(|new| dated(new, conditions, generation, now))
        .collect();
    if let Some(FleetHold::Hidden(_) | FleetHold::NotTrusted(_)) = &plan.hold {
        // The rest of the status may still be true.
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
) -> FleetSummary {
    let mut summary = FleetSummary::default();
    for (key, member) in &plan.members {
        let status = objects.get(key).and_then(|object| object.status.as_ref());
        let obstacle = plan.obstacles.get(key);
        let refused = member.is_refused().then(|| failure(key)).flatten();
        let (reason, message) = match (obstacle, refused, status) {
            (Some((reason, message)), ..) => (reason.as_str(), message.as_str()),
            (None, Some(refused), _) => (refused.reason.as_str(), refused.message.as_str()),
            (None, None, Some(status)) => (status.reason.as_str(), status.message.as_str()),
            (None, None, None) => ("", ""),
        };
        let failure = || ClusterFailure {
            cluster: title(key),
            reason: reason.to_owned(),
            message: message.chars().take(MESSAGE_LIMIT).collect(),
        };
        summary.counts.total += 1;
        let is_unreachable = status.is_some_and(|it| it.phase == ClusterPhase::Unreachable);
        if obstacle.is_some() || member.is_blocked() || member.is_refused() {
            summary.blocked.push(failure());
        } else if is_unreachable {
            summary.counts.unreachable += 1;
            summary.unreachable.push(failure());
            if !member.is_done() {
                summary.unreached.push(failure());
            }
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
                    reason: Reason::TimedOut.into(),
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

fn ready(fleet: &FleetPullSecret, plan: &FleetPlan, summary: &FleetSummary) -> Statement {
    let no = |reason, message| statement(condition::READY, "False", reason, message);
    match &plan.hold {
        Some(FleetHold::Hidden(reason)) => return no(Reason::NamespaceForbidden, reason.clone()),
        Some(FleetHold::NotTrusted(reason)) => {
            return no(Reason::NamespaceNotTrusted, reason.clone());
        }
        // Applies while it is being deleted, too: which clusters still have the Secret was not determined.
        Some(FleetHold::Unreadable(reason)) => {
            let message = format!(
                "the FleetPullSecret can't be read: {reason}; clusters keep what they have until you correct it"
            );
            return no(Reason::Unreadable, message);
        }
        _ => {}
    }
    if fleet.metadata.deletion_timestamp.is_some() {
        let left = plan.members.len();
        let mut message = format!("clusters that still have the Secret: {left}");
        if left > 0 && fleet.spec.rollout.paused {
            message += "; the rollout is paused, so no further cluster is changed";
        }
        return no(Reason::Removing, message);
    }
    let counts = &summary.counts;
    match &plan.hold {
        Some(FleetHold::Selector(reason)) => return no(Reason::SelectorInvalid, reason.clone()),
        Some(FleetHold::NothingYet) => {
            return no(Reason::NoSource, "there is no valid source yet".to_owned());
        }
        Some(FleetHold::Install(reason)) => return no(Reason::NoImagePullSecret, reason.clone()),
        Some(FleetHold::LeftOut(reason)) => return no(Reason::TooLarge, reason.clone()),
        Some(FleetHold::NoValidContent) => {
            let message = format!(
                "revision {} stays in force because the source is absent or invalid; to remove it, delete the FleetPullSecret",
                plan.revision.number
            );
            return no(Reason::Held, message);
        }
        Some(FleetHold::NoRevisionLeft) => {
            return no(
                Reason::Held,
                "the revision number has reached its maximum".to_owned(),
            );
        }
        Some(FleetHold::Hidden(_) | FleetHold::NotTrusted(_) | FleetHold::Unreadable(_)) | None => {
        }
    }
    if !summary.failed.is_empty() {
        return no(Reason::ClustersFailed, list(&summary.failed));
    }
    if !summary.blocked.is_empty() {
        return no(Reason::ClustersBlocked, list(&summary.blocked));
    }
    if let Some(number) = unwritten(plan) {
        return no(
            Reason::RollingOut,
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
        return no(Reason::RollingOut, message);
    }
    if let Some(reason) = &plan.rolled_back {
        let hint = "the previous content is in force until the source changes";
        return no(Reason::RolledBack, format!("{reason}; {hint}"));
    }
    let mut message = format!(
        "revision {} is in force in {} of {} clusters",
        plan.revision.number, counts.synced, counts.total
    );
    if !summary.unreachable.is_empty() {
        message = format!("{message}; unreachable: {}", list(&summary.unreachable));
    }
    if counts.synced == 0 {
        let reason = if summary.unreachable.is_empty() {
            Reason::NoClusters
        } else {
            Reason::ClustersUnreachable
        };
        return no(reason, message);
    }
    statement(condition::READY, "True", Reason::Synced, message)
}

fn progressing(fleet: &FleetPullSecret, plan: &FleetPlan, summary: &FleetSummary) -> Statement {
    let open = summary.waiting + summary.counts.progressing;
    let (status, reason, message) = match () {
        () if plan.hold.is_some() => ("False", Reason::Held, String::new()),
        () if open == 0 && unwritten(plan).is_none() => {
            // Nothing is in progress, but the rollout continues once they are reachable.
            if summary.unreached.is_empty() {
                ("False", Reason::Complete, String::new())
            } else {
                (
                    "False",
                    Reason::ClustersUnreachable,
                    list(&summary.unreached),
                )
            }
        }
        () if fleet.spec.rollout.paused => (
            "False",
            Reason::Paused,
            "`spec.rollout.paused` is true".to_owned(),
        ),
        () if plan.is_halted => ("False", Reason::Halted, list(&summary.failed)),
        () if let Some(waits) = canary_wait(fleet, plan) => waits,
        () => ("True", Reason::RollingOut, format!("clusters left: {open}")),
    };
    statement(condition::PROGRESSING, status, reason, message)
}

/// The condition `Progressing` while no cluster can be the canary.
fn canary_wait(
    fleet: &FleetPullSecret,
    plan: &FleetPlan,
) -> Option<(&'static str, Reason, String)> {
    if plan.canary_passed {
        return None;
    }
    let members: Vec<Member> = plan.members.iter().map(|(_, it)| it.clone()).collect();
    let goal = Goal::Revision(plan.revision);
    let stuck = stuck_canaries(&members, goal, &limits(&fleet.spec.rollout))?;
    let nobody = "no cluster matches `spec.rollout.canary.clusterSelector`";
    Some(waits_for_canary(&stuck, nobody))
}

fn source_valid(verdict: &Verdict, is_in_force: bool) -> Statement {
    let stays = if is_in_force {
        "; the last valid content stays in force"
    } else {
        ""
    };
    let (status, reason, message) = match verdict {
        Verdict::Absent => (
            "False",
            Reason::Absent,
            "the Secret does not exist".to_owned(),
        ),
        Verdict::Forbidden => (
            "False",
            Reason::Forbidden,
            "the hub is not allowed to read the Secret".to_owned(),
        ),
        Verdict::Unreadable(reason) => ("False", Reason::Unreadable, reason.clone()),
        Verdict::Invalid(findings) | Verdict::Partly(findings) => {
            ("False", Reason::Invalid, sentences(findings))
        }
        Verdict::RolledBack(_) => ("True", Reason::Valid, String::new()),
        Verdict::Valid(findings) => {
            return statement(
                condition::SOURCE_VALID,
                "True",
                Reason::Valid,
                sentences(findings),
            );
        }
    };
    let message = if message.is_empty() {
        message
    } else {
        format!("{message}{stays}")
    };
    statement(condition::SOURCE_VALID, status, reason, message)
}

#[cfg(test)]
mod tests {
    use globalps_core::api::{ClusterPullSecretSpec, ClusterPullSecretStatus};
    use globalps_core::rollout::{Member, Progress};
    use jiff::SignedDuration;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    /// A member with revision 1, whose assignment of revision 2 was revoked.
    fn member() -> Member {
        Member {
            name: "ns/slow".to_owned(),
            goal: Goal::Revision(globalps_planner::content::secret::revision_of_test(2)),
            not_ready: None,
            assigned: Some((
                Goal::Revision(globalps_planner::content::secret::revision_of_test(1)),
                Progress::Done,
            )),
            assigned_for: SignedDuration::ZERO,
            is_up_to_date: true,
            agent_down: None,
            unable: None,
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
        }
    }

    /// A plan with that member.
    fn plan() -> FleetPlan {
        FleetPlan {
            verdict: Verdict::Valid(Vec::new()),
            hold: None,
            revision: globalps_planner::content::secret::revision_of_test(2),
            canary_passed: false,
            revisions: Vec::new(),
            rolled_back: None,
            outdated: Vec::new(),
            is_halted: false,
            members: vec![(("ns".to_owned(), "slow".to_owned()), member())],
            obstacles: BTreeMap::new(),
            assignments: Vec::new(),
            released: Vec::new(),
            is_first_step: false,
            is_finished: false,
        }
    }

    fn fleet() -> FleetPullSecret {
        let spec = r#"{"secretRef": {"name": "shared"}}"#;
        FleetPullSecret::new("shared", serde_json::from_str(spec).unwrap())
    }

    #[test]
    fn timed_out_clusters_canaries_and_paused_removals_are_named() {
        let plan = plan();
        let fleet = fleet();
        let status = report(
            &fleet,
            &plan,
            &BTreeMap::new(),
            (&[], &|_| None),
            Timestamp::UNIX_EPOCH,
        );
        let progressing = |plan: &FleetPlan| {
            let objects = BTreeMap::new();
            let refused: (&[String], Failed) = (&[], &|_| None);
            let status = report(&fleet, plan, &objects, refused, Timestamp::UNIX_EPOCH);
            let found = &status.conditions[1];
            format!("{} {} {}", found.status, found.reason, found.message)
        };
        let mut canary = plan.clone();
        let no_canary = "False NoCanary no cluster matches `spec.rollout.canary.clusterSelector`";
        assert_eq!(progressing(&canary), no_canary);
        canary.members[0].1.is_canary = true;
        let rolling_out = "True RollingOut clusters left: 1";
        assert_eq!(progressing(&canary), rolling_out);
        canary.members[0].1.not_ready = Some(SignedDuration::from_mins(1));
        let waits = "True WaitingForCanary no canary can change now: ns/slow";
        assert_eq!(progressing(&canary), waits);
        canary.canary_passed = true;
        assert_eq!(progressing(&canary), rolling_out);
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
        let mut fleet = fleet;
        fleet.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        let mut message = |paused| {
            fleet.spec.rollout.paused = paused;
            let objects = BTreeMap::new();
            let refused: (&[String], Failed) = (&[], &|_| None);
            let status = report(&fleet, &plan, &objects, refused, Timestamp::UNIX_EPOCH);
            status.conditions[0].message.clone()
        };
        let left = "clusters that still have the Secret: 1";
        assert_eq!(message(false), left);
        let expected = format!("{left}; the rollout is paused, so no further cluster is changed");
        assert_eq!(message(true), expected);
    }

    #[test]
    fn a_long_refusal_fits_into_the_status() {
        let mut plan = plan();
        let key = plan.members[0].0.clone();
        let message = "é".repeat(2 * MESSAGE_LIMIT);
        plan.obstacles.insert(key, (Reason::Rejected, message));
        let objects = BTreeMap::new();
        let refused: (&[String], Failed) = (&[], &|_| None);
        let status = report(&fleet(), &plan, &objects, refused, Timestamp::UNIX_EPOCH);
        let message = &status.failures[0].message;
        assert_eq!(message.chars().count(), MESSAGE_LIMIT);
    }

    /// `Ready` and `Progressing`, each in one line.
    fn lines(
        fleet: &FleetPullSecret,
        plan: &FleetPlan,
        object: Option<&ClusterPullSecret>,
    ) -> [String; 2] {
        let key = ("ns".to_owned(), "slow".to_owned());
        let objects = object.into_iter().map(|it| (key.clone(), it)).collect();
        let refused: (&[String], Failed) = (&[], &|_| None);
        let status = report(fleet, plan, &objects, refused, Timestamp::UNIX_EPOCH);
        let line = |at: usize| {
            let found = &status.conditions[at];
            format!("{} {} {}", found.status, found.reason, found.message)
        };
        [line(0), line(1)]
    }

    #[test]
    fn an_unreadable_fleet_counts_no_clusters_even_in_deletion() {
        let mut fleet = fleet();
        let mut plan = plan();
        plan.members.clear();
        plan.hold = Some(FleetHold::Unreadable("it can't be decoded".to_owned()));
        let before = lines(&fleet, &plan, None);
        assert!(before[0].starts_with("False Unreadable "), "{before:?}");
        fleet.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        assert_eq!(lines(&fleet, &plan, None), before);
        plan.hold = None;
        let removed = "False Removing clusters that still have the Secret: 0";
        assert_eq!(lines(&fleet, &plan, None)[0], removed);
    }

    #[test]
    fn a_rollout_to_clusters_that_are_unreachable_is_not_complete() {
        let status = ClusterPullSecretStatus {
            phase: ClusterPhase::Unreachable,
            message: "no answer".to_owned(),
            ..ClusterPullSecretStatus::default()
        };
        let mut object = ClusterPullSecret::new("slow", ClusterPullSecretSpec::default());
        object.status = Some(status);
        let mut plan = plan();
        plan.canary_passed = true;
        let away = "`ns/slow`: no answer";
        let ready = format!(
            "False ClustersUnreachable revision 2 is in force in 0 of 1 clusters; unreachable: {away}"
        );
        let progressing = format!("False ClustersUnreachable {away}");
        let found = lines(&fleet(), &plan, Some(&object));
        assert_eq!(found, [ready.clone(), progressing]);
        // It has the revision, as far as the hub knows.
        plan.members[0].1.assigned = Some((plan.members[0].1.goal, Progress::Done));
        let found = lines(&fleet(), &plan, Some(&object));
        assert_eq!(found, [ready, "False Complete ".to_owned()]);
        plan.members.clear();
        let nobody = "False NoClusters revision 2 is in force in 0 of 0 clusters";
        assert_eq!(lines(&fleet(), &plan, None)[0], nobody);
    }
}
