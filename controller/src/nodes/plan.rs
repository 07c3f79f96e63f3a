//! The plan: what the controller writes next. Pure: every decision of the controller is made here.

use globalps_core::api::{NodePullSecretSpec, OnFailure};
use globalps_core::rollout::{self, Goal, Progress};
use jiff::Timestamp;

use super::input::Snapshot;
use super::members::{assignments, members};
use crate::content::history::HistoryWrite;
use crate::content::resolve::{Desired, Resolved, resolve};
use crate::content::secret::{Global, GlobalWrite};
use crate::content::source::{Data, Source};

/// The state that the nodes shall reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    /// No additional Secret, no source, and nothing left to clean up.
    Nothing,
    Reach(Goal),
    /// Every node is restored: the controller deletes the objects that it created.
    CleanUp,
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) resolved: Resolved,
    pub(crate) aim: Aim,
    /// A rollback needs `last_rolled_out` from the history.
    pub(crate) needs_history: bool,
    /// Written before `global`, which no longer has this content.
    pub(crate) history: Option<HistoryWrite>,
    pub(crate) global: Option<GlobalWrite>,
    /// `NodePullSecret`s to write: node and spec, in this order.
    pub(crate) assignments: Vec<(String, NodePullSecretSpec)>,
}

impl Plan {
    /// A plan without writes.
    fn new(resolved: Resolved, aim: Aim) -> Self {
        Self {
            resolved,
            aim,
            needs_history: false,
            history: None,
            global: None,
            assignments: Vec::new(),
        }
    }
}

pub(crate) fn plan(snapshot: &Snapshot) -> Plan {
    let resolved = resolve(
        &snapshot.spec,
        &snapshot.additional,
        &snapshot.original,
        &snapshot.sources,
        snapshot.global.as_ref(),
    );
    match &resolved.desired {
        Some(desired) => reach(snapshot, &resolved, desired),
        None => restore(snapshot, resolved),
    }
}

/// Rolls the desired content out.
fn reach(snapshot: &Snapshot, resolved: &Resolved, desired: &Desired) -> Plan {
    let before = snapshot.global.as_ref();
    let is_same = before
        .and_then(|global| global.merged.as_ref())
        .is_some_and(|merged| merged.means_the_same(&desired.config));
    let last = before.map_or(0, |global| global.revision);
    // After a loss of the Secret or its revision, no number may be reused that had another meaning for a node.
    let highest = highest_revision(snapshot).max(last);
    let is_same = is_same && highest == last;
    let revision = highest + i64::from(!is_same);
    let goal = Goal::Revision(revision);
    let nodes = members(snapshot, goal);
    let canary_passed_before =
        before.is_some_and(|global| is_same && global.canary_passed == revision);
    let canary_passed = canary_passed_before || has_one(&nodes, goal);
    let rolled_out = before
        .filter(|_| is_same)
        .and_then(|global| global.rolled_out)
        .or_else(|| is_complete(&nodes, snapshot.now).then_some(snapshot.now));
    let mut plan = Plan::new(resolved.clone(), Aim::Reach(goal));
    let next = Global {
        revision,
        merged: None,
        last_additional: desired.additional.clone(),
        last_original: desired.original.clone(),
        last_sources: desired.sources.clone(),
        canary_passed: match before {
            _ if canary_passed => revision,
            Some(global) => global.canary_passed,
            None => 0,
        },
        rolled_out,
        additional_was_rolled_out: rolled_out.is_none()
            && before.is_some_and(|global| {
                global.last_additional == desired.additional
                    && (global.additional_was_rolled_out || global.rolled_out.is_some())
            }),
        rejected: resolved.rejected.clone(),
        rejected_reason: before
            .filter(|_| resolved.rejected.is_some())
            .and_then(|global| global.rejected_reason.clone()),
    };
    if is_same
        && next.rejected.is_none()
        && let Some(additional) = &desired.additional
        && must_roll_back(snapshot, &nodes, &next)
    {
        match &snapshot.last_rolled_out {
            None => plan.needs_history = true,
            Some(Source::Found(good)) if good != additional => {
                let back = roll_back(snapshot, additional, good, &nodes);
                // If both do not fit, nothing changes.
                if back.resolved.too_large.is_none() {
                    return back;
                }
            }
            Some(_) => {}
        }
    }
    plan.history = before
        .filter(|global| global.last_additional != desired.additional)
        .filter(|_| !is_same && snapshot.spec.history_limit > 0)
        .and_then(history_write);
    let merged = before.and_then(|global| global.merged.clone());
    let is_written = !snapshot.global_deleted_out_of_band
        && before.is_some_and(|global| global.has_same_state(&next));
    if !is_same || !is_written {
        let merged = merged.filter(|_| is_same);
        plan.global = Some(GlobalWrite {
            merged: merged.unwrap_or_else(|| desired.config.clone()),
            global: next,
        });
    }
    plan.assignments = assignments(snapshot, &nodes, goal, canary_passed);
    plan
}

