//! Whether a wait is over. Pure.

use globalps_core::api::{GlobalPullSecretStatus, NodePullSecret, Phase, condition};
use globalps_core::names;
use globalps_core::reasons::{CANARY, Reason};
use globalps_core::state::{SOURCES_REMOVED, is_restore_meant};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;

use super::{
    Current, FOLLOW, LEFT, NO_CONFIGURATION, Row, Status, current, find, has_failed, left,
    only_aside, reported,
};
use crate::cluster::facts::{Facts, Sight};
use crate::view::members::{self, Member as _, Verdict};

/// The goal of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodesGoal {
    /// Every node has the additional Secret as it is now.
    Synced,
    /// There is no additional Secret, and every node is restored, or has what further sources provide.
    Restored {
        /// Doesn't wait for unreachable nodes.
        skip_unreachable: bool,
    },
}

/// Whether `Degraded` is about failed nodes.
pub(super) fn is_of_failed_nodes(degraded: &Condition) -> bool {
    let reason = Reason::parse(&degraded.reason);
    matches!(reason, Some(Reason::RolloutHalted | Reason::NodesFailed))
}

/// Hint if failed nodes have halted a restoration.
const HALTED: &str = "repair the nodes and run `kubectl globalps retry --wait`; a higher `spec.rollout.maxFailures` restores the others first";

/// Message and hint while a rollout is paused.
pub(crate) const PAUSED: (&str, &str) = (
    "the rollout is paused",
    "resume it with `kubectl globalps resume`",
);
/// Message and hint while nodes are restored.
pub(super) const REMOVED: (&str, &str) = (
    "the additional pull secret was deleted; the nodes are being restored",
    FOLLOW,
);
pub(crate) const SELECTOR: &str =
    "does `spec.nodeSelector` match a Linux node? See `kubectl get nodes --show-labels`";
const NO_NODES: (&str, &str) = ("no node is selected", SELECTOR);

/// Hint if nodes failed with another original or other sources, and not with another additional pull secret.
pub(crate) const ANOTHER_CHANGED: &str = "the additional pull secret was rolled out before: one of `spec.sources` or the original pull secret is what changed. Put the former content back there, or repair the nodes as `kubectl globalps check` shows and run `kubectl globalps retry`";

pub(super) const CHECK: &str = "`kubectl globalps check` shows the cause and what to do";

fn stuck(reason: impl Into<String>, hint: &'static str) -> Verdict {
    Verdict::Stuck {
        reason: reason.into(),
        hint,
    }
}

pub(crate) fn verdict(facts: &Facts, goal: NodesGoal, status: &Status) -> Verdict {
    match goal {
        NodesGoal::Synced => synced(facts, status),
        NodesGoal::Restored { skip_unreachable } => restored(facts, status, skip_unreachable),
    }
}

