//! The progress of a node's assignment, from its object, its Node and the leader's clock. Pure.
//!
//! A status counts only for its own node: nothing that a node reports raises a revision, and every state in flight ends.

// Times and numbers of other programs must not overflow.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

use globalps_core::api::{NodePullSecret, NodePullSecretStatus, Phase};
use globalps_core::reasons::Reason;
use globalps_core::rollout::{self, Goal, Progress, Revision, UNRESPONSIVE_AFTER};
use jiff::{SignedDuration, Timestamp};

use super::clock::{LeaderClock, Uptime, up_to_date};
use super::node::NodeView;
use super::received::{Heard, Received};

/// If a node becomes `NotReady` this soon after it was done, the change failed.
const SUSPECT_FOR: SignedDuration = SignedDuration::from_secs(30);
/// Delay after which the control plane notices an unresponsive kubelet.
const NODE_MONITOR_GRACE: SignedDuration = SignedDuration::from_secs(50);
/// A kubelet may briefly report `NotReady` after its restart.
const BLIP: SignedDuration = SignedDuration::from_secs(15);
/// A restarted kubelet posts a heartbeat immediately; without one for this long it failed.
const HEARTBEAT_WITHIN: SignedDuration = SignedDuration::from_mins(2);
/// The same if the leader may have missed the first one: a kubelet posts one every 5 minutes.
const NEXT_HEARTBEAT_WITHIN: SignedDuration = SignedDuration::from_mins(6);
/// Interval between attempts on a blocked node.
const BLOCKED_RETRY: SignedDuration = SignedDuration::from_secs(15);

/// What a node's progress depends on besides the object and the node.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub(super) struct Context<'a> {
    pub(super) clock: &'a LeaderClock,
    pub(super) now: Uptime,
    /// How long the node must be Ready to count as done.
    pub(super) min_ready: SignedDuration,
    /// It is a new node of a fleet that has content, and gets that outside the limits.
    pub(super) joins_the_fleet: bool,
    /// Every reachable node had the newest revision.
    pub(super) is_rolled_out: bool,
    /// The controller may have assigned the object's revision. Otherwise its last assignment is not known.
    pub(super) is_own: bool,
    /// Another client changed the assignment, and the node may be following that.
    pub(super) is_changed: bool,
    /// Another program changes the node, which is never revoked for being late.
    pub(super) is_observed: bool,
}

/// A node with an object, as the leader sees both.
#[derive(Clone, Copy)]
pub(super) struct Case<'a> {
    object: &'a NodePullSecret,
    node: &'a NodeView,
    context: Context<'a>,
    /// The status, if it describes the current spec.
    pub(super) status: Option<&'a NodePullSecretStatus>,
    received: Received,
}

/// How far a node is with its last assignment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judged {
    /// `None`: it has no assignment and no content.
    pub(super) assigned: Option<(Goal, Progress)>,
    /// The revision that it has failed and not recovered from; `NONE`: none.
    pub(super) failed: Revision,
}

impl<'a> Case<'a> {
    pub(super) fn of(object: &'a NodePullSecret, node: &'a NodeView, context: Context<'a>) -> Self {
        Self {
            object,
            node,
            context,
            status: up_to_date(object),
            received: context.clock.received(object, node, context.now),
        }
    }

    /// The same, but the node must be Ready for this long to count as done.
    pub(super) fn ready_for(self, min_ready: SignedDuration) -> Self {
        let context = Context {
            min_ready,
            ..self.context
        };
        Self { context, ..self }
    }

    /// Last assignment and progress; `None`: the node has no assignment and no content.
    pub(super) fn progress(&self) -> Option<(Goal, Progress)> {
        let spec = &self.object.spec;
        let goal = match (spec.restore, spec.revision) {
            (true, _) => Goal::Restore,
            (false, 0) => return self.unassigned(),
            (false, _) if !self.context.is_own => return self.unassigned(),
            (false, _) => Goal::Revision(spec.assigned()),
        };
        let Some(status) = self.status else {
            if let Some(status) = had(self.object, goal).filter(|_| !self.context.is_changed) {
                return Some((goal, self.settled(status)));
            }
            // A revoked node already has the revision that is assigned now.
            let progress = match (spec.revoked, self.is_bootstrapping()) {
                (true, _) => Progress::Done,
                (false, true) => Progress::Bootstrapping,
                (false, false) => Progress::InFlight,
            };
            return Some((goal, progress));
        };
        let progress = match (&status.phase, goal) {
            (Phase::Synced, Goal::Revision(revision)) if status.in_force() == revision => {
                self.settled(status)
            }
            (Phase::Restored, Goal::Restore) => self.settled(status),
            // Its syncer only restores: nothing changes, and nothing was verified.
            (Phase::Pending, Goal::Revision(revision)) if status.in_force() == revision => {
                Progress::Blocked
            }
            // It refuses to be restored while its kubelet serves, which harms nobody.
            (Phase::RolledBack, Goal::Restore) if self.lost().is_none() => Progress::Blocked,
            (Phase::RolledBack, _) => Progress::Failed,
            // The only one that the change itself may have caused.
            (Phase::Failed, _) if status.reason == Reason::KubeletDown => Progress::Failed,
            (Phase::Failed | Phase::ForeignOwner, _) => Progress::Blocked,
            // It has changed nothing.
            (Phase::Syncing, _) if status.reason == Reason::Superseded => Progress::Blocked,
            _ if self.is_bootstrapping() => Progress::Bootstrapping,
            _ if self.is_late() => Progress::Blocked,
            _ => Progress::InFlight,
        };
        Some((goal, progress))
    }