/// The highest revision that a node reports; without the Secret, also the highest that was assigned.
fn highest_revision(snapshot: &Snapshot) -> i64 {
    let objects = snapshot.node_pull_secrets.values();
    let revisions = objects.map(|object| {
        let reported = object.status.as_ref().map_or(0, |status| status.revision);
        let assigned = if snapshot.global.is_none() {
            object.spec.revision
        } else {
            0
        };
        reported.max(assigned)
    });
    revisions.max().unwrap_or_default()
}

/// Too many nodes failed at this revision, and `onFailure` asks for a rollback. An additional Secret that was already rolled
/// out with another original or other sources is not rolled back: it is not the cause.
fn must_roll_back(snapshot: &Snapshot, nodes: &[rollout::Node], global: &Global) -> bool {
    snapshot.spec.rollout.on_failure == OnFailure::Rollback
        && !snapshot.spec.rollout.paused
        && global.rolled_out.is_none()
        && !global.additional_was_rolled_out
        && rollout::is_halted(failed(nodes).count(), &snapshot.spec.rollout)
}

/// The plan with the last good additional Secret. The present one is rejected until it changes.
fn roll_back(snapshot: &Snapshot, additional: &Data, good: &Data, nodes: &[rollout::Node]) -> Plan {
    let mut snapshot = snapshot.clone();
    let failed: Vec<&str> = failed(nodes)
        .map(|node| node.name.as_str())
        .take(3)
        .collect();
    if let Some(global) = &mut snapshot.global {
        global.rejected = Some(additional.clone());
        global.rejected_reason = Some(format!(
            "revision {} failed on {} and was taken back from every node",
            global.revision,
            failed.join(", ")
        ));
        global.last_additional = Some(good.clone());
    }
    snapshot.last_rolled_out = None;
    plan(&snapshot)
}

/// The replaced additional Secret for the history, if every node had it.
fn history_write(global: &Global) -> Option<HistoryWrite> {
    Some(HistoryWrite {
        revision: global.revision,
        rolled_out: global.rolled_out?,
        additional: global.last_additional.clone()?,
    })
}

fn has_one(nodes: &[rollout::Node], goal: Goal) -> bool {
    nodes
        .iter()
        .any(|node| node.granted == Some((goal, Progress::Done)))
}

/// Every reachable node has it, and there is at least one.
fn is_complete(nodes: &[rollout::Node], now: Timestamp) -> bool {
    selected(nodes).any(rollout::Node::is_done)
        && selected(nodes).all(|node| node.is_done() || node.ready.is_err() || node.is_silent(now))
}

/// The nodes whose goal is a revision.
fn selected(nodes: &[rollout::Node]) -> impl Iterator<Item = &rollout::Node> {
    nodes.iter().filter(|node| node.goal != Goal::Restore)
}

fn failed(nodes: &[rollout::Node]) -> impl Iterator<Item = &rollout::Node> {
    selected(nodes).filter(|node| node.has_failed())
}

/// No additional Secret and no source: restores every node, then cleans up.
fn restore(snapshot: &Snapshot, resolved: Resolved) -> Plan {
    let global = snapshot.global.as_ref();
    let mut plan = Plan::new(resolved, Aim::Nothing);
    let left_over =
        global.is_some() || snapshot.daemon_set || !snapshot.node_pull_secrets.is_empty();
    // The last good content was deleted with the Secret; the nodes keep theirs until there is a valid one.
    let is_unknown = global.is_none() && snapshot.additional != Source::Absent;
    if !left_over || is_unknown {
        return plan;
    }
    let goal = Goal::Restore;
    let nodes = members(snapshot, goal);
    plan.assignments = assignments(snapshot, &nodes, goal, true);
    if plan.assignments.is_empty() && nodes.iter().all(rollout::Node::is_done) {
        plan.aim = Aim::CleanUp;
        return plan;
    }
    plan.aim = Aim::Reach(goal);
    // The restore has begun: an invalid Secret that appears now must not bring the last good content back, and no new node
    // takes the content that is being removed.
    plan.global = global
        .filter(|global| {
            global.last_additional.is_some()
                || !global.last_sources.is_empty()
                || global.canary_passed > 0
        })
        .and_then(|global| {
            Some(GlobalWrite {
                merged: global.merged.clone()?,
                global: Global {
                    revision: global.revision,
                    last_original: global.last_original.clone(),
                    // Negative: no new node takes it, and some nodes may have it.
                    canary_passed: -global.canary_passed.abs(),
                    ..Global::default()
                },
            })
        });
    plan
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::format_push_string)]
pub(crate) mod tests {
    use std::borrow::Cow;
    use std::collections::BTreeMap;

