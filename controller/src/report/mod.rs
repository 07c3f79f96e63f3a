//! `GlobalPullSecret.status` from the snapshot and the plan, and the events and metrics that follow from it.

mod conditions;
mod counts;
mod deliveries;
pub(crate) mod events;
mod expiry;
pub(crate) mod figures;
mod forget;
mod sources;
pub(crate) mod statement;
mod syncers;
mod verification;

use globalps_core::api::{
    ConflictStatus, Counts, GlobalPullSecretStatus, STATUS_CONFLICTS, condition,
};
use globalps_core::reasons::Reason;
use globalps_core::rollout::{Goal, Ledger};
use globalps_planner::content::expiry::Expiries;
use globalps_planner::namespaces::report::NamespacesReport;
use globalps_planner::nodes::input::Snapshot;
use globalps_planner::nodes::members::{RolloutTarget, members};
use globalps_planner::nodes::plan::{Aim, Hold, Plan};
use globalps_planner::nodes::state::node_states;
use globalps_planner::openshift::report::PullSecretReport;
use globalps_planner::operators::report::OperatorsReport;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use conditions::{additional_valid, degraded, hold, original_valid, progressing, ready};
use counts::{count, revision};
use deliveries::{
    namespaces_status, namespaces_synced, operators_status, operators_synced, pull_secret_synced,
};
use expiry::credentials_expiring;
use forget::old_forgotten;
use sources::{source_statuses, sources_valid};
use statement::{REGISTRY_LIMIT, dated, shortened, statement, with_refused};
use syncers::{nodes_without_syncer, syncers_healthy};
use verification::credentials_rejected;

use crate::verification::Verified;

/// Of namespaces, of operators, and of `OpenShift`'s own pull secret.
type Deliveries<'a> = (
    Option<&'a NamespacesReport>,
    Option<&'a OperatorsReport>,
    Option<&'a PullSecretReport>,
);

/// `observed_additional` is the `resourceVersion` of the additional Secret, `generation` that of the spec. `before` is the
/// previous status, so that a transition time changes only with its condition's status. `expiries` are those of the content in
/// the snapshot.
pub(crate) fn report(
    snapshot: &Snapshot,
    plan: &Plan,
    (namespaces, operators, pull_secret): Deliveries,
    (expiries, verified): (&Expiries, Option<&Verified>),
    observed_additional: &str,
    generation: i64,
    before: Option<&GlobalPullSecretStatus>,
) -> GlobalPullSecretStatus {
    let revision = revision(snapshot, plan);
    let goal = match plan.aim {
        Aim::Reach(goal) => goal,
        Aim::Hold(_) => Goal::Revision(revision),
        Aim::Nothing | Aim::CleanUp => Goal::Restore,
    };
    let members = if plan.aim == Aim::Nothing {
        Vec::new()
    } else {
        let since = snapshot
            .recorded
            .global
            .as_ref()
            .map_or(0, |g| g.provider_since);
        let target = RolloutTarget {
            ledger: Ledger {
                canary_passed: plan.canary_passed,
                ..Ledger::new(goal)
            },
            provider_since: since,
        };
        members(&node_states(snapshot), target)
    };
    let mut counts = count(&members, goal);
    let (without_syncer, unsupported) = if plan.aim == Aim::Nothing {
        Default::default()
    } else {
        nodes_without_syncer(snapshot, &members, goal)
    };
    counts.status.unsupported = unsupported;
    let refused = snapshot.refused.messages(|_| true);
    let statements = [
        with_refused(
            ready(snapshot, plan, &counts, namespaces, pull_secret),
            &refused,
        ),
        progressing(snapshot, plan, &counts, &members),
        with_refused(degraded(snapshot, plan, &counts, &members), &refused),
        additional_valid(&plan.resolved.additional, snapshot),
        original_valid(&plan.resolved.original),
    ];
    let has_content = matches!(plan.aim, Aim::Reach(Goal::Revision(_)) | Aim::Hold(_))
        && snapshot
            .recorded
            .global
            .as_ref()
            .is_some_and(|global| global.content.is_some());
    let conditions = before.map_or(&[][..], |before| before.conditions.as_slice());
    let conditions = statements
        .into_iter()
        .chain(sources_valid(&plan.resolved.sources))
        .chain(syncers_healthy(snapshot))
        .chain(has_content.then(|| credentials_expiring(expiries, snapshot.clock.now)))
        .chain(namespaces.map(namespaces_synced))
        .chain(operators.map(operators_synced))
        .chain(pull_secret.map(pull_secret_synced))
        .chain(verified.map(|verified| credentials_rejected(verified, conditions)))
        .chain(old_forgotten(snapshot, plan.forget, &members))
        .map(|new| dated(new, conditions, generation, snapshot.clock.now))
        .collect();
    GlobalPullSecretStatus {
        observed_generation: generation,
        observed_additional: observed_additional.to_owned(),
        revision: revision.number,
        revision_id: revision.id,
        forgotten_revision: snapshot.recorded.forgotten,
        counts: counts.status,
        nodes_without_syncer: without_syncer,
        conflicts: named(&plan.resolved.conflicts),
        conflicts_total: u32::try_from(plan.resolved.conflicts.len()).unwrap_or(u32::MAX),
        sources: source_statuses(snapshot, &plan.resolved.sources),
        image_pull_secrets: namespaces.map(|report| {
            let before = before.and_then(|before| before.image_pull_secrets.as_ref());
            namespaces_status(report, before)
        }),
        operators: operators.map(|report| {
            let before = before.and_then(|before| before.operators.as_ref());
            operators_status(report, before)
        }),
        conditions,
    }
}

