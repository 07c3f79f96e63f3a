//! Counts the nodes by state, and lists those that need attention. Pure.

use globalps_core::api::Counts;
use globalps_core::rollout::{Goal, Member, Progress, Revision, is_halted};
use globalps_planner::nodes::input::Snapshot;
use globalps_planner::nodes::plan::{Aim, Plan};
use globalps_planner::nodes::state::failure;

use super::statement::first;

/// The nodes by state, and the names of those that need attention.
pub(crate) struct NodeCounts {
    /// The counts in the status.
    pub(crate) status: Counts,
    /// Nodes on which the change failed, or whose file has a foreign owner.
    pub(crate) failed: Vec<String>,
    /// An error of their own keeps them from changing, or their assignment can't be written.
    pub(super) blocked: Vec<String>,
    /// Another program updates them. They count in the total only, and nobody waits for them.
    pub(super) aside: Vec<String>,
    /// Number of failed nodes that count towards `maxFailures`.
    pub(super) halting: usize,
    pub(super) unreachable: Vec<String>,
    pub(super) waiting: u32,
    /// Deselected nodes that keep the credentials, because restoring them failed.
    pub(super) not_restored: Vec<String>,
    /// Number of them that count towards `maxFailures`.
    halting_restores: usize,
}

pub(crate) fn count(members: &[Member], goal: Goal) -> NodeCounts {
    let mut counts = NodeCounts {
        status: Counts::default(),
        failed: Vec::new(),
        blocked: Vec::new(),
        aside: Vec::new(),
        halting: 0,
        unreachable: Vec::new(),
        waiting: 0,
        not_restored: Vec::new(),
        halting_restores: 0,
    };
    // A deselected node is being restored, and does not count for the revision.
    for member in members {
        if member.goal != goal {
            let is_left = member.has_failed() || member.is_blocked();
            if member.goal == Goal::Restore && is_left {
                counts.halting_restores += usize::from(member.has_failed());
                counts.not_restored.push(member.name.clone());
            }
            continue;
        }
        counts.status.total += 1;
        if member.has_failed() || member.is_foreign() {
            counts.status.failed += 1;
            counts.halting += usize::from(member.has_failed());
            counts.failed.push(member.name.clone());
        } else if member.is_blocked() {
            counts.status.failed += 1;
            counts.blocked.push(member.name.clone());
        } else if member.is_done() {
            // A restored node is not synced.
            counts.status.synced += u32::from(goal != Goal::Restore);
        } else if member.is_refused() {
            counts.status.failed += 1;
            counts.blocked.push(member.name.clone());
        } else if member.not_ready.is_some() || member.is_unresponsive() {
            counts.status.unreachable += 1;
            counts.unreachable.push(member.name.clone());
        } else if member.is_aside() {
            counts.aside.push(member.name.clone());
        } else if matches!(
            member.assigned,
            Some((
                _,
                Progress::InFlight | Progress::Soaking | Progress::Bootstrapping
            ))
        ) {
            counts.status.progressing += 1;
        } else {
            counts.waiting += 1;
        }
    }
    counts
}

/// Revision that is rolled out or held; `NONE`: none. A new one that could not be written does not exist yet.
pub(super) fn revision(snapshot: &Snapshot, plan: &Plan) -> Revision {
    match plan.aim {
        Aim::Reach(Goal::Revision(_)) | Aim::Hold(_) => {
            let global = snapshot.recorded.global.as_ref();
            global.map_or(Revision::NONE, |global| global.revision)
        }
        Aim::Reach(Goal::Restore) | Aim::Nothing | Aim::CleanUp => Revision::NONE,
    }
}

pub(super) fn rolling_out(revision: i64, counts: &NodeCounts) -> String {
    format!(
        "revision {revision} is in force on {} of {} nodes",
        counts.status.synced, counts.status.total
    )
}

pub(super) fn restoring(counts: &NodeCounts) -> String {
    let aside = u32::try_from(counts.aside.len()).unwrap_or(u32::MAX);
    let left = counts.waiting
        + aside
        + counts.status.progressing
        + counts.status.unreachable
        + counts.status.failed;
    format!(
        "{left} of {} nodes still need to be restored",
        counts.status.total
    )
}

