//! The conditions of the status. Pure.

use globalps_core::api::{DeliveryType, condition};
use globalps_core::names::{ADDITIONAL_SECRET, SECRET_TYPE, SYNCER};
use globalps_core::rollout::{self, Goal, Member};

use super::counts::{NodeCounts, failures, list, restoring, rolling_out};
use super::namespaces::namespaces_synced;
use super::sources::first_bad;
use super::statement::{MAY_NOT_READ, Statement, WAITS_FOR_PODS, sentences, statement};
use crate::content::source::Verdict;
use crate::namespaces::summary::NamespacesReport;
use crate::nodes::input::{Snapshot, Syncers};
use crate::nodes::plan::{Aim, Hold, Plan};
use crate::nodes::provider_paths::{Deviation, reports_provider};

const TAKEN_BACK_HINT: &str =
    "the additional Secret from before is in force until this one is changed";

fn is_invalid(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Invalid(_))
}

fn is_halted(snapshot: &Snapshot, counts: &NodeCounts, members: &[Member]) -> bool {
    rollout::is_halted(counts.halting, &snapshot.spec.rollout, members.len())
}

fn hold(hold: Hold) -> &'static str {
    match hold {
        Hold::ConfigMissing => {
            "the GlobalPullSecret was deleted; every node keeps what it has until there is one again"
        }
        Hold::NoValidContent => {
            "no pull secret is valid; every node keeps what it has, and only deleting the pull secrets restores the nodes"
        }
        Hold::NoRevisionLeft => "the revision can't be counted up; every node keeps what it has",
    }
}

/// Revision that is rolled out or held; 0: none.
pub(super) fn revision(snapshot: &Snapshot, plan: &Plan) -> i64 {
    match plan.aim {
        Aim::Reach(Goal::Revision(revision)) => revision,
        Aim::Hold(_) => snapshot.global.as_ref().map_or(0, |global| global.revision),
        Aim::Reach(Goal::Restore) | Aim::Nothing | Aim::CleanUp => 0,
    }
}

pub(super) fn ready(
    snapshot: &Snapshot,
    plan: &Plan,
    counts: &NodeCounts,
    namespaces: Option<&NamespacesReport>,
) -> Statement {
    let no = |reason, message| statement(condition::READY, "False", reason, message);
    let status = counts.status;
    if let (Aim::Hold(reason), false) = (plan.aim, is_invalid(&plan.resolved.additional)) {
        return no("Held", hold(reason).to_owned());
    }
    let (Aim::Reach(Goal::Revision(_)) | Aim::Hold(_)) = plan.aim else {
        return match (&plan.resolved.additional, plan.aim) {
            (Verdict::Invalid(findings), Aim::Nothing) => {
                no("AdditionalInvalid", sentences(findings))
            }
            (_, Aim::Nothing) => {
                let mut message = format!("there is no Secret `{ADDITIONAL_SECRET}`");
                if let Some((_, _, reason)) = first_bad(&plan.resolved.sources) {
                    message = format!("{message}, and none of the sources is valid: {reason}");
                }
                no("NoAdditional", message)
            }
            _ => no("Restoring", restoring(counts)),
        };
    };
    let is_without_nodes = snapshot.spec.kubelet.delivery == DeliveryType::None;
    let revision = revision(snapshot, plan);
    if let Verdict::Invalid(findings) = &plan.resolved.additional {
        let message = format!(
            "revision {revision} stays in force: {}",
            sentences(findings)
        );
        return no("AdditionalInvalid", message);
    }
    if let Verdict::RolledBack(reason) = &plan.resolved.additional {
        return no("TakenBack", format!("{reason}; {TAKEN_BACK_HINT}"));
    }
    if !counts.failed.is_empty() {
        return no("NodesFailed", failures(snapshot, &counts.failed));
    }
    if !counts.blocked.is_empty() {
        return no("NodesBlocked", failures(snapshot, &counts.blocked));
    }
    if snapshot.deviation == Deviation::WaitsForPods {
        return no("WaitingForSyncers", WAITS_FOR_PODS.to_owned());
    }
    if counts.waiting + status.progressing > 0 {
        return no("RollingOut", rolling_out(revision, counts));
    }
    if let Some(namespaces) = namespaces.map(namespaces_synced)
        && (namespaces.reason == "RollingOut" || is_without_nodes && namespaces.status != "True")
    {
        return no(namespaces.reason, namespaces.message);
    }
    if is_without_nodes {
        return match namespaces.map(namespaces_synced) {
            Some(namespaces) => statement(condition::READY, "True", "Synced", namespaces.message),
            None => no(
                "NoDelivery",
                "`spec.kubelet.delivery` is `None`, and `spec.imagePullSecrets.enabled` is false"
                    .to_owned(),
            ),
        };
    }
    let mut message = format!(
        "revision {revision} is in force on {} of {} nodes",
        status.synced, status.total
    );
    if !counts.unreachable.is_empty() {
        message = format!(
            "{message}; not ready, or without a syncer that answers: {}",
            list(&counts.unreachable)
        );
    }
    if status.synced == 0 {
        return no("NoNodes", message);
    }
    statement(condition::READY, "True", "Synced", message)
}