    use globalps_core::api::{GlobalPullSecretSpec, NodePullSecret, NodePullSecretStatus};

    use super::super::input::{NodeView, NotReady};
    use super::*;

    const A: &str = r#"{"auths":{"a":{"auth":"dTpw"}}}"#;
    const A_SPELLED_OTHERWISE: &str =
        r#"{ "auths": {"https://a/": {"username":"u","password":"p"}} }"#;
    const B: &str = r#"{"auths":{"b":{"auth":"dTpw"}}}"#;
    const BAD: &str = r#"{"auths":{"c":{"auth":"cGFudHM="}}}"#;

    fn found(text: &str) -> Source {
        Source::Found(Data(Some(text.as_bytes().to_vec())))
    }

    fn global(revision: i64, text: &str) -> Global {
        let data = Data(Some(text.as_bytes().to_vec()));
        let merged = globalps_core::dockerconfig::parse(text.as_bytes()).unwrap();
        Global {
            revision,
            merged: Some(merged),
            last_additional: Some(data),
            canary_passed: revision,
            rolled_out: Some(Timestamp::UNIX_EPOCH),
            ..Global::default()
        }
    }

    /// Written, and no node has it yet.
    fn without_canary(revision: i64, text: &str) -> Global {
        Global {
            canary_passed: 0,
            rolled_out: None,
            ..global(revision, text)
        }
    }

