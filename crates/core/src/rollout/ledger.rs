//! The ledger of a rollout: what is recorded of it, and each step from what its members report. Nodes and clusters have the same.

use jiff::Timestamp;

use super::{Fleet, Goal, Member, Next, Revision, has_canary_passed, is_halted, next};
use crate::api::{self, OnFailure};

/// What is recorded of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ledger {
    /// What members are to reach.
    pub goal: Goal,
    /// Enough canaries have had it.
    pub canary_passed: bool,
    /// When every member had it that the rollout waits for.
    pub rolled_out: Option<Timestamp>,
}

/// How far a rollout is, as its members report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// To record.
    pub ledger: Ledger,
    /// Failures have halted it.
    pub is_halted: bool,
}

/// A step of a rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// How far it is.
    pub outcome: Outcome,
    /// The members to write.
    pub next: Next,
}

impl Ledger {
    /// A rollout that begins.
    pub const fn new(goal: Goal) -> Self {
        Self {
            goal,
            canary_passed: false,
            rolled_out: None,
        }
    }
}

/// The next step. `is_everywhere`: what no member reports has the goal, too, so that it is rolled out without members.
pub fn step(
    before: Ledger,
    members: &[Member],
    limits: &api::Rollout,
    is_everywhere: bool,
    now: Timestamp,
) -> Step {
    let goal = before.goal;
    let selected = || {
        let members = members.iter();
        members.filter(|it| !goal.is_restore() && it.goal == goal)
    };
    let is_complete = is_everywhere
        || selected().any(Member::is_done)
            && selected().all(|it| it.is_done() || it.is_passed_over() && !it.has_failed());
    let canary_passed = before.canary_passed || has_canary_passed(members, goal, limits);
    let outcome = Outcome {
        ledger: Ledger {
            goal,
            canary_passed,
            rolled_out: before.rolled_out.or(is_complete.then_some(now)),
        },
        is_halted: is_halted(failed(members).count(), limits, members.len()),
    };
    let next = next(&Fleet {
        members,
        limits,
        canary_passed,
    });
    Step { outcome, next }
}

impl Outcome {
    /// Failures end the rollout: members go back to what was rolled out before, if that is known.
    pub fn rolls_back(self, limits: &api::Rollout) -> bool {
        self.is_halted
            && limits.on_failure == OnFailure::Rollback
            && !limits.paused
            && self.ledger.rolled_out.is_none()
    }

    /// The revision for new members: this one if it has passed its canary and its rollout continues, otherwise `older`, the last one
    /// before it that passed its canary. A paused rollout without an older one keeps its revision. `None`: no revision has passed,
    /// or only one that failed.
    pub fn for_new(self, older: Option<Revision>, is_paused: bool) -> Option<Revision> {
        let Ledger {
            goal,
            canary_passed,
            rolled_out,
        } = self.ledger;
        let Goal::Revision(newest) = goal else {
            return None;
        };
        if rolled_out.is_some() {
            return Some(newest);
        }
        let older = older.filter(|older| older.is_identified() && *older != newest);
        let passed = Some(newest).filter(|_| canary_passed && !self.is_halted);
        if is_paused {
            older.or(passed)
        } else {
            passed.or(older)
        }
    }
}

/// Those that failed a revision.
fn failed(members: &[Member]) -> impl Iterator<Item = &Member> {
    let selected = members.iter().filter(|member| !member.goal.is_restore());
    selected.filter(|member| member.has_failed())
}