    /// How long the node must be Ready to count as done decides on both.
    pub(super) fn judged(&self) -> Judged {
        let spec = &self.object.spec;
        let assigned = self.progress();
        let is_synced = self.status.is_some_and(|status| {
            let has_assigned = !spec.revoked && status.in_force() == spec.assigned();
            status.phase == Phase::Synced && has_assigned
        });
        Judged {
            assigned,
            failed: rollout::failed_revision(spec.failed(), assigned, is_synced),
        }
    }

    /// The state of a node without an assignment. Its object may be younger than the content on its disk.
    fn unassigned(&self) -> Option<(Goal, Progress)> {
        let context = self.context;
        let progress = match self.status {
            Some(status) if status.restored => return None,
            Some(status) => match status.phase {
                Phase::Syncing | Phase::Restoring if !is_at_rest(status) => Progress::InFlight,
                // What it reports to have is no assignment.
                _ => Progress::Done,
            },
            // It must report first. One that never does, and can't have had an assignment, has no content.
            None => {
                let assigned_for = context.clock.assigned_for(self.object, context.now);
                let is_awaited = assigned_for < UNRESPONSIVE_AFTER;
                let may_have_content = self.object.spec.revoked || !context.is_own;
                match (may_have_content, is_awaited) {
                    (true, true) if self.node.ready.is_ok() => Progress::Unknown,
                    (true, _) | (false, true) => Progress::Blocked,
                    (false, false) => return None,
                }
            }
        };
        Some((Goal::Revision(Revision::NONE), progress))
    }

    /// The program that writes its file has not in time.
    fn is_late(&self) -> bool {
        let context = self.context;
        context.is_observed
            && context.clock.assigned_for(self.object, context.now) >= rollout::DEADLINE
    }

    /// A new node that never had content: its first assignment disrupts nothing.
    fn is_bootstrapping(&self) -> bool {
        let status = self.object.status.as_ref();
        let has_nothing = status.is_some_and(|status| status.revision == 0);
        self.context.joins_the_fleet && has_nothing && !self.object.spec.restore
    }

    /// The progress of a node that reports that it is done. It is done once its kubelet has posted a heartbeat since its restart,
    /// and the leader has had the report, and seen the node Ready, for long enough.
    fn settled(&self, status: &NodePullSecretStatus) -> Progress {
        let (context, received) = (self.context, self.received);
        if self.lost().is_some() {
            return Progress::Failed;
        }
        // A new leader does not wait again for nodes that were done before its term.
        let was_done = context.is_rolled_out && !received.saw_report;
        let soaked_for = match self.node.ready {
            Ok(_) => received.ago.min(received.unchanged_for),
            Err(_) => received.lost_after.unwrap_or_default(),
        };
        match self.node.ready {
            Ok(_) if !self.has_heartbeat(status) => Progress::InFlight,
            // It has soaked once, or nobody waits for that any more.
            _ if !was_done && is_soaked_too_long(received, context) => {
                // It has not stayed ready for long enough since a report.
                if received.longest_ready < context.min_ready {
                    Progress::Blocked
                } else {
                    Progress::Done
                }
            }
            _ if !was_done && soaked_for.max(SignedDuration::ZERO) < context.min_ready => {
                Progress::Soaking
            }
            // Also NotReady for another reason, or only briefly: the rollout counts it as unavailable.
            _ => Progress::Done,
        }
    }