/// The conditions while the configuration can't be decoded, and no earlier version of it is known.
pub(crate) fn unreadable(snapshot: &Snapshot, generation: i64) -> Vec<Condition> {
    let conditions = [
        (condition::READY, "False"),
        (condition::PROGRESSING, "False"),
        (condition::DEGRADED, "True"),
    ];
    let say = |(type_, status)| {
        let message = hold(Hold::ConfigUnreadable, snapshot);
        let new = statement(type_, status, Reason::Unreadable, message);
        dated(new, &[], generation, snapshot.clock.now)
    };
    conditions.map(say).into()
}

/// As many as fit into the status, without names that are too long for a registry.
fn named(conflicts: &[ConflictStatus]) -> Vec<ConflictStatus> {
    let conflicts = conflicts.iter().take(STATUS_CONFLICTS);
    let conflicts = conflicts.map(|conflict| ConflictStatus {
        registry: shortened(conflict.registry.as_str(), REGISTRY_LIMIT),
        ..conflict.clone()
    });
    conflicts.collect()
}

/// Whether the two differ only in numbers of nodes and in messages. The number of failed nodes is more than that.
pub(crate) fn only_counts(before: &GlobalPullSecretStatus, after: &GlobalPullSecretStatus) -> bool {
    let mut like_before = after.clone();
    like_before.counts = Counts {
        failed: after.counts.failed,
        ..before.counts
    };
    for (old, new) in before.conditions.iter().zip(&mut like_before.conditions) {
        if old.type_ == new.type_ && old.reason == new.reason {
            new.message.clone_from(&old.message);
        }
    }
    like_before == *before
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn only_node_counts_can_wait() {
        let now = Timestamp::UNIX_EPOCH;
        let status = |revision, synced, failed, (value, reason, message): (_, _, &str)| {
            let new = statement("Ready", value, reason, message.to_owned());
            GlobalPullSecretStatus {
                revision,
                counts: Counts {
                    total: 9,
                    synced,
                    failed,
                    ..Counts::default()
                },
                conditions: vec![dated(new, &[], 1, now)],
                ..GlobalPullSecretStatus::default()
            }
        };
        let rolling = ("False", Reason::RollingOut, "2 of 9");
        let before = status(5, 2, 0, rolling);
        for (sentence, after, can_wait) in [
            (
                "more nodes are synced",
                status(5, 3, 0, ("False", Reason::RollingOut, "3 of 9")),
                true,
            ),
            ("one failed", status(5, 2, 1, rolling), false),
            ("another revision", status(6, 2, 0, rolling), false),
            (
                "everything is done",
                status(5, 9, 0, ("True", Reason::Synced, "9 of 9")),
                false,
            ),
            (
                "another reason",
                status(5, 2, 0, ("False", Reason::NodesFailed, "2 of 9")),
                false,
            ),
        ] {
            assert_eq!(only_counts(&before, &after), can_wait, "{sentence}");
        }
    }

    #[test]
    fn many_conflicts_and_long_names_are_shortened() {
        let long = "ä".repeat(2000);
        let conflicts = vec![
            ConflictStatus {
                registry: long.clone(),
                effective: globalps_dockerconfig::Precedence::Additional,
                source: String::new(),
                shadowed: String::new(),
            };
            300
        ];
        let named = named(&conflicts);
        assert_eq!(named.len(), STATUS_CONFLICTS);
        let name = &named[0].registry;
        assert_eq!(
            (name.chars().count(), name.ends_with('…')),
            (REGISTRY_LIMIT, true)
        );
        let message = statement("Ready", "False", Reason::NoNodes, long.repeat(20)).message;
        assert!(
            message.len() < 32_768 && message.ends_with('…'),
            "{}",
            message.len()
        );
        assert_eq!(
            statement("Ready", "False", Reason::NoNodes, long.clone()).message,
            long
        );
    }

    #[test]
    fn a_condition_keeps_its_time_until_its_status_changes() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let first = dated(
            statement("Ready", "False", Reason::NoNodes, String::new()),
            &[],
            1,
            at(1),
        );
        let before = [first];
        let same = dated(
            statement("Ready", "False", Reason::NodesFailed, "more".to_owned()),
            &before,
            2,
            at(2),
        );
        assert_eq!(
            (same.last_transition_time.0, same.reason.as_str()),
            (at(1), "NodesFailed")
        );
        let other = dated(
            statement("Ready", "True", Reason::Synced, String::new()),
            &before,
            2,
            at(3),
        );
        assert_eq!(other.last_transition_time.0, at(3));
    }
}
