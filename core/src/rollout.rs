//! Which nodes may go next. Pure: the controller feeds it what it sees and grants what it says.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::api;

/// A node that was granted something and is not ready for so long holds nobody up any more.
pub const UNREACHABLE_AFTER: SignedDuration = SignedDuration::from_mins(5);

/// What a node is to come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// This revision is in force.
    Revision(i64),
    /// The node is as it was before its first revision.
    Restore,
}

/// How far a node is with what it was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    InFlight,
    Done,
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    /// The Node's `Ready` condition; `Err`: not ready since then.
    pub ready: Result<(), Timestamp>,
    /// What it was granted last; `None`: nothing yet.
    pub granted: Option<(Goal, Progress)>,
}

impl Node {
    fn at(&self, goal: Goal) -> Option<Progress> {
        self.granted
            .filter(|(granted, _)| *granted == goal)
            .map(|(_, progress)| progress)
    }

    /// Between its grant and the moment when it is done *and* ready again; not for ever, so that a node that died in
    /// between does not stop the others.
    fn in_flight(&self, goal: Goal, now: Timestamp) -> bool {
        match (self.granted, self.ready) {
            (Some((_, Progress::InFlight)), Ok(())) => true,
            (Some((_, Progress::InFlight)), Err(since)) => {
                now.duration_since(since) < UNREACHABLE_AFTER
            }
            (Some((granted, Progress::Done)), Err(since)) => {
                granted == goal && now.duration_since(since) < UNREACHABLE_AFTER
            }
            _ => false,
        }
    }

    /// Nothing to do for the goal: it is reached, or there is nothing to put back.
    pub fn is_done(&self, goal: Goal) -> bool {
        self.at(goal) == Some(Progress::Done) || (goal == Goal::Restore && self.granted.is_none())
    }

    pub fn has_failed(&self, goal: Goal) -> bool {
        self.at(goal) == Some(Progress::Failed)
    }
}

/// All nodes, and the limits.
#[derive(Clone, Debug)]
pub struct Fleet<'a> {
    pub goal: Goal,
    pub nodes: &'a [Node],
    pub limits: &'a api::Rollout,
    pub now: Timestamp,
}

impl Fleet<'_> {
    pub fn failed(&self) -> usize {
        self.nodes
            .iter()
            .filter(|node| node.has_failed(self.goal))
            .count()
    }

    /// No further node is granted the goal, because too many failed.
    pub fn is_halted(&self) -> bool {
        self.failed() >= self.limits.max_failures.max(1) as usize
    }
}

/// The nodes that are to be granted the goal now, in the order of their names.
///
/// One node goes first; once one has reached the goal, `maxUnavailable` nodes at a time do. A node that still works on
/// an earlier goal counts, and takes the new goal before a node that rests does.
pub fn next(fleet: &Fleet) -> Vec<String> {
    if fleet.limits.paused || fleet.is_halted() {
        return Vec::new();
    }
    let proven = fleet
        .nodes
        .iter()
        .any(|node| node.at(fleet.goal) == Some(Progress::Done));
    let limit = if proven {
        max_unavailable(&fleet.limits.max_unavailable, fleet.nodes.len())
    } else {
        1
    };
    let (busy, resting): (Vec<&Node>, Vec<&Node>) = fleet
        .nodes
        .iter()
        .partition(|node| node.in_flight(fleet.goal, fleet.now));
    let (at_goal, elsewhere): (Vec<&Node>, Vec<&Node>) = busy
        .into_iter()
        .partition(|node| node.at(fleet.goal).is_some());
    let mut granted: Vec<String> = take(
        elsewhere.iter().copied(),
        limit.saturating_sub(at_goal.len()),
    );
    let free = limit.saturating_sub(at_goal.len() + elsewhere.len());
    let waiting = resting
        .into_iter()
        .filter(|node| node.at(fleet.goal).is_none() && !node.is_done(fleet.goal));
    granted.extend(take(waiting, free));
    granted
}

fn take<'a>(nodes: impl Iterator<Item = &'a Node>, most: usize) -> Vec<String> {
    let mut names: Vec<String> = nodes
        .filter(|node| node.ready.is_ok())
        .map(|node| node.name.clone())
        .collect();
    names.sort_unstable();
    names.truncate(most);
    names
}