    /// Whether the kubelet has posted a heartbeat since its restart. The node's clock has both times, but may have been set in
    /// between.
    fn has_heartbeat(&self, status: &NodePullSecretStatus) -> bool {
        let Some(restarted) = &status.kubelet_restarted_at else {
            return true;
        };
        let (heartbeat, received) = (self.node.heartbeat, self.received);
        let by_node = heartbeat >= seconds(restarted.0);
        match (received.has_restarted, received.heard) {
            (Some(false), _) | (_, Heard::SinceReport) => true,
            // It may be one of before the restart; a kubelet that is dead since would be NotReady by now.
            (_, Heard::SinceAssignment) => by_node || received.ago >= HEARTBEAT_WITHIN,
            // The kubelet may have posted just before its restart and again in the same second, which changes nothing in the Node.
            (Some(true), Heard::Nothing) => heartbeat == seconds(restarted.0),
            (None, Heard::Nothing) => by_node,
        }
    }

    /// How the change broke a node whose kubelet served after it, as a clause; `None`: it did not.
    pub(super) fn lost(&self) -> Option<String> {
        let (status, received) = (self.status?, self.received);
        match status.phase {
            Phase::Synced | Phase::Restored => {}
            // Its kubelet served when it reported this.
            Phase::RolledBack if self.object.spec.restore => {}
            _ => return None,
        }
        // Without a restart the change can't have broken it.
        let restarted = seconds(status.kubelet_restarted_at.as_ref()?.0);
        if received.has_restarted == Some(false) {
            return None;
        }
        let Err(not_ready) = self.node.ready else {
            let within = match received.has_restarted {
                Some(_) => HEARTBEAT_WITHIN,
                None => NEXT_HEARTBEAT_WITHIN,
            };
            let is_unresponsive = received.heard == Heard::Nothing
                && !self.has_heartbeat(status)
                && received.ago >= within;
            return is_unresponsive
                .then(|| "its kubelet has sent no heartbeat since its restart".to_owned());
        };
        let suspect = SUSPECT_FOR.max(self.context.min_ready);
        let (within, is_lasting) = if not_ready.unknown {
            (suspect.saturating_add(NODE_MONITOR_GRACE), true)
        } else {
            (suspect, received.unchanged_for >= BLIP)
        };
        let after = match received.lost_after {
            Some(after) => after,
            None if received.was_not_ready || not_ready.since < restarted => return None,
            // This leader did not see it. Both times are of the node's clock, unless the control plane noticed it.
            None => {
                let done = seconds(status.last_transition_time.as_ref()?.0).max(restarted);
                not_ready.since.duration_since(done)
            }
        };
        (after <= within && is_lasting).then(|| {
            let seconds = after.as_secs().max(0);
            format!("it became NotReady {seconds} s after the change")
        })
    }
}

/// The node has responded to its assignment and has nothing to do.
pub(super) fn is_at_rest(status: &NodePullSecretStatus) -> bool {
    match status.phase {
        Phase::Pending | Phase::Synced => true,
        Phase::Syncing => status.reason == Reason::Superseded,
        _ => false,
    }
}

/// The revision with which the node is at rest, though its object assigns something else.
pub(super) fn unassigned(object: &NodePullSecret) -> Option<Revision> {
    let status = up_to_date(object).filter(|status| is_at_rest(status))?;
    let revision = status.in_force();
    let is_assigned = !object.spec.restore && object.spec.assigned() == revision;
    (revision.is_identified() && !is_assigned).then_some(revision)
}

/// The status, if the node was at rest with this goal when it was assigned: it has nothing to change.
fn had(object: &NodePullSecret, goal: Goal) -> Option<&NodePullSecretStatus> {
    let previous = object.metadata.generation?.checked_sub(1)?;
    object.status.as_ref().filter(|status| {
        let is_goal = goal == Goal::Revision(status.in_force());
        status.observed_generation == previous && is_goal && is_at_rest(status)
    })
}

/// Whether a blocked node may retry. One with a conflict over its file, or whose kubelet did not serve, may not: each attempt
/// restarts its kubelet.
pub(super) fn is_retry_due(object: &NodePullSecret, clock: &LeaderClock, now: Uptime) -> bool {
    let is_failed = up_to_date(object).is_some_and(|status| {
        status.phase == Phase::Failed && status.reason != Reason::KubeletDown
    });
    is_failed && clock.assigned_for(object, now) >= BLOCKED_RETRY
}

/// A node that flaps, or reports again, begins to soak again and again, which must not hold a slot permanently.
fn is_soaked_too_long(received: Received, context: Context) -> bool {
    let twice = context.min_ready.saturating_mul(2);
    received.done_ago >= rollout::DEADLINE.max(twice)
}

/// A Node's conditions have whole seconds, so the times to compare are truncated.
fn seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests;