    /// `n1 n2=5 n3=5:Synced n4=R:Restored n5=5:never !n6 -n7 %n8`: name, what it was granted (`R`: restore), what it says of
    /// it (`never`: anything); before the name: `!` not ready for a minute, `-` excluded, `%` its file is another program's, `@` it has been
    /// there for an hour.
    pub(crate) fn snapshot(
        additional: Source,
        global: Option<Global>,
        nodes: &str,
    ) -> Snapshot<'static> {
        let now = Timestamp::UNIX_EPOCH;
        let mut snapshot = Snapshot {
            spec: GlobalPullSecretSpec::default(),
            additional,
            additional_type: None,
            original: Source::Absent,
            sources: Vec::new(),
            last_rolled_out: None,
            daemon_set: global.is_some(),
            global,
            global_deleted_out_of_band: false,
            nodes: Cow::default(),
            deleted_out_of_band: Cow::default(),
            node_pull_secrets: Cow::default(),
            now,
        };
        for word in nodes.split_whitespace() {
            let mut labels = BTreeMap::from([("kubernetes.io/os".to_owned(), "linux".to_owned())]);
            let (mut ready, is_foreign) = (Ok(now), word.starts_with('%'));
            let is_old = word.starts_with('@');
            let word = word.trim_start_matches(['%', '@']);
            let word = if let Some(rest) = word.strip_prefix('!') {
                ready = Err(NotReady {
                    since: now - jiff::SignedDuration::from_mins(1),
                    unknown: false,
                });
                rest
            } else if let Some(rest) = word.strip_prefix('-') {
                labels.insert("globalps.io/exclude".to_owned(), "true".to_owned());
                rest
            } else {
                word
            };
            let (word, phase) = word
                .split_once(':')
                .map_or((word, None), |(word, phase)| (word, Some(phase)));
            let (name, granted) = word
                .split_once('=')
                .map_or((word, None), |(name, granted)| (name, Some(granted)));
            snapshot.nodes.to_mut().insert(
                name.to_owned(),
                NodeView {
                    name: name.to_owned(),
                    uid: String::new(),
                    version: 0,
                    labels: (&labels).into(),
                    ready,
                    heartbeat: now,
                    unschedulable: false,
                    is_being_deleted: false,
                    is_foreign,
                    created: if is_old {
                        now - jiff::SignedDuration::from_hours(1)
                    } else {
                        now
                    },
                },
            );
            let Some(granted) = granted else { continue };
            let revision: i64 = granted.parse().unwrap_or(5);
            let mut object = NodePullSecret::new(
                name,
                NodePullSecretSpec {
                    revision,
                    restore: granted == "R",
                    ..NodePullSecretSpec::default()
                },
            );
            object.metadata.generation = Some(2);
            object.status = match phase {
                Some("never") => None,
                // A node that waits has said so; one that was just granted something has not yet.
                None => Some(NodePullSecretStatus {
                    observed_generation: if revision == 0 { 2 } else { 1 },
                    ..NodePullSecretStatus::default()
                }),
                Some(phase) => Some(NodePullSecretStatus {
                    observed_generation: 2,
                    revision,
                    phase: serde_json::from_value(phase.into()).unwrap(),
                    ..NodePullSecretStatus::default()
                }),
            };
            snapshot
                .node_pull_secrets
                .to_mut()
                .insert(name.to_owned(), Box::new(object));
        }
        snapshot
    }

    /// The plan in one line: aim, what is kept, revision to be written, grants.
    fn line(snapshot: &Snapshot) -> String {
        let plan = plan(snapshot);
        let mut words = vec![format!("{:?}", plan.aim)];
        words.extend(plan.history.map(|kept| format!("keep {}", kept.revision)));
        if let Some(GlobalWrite { global, .. }) = plan.global {
            words.push(format!("write {}", global.revision));
            let marks = [
                (
                    global.last_additional.is_none() && global.last_sources.is_empty(),
                    "withdrawn",
                ),
                (global.rejected.is_some(), "rejected"),
                (global.canary_passed == global.revision, "canary_passed"),
                (global.rolled_out.is_some(), "rolled out"),
            ];
            let marks = marks.into_iter().filter(|(holds, _)| *holds);
            words.extend(marks.map(|(_, mark)| mark.to_owned()));
        }
        words.extend(plan.assignments.into_iter().map(|(name, spec)| {
            let restore = if spec.restore { "R" } else { "" };
            let withdrawn = if spec.withdrawn { "W" } else { "" };
            format!("{name}={}{restore}{withdrawn}", spec.revision)
        }));
        words.join(" ")
    }

    #[test]
    fn the_plan_follows_from_what_is_there() {
        for (sentence, snapshot, expected) in vec![
            (
                "nothing there: nothing to do",
                snapshot(Source::Absent, None, "a b"),
                "Nothing",
            ),
            (
                "the first add writes revision 1 and makes an object a node, and grants nothing yet",
                snapshot(found(A), None, "a b -x"),
                "Reach(Revision(1)) write 1 a=0 b=0 x=0R",
            ),
            (
                "then one goes first",
                snapshot(found(A), Some(without_canary(1, A)), "a=0 b=0 -x=0"),
                "Reach(Revision(1)) a=1",
            ),
            (
                "a node whose syncer has not said anything yet is not asked",
                snapshot(found(A), Some(without_canary(1, A)), "a=0:never b=0"),
                "Reach(Revision(1)) b=1",
            ),
            (
                "the first that has it proves it",
                snapshot(found(A), Some(without_canary(1, A)), "a=1:Synced b=0 c=0"),
                "Reach(Revision(1)) write 1 canary_passed b=1",
            ),
            (
                "when all have it, that is written down",
                snapshot(
                    found(A),
                    Some(without_canary(1, A)),
                    "a=1:Synced b=1:Synced",
                ),
                "Reach(Revision(1)) write 1 canary_passed rolled out",
            ),
            (
                "no node that joins takes what is not canary_passed",
                snapshot(found(A), Some(without_canary(1, A)), "a=1 b"),
                "Reach(Revision(1)) b=0",
            ),
            (
                "one that joins takes what is, beside the others",
                snapshot(found(A), Some(global(1, A)), "a=1 b"),
                "Reach(Revision(1)) b=1",
            ),
            (
                "an old one whose object is gone does not: somebody deleted it, and it waits for its turn",
                snapshot(found(A), Some(global(1, A)), "a=1 @b"),
                "Reach(Revision(1)) b=0",
            ),
            (
                "and the next one, if it has not said anything since",
                snapshot(found(B), Some(without_canary(2, B)), "a=1 b=1:never"),
                "Reach(Revision(2)) b=0",
            ),
            (
                "a file that is another program's is left to it",
                snapshot(found(A), Some(global(1, A)), "%a b=1:Synced"),
                "Reach(Revision(1)) a=0",
            ),
            (
                "an invalid first add does nothing",
                snapshot(found(BAD), None, "a b"),
                "Nothing",
            ),
            (
                "the next one follows when the first is done",
                snapshot(found(A), Some(global(1, A)), "a=1:Synced b=0 c=0"),
                "Reach(Revision(1)) b=1",
            ),
            (
                "a node that has not confirmed holds the next",
                snapshot(found(A), Some(global(1, A)), "a=1:Syncing b=0"),
                "Reach(Revision(1))",
            ),
            (
                "all done: nothing to do",
                snapshot(found(A), Some(global(1, A)), "a=1:Synced b=1:Synced"),
                "Reach(Revision(1))",
            ),
            (
                "a rotation is a new revision",
                snapshot(found(B), Some(global(1, A)), "a=1:Synced b=1:Synced"),
                "Reach(Revision(2)) keep 1 write 2 a=2",
            ),
            (
                "another spelling is not",
                snapshot(found(A_SPELLED_OTHERWISE), Some(global(1, A)), "a=1:Synced"),
                "Reach(Revision(1)) write 1 canary_passed rolled out",
            ),
            (
                "an invalid rotation changes nothing",
                snapshot(found(BAD), Some(global(1, A)), "a=1:Synced"),
                "Reach(Revision(1))",
            ),
            (
                "a node that failed stops the rollout",
                snapshot(found(A), Some(global(1, A)), "a=1:RolledBack b=0"),
                "Reach(Revision(1))",
            ),
            (
                "a node that joins gets its object and its turn",
                snapshot(found(A), Some(global(1, A)), "a=1:Synced b"),
                "Reach(Revision(1)) b=1",
            ),
            (
                "a node that is excluded later is put back",
                snapshot(found(A), Some(global(1, A)), "a=1:Synced -b=1:Synced"),
                "Reach(Revision(1)) b=1R",
            ),
            (
                "deletion restores one node after the other, and forgets the last good Secret",
                snapshot(Source::Absent, Some(global(1, A)), "a=1:Synced b=1:Synced"),
                "Reach(Restore) write 1 withdrawn a=1R",
            ),
            (
                "an excluded node is not forgotten",
                snapshot(
                    Source::Absent,
                    Some(global(1, A)),
                    "a=R:Restored -b=5:Synced",
                ),
                "Reach(Restore) write 1 withdrawn b=5R",
            ),
            (
                "when all are restored, everything goes",
                snapshot(Source::Absent, Some(global(1, A)), "a=R:Restored b=0"),
                "CleanUp",
            ),
            (
                "a Secret that returns in the middle rolls out again",
                snapshot(found(A), Some(global(5, A)), "a=R:Restored b=5:Synced"),
                "Reach(Revision(5)) a=5",
            ),
            (
                "an invalid one that returns in the middle does not stop the restore",
                snapshot(
                    found(BAD),
                    Some(Global {
                        last_additional: None,
                        ..without_canary(5, A)
                    }),
                    "a=R:Restored b=5:Synced",
                ),
                "Reach(Restore) b=5R",
            ),
            (
                "a node that is not ready is passed over",
                snapshot(found(B), Some(global(1, A)), "!a=1:Synced b=1:Synced"),
                "Reach(Revision(2)) keep 1 write 2 b=2",
            ),
        ] {
            assert_eq!(line(&snapshot), expected, "{sentence}");
        }
    }

    #[test]
    fn what_was_lost_comes_back_and_no_number_comes_back_with_another_meaning() {
        let mut lost = snapshot(found(A), Some(global(2, A)), "a=2:Synced b=2:Synced");
        lost.global_deleted_out_of_band = true;
        for (sentence, snapshot, expected) in [
            (
                "deleted by somebody: as it was",
                lost,
                "Reach(Revision(2)) write 2 canary_passed rolled out",
            ),
            (
                "lost while nobody looked: above what any node has or was granted",
                snapshot(found(B), None, "a=2:Synced b=3"),
                "Reach(Revision(4)) write 4 b=4",
            ),
            (
                "its revision was set back",
                snapshot(found(A), Some(global(1, A)), "a=2:Synced"),
                "Reach(Revision(3)) write 3 a=3",
            ),
            (
                "lost, and nobody knows what was good: the nodes keep what they have",
                snapshot(found(BAD), None, "a=2:Synced"),
                "Nothing",
            ),
        ] {
            assert_eq!(line(&snapshot), expected, "{sentence}");
        }
    }

    #[test]
    fn where_the_user_wants_it_a_fleet_that_failed_goes_back_to_what_every_node_had() {
        let failed = |last_rolled_out| {
            let mut snapshot = snapshot(
                found(B),
                Some(without_canary(2, B)),
                "a=2:Synced b=2:RolledBack c=1:Synced",
            );
            snapshot.spec.rollout.on_failure = OnFailure::Rollback;
            snapshot.last_rolled_out = last_rolled_out;
            snapshot
        };
        let data = |text: &str| Data(Some(text.as_bytes().to_vec()));
        assert!(plan(&failed(None)).needs_history);
        for (sentence, snapshot, expected) in [
            (
                "there is nothing to go back to",
                failed(Some(Source::Absent)),
                "Reach(Revision(2)) write 2 canary_passed",
            ),
            (
                "what is kept is what failed",
                failed(Some(found(B))),
                "Reach(Revision(2)) write 2 canary_passed",
            ),
            (
                "the one from before is a revision like any other",
                failed(Some(found(A))),
                "Reach(Revision(3)) write 3 rejected a=3",
            ),
        ] {
            assert_eq!(line(&snapshot), expected, "{sentence}");
        }
        let back = plan(&failed(Some(found(A)))).global.unwrap().global;
        assert_eq!(back.last_additional, Some(data(A)));
        let mut other_source = failed(Some(found(A)));
        other_source
            .global
            .as_mut()
            .unwrap()
            .additional_was_rolled_out = true;
        assert_eq!(
            line(&other_source),
            "Reach(Revision(2)) write 2 canary_passed",
            "an additional Secret that every node had is not taken back"
        );
        let why = back.rejected_reason.clone().unwrap();
        assert_eq!(
            why,
            "revision 2 failed on b and was taken back from every node"
        );
        let refusing = |additional| {
            let global = Global {
                merged: global(3, A).merged,
                ..back.clone()
            };
            line(&snapshot(
                found(additional),
                Some(global),
                "a=3:Synced b=3:Synced c=3",
            ))
        };
        assert_eq!(
            refusing(B),
            "Reach(Revision(3)) write 3 rejected canary_passed",
            "as long as it is the same, it stays rejected"
        );
        assert_eq!(
            refusing(A_SPELLED_OTHERWISE),
            "Reach(Revision(3)) write 3 canary_passed",
            "another one is taken as it is"
        );
    }

    #[test]
    fn the_cleanup_begins_only_when_there_is_no_source_either() {
        let sources = |text| {
            let global = Global {
                last_additional: None,
                last_sources: BTreeMap::from([("one".to_owned(), Data(Some(A.into())))]),
                ..global(1, A)
            };
            let mut snapshot = snapshot(Source::Absent, Some(global), "a=1:Synced b=1:Synced");
            snapshot.sources = vec![("one".to_owned(), text)];
            line(&snapshot)
        };
        assert_eq!(sources(found(A)), "Reach(Revision(1))");
        assert_eq!(sources(found(B)), "Reach(Revision(2)) write 2 a=2");
        assert_eq!(sources(found(BAD)), "Reach(Revision(1))");
        assert_eq!(sources(Source::Forbidden), "Reach(Revision(1))");
        assert_eq!(
            sources(Source::Absent),
            "Reach(Restore) write 1 withdrawn a=1R"
        );
    }

    #[test]
    fn an_additional_secret_that_every_node_had_is_known_when_a_source_changes() {
        let mut snapshot = snapshot(found(A), Some(global(1, A)), "a=1:Synced");
        snapshot.sources = vec![("one".to_owned(), found(B))];
        let next = plan(&snapshot).global.unwrap().global;
        assert!(next.additional_was_rolled_out && next.rolled_out.is_none());
        snapshot.additional = found(B);
        let next = plan(&snapshot).global.unwrap().global;
        assert!(!next.additional_was_rolled_out);
    }

    #[test]
    fn a_status_about_another_spec_says_nothing() {
        let mut snapshot = snapshot(found(A), Some(global(1, A)), "a=1:Synced b=0");
        snapshot
            .node_pull_secrets
            .to_mut()
            .get_mut("a")
            .unwrap()
            .metadata
            .generation = Some(3);
        assert_eq!(line(&snapshot), "Reach(Revision(1))");
    }
}
