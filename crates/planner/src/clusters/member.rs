//! The observed state of a member cluster, the next write into it, and its status. Pure.

use globalps_core::api::{ClusterPhase, ClusterPullSecretStatus, MESSAGE_LIMIT};
use globalps_core::names::{DATA_KEY, SECRET_TYPE};
use globalps_core::reasons::{Reason, ReasonAndMessage};
use globalps_core::state::RESTORE_CONFIGURATION;

use super::desired::{Desired, Release};
use super::known::Known;
use super::member_report::{MemberReport, MemberStatus};
use super::target::{Names, Owner, TargetView};
use super::text::{REASON_LIMIT, sanitized};

/// While no hub could write the Secret again, its deletion would restore the whole cluster.
const DELETE: &str =
    "delete it there while the hub is connected to the cluster, which then gets it again at once";

/// What the hub does with the target Secret of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing is to be written or deleted.
    Keep,
    /// Writes the Secret by server-side apply.
    Apply(Release),
    /// Deletes the Secret with this uid and `resourceVersion`.
    Delete(String, String),
    /// The hub must not change the Secret.
    Block(ReasonAndMessage),
}

/// What to write into the cluster. What this hub wrote for a `FleetPullSecret` or a cluster that is gone, it adopts.
pub fn action(
    target: Option<&TargetView>,
    desired: &Desired,
    names: Names,
    known: &Known,
) -> Action {
    let block = |reason, message| Action::Block((reason, message));
    match (desired, target) {
        (Desired::Removed, Some(target))
            if target.fleet.as_deref() == Some(names.fleet)
                && target.owner != Owner::Others
                && target.other_cluster(names, known).is_none() =>
        {
            if target.has_other_keys {
                return block(
                    Reason::KeysOfOthers,
                    format!(
                        "the Secret has keys of other clients, and its type requires `{DATA_KEY}`: delete the Secret in the cluster"
                    ),
                );
            }
            Action::Delete(target.uid.clone(), target.version.clone())
        }
        // A Secret that another client, fleet or cluster owns now stays.
        (Desired::Nothing | Desired::Removed, _) => Action::Keep,
        (Desired::Revision(release), None) => Action::Apply(release.clone()),
        (Desired::Revision(release), Some(target)) => {
            let is_same = target.has_content(&release.content);
            let other = target.fleet.as_deref();
            let other = other.filter(|other| *other != names.fleet);
            if let Some(other) =
                other.filter(|it| target.owner != Owner::Hub || known.may_exist(it))
            {
                return block(
                    Reason::Conflict,
                    format!(
                        "FleetPullSecret `{other}`, possibly of another hub, writes the Secret; if no hub has it any more, {DELETE}"
                    ),
                );
            }
            if let Some(other) = target.other_cluster(names, known) {
                return block(
                    Reason::DuplicateCluster,
                    format!(
                        "the Secret is that of cluster `{other}`, so both kubeconfigs lead to one cluster; if this one is a copy of the other, {DELETE}"
                    ),
                );
            }
            if let (Some(other), false) = (&target.other_manager, is_same) {
                return block(
                    Reason::Conflict,
                    format!(
                        "`{other}` owns the Secret's content: {DELETE}, or exclude the cluster"
                    ),
                );
            }
            if target.type_ != SECRET_TYPE {
                return block(
                    Reason::WrongType,
                    format!(
                        "the Secret has the type `{}`, which can't be changed: {DELETE}",
                        target.type_
                    ),
                );
            }
            if target.has(names, release) {
                return Action::Keep;
            }
            if target.is_immutable && !is_same {
                return block(
                    Reason::Immutable,
                    format!("the Secret is immutable: {DELETE}"),
                );
            }
            Action::Apply(release.clone())
        }
    }
}

/// Observed state of a member.
#[derive(Clone, Debug, Default)]
pub struct ObservedState {
    /// `None`: it is reachable.
    pub unreachable: Option<ReasonAndMessage>,
    /// `None`: there is no target Secret.
    pub target: Option<TargetView>,
    /// Of the cluster's own globalps.
    pub report: MemberReport,
    /// The report has been [`MemberReport::NoConfig`] for a while.
    pub lacks_config: bool,
    /// The hub has installed globalps, but it does not run yet.
    pub is_installing: bool,
    /// Nor after a while.
    pub is_install_late: bool,
    /// Why the hub did not write, or the cluster rejected the write.
    pub blocked: Option<ReasonAndMessage>,
}

/// When a cluster counts as done.
#[derive(Clone, Copy, Debug)]
pub struct DoneCriteria {
    /// As `spec.requireNodes`.
    pub require_nodes: bool,
    /// The cluster's globalps reports on the target.
    pub is_additional: bool,
}