pub(super) fn progressing(
    snapshot: &Snapshot,
    plan: &Plan,
    counts: &NodeCounts,
    members: &[Member],
) -> Statement {
    let open = counts.waiting + counts.status.progressing;
    let (status, reason, message) = match plan.aim {
        Aim::Nothing => ("False", "NothingToDo", String::new()),
        Aim::CleanUp => ("True", "CleaningUp", "every node is restored".to_owned()),
        Aim::Reach(_) if open == 0 => ("False", "Complete", String::new()),
        Aim::Reach(_) if snapshot.spec.rollout.paused => (
            "False",
            "Paused",
            "`spec.rollout.paused` is true".to_owned(),
        ),
        Aim::Hold(reason) => ("False", "Held", hold(reason).to_owned()),
        Aim::Reach(_) if is_halted(snapshot, counts, members) => {
            ("False", "Halted", failures(snapshot, &counts.failed))
        }
        Aim::Reach(_) if snapshot.syncers.are_rolling => (
            "True",
            "SyncersRolling",
            "nodes change when the syncer's pods are replaced".to_owned(),
        ),
        Aim::Reach(Goal::Revision(_)) if let Some(message) = waits_for_canary(plan, members) => {
            ("True", "WaitingForCanary", message)
        }
        Aim::Reach(Goal::Revision(revision)) => {
            ("True", "RollingOut", rolling_out(revision, counts))
        }
        Aim::Reach(Goal::Restore) => ("True", "Restoring", restoring(counts)),
    };
    statement(condition::PROGRESSING, status, reason, message)
}

/// Nobody can go first; `None`: somebody can.
fn waits_for_canary(plan: &Plan, members: &[Member]) -> Option<String> {
    let mut canaries = members.iter().filter(|member| member.is_canary).peekable();
    if plan.canary_passed {
        return None;
    }
    if canaries.peek().is_none() {
        return Some("no node matches `spec.rollout.canary.nodeSelector`".to_owned());
    }
    let is_stuck = canaries.all(|member| !member.is_done() && member.is_passed_over());
    is_stuck.then(|| "no canary can change now: see the nodes' reasons".to_owned())
}

pub(super) fn degraded(
    snapshot: &Snapshot,
    plan: &Plan,
    counts: &NodeCounts,
    members: &[Member],
) -> Statement {
    let yes = |reason, message| statement(condition::DEGRADED, "True", reason, message);
    if !counts.failed.is_empty() {
        let reason = if is_halted(snapshot, counts, members) {
            "RolloutHalted"
        } else {
            "NodesFailed"
        };
        return yes(reason, failures(snapshot, &counts.failed));
    }
    if !counts.blocked.is_empty() {
        return yes("NodesBlocked", failures(snapshot, &counts.blocked));
    }
    if let Aim::Hold(reason) = plan.aim {
        return yes("Held", hold(reason).to_owned());
    }
    if let Some(path) = snapshot.other_config_file() {
        let message = format!(
            "the nodes have `{path}`, and `spec.kubelet.configFile` names another file: it applies after a cleanup"
        );
        return yes("ConfigFileDiffers", message);
    }
    if snapshot.deviation == Deviation::Keeps {
        return yes("ProviderPathsDiffer", keeps(snapshot));
    }
    if let Verdict::RolledBack(reason) = &plan.resolved.additional {
        let message = format!("{reason}; {TAKEN_BACK_HINT}");
        return statement(condition::DEGRADED, "True", "TakenBack", message);
    }
    match &plan.resolved.original {
        Verdict::Unreadable(reason) => statement(
            condition::DEGRADED,
            "True",
            "OriginalUnreadable",
            format!("the original pull secret: {reason}"),
        ),
        _ if let Some((_, reason, message)) = first_bad(&plan.resolved.sources) => {
            statement(condition::DEGRADED, "True", reason, message)
        }
        _ => statement(condition::DEGRADED, "False", "AsExpected", String::new()),
    }
}

