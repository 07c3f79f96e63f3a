//! `GlobalPullSecret.status` from what is there and what was planned. Pure.

mod counts;
pub(crate) mod events;

use globalps_core::api::{
    Counts, GlobalPullSecretStatus, SOURCE_REGISTRIES, SourceStatus, condition,
};
use globalps_core::dockerconfig::Finding;
use globalps_core::names::{ADDITIONAL_SECRET, SECRET_TYPE};
use globalps_core::rollout::{self, Goal};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::content::resolve::{ResolvedSource, Verdict};
use crate::nodes::members::fleet;
use crate::nodes::plan::{Aim, Observed, Plan};

pub(crate) use counts::{Tally, tally};
use counts::{failed, list, restoring, rolling_out};

const TAKEN_BACK_HINT: &str =
    "the additional Secret from before is in force until this one is changed";

const MAY_NOT_READ: &str = "the controller may not read it";

/// One condition before it gets its times.
struct Statement {
    type_: &'static str,
    status: &'static str,
    reason: &'static str,
    message: String,
}

fn statement(
    type_: &'static str,
    status: &'static str,
    reason: &'static str,
    message: String,
) -> Statement {
    Statement {
        type_,
        status,
        reason,
        message,
    }
}

/// `observed_additional` is the `resourceVersion` of the additional Secret, `generation` that of the spec; `before` is
/// the status that is there, so that times change only with what they are about.
pub(crate) fn report(
    observed: &Observed,
    plan: &Plan,
    observed_additional: &str,
    generation: i64,
    before: Option<&GlobalPullSecretStatus>,
) -> GlobalPullSecretStatus {
    let goal = match plan.aim {
        Aim::Reach(goal) => goal,
        Aim::Nothing | Aim::CleanUp => Goal::Restore,
    };
    let nodes = fleet(observed, goal);
    let tally = match plan.aim {
        Aim::Nothing => tally(&[], goal, observed.now),
        _ => tally(&nodes, goal, observed.now),
    };
    let statements = [
        ready(observed, plan, &tally),
        progressing(observed, plan, &tally),
        degraded(observed, plan, &tally),
        additional_valid(&plan.resolved.additional, observed),
        original_valid(&plan.resolved.original),
    ];
    let conditions = statements
        .into_iter()
        .chain(sources_valid(&plan.resolved.sources))
        .map(|new| dated(new, before, generation, observed.now))
        .collect();
    GlobalPullSecretStatus {
        observed_generation: generation,
        observed_additional: observed_additional.to_owned(),
        revision: if let Goal::Revision(revision) = goal {
            revision
        } else {
            0
        },
        counts: tally.counts,
        conflicts: plan.resolved.conflicts.clone(),
        sources: source_statuses(&plan.resolved.sources),
        conditions,
    }
}

/// Whether nothing but numbers of nodes, and sentences about them, tells the two apart. A node that failed is no number.
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

fn dated(
    new: Statement,
    before: Option<&GlobalPullSecretStatus>,
    generation: i64,
    now: Timestamp,
) -> Condition {
    let old = before.and_then(|status| status.conditions.iter().find(|old| old.type_ == new.type_));
    let since = old
        .filter(|old| old.status == new.status)
        .map_or(Time(now), |old| old.last_transition_time.clone());
    Condition {
        type_: new.type_.to_owned(),
        status: new.status.to_owned(),
        reason: new.reason.to_owned(),
        message: new.message,
        observed_generation: Some(generation),
        last_transition_time: since,
    }
}

fn is_halted(observed: &Observed, tally: &Tally) -> bool {
    rollout::is_halted(tally.halting, &observed.spec.rollout)
}