/// Why the revision of this number was rolled back. `places`: on what it failed, and where it was rolled back, such as
/// `("on", "on every node")`.
pub fn rejection(number: i64, members: &[Member], (place, everywhere): (&str, &str)) -> String {
    let failed: Vec<&str> = failed(members).map(|it| it.name.as_str()).take(3).collect();
    format!(
        "revision {number} failed {place} {} and was rolled back {everywhere}",
        failed.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::super::RevisionId;
    use super::super::tests::{FIVE, limits, members};
    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn ledger(canary_passed: bool, rolled_out: bool) -> Ledger {
        Ledger {
            canary_passed,
            rolled_out: rolled_out.then_some(NOW),
            ..Ledger::new(FIVE)
        }
    }

    #[test]
    fn a_step_records_what_the_members_report() {
        for (case, before, text, expected) in [
            (
                "none has it",
                (false, false),
                "a b c",
                (false, false, false),
            ),
            (
                "the canary",
                (false, false),
                "a:5. b c",
                (true, false, false),
            ),
            (
                "every one",
                (false, false),
                "a:5. b:5.",
                (true, true, false),
            ),
            (
                "one is away",
                (false, false),
                "a:5. ?b",
                (true, true, false),
            ),
            (
                "one failed",
                (false, false),
                "a:5. b:5!",
                (true, false, true),
            ),
            (
                "it failed later",
                (true, true),
                "a:5. b:5!",
                (true, true, true),
            ),
            ("there are none", (true, false), "", (true, false, false)),
            (
                "they restore",
                (false, false),
                "-a:R. -b:R.",
                (false, false, false),
            ),
        ] {
            let members = members(FIVE, text);
            let before = ledger(before.0, before.1);
            let step = step(before, &members, &limits("1", "1"), false, NOW);
            let (passed, rolled_out, is_halted) = expected;
            let outcome = Outcome {
                ledger: ledger(passed, rolled_out),
                is_halted,
            };
            assert_eq!(step.outcome, outcome, "{case}");
        }
        let step = step(ledger(false, false), &[], &limits("1", "1"), true, NOW);
        assert_eq!(step.outcome.ledger, ledger(false, true));
    }

    #[test]
    fn new_members_get_what_passed_and_did_not_fail() {
        let older = Revision::new(4, RevisionId::from_random(4));
        let Goal::Revision(newest) = FIVE else {
            panic!("a revision");
        };
        for (passed, rolled_out, is_halted, is_paused, expected) in [
            (false, false, false, false, (Some(older), None)),
            (true, false, false, false, (Some(newest), Some(newest))),
            (true, false, true, false, (Some(older), None)),
            (true, false, false, true, (Some(older), Some(newest))),
            (true, true, true, true, (Some(newest), Some(newest))),
        ] {
            let outcome = Outcome {
                ledger: ledger(passed, rolled_out),
                is_halted,
            };
            let with = |older| outcome.for_new(older, is_paused);
            assert_eq!((with(Some(older)), with(None)), expected, "{outcome:?}");
            assert_eq!(with(Some(newest)), with(None), "it is no older one");
        }
        let restores = Outcome {
            ledger: Ledger::new(Goal::Restore),
            is_halted: false,
        };
        assert_eq!(restores.for_new(Some(older), false), None);
    }

    #[test]
    fn only_a_halted_rollout_rolls_back_and_names_who_failed() {
        let rollback = api::Rollout {
            on_failure: OnFailure::Rollback,
            ..limits("1", "1")
        };
        let paused = api::Rollout {
            paused: true,
            ..rollback.clone()
        };
        let halts = limits("1", "1");
        for (limits, is_halted, rolled_out, expected) in [
            (&rollback, true, false, true),
            (&rollback, false, false, false),
            (&rollback, true, true, false),
            (&paused, true, false, false),
            (&halts, true, false, false),
        ] {
            let outcome = Outcome {
                ledger: ledger(true, rolled_out),
                is_halted,
            };
            assert_eq!(outcome.rolls_back(limits), expected, "{limits:?}");
        }
        let members = members(FIVE, "a:5. b:5! c:5! -d:R! e:5! f:5!");
        assert_eq!(
            rejection(5, &members, ("on", "on every node")),
            "revision 5 failed on b, c, e and was rolled back on every node"
        );
    }
}
