//! Which nodes may go next. Pure: the controller feeds it what it sees and does what it says.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::api;

/// A node that was granted something and is not ready for so long loses the grant, so that it holds nobody up.
pub const UNREACHABLE_AFTER: SignedDuration = SignedDuration::from_mins(5);
/// A syncer that has not answered its last grant for so long is silent.
pub const SILENT_AFTER: SignedDuration = SignedDuration::from_mins(2);

/// What a node is to come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// This revision is in force.
    Revision(i64),
    /// The node is as it was before its first revision.
    Restore,
}

impl Goal {
    fn is_restore(self) -> bool {
        self == Self::Restore
    }
}

/// How far a node is with what it was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The limits count it.
    InFlight,
    /// It came after the revision was proven and takes it with its syncer's first breath; nobody waits for it.
    Joining,
    Done,
    Failed,
    /// Another program manages its file, so it is never granted anything.
    Foreign,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    pub goal: Goal,
    /// The Node's `Ready` condition; `Err`: not ready since then.
    pub ready: Result<(), Timestamp>,
    /// What it was granted last; `None`: nothing yet.
    pub granted: Option<(Goal, Progress)>,
    /// When that was.
    pub granted_at: Timestamp,
    /// Its syncer has told of what it was granted last, so it runs.
    pub answers: bool,
    /// It failed, and somebody asks for one more try.
    pub retry: bool,
}

impl Node {
    fn at_goal(&self) -> Option<Progress> {
        self.granted
            .filter(|(granted, _)| *granted == self.goal)
            .map(|(_, progress)| progress)
    }

    fn is_in_flight(&self) -> bool {
        matches!(self.granted, Some((_, Progress::InFlight)))
    }

    /// Between its grant and the moment when it is done *and* ready again.
    fn is_busy(&self, now: Timestamp) -> bool {
        let was_ready_lately = |since: Timestamp| now.duration_since(since) < UNREACHABLE_AFTER;
        self.is_in_flight()
            || self.at_goal() == Some(Progress::Done) && self.ready.is_err_and(was_ready_lately)
    }

    /// In flight, but dead or silent: the grant is better taken back than waited for.
    fn is_lost(&self, now: Timestamp) -> bool {
        let is_dead = |since: Timestamp| now.duration_since(since) >= UNREACHABLE_AFTER;
        self.is_in_flight() && (self.ready.is_err_and(is_dead) || self.is_silent(now))
    }

    /// Its syncer has not told anything of what it was granted last, and has had its time.
    pub fn is_silent(&self, now: Timestamp) -> bool {
        !self.answers && now.duration_since(self.granted_at) >= SILENT_AFTER
    }

    /// It can go now.
    fn waits(&self) -> bool {
        let is_open = match self.at_goal() {
            None => !self.is_done(),
            Some(Progress::Failed) => self.retry,
            Some(_) => false,
        };
        let is_foreign = matches!(self.granted, Some((_, Progress::Foreign)));
        is_open && !is_foreign && self.ready.is_ok() && (self.answers || self.is_in_flight())
    }

    /// Nothing to do for the goal: it is reached, or there is nothing to put back.
    pub fn is_done(&self) -> bool {
        self.at_goal() == Some(Progress::Done) || self.goal.is_restore() && self.granted.is_none()
    }

    /// It failed, and nobody has asked for one more try.
    pub fn has_failed(&self) -> bool {
        self.at_goal() == Some(Progress::Failed) && !self.retry
    }

    pub fn is_foreign(&self) -> bool {
        matches!(self.granted, Some((_, Progress::Foreign)))
    }
}

/// All nodes, and the limits.
#[derive(Clone, Debug)]
pub struct Fleet<'a> {
    pub nodes: &'a [Node],
    pub limits: &'a api::Rollout,
    pub now: Timestamp,
}

/// Names of nodes, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Next {
    /// They are granted their goal now.
    pub grants: Vec<String>,
    /// Their grant is taken back.
    pub withdrawals: Vec<String>,
}

/// So many failed nodes stop those with the same kind of goal.
pub fn is_halted(failed: usize, limits: &api::Rollout) -> bool {
    failed >= limits.max_failures.max(1) as usize
}

/// What is to be granted and taken back now.
///
/// Nodes with a revision to come to go before nodes to be put back. Of each kind, one node goes first; once one has
/// reached its goal, `maxUnavailable` nodes at a time do, of both kinds together. A node that still works on an earlier
/// goal counts, and takes the new goal before a node that rests does.
pub fn next(fleet: &Fleet) -> Next {
    let (mut lost, mut busy) = (Vec::new(), 0);
    for node in fleet.nodes {
        if node.is_lost(fleet.now) {
            lost.push(node.name.clone());
        } else if node.is_busy(fleet.now) {
            busy += 1;
        }
    }
    lost.sort_unstable();
    let mut next = Next {
        grants: Vec::new(),
        withdrawals: lost,
    };
    if fleet.limits.paused {
        return next;
    }
    for is_restore in [false, true] {
        let kind = || {
            fleet
                .nodes
                .iter()
                .filter(|node| node.goal.is_restore() == is_restore)
        };
        if is_halted(
            kind().filter(|node| node.has_failed()).count(),
            fleet.limits,
        ) {
            continue;
        }
        let proven = kind().any(|node| node.at_goal() == Some(Progress::Done));
        let limit = if proven {
            max_unavailable(&fleet.limits.max_unavailable, fleet.nodes.len())
        } else {
            1
        };
        let at_goal = kind()
            .filter(|node| {
                node.at_goal().is_some() && node.is_busy(fleet.now) && !node.is_lost(fleet.now)
            })
            .count();
        let (in_flight, resting): (Vec<&Node>, Vec<&Node>) = kind()
            .filter(|node| node.waits() && !node.is_lost(fleet.now))
            .partition(|node| node.is_in_flight());
        // One in flight counts already, whatever it works on.
        next.grants
            .extend(first(in_flight, limit.saturating_sub(at_goal)));
        let granted = first(resting, limit.saturating_sub(busy));
        busy += granted.len();
        next.grants.extend(granted);
    }
    next
}