fn ready(observed: &Observed, plan: &Plan, tally: &Tally) -> Statement {
    let no = |reason, message| statement(condition::READY, "False", reason, message);
    let counts = tally.counts;
    let Aim::Reach(Goal::Revision(revision)) = plan.aim else {
        return match (&plan.resolved.additional, plan.aim) {
            (Verdict::Invalid(findings), Aim::Nothing) => {
                no("AdditionalInvalid", sentences(findings))
            }
            (_, Aim::Nothing) => {
                let mut message = format!("there is no Secret `{ADDITIONAL_SECRET}`");
                if let Some((_, _, why)) = first_bad(&plan.resolved.sources) {
                    message = format!("{message}, and none of the sources is valid: {why}");
                }
                no("NoAdditional", message)
            }
            _ => no("Restoring", restoring(tally)),
        };
    };
    if let Verdict::Invalid(findings) = &plan.resolved.additional {
        let message = format!(
            "revision {revision} stays in force: {}",
            sentences(findings)
        );
        return no("AdditionalInvalid", message);
    }
    if let Verdict::TakenBack(why) = &plan.resolved.additional {
        return no("TakenBack", format!("{why}; {TAKEN_BACK_HINT}"));
    }
    if !tally.failed.is_empty() {
        return no("NodesFailed", failed(observed, tally));
    }
    if tally.waiting + counts.progressing > 0 {
        return no("RollingOut", rolling_out(revision, tally));
    }
    let mut message = format!(
        "revision {revision} is in force on {} of {} nodes",
        counts.synced, counts.total
    );
    if !tally.unreachable.is_empty() {
        message = format!(
            "{message}; not ready, or without a syncer that answers: {}",
            list(&tally.unreachable)
        );
    }
    if counts.synced == 0 {
        return no("NoNodes", message);
    }
    statement(condition::READY, "True", "Synced", message)
}

fn progressing(observed: &Observed, plan: &Plan, tally: &Tally) -> Statement {
    let open = tally.waiting + tally.counts.progressing;
    let (status, reason, message) = match plan.aim {
        Aim::Nothing => ("False", "NothingToDo", String::new()),
        Aim::CleanUp => ("True", "CleaningUp", "every node is restored".to_owned()),
        Aim::Reach(_) if open == 0 => ("False", "Complete", String::new()),
        Aim::Reach(_) if observed.spec.rollout.paused => (
            "False",
            "Paused",
            "`spec.rollout.paused` is true".to_owned(),
        ),
        Aim::Reach(_) if is_halted(observed, tally) => ("False", "Halted", failed(observed, tally)),
        Aim::Reach(Goal::Revision(revision)) => {
            ("True", "RollingOut", rolling_out(revision, tally))
        }
        Aim::Reach(Goal::Restore) => ("True", "Restoring", restoring(tally)),
    };
    statement(condition::PROGRESSING, status, reason, message)
}

fn degraded(observed: &Observed, plan: &Plan, tally: &Tally) -> Statement {
    if !tally.failed.is_empty() {
        let reason = if is_halted(observed, tally) {
            "RolloutHalted"
        } else {
            "NodesFailed"
        };
        return statement(condition::DEGRADED, "True", reason, failed(observed, tally));
    }
    if let Verdict::TakenBack(why) = &plan.resolved.additional {
        let message = format!("{why}; {TAKEN_BACK_HINT}");
        return statement(condition::DEGRADED, "True", "TakenBack", message);
    }
    match &plan.resolved.original {
        Verdict::Unreadable(why) => statement(
            condition::DEGRADED,
            "True",
            "OriginalUnreadable",
            format!("the original pull secret: {why}"),
        ),
        _ if let Some((_, reason, message)) = first_bad(&plan.resolved.sources) => {
            statement(condition::DEGRADED, "True", reason, message)
        }
        _ => statement(condition::DEGRADED, "False", "AsExpected", String::new()),
    }
}