/// Which deselected nodes keep the credentials, and why.
pub(super) fn not_restored(snapshot: &Snapshot, counts: &NodeCounts, members: usize) -> String {
    let message = format!(
        "not selected any more, but not restored: {}",
        failures(snapshot, &counts.not_restored)
    );
    if is_halted(
        counts.halting_restores,
        &snapshot.config.spec.rollout,
        members,
    ) {
        return format!("{message}; no further node is restored until `kubectl globalps retry`");
    }
    message
}

/// At most three of these nodes, each with its reason.
pub(super) fn failures(snapshot: &Snapshot, names: &[String]) -> String {
    first(names.iter().map(|name| failure(snapshot, name)), 3)
}

#[cfg(test)]
mod tests {
    use globalps_core::rollout::{Refused, UNRESPONSIVE_AFTER};
    use jiff::SignedDuration;

    use globalps_core::rollout::RevisionId;

    use super::*;

    const GOAL: Goal = Goal::Revision(Revision::new(2, RevisionId::UNKNOWN));

    fn member(name: &str, ready: bool, assigned: Option<(Goal, Progress)>) -> Member {
        Member {
            name: name.to_owned(),
            goal: GOAL,
            not_ready: (!ready).then_some(SignedDuration::ZERO),
            assigned,
            assigned_for: SignedDuration::ZERO,
            is_up_to_date: true,
            agent_down: None,
            unable: None,
            awaits_agent: false,
            is_revoked: false,
            retry: false,
            has_failed_before: false,
            zone: String::new(),
            is_last: false,
            is_canary: true,
            is_skipped: false,
            in_place: false,
            refused: None,
        }
    }

    #[test]
    fn every_node_is_counted_once() {
        let unresponsive = Member {
            is_up_to_date: false,
            assigned_for: UNRESPONSIVE_AFTER,
            ..member("unresponsive", true, None)
        };
        let retried = Member {
            retry: true,
            ..member("retried", true, Some((GOAL, Progress::Failed)))
        };
        let refused = Member {
            refused: Some(Refused {
                backs_off: false,
                lasts: true,
            }),
            ..member("refused", true, None)
        };
        let older = Goal::Revision(Revision::new(1, RevisionId::UNKNOWN));
        let without_agent = Member {
            agent_down: Some(UNRESPONSIVE_AFTER),
            ..member("without-agent", true, Some((older, Progress::Done)))
        };
        let members = [
            unresponsive,
            retried,
            member("foreign", true, Some((GOAL, Progress::Foreign))),
            member("bootstrapping", true, Some((GOAL, Progress::Bootstrapping))),
            without_agent,
            member("synced", true, Some((GOAL, Progress::Done))),
            member("synced-but-away", false, Some((GOAL, Progress::Done))),
            member("failed", true, Some((GOAL, Progress::Failed))),
            member("full-disk", true, Some((GOAL, Progress::Blocked))),
            refused,
            member("updated", true, Some((GOAL, Progress::Aside))),
            member("updated-and-away", false, Some((GOAL, Progress::Aside))),
            Member {
                refused: Some(Refused {
                    backs_off: false,
                    lasts: true,
                }),
                ..member("updated-untold", true, Some((GOAL, Progress::Aside)))
            },
            member("in-flight", true, Some((GOAL, Progress::InFlight))),
            member("in-flight-before", true, Some((older, Progress::InFlight))),
            member("waiting", true, Some((older, Progress::Done))),
            member("new", true, None),
            member("away", false, None),
        ];
        let counts = count(&members, GOAL);
        assert_eq!(
            counts.status,
            Counts {
                total: 18,
                synced: 2,
                progressing: 3,
                failed: 5,
                unreachable: 4,
                unsupported: 0,
            }
        );
        assert_eq!(counts.waiting, 3);
        assert_eq!(counts.failed, ["foreign", "failed"]);
        assert_eq!(counts.blocked, ["full-disk", "refused", "updated-untold"]);
        assert_eq!(counts.aside, ["updated"]);
        assert_eq!(counts.halting, 1, "only a failure of the change halts");
    }
}
