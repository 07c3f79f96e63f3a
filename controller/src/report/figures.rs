//! The metrics' values from the snapshot and the status. Pure.

use globalps_core::api::{GlobalPullSecretStatus, Phase, condition};
use globalps_core::phase;
use globalps_core::reasons::Reason;
use globalps_core::rollout::{Revision, UNRESPONSIVE_AFTER};
use globalps_planner::content::expiry::Expiries;
use globalps_planner::nodes::input::{NodeView, Snapshot};
use jiff::Timestamp;

use crate::telemetry::metrics::{CONDITIONS, DeliveryCounts, FleetGauges, PHASES};

pub(crate) fn figures(
    snapshot: &Snapshot,
    status: &GlobalPullSecretStatus,
    expiries: &Expiries,
) -> FleetGauges {
    FleetGauges {
        revision: status.revision,
        nodes: nodes_by_phase(snapshot, status.rolled_out()),
        conditions: CONDITIONS.map(|type_| {
            let found = find(status, type_);
            found.map_or_else(String::new, |found| found.0.to_owned())
        }),
        degraded_by_content: find(status, condition::DEGRADED)
            .is_some_and(|(status, reason, _)| status == "True" && is_of_content(reason)),
        contested: contested(snapshot, status.rolled_out()),
        credentials_expire: find(status, condition::CREDENTIALS_EXPIRING)
            .and_then(|_| expiries.earliest())
            .map(Timestamp::as_second),
        namespaces: status
            .image_pull_secrets
            .as_ref()
            .map_or_else(DeliveryCounts::default, |found| {
                delivered(found.total, found.synced, found.failed)
            }),
        operators: status
            .operators
            .as_ref()
            .map_or_else(DeliveryCounts::default, |found| {
                delivered(found.total, found.synced, found.failed)
            }),
    }
}

/// Whether this reason of `Degraded` is about a pull secret whose last valid content stays in force.
fn is_of_content(reason: &str) -> bool {
    matches!(
        Reason::parse(reason),
        Some(
            Reason::OriginalUnreadable
                | Reason::SourceAbsent
                | Reason::SourceForbidden
                | Reason::SourceInvalid
                | Reason::SourceUnreadable
        )
    )
}

/// Nodes whose file another program keeps changing. Those of a program that globalps knows and leaves the file to are not.
fn contested(snapshot: &Snapshot, revision: Revision) -> u32 {
    let nodes = snapshot.nodes.views.values().filter(|node| {
        let object = snapshot.nodes.objects.get(&node.name);
        let status = object.and_then(|object| object.status.as_ref());
        phase(snapshot, node, revision) == Some(Phase::ForeignOwner)
            && status.is_some_and(|status| status.reason == Reason::ConflictLimit)
    });
    u32::try_from(nodes.count()).unwrap_or(u32::MAX)
}

fn delivered(total: u32, synced: u32, failed: u32) -> DeliveryCounts {
    DeliveryCounts {
        synced,
        failed,
        waiting: total.saturating_sub(synced.saturating_add(failed)),
    }
}

/// Status, reason and last transition of a condition.
fn find<'a>(
    status: &'a GlobalPullSecretStatus,
    type_: &str,
) -> Option<(&'a str, &'a str, Timestamp)> {
    let found = status
        .conditions
        .iter()
        .find(|found| found.type_ == type_)?;
    Some((&found.status, &found.reason, found.last_transition_time.0))
}

/// Duration of a rollout that this status completes. Computed only from objects, so that it survives a change of the leader.
pub(crate) fn rollout_seconds(
    before: Option<&GlobalPullSecretStatus>,
    after: &GlobalPullSecretStatus,
    now: Timestamp,
) -> Option<f64> {
    let (was, _, since) = find(before?, condition::PROGRESSING)?;
    let (is, reason, _) = find(after, condition::PROGRESSING)?;
    let complete = was == "True" && is == "False" && *reason == Reason::Complete;
    complete.then(|| now.duration_since(since).as_secs_f64().max(0.0))
}

fn nodes_by_phase(snapshot: &Snapshot, revision: Revision) -> [u32; PHASES.len()] {
    let mut counts = [0; PHASES.len()];
    for node in snapshot.nodes.views.values() {
        let Some(phase) = phase(snapshot, node, revision) else {
            continue;
        };
        if let Some(at) = PHASES.iter().position(|known| *known == phase) {
            counts[at] += 1;
        }
    }
    counts
}

/// `None`: globalps never managed this node.
fn phase(snapshot: &Snapshot, node: &NodeView, revision: Revision) -> Option<Phase> {
    if snapshot.nodes.unreadable.contains_key(&node.name) {
        return Some(Phase::Unreadable);
    }
    let object = snapshot.nodes.objects.get(&node.name);
    let unresponsive = object.is_some_and(|object| {
        let status = object.status.as_ref();
        let is_up_to_date =
            status.map(|status| status.observed_generation) == object.metadata.generation;
        !is_up_to_date && snapshot.clock.assigned_for(object) >= UNRESPONSIVE_AFTER
    });
    let not_ready_for = snapshot.clock.not_ready_for(node);
    let down_for = snapshot
        .agents
        .syncers
        .down_for(&node.name, snapshot.clock.uptime);
    let lacks_syncer = down_for.is_some_and(|time| time >= UNRESPONSIVE_AFTER)
        && object
            .and_then(|object| object.status.as_ref())
            .is_none_or(|status| {
                let is_in_force = status.phase == Phase::Synced && status.in_force() == revision;
                !is_in_force && matches!(status.phase, Phase::Pending | Phase::Synced)
            });
    let unsupported = snapshot.unsupported(node).is_some();
    let view = node.phase_view(
        &snapshot.config.spec,
        (unresponsive || lacks_syncer, unsupported),
        not_ready_for,
    );
    phase::phase(object.map(AsRef::as_ref), view, revision)
}