fn additional_valid(verdict: &Verdict, observed: &Observed) -> Statement {
    let new =
        |status, reason, message| statement(condition::ADDITIONAL_VALID, status, reason, message);
    match verdict {
        Verdict::Absent => new(
            "Unknown",
            "Absent",
            format!("there is no Secret `{ADDITIONAL_SECRET}`"),
        ),
        Verdict::Valid => new("True", "Valid", type_warning(observed)),
        Verdict::TakenBack(why) => new("True", "TakenBack", why.clone()),
        Verdict::Unreadable(why) => new("False", "Unreadable", why.clone()),
        Verdict::Forbidden => new("False", "Forbidden", MAY_NOT_READ.to_owned()),
        Verdict::Invalid(findings) | Verdict::Partly(findings) => {
            let stays = if observed.global.is_some() {
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

fn original_valid(verdict: &Verdict) -> Statement {
    let new =
        |status, reason, message| statement(condition::ORIGINAL_VALID, status, reason, message);
    match verdict {
        Verdict::Absent => new(
            "True",
            "NodeFile",
            "each node's own file is the base".to_owned(),
        ),
        Verdict::Valid | Verdict::TakenBack(_) => new("True", "Valid", String::new()),
        Verdict::Unreadable(why) => new("False", "Unreadable", why.clone()),
        Verdict::Forbidden => new("False", "Forbidden", MAY_NOT_READ.to_owned()),
        Verdict::Partly(findings) => new(
            "False",
            "BadEntries",
            format!("left out: {}", sentences(findings)),
        ),
        Verdict::Invalid(findings) => new("False", "Invalid", sentences(findings)),
    }
}

/// A Secret of another type has the same meaning, but the API server did not look at what is in it.
fn type_warning(observed: &Observed) -> String {
    match observed.additional_type.as_deref() {
        None | Some(SECRET_TYPE) => String::new(),
        Some(other) => format!("its type is `{other}`; `{SECRET_TYPE}` is the usual one"),
    }
}

/// Whether the sources are valid; nothing where there are none.
fn sources_valid(sources: &[ResolvedSource]) -> Option<Statement> {
    let new =
        |status, reason, message| statement(condition::SOURCES_VALID, status, reason, message);
    if sources.is_empty() {
        return None;
    }
    Some(match first_bad(sources) {
        Some((reason, _, message)) => new("False", reason, message),
        None => new("True", "Valid", String::new()),
    })
}

/// Reason by the first source that is not valid, the same as a reason of `Degraded`, and a sentence that names each of
/// them and what to do; `None`: all are valid.
fn first_bad(sources: &[ResolvedSource]) -> Option<(&'static str, &'static str, String)> {
    let bad: Vec<_> = sources
        .iter()
        .filter_map(|source| Some((source, source_fault(source)?)))
        .collect();
    let (_, (reason, degraded, _)) = bad.first()?;
    let say =
        |(source, (_, _, why)): &(&ResolvedSource, Fault)| format!("`{}`: {why}", source.name);
    let mut sentences: Vec<String> = bad.iter().map(say).collect();
    let forbidden = |source: &&ResolvedSource| source.verdict == Verdict::Forbidden;
    let flags: Vec<String> = sources
        .iter()
        .filter(forbidden)
        .map(|source| format!("--source {}", source.name))
        .collect();
    if !flags.is_empty() {
        sentences.push(format!(
            "`kubectl globalps install {} --apply` allows it",
            flags.join(" ")
        ));
    }
    Some((reason, degraded, sentences.join("; ")))
}

/// Reason of `SourcesValid`, reason of `Degraded`, and why, as a sentence.
type Fault = (&'static str, &'static str, String);

fn source_fault(source: &ResolvedSource) -> Option<Fault> {
    let stays = if source.registries.is_empty() {
        ""
    } else {
        "; what was valid last stays in force"
    };
    Some(match &source.verdict {
        Verdict::Valid | Verdict::TakenBack(_) => return None,
        Verdict::Absent => (
            "Absent",
            "SourceAbsent",
            "there is no such Secret".to_owned(),
        ),
        Verdict::Forbidden => (
            "Forbidden",
            "SourceForbidden",
            format!("{MAY_NOT_READ}{stays}"),
        ),
        Verdict::Unreadable(why) => ("Unreadable", "SourceUnreadable", format!("{why}{stays}")),
        Verdict::Invalid(findings) | Verdict::Partly(findings) => (
            "Invalid",
            "SourceInvalid",
            format!("{}{stays}", sentences(findings)),
        ),
    })
}

fn source_statuses(sources: &[ResolvedSource]) -> Vec<SourceStatus> {
    let sources = sources.iter().map(|source| {
        let fault = source_fault(source);
        let registries = source.registries.iter().take(SOURCE_REGISTRIES);
        SourceStatus {
            name: source.name.clone(),
            valid: fault.is_none(),
            message: fault.map(|(_, _, why)| why).unwrap_or_default(),
            registries: registries.cloned().collect(),
            total: u32::try_from(source.registries.len()).unwrap_or(u32::MAX),
        }
    });
    sources.collect()
}

/// Findings in one line, each with its registry, and as many as a status can hold.
pub(crate) fn sentences(findings: &[Finding]) -> String {
    const MOST: usize = 20;
    let mut sentences: Vec<String> = findings
        .iter()
        .take(MOST)
        .map(ToString::to_string)
        .collect();
    if findings.len() > MOST {
        sentences.push(format!("and {} more", findings.len() - MOST));
    }
    sentences.join("; ")
}

#[cfg(test)]
mod tests {
    use globalps_core::rollout::Progress;

    use super::*;

    const GOAL: Goal = Goal::Revision(2);

    fn node(name: &str, ready: bool, granted: Option<(Goal, Progress)>) -> rollout::Node {
        let ready = if ready {
            Ok(())
        } else {
            Err(Timestamp::UNIX_EPOCH)
        };
        rollout::Node {
            name: name.to_owned(),
            goal: GOAL,
            ready,
            granted,
            granted_at: Timestamp::UNIX_EPOCH,
            answers: true,
            retry: false,
        }
    }

    #[test]
    fn every_node_is_counted_once() {
        let goal = GOAL;
        let silent = rollout::Node {
            answers: false,
            ..node("silent", true, None)
        };
        let asked_again = rollout::Node {
            retry: true,
            ..node("asked-again", true, Some((goal, Progress::Failed)))
        };
        let nodes = [
            silent,
            asked_again,
            node("foreign", true, Some((goal, Progress::Foreign))),
            node("joining", true, Some((goal, Progress::Joining))),
            node("synced", true, Some((goal, Progress::Done))),
            node("synced-but-away", false, Some((goal, Progress::Done))),
            node("failed", true, Some((goal, Progress::Failed))),
            node("working", true, Some((goal, Progress::InFlight))),
            node(
                "working-on-the-last",
                true,
                Some((Goal::Revision(1), Progress::InFlight)),
            ),
            node("waiting", true, Some((Goal::Revision(1), Progress::Done))),
            node("new", true, None),
            node("away", false, None),
        ];
        let tally = tally(&nodes, goal, Timestamp::UNIX_EPOCH + rollout::SILENT_AFTER);
        assert_eq!(
            tally.counts,
            Counts {
                total: 12,
                synced: 2,
                progressing: 3,
                failed: 2,
                unreachable: 2
            }
        );
        assert_eq!(tally.waiting, 3);
        assert_eq!(tally.failed, ["foreign", "failed"]);
        assert_eq!(tally.halting, 1, "a file that is another's stops nobody");
    }

    #[test]
    fn only_numbers_of_nodes_can_wait_to_be_told() {
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
                conditions: vec![dated(new, None, 1, now)],
                ..GlobalPullSecretStatus::default()
            }
        };
        let rolling = ("False", "RollingOut", "2 of 9");
        let before = status(5, 2, 0, rolling);
        for (sentence, after, can_wait) in [
            (
                "more nodes are synced",
                status(5, 3, 0, ("False", "RollingOut", "3 of 9")),
                true,
            ),
            ("one failed", status(5, 2, 1, rolling), false),
            ("another revision", status(6, 2, 0, rolling), false),
            (
                "all is done",
                status(5, 9, 0, ("True", "Synced", "9 of 9")),
                false,
            ),
            (
                "another reason",
                status(5, 2, 0, ("False", "NodesFailed", "2 of 9")),
                false,
            ),
        ] {
            assert_eq!(only_counts(&before, &after), can_wait, "{sentence}");
        }
    }

    #[test]
    fn a_condition_keeps_its_time_until_its_status_changes() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let first = dated(
            statement("Ready", "False", "A", String::new()),
            None,
            1,
            at(1),
        );
        let before = GlobalPullSecretStatus {
            conditions: vec![first],
            ..GlobalPullSecretStatus::default()
        };
        let same = dated(
            statement("Ready", "False", "B", "more".to_owned()),
            Some(&before),
            2,
            at(2),
        );
        assert_eq!(
            (same.last_transition_time.0, same.reason.as_str()),
            (at(1), "B")
        );
        let other = dated(
            statement("Ready", "True", "C", String::new()),
            Some(&before),
            2,
            at(3),
        );
        assert_eq!(other.last_transition_time.0, at(3));
    }
}