/// Phase, reason, message and nodes. The caller sets the other fields.
pub fn status(
    observed: &ObservedState,
    desired: &Desired,
    (names, known): (Names, &Known),
    criteria: DoneCriteria,
) -> ClusterPullSecretStatus {
    let reported = match &observed.report {
        MemberReport::Status(reported) => Some(&**reported),
        _ => None,
    };
    let (phase, reason, message) = phase(observed, desired, (names, known), criteria, reported);
    ClusterPullSecretStatus {
        phase,
        reason: sanitized(reason, REASON_LIMIT),
        message: sanitized(&message, MESSAGE_LIMIT),
        nodes: reported.map(|reported| reported.counts),
        ..ClusterPullSecretStatus::default()
    }
}

fn phase<'a>(
    observed: &'a ObservedState,
    desired: &Desired,
    (names, known): (Names, &Known),
    criteria: DoneCriteria,
    reported: Option<&'a MemberStatus>,
) -> (ClusterPhase, &'a str, String) {
    let none = |phase| (phase, "", String::new());
    if let Some((reason, message)) = &observed.unreachable {
        return (ClusterPhase::Unreachable, reason.as_str(), message.clone());
    }
    if let Some((reason, message)) = &observed.blocked {
        return (ClusterPhase::Blocked, reason.as_str(), message.clone());
    }
    let release = match desired {
        Desired::Nothing => return none(ClusterPhase::Pending),
        Desired::Removed => {
            let is_gone = action(observed.target.as_ref(), desired, names, known) == Action::Keep;
            return none(if is_gone {
                ClusterPhase::Removed
            } else {
                ClusterPhase::Removing
            });
        }
        Desired::Revision(release) => release,
    };
    if observed.is_installing {
        let phase = match reported {
            _ if !observed.is_install_late => ClusterPhase::Syncing,
            // No pod of it can start there.
            Some(reported) if reported.counts.total == 0 => ClusterPhase::Blocked,
            _ => ClusterPhase::Failed,
        };
        let image = release.install.as_ref().map(|it| &*it.controller_image);
        let message = format!(
            "the hub has installed globalps, and its controller has not started yet, image `{}`",
            image.unwrap_or_default()
        );
        return (phase, Reason::Installing.as_str(), message);
    }
    let target = observed.target.as_ref();
    let Some(target) = target.filter(|target| target.has(names, release)) else {
        return none(ClusterPhase::Syncing);
    };
    if !criteria.require_nodes || !criteria.is_additional {
        return none(ClusterPhase::Synced);
    }
    let Some(reported) = reported else {
        let blocked = |reason: Reason, message| (ClusterPhase::Blocked, reason.as_str(), message);
        return match &observed.report {
            MemberReport::NoGlobalps => blocked(
                Reason::NoGlobalps,
                "the cluster has the Secret, but no node uses it because globalps is not installed; \
                 with `spec.requireNodes: false` the Secret alone is enough"
                    .to_owned(),
            ),
            MemberReport::NoConfig => {
                let message = format!(
                    "the cluster has the Secret, but no GlobalPullSecret, without which its globalps changes nothing: in that cluster, {RESTORE_CONFIGURATION}"
                );
                let phase = if observed.lacks_config {
                    ClusterPhase::Blocked
                } else {
                    ClusterPhase::Syncing
                };
                (phase, Reason::NoGlobalPullSecret.as_str(), message)
            }
            MemberReport::Unreadable(reason) => blocked(
                Reason::Unreadable,
                format!("the cluster's GlobalPullSecret can't be read: {reason}"),
            ),
            _ => none(ClusterPhase::Syncing),
        };
    };
    if !reported.refers_to(&target.version) {
        return none(ClusterPhase::Syncing);
    }
    let phase = match Reason::parse(&reported.reason) {
        _ if reported.is_ready => return none(ClusterPhase::Synced),
        Some(Reason::NodesFailed | Reason::AdditionalInvalid | Reason::RolledBack) => {
            ClusterPhase::Failed
        }
        Some(
            Reason::NodesBlocked
            | Reason::NoNodes
            | Reason::NoDelivery
            | Reason::Held
            | Reason::Unreadable,
        ) => ClusterPhase::Blocked,
        // Whatever else is refused there, its nodes have the content.
        Some(Reason::ReconcileFailed) if reported.counts.synced == reported.counts.total => {
            ClusterPhase::Blocked
        }
        _ => ClusterPhase::Syncing,
    };
    (phase, &reported.reason, reported.message.clone())
}

#[cfg(test)]
mod tests;