#[cfg(test)]
mod tests {
    use globalps_planner::content::source::Source;
    use globalps_planner::nodes::testing::snapshot;
    use jiff::SignedDuration;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

    use super::*;

    fn status(conditions: &[(&str, &str, &str, i64)]) -> GlobalPullSecretStatus {
        let conditions = conditions.iter().map(|(type_, status, reason, since)| {
            let since = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(*since);
            Condition {
                type_: (*type_).to_owned(),
                status: (*status).to_owned(),
                reason: (*reason).to_owned(),
                message: String::new(),
                observed_generation: None,
                last_transition_time: Time(since),
            }
        });
        GlobalPullSecretStatus {
            revision: 5,
            conditions: conditions.collect(),
            ..GlobalPullSecretStatus::default()
        }
    }

    #[test]
    fn every_node_is_counted_in_one_phase() {
        for (node, expected) in [
            ("a", "-"),
            ("a=0", "Pending"),
            ("a=5", "Syncing"),
            ("a=5:Synced", "Synced"),
            ("a=4:Synced", "Pending"),
            ("a=5:RolledBack", "RolledBack"),
            ("a=5:ForeignOwner", "ForeignOwner"),
            ("a=5:SteppedAside", "SteppedAside"),
            ("a=R", "Restoring"),
            ("a=R:Restored", "Restored"),
            ("-a", "Excluded"),
            ("-a=5:Synced", "Excluded"),
            ("-a=R", "Restoring"),
            ("!a=5:Synced", "Unreachable"),
        ] {
            let mut snapshot = snapshot(Source::Absent, None, node);
            // The table's `!` nodes have been `NotReady` for a minute.
            snapshot.clock.now += SignedDuration::from_secs(1);
            let counts = nodes_by_phase(
                &snapshot,
                globalps_planner::content::secret::revision_of_test(5),
            );
            let found: Vec<String> = PHASES
                .iter()
                .zip(counts)
                .filter(|(_, count)| *count > 0)
                .map(|(phase, _)| phase.to_string())
                .collect();
            let found = if found.is_empty() {
                "-".to_owned()
            } else {
                found.join(" ")
            };
            assert_eq!(found, expected, "{node}");
        }
    }

    #[test]
    fn only_a_file_that_another_program_keeps_changing_is_contested() {
        for (node, reason, expected) in [
            ("a=5:ForeignOwner", "ConflictLimit", 1),
            ("a=5:ForeignOwner", "ManagedFile", 0),
            ("a=5:SteppedAside", "UpdatedInPlace", 0),
            ("-a=5:ForeignOwner", "ConflictLimit", 0),
            ("a=5:Synced", "", 0),
        ] {
            let mut snapshot = snapshot(Source::Absent, None, node);
            let objects = snapshot.nodes.objects.to_mut().values_mut();
            for status in objects.filter_map(|object| object.status.as_mut()) {
                reason.clone_into(&mut status.reason);
            }
            let found = contested(
                &snapshot,
                globalps_planner::content::secret::revision_of_test(5),
            );
            assert_eq!(found, expected, "{node} {reason}");
        }
    }

    #[test]
    fn an_invalid_pull_secret_is_not_as_bad_as_failed_nodes() {
        for (status_, reason, expected) in [
            ("True", "SourceInvalid", true),
            ("True", "OriginalUnreadable", true),
            ("True", "RolloutHalted", false),
            ("False", "AsExpected", false),
        ] {
            let status = status(&[("Degraded", status_, reason, 0)]);
            let snapshot = snapshot(Source::Absent, None, "a");
            let found = figures(&snapshot, &status, &Expiries::default());
            assert_eq!(found.degraded_by_content, expected, "{reason}");
        }
    }

    #[test]
    fn a_rollout_is_timed_only_when_complete() {
        let now = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(100);
        let rolling = status(&[("Progressing", "True", "RollingOut", 90)]);
        for (sentence, after, expected) in [
            ("complete", ("False", "Complete"), Some(10.0)),
            ("continues", ("True", "RollingOut"), None),
            ("halted", ("False", "Halted"), None),
            ("paused", ("False", "Paused"), None),
            ("gone", ("False", "NothingToDo"), None),
        ] {
            let after = status(&[("Progressing", after.0, after.1, 100)]);
            let seconds = rollout_seconds(Some(&rolling), &after, now);
            assert_eq!(seconds, expected, "{sentence}");
            assert_eq!(
                rollout_seconds(Some(&after), &after, now),
                None,
                "{sentence}"
            );
        }
    }
}