/// Number of nodes for a number or a percentage; at least 1, and 1 where it is neither.
fn max_unavailable(limit: &IntOrString, nodes: usize) -> usize {
    let number = match limit {
        IntOrString::Int(number) => usize::try_from(*number).unwrap_or(0),
        IntOrString::String(text) => match text.strip_suffix('%').map(str::parse::<usize>) {
            Some(Ok(percent)) => nodes * percent.min(100) / 100,
            _ => 0,
        },
    };
    number.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    /// `n1 n2:5+ n3:5. n4:4! !n5:R.`: a name; what it was granted (`R`: restore) and `+` in flight, `.` done, `!` failed;
    /// `!` before the name: not ready for a minute, `?`: for an hour.
    fn nodes(text: &str) -> Vec<Node> {
        text.split_whitespace()
            .map(|word| {
                let (ready, word) = match word.split_at(1) {
                    ("!", rest) => (Err(NOW - SignedDuration::from_mins(1)), rest),
                    ("?", rest) => (Err(NOW - SignedDuration::from_hours(1)), rest),
                    _ => (Ok(()), word),
                };
                let granted = word.split_once(':').map(|(_, grant)| {
                    let (goal, progress) = grant.split_at(grant.len() - 1);
                    let goal = goal.parse().map_or(Goal::Restore, Goal::Revision);
                    let progress = match progress {
                        "+" => Progress::InFlight,
                        "." => Progress::Done,
                        _ => Progress::Failed,
                    };
                    (goal, progress)
                });
                let name = word.split(':').next().unwrap_or_default().to_owned();
                Node {
                    name,
                    ready,
                    granted,
                }
            })
            .collect()
    }

    fn limits(max_unavailable: &str, max_failures: u32, paused: bool) -> api::Rollout {
        let max_unavailable = max_unavailable.parse().map_or_else(
            |_| IntOrString::String(max_unavailable.to_owned()),
            IntOrString::Int,
        );
        api::Rollout {
            max_unavailable,
            max_failures,
            paused,
            ..api::Rollout::default()
        }
    }

    #[test]
    fn the_next_nodes_are_those_that_the_limits_allow() {
        use Goal::{Restore, Revision};
        for (sentence, goal, fleet, max_unavailable, expected) in [
            (
                "a new revision goes to one node first",
                Revision(5),
                "a b c",
                "2",
                "a",
            ),
            (
                "while it is in flight, no other",
                Revision(5),
                "a:5+ b c",
                "2",
                "",
            ),
            (
                "then to as many as the limit says",
                Revision(5),
                "a:5. b c d",
                "2",
                "b c",
            ),
            (
                "each that is done makes room",
                Revision(5),
                "a:5. b:5+ c:5. d e",
                "2",
                "d",
            ),
            (
                "a percentage is of all nodes",
                Revision(5),
                "a:5. b c d e f g h",
                "25%",
                "b c",
            ),
            ("and at least one", Revision(5), "a:5. b c", "10%", "b"),
            (
                "a number that is none is one",
                Revision(5),
                "a:5. b c",
                "many",
                "b",
            ),
            ("all done: none", Revision(5), "a:5. b:5.", "2", ""),
            (
                "a failed node stops it",
                Revision(5),
                "a:5. b:5! c",
                "2",
                "",
            ),
            (
                "a failure of an earlier revision does not",
                Revision(5),
                "a:4! b:4.",
                "1",
                "a",
            ),
            (
                "a node that is not ready is passed over",
                Revision(5),
                "!a b",
                "1",
                "b",
            ),
            (
                "one that dies in flight holds the others for a while",
                Revision(5),
                "!a:5+ b",
                "1",
                "",
            ),
            ("but not for ever", Revision(5), "?a:5+ b", "1", "b"),
            (
                "one that is done but not ready again as well",
                Revision(5),
                "!a:5. b",
                "1",
                "",
            ),
            (
                "one that died before its turn holds nobody",
                Revision(5),
                "!a:4. b:4.",
                "2",
                "b",
            ),
            (
                "a new revision supersedes the one in flight",
                Revision(5),
                "a b:4+ c",
                "1",
                "b",
            ),
            (
                "in flight at the old one counts",
                Revision(5),
                "a:5. b:4+ c",
                "1",
                "b",
            ),
            (
                "both fit the limit",
                Revision(5),
                "a:5. b:4+ c d",
                "2",
                "b c",
            ),
            (
                "no more than one takes an unproven one",
                Revision(5),
                "a:4+ b:4+ c",
                "2",
                "a",
            ),
            (
                "restore goes to one first as well",
                Restore,
                "a:5. b:5. c",
                "2",
                "a",
            ),
            (
                "a node that never had anything needs no restore",
                Restore,
                "a:R. b c",
                "1",
                "",
            ),
            (
                "a failed node is restored too",
                Restore,
                "a:5! b:R.",
                "1",
                "a",
            ),
            (
                "a restored node takes a revision again",
                Revision(5),
                "a:R. b:R.",
                "1",
                "a",
            ),
        ] {
            let limits = limits(max_unavailable, 1, false);
            let nodes = nodes(fleet);
            let granted = next(&Fleet {
                goal,
                nodes: &nodes,
                limits: &limits,
                now: NOW,
            });
            assert_eq!(granted.join(" "), expected, "{sentence}");
        }
    }

    #[test]
    fn a_paused_rollout_grants_nothing() {
        let nodes = nodes("a:5. b c");
        let fleet = Fleet {
            goal: Goal::Revision(5),
            nodes: &nodes,
            limits: &limits("2", 1, true),
            now: NOW,
        };
        assert!(next(&fleet).is_empty());
    }

    #[test]
    fn as_many_failures_as_allowed_stop_the_rollout_and_fewer_do_not() {
        let nodes = nodes("a:5. b:5! c:5! d");
        let granted = |max_failures| {
            let limits = limits("1", max_failures, false);
            next(&Fleet {
                goal: Goal::Revision(5),
                nodes: &nodes,
                limits: &limits,
                now: NOW,
            })
            .join(" ")
        };
        assert_eq!(granted(2), "");
        assert_eq!(granted(3), "d");
    }
}