pub(super) fn synced(facts: &Facts, status: &Status) -> Verdict {
    match current(facts) {
        Current::NoConfiguration => stuck(NO_CONFIGURATION.0, NO_CONFIGURATION.1),
        // Who adds a registry now ends the removal.
        Current::Nothing if facts.is_in_force() => match restored(facts, status, false) {
            found @ Verdict::Stuck { .. } => found,
            Verdict::Going | Verdict::Done => stuck(REMOVED.0, REMOVED.1),
        },
        Current::Nothing => stuck(
            "there is no additional pull secret",
            "add a registry with `kubectl globalps add REGISTRY -u USER --password-stdin`",
        ),
        Current::Stale => Verdict::Going,
        Current::Reported(reported) => {
            if let Some(bad) =
                find(reported, condition::ADDITIONAL_VALID).filter(|c| c.status == "False")
            {
                return stuck(
                    format!(
                        "the controller rejects the additional pull secret: {}",
                        said(bad)
                    ),
                    "fix the Secret, or go back to the last one that was rolled out with `kubectl globalps undo`",
                );
            }
            if let Some(bad) = find(reported, condition::DEGRADED)
                .filter(|c| c.status == "True" && stops(reported, c) && !is_answered(facts, c))
            {
                let hint = match is_of_failed_nodes(bad) {
                    true if facts.was_additional_rolled_out() => ANOTHER_CHANGED,
                    true => {
                        "`kubectl globalps check` shows what to do on the node; then run `kubectl globalps retry`, or go back with `kubectl globalps undo`"
                    }
                    false => CHECK,
                };
                let what = match Reason::parse(&bad.reason) {
                    Some(Reason::NodesBlocked) => "only blocked nodes are left",
                    Some(Reason::Held) => "nothing changes",
                    Some(Reason::ReconcileFailed) => {
                        "the API server refuses writes of the controller"
                    }
                    _ => "the rollout stopped",
                };
                return stuck(format!("{what}: {}", said(bad)), hint);
            }
            if status.ready {
                return Verdict::Done;
            }
            if let Some(stuck) = pull_secret(reported) {
                return stuck;
            }
            if is_complete(reported) && only_aside(status).is_some() {
                return Verdict::Done;
            }
            let in_flight = |row: &Row| row.phase == Phase::Syncing;
            if status.paused && !status.nodes.iter().any(in_flight) {
                return stuck(PAUSED.0, PAUSED.1);
            }
            if let Some(found) = find(reported, condition::PROGRESSING)
                .filter(|found| found.reason == Reason::NoCanary)
            {
                return stuck(CANARY.message(said(found)), CANARY.hint);
            }
            // Unreachable nodes can become ready again.
            let is_without_nodes = reported
                .conditions
                .iter()
                .any(|c| c.reason == Reason::NoNodes)
                && reported.counts.total == 0;
            if is_without_nodes {
                return stuck(NO_NODES.0, NO_NODES.1);
            }
            Verdict::Going
        }
    }
}

/// Why `OpenShift`'s own pull secret stays as it is until a person acts. Nodes that have the rest are no reason to wait.
fn pull_secret(status: &GlobalPullSecretStatus) -> Option<Verdict> {
    let found = find(status, condition::PULL_SECRET_SYNCED).filter(|c| c.status == "False")?;
    match Reason::parse(&found.reason)? {
        Reason::Paused => Some(stuck(PAUSED.0, PAUSED.1)),
        Reason::AnotherWriter
        | Reason::PlatformKey
        | Reason::Forbidden
        | Reason::NotFound
        | Reason::Unreadable => Some(stuck(said(found), CHECK)),
        _ => None,
    }
}

/// An invalid source, original or file path does not stop a rollout. Blocked nodes end a wait when all other nodes are done.
fn stops(status: &GlobalPullSecretStatus, degraded: &Condition) -> bool {
    match Reason::parse(&degraded.reason) {
        Some(Reason::NodesBlocked) => is_complete(status),
        // Only nodes and the configuration are part of a rollout.
        Some(Reason::Unreadable) => {
            let is = |found: &Condition| found.reason == Reason::Unreadable;
            let has = |type_| find(status, type_).is_some_and(is);
            has(condition::READY) && (has(condition::PROGRESSING) || is_complete(status))
        }
        Some(
            Reason::OriginalUnreadable
            | Reason::SourceAbsent
            | Reason::SourceForbidden
            | Reason::SourceInvalid
            | Reason::SourceUnreadable
            | Reason::ConfigFileDiffers
            | Reason::ProviderPathsDiffer
            | Reason::NodesNotRestored,
        ) => false,
        _ => true,
    }
}

pub(super) fn is_complete(status: &GlobalPullSecretStatus) -> bool {
    let progressing = find(status, condition::PROGRESSING);
    progressing.is_some_and(|found| found.reason == Reason::Complete)
}

/// Whether the condition reports only failed nodes, and each of them is retrying or will retry.
fn is_answered(facts: &Facts, degraded: &Condition) -> bool {
    let is_failed = |object: &NodePullSecret| {
        let status = object.status.as_ref();
        let asked = names::requested_retry(object.annotations());
        status.is_some_and(|status| {
            has_failed(&status.phase)
                && status.observed_generation >= object.metadata.generation.unwrap_or_default()
        }) && asked.is_none_or(|asked| asked == object.spec.retry)
    };
    is_of_failed_nodes(degraded)
        && !facts
            .node_secrets
            .iter()
            .any(|(_, object)| is_failed(object))
}