/// One node that is never heard of again, or that lies, would hold up all the others: it is named.
fn keeps(snapshot: &Snapshot) -> String {
    let kubelet = &snapshot.spec.kubelet;
    let paths = kubelet.credential_provider.as_ref().map_or_else(
        || "with the flags in kubeadm's file".to_owned(),
        |paths| format!("in `{}` and `{}`", paths.config_path, paths.bin_dir),
    );
    let what = format!(
        "nodes have the credential provider {paths}, and `spec.kubelet.credentialProvider` says something else"
    );
    if kubelet.delivery == DeliveryType::CredentialProvider {
        return format!("{what}: it applies once `delivery` was `ConfigFile` on every node");
    }
    let objects = snapshot.node_pull_secrets.iter();
    let with_provider = objects.filter(|(_, object)| reports_provider(object));
    let names: Vec<String> = with_provider.map(|(name, _)| name.clone()).collect();
    format!(
        "{what}: it applies when the last of them has gone back to the credentials file, or was deleted: {}",
        list(&names)
    )
}

/// Whether the syncers run; `None`: there are none.
pub(super) fn syncers_healthy(snapshot: &Snapshot) -> Option<Statement> {
    let new = |status, reason, message: String| {
        statement(condition::SYNCERS_HEALTHY, status, reason, message)
    };
    let Syncers {
        down,
        are_missing,
        are_rolling,
    } = snapshot.syncers;
    let describe = format!("`kubectl describe daemonset {SYNCER}` names the reason");
    Some(match (down, are_missing) {
        _ if !snapshot.daemon_set => return None,
        (0, _) if are_rolling => new("True", "RollingOut", "pods are being replaced".to_owned()),
        (0, _) => new("True", "AllRunning", String::new()),
        (_, true) => {
            let message =
                format!("{down} syncers have no pod, as the API server refuses it: {describe}");
            new("False", "PodsNotCreated", message)
        }
        (_, false) => {
            let message = format!("{down} syncers on nodes that are ready don't run: {describe}");
            new("False", "NotRunning", message)
        }
    })
}

pub(super) fn additional_valid(verdict: &Verdict, snapshot: &Snapshot) -> Statement {
    let new =
        |status, reason, message| statement(condition::ADDITIONAL_VALID, status, reason, message);
    match verdict {
        Verdict::Absent => new(
            "Unknown",
            "Absent",
            format!("there is no Secret `{ADDITIONAL_SECRET}`"),
        ),
        Verdict::Valid => new("True", "Valid", type_warning(snapshot)),
        Verdict::RolledBack(reason) => new("True", "TakenBack", reason.clone()),
        Verdict::Unreadable(reason) => new("False", "Unreadable", reason.clone()),
        Verdict::Forbidden => new("False", "Forbidden", MAY_NOT_READ.to_owned()),
        Verdict::Invalid(findings) | Verdict::Partly(findings) => {
            let stays = if snapshot.global.is_some() {
                "; the last valid one stays in force"
            } else {
                ""
            };
            new(
                "False",
                "Invalid",
                format!("{}{stays}", sentences(findings)),
            )
        }
    }
}

pub(super) fn original_valid(verdict: &Verdict) -> Statement {
    let new =
        |status, reason, message| statement(condition::ORIGINAL_VALID, status, reason, message);
    match verdict {
        Verdict::Absent => new(
            "True",
            "NodeFile",
            "each node's own file is the base".to_owned(),
        ),
        Verdict::Valid | Verdict::RolledBack(_) => new("True", "Valid", String::new()),
        Verdict::Unreadable(reason) => new("False", "Unreadable", reason.clone()),
        Verdict::Forbidden => new("False", "Forbidden", MAY_NOT_READ.to_owned()),
        Verdict::Partly(findings) => new(
            "False",
            "BadEntries",
            format!("left out: {}", sentences(findings)),
        ),
        Verdict::Invalid(findings) => new("False", "Invalid", sentences(findings)),
    }
}

/// A Secret of another type works the same, but the API server does not validate its content.
fn type_warning(snapshot: &Snapshot) -> String {
    match snapshot.additional_type.as_deref() {
        None | Some(SECRET_TYPE) => String::new(),
        Some(other) => format!("its type is `{other}`; `{SECRET_TYPE}` is the usual one"),
    }
}