/// So many of them at most, in the order of their names.
fn first(mut nodes: Vec<&Node>, most: usize) -> Vec<String> {
    nodes.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let nodes = nodes.into_iter().take(most);
    nodes.map(|node| node.name.clone()).collect()
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

    /// `n1 n2:5+ n3:5. n4:4! !n5:R.`: a name; what it was granted (`R`: restore) and `+` in flight, `.` done, `!` failed,
    /// `?` failed and to be tried again, `j` joining, `f` foreign; before the name: `!` not ready for a minute, `?` for an
    /// hour, `~` silent, `-` to be put back whatever the others' goal is.
    fn nodes(goal: Goal, text: &str) -> Vec<Node> {
        text.split_whitespace()
            .map(|word| {
                let mark = word.chars().next().unwrap_or_default();
                let word = word.trim_start_matches(['!', '?', '~', '-']);
                let ready = match mark {
                    '!' => Err(NOW - SignedDuration::from_mins(1)),
                    '?' => Err(NOW - SignedDuration::from_hours(1)),
                    _ => Ok(()),
                };
                let mut retry = false;
                let granted = word.split_once(':').map(|(_, grant)| {
                    let (goal, progress) = grant.split_at(grant.len() - 1);
                    let goal = goal.parse().map_or(Goal::Restore, Goal::Revision);
                    retry = progress == "?";
                    let progress = match progress {
                        "+" => Progress::InFlight,
                        "." => Progress::Done,
                        "j" => Progress::Joining,
                        "f" => Progress::Foreign,
                        _ => Progress::Failed,
                    };
                    (goal, progress)
                });
                let name = word.split(':').next().unwrap_or_default().to_owned();
                let is_silent = mark == '~';
                Node {
                    name,
                    goal: if mark == '-' { Goal::Restore } else { goal },
                    ready,
                    granted,
                    granted_at: if is_silent {
                        NOW - SignedDuration::from_hours(1)
                    } else {
                        NOW
                    },
                    answers: !is_silent,
                    retry,
                }
            })
            .collect()
    }

    /// The names, those that lose their grant with a `-`.
    fn line(goal: Goal, fleet: &str, limits: &api::Rollout) -> String {
        let nodes = nodes(goal, fleet);
        let fleet = Fleet {
            nodes: &nodes,
            limits,
            now: NOW,
        };
        let next = next(&fleet);
        let withdrawals = next.withdrawals.iter().map(|name| format!("-{name}"));
        let words: Vec<String> = withdrawals.chain(next.grants).collect();
        words.join(" ")
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
            (
                "but not for ever: it loses its grant",
                Revision(5),
                "?a:5+ b",
                "1",
                "-a b",
            ),
            ("a silent one as well", Revision(5), "~a:5+ b", "1", "-a b"),
            (
                "who never said anything is not asked",
                Revision(5),
                "~a b",
                "2",
                "b",
            ),
            (
                "a node that joins holds nobody up and proves nothing",
                Revision(5),
                "a:5j b c",
                "2",
                "b",
            ),
            (
                "a node whose file is another program's is never asked, and stops nobody",
                Revision(5),
                "a:5f b:5. c",
                "1",
                "c",
            ),
            (
                "a failed node that is to be tried again is, and does not count as failed",
                Revision(5),
                "a:5? b:5. c",
                "1",
                "a",
            ),
            (
                "a node that left is put back after the others",
                Revision(5),
                "-a:4. b:5. c",
                "1",
                "c",
            ),
            (
                "within the same limit",
                Revision(5),
                "-a:4. b:5. c:5+",
                "1",
                "",
            ),
            ("by itself first", Revision(5), "-a:4. -b:4. c:5.", "2", "a"),
            (
                "one in flight that left is taken over at once",
                Revision(5),
                "-a:4+ b:5. c",
                "1",
                "a",
            ),
            (
                "a failure to put back does not stop the others",
                Revision(5),
                "-a:R! b:5. c",
                "1",
                "c",
            ),
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
            let granted = line(goal, fleet, &limits(max_unavailable, 1, false));
            assert_eq!(granted, expected, "{sentence}");
        }
    }

    #[test]
    fn a_paused_rollout_grants_nothing_and_still_takes_back_what_is_lost() {
        let limits = limits("2", 1, true);
        assert_eq!(line(Goal::Revision(5), "a:5. b c ?d:5+", &limits), "-d");
    }

    #[test]
    fn as_many_failures_as_allowed_stop_the_rollout_and_fewer_do_not() {
        let granted = |max_failures| {
            let limits = limits("1", max_failures, false);
            line(Goal::Revision(5), "a:5. b:5! c:5! d", &limits)
        };
        assert_eq!(granted(2), "");
        assert_eq!(granted(3), "d");
    }
}