pub(super) fn restored(facts: &Facts, status: &Status, skip_unreachable: bool) -> Verdict {
    if matches!(facts.additional(), Sight::Here(_)) {
        return stuck(
            "another client created the additional pull secret again",
            "remove it once more, or follow its rollout with `kubectl globalps status --watch`",
        );
    }
    match current(facts) {
        Current::Nothing => {}
        Current::NoConfiguration => return synced(facts, status),
        Current::Stale => return Verdict::Going,
        Current::Reported(_) => {
            let is_unreachable = |row: &Row| row.phase == Phase::Unreachable;
            return match synced(facts, status) {
                Verdict::Going if skip_unreachable && status.lagging().all(is_unreachable) => {
                    Verdict::Done
                }
                verdict => verdict,
            };
        }
    }
    if facts.node_secrets.is_empty() && !matches!(facts.merged(), Sight::Here(_)) {
        return Verdict::Done;
    }
    match restoration(facts, status, skip_unreachable) {
        Verdict::Going if rests(status) => stuck(PAUSED.0, PAUSED.1),
        verdict => verdict,
    }
}

/// Whether nodes are still to be restored, none of them is at it, and the rollout is paused.
fn rests(status: &Status) -> bool {
    let is_open = |row: &&Row| {
        let is_over = matches!(row.phase, Phase::Restored | Phase::Unreachable);
        !is_over && !row.stage().is_out() && !row.refuses()
    };
    let is_in_flight = |row: &Row| matches!(row.phase, Phase::Restoring | Phase::Syncing);
    let mut open = status.nodes.iter().filter(is_open).peekable();
    status.paused && open.peek().is_some() && !open.any(is_in_flight)
}

/// Whether the nodes' restoration continues, by what the controller reports.
fn restoration(facts: &Facts, status: &Status, skip_unreachable: bool) -> Verdict {
    let about_this = reported(facts).filter(|(gps, status)| {
        status.observed_additional.is_empty()
            && status.observed_generation >= gps.metadata.generation.unwrap_or_default()
    });
    if let Some(stuck) = about_this.and_then(|(_, status)| pull_secret(status)) {
        return stuck;
    }
    let degraded = about_this
        .and_then(|(gps, status)| Some((gps, status, find(status, condition::DEGRADED)?)))
        // A hold that the user has just ended is in the status until the controller's next reconcile.
        .filter(|(gps, _, c)| !(is_restore_meant(gps) && c.message.starts_with(SOURCES_REMOVED)))
        .filter(|(_, _, c)| c.status == "True" && !is_answered(facts, c))
        .map(|(_, status, c)| (status, c));
    let Some((reported, bad)) = degraded else {
        return Verdict::Going;
    };
    let is_of_nodes = bad.reason == Reason::NodesBlocked
        || bad.reason == Reason::Unreadable
        || is_of_failed_nodes(bad);
    if is_of_nodes && is_complete(reported) {
        let left: Vec<String> = left(facts, status).into_iter().map(Row::reason).collect();
        return match left.as_slice() {
            // The controller finishes without them.
            _ if skip_unreachable => Verdict::Going,
            [] => stuck(format!("not restored: {}", said(bad)), LEFT),
            left => stuck(format!("not restored: {}", left.join("; ")), LEFT),
        };
    }
    match Reason::parse(&bad.reason) {
        // Others are still being restored.
        Some(Reason::NodesFailed) => Verdict::Going,
        _ if stops(reported, bad) => {
            let hint = if is_of_nodes { HALTED } else { CHECK };
            stuck(format!("the restoration stopped: {}", said(bad)), hint)
        }
        _ => Verdict::Going,
    }
}

pub(super) fn said(condition: &Condition) -> &str {
    members::said(&condition.reason, &condition.message)
}
