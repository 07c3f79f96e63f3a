//! What is to be done next, from what is there. Pure: everything that the controller decides is decided here.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use globalps_core::api::{GlobalPullSecretSpec, NodePullSecret, NodePullSecretSpec, OnFailure};
use globalps_core::dockerconfig::DockerConfig;
use globalps_core::rollout::{self, Goal, Progress};
use jiff::Timestamp;

use crate::content::resolve::{Data, Desired, Global, Resolved, Source, resolve};
use crate::nodes::members::{NodeView, fleet, grants};

/// Everything that the plan depends on.
#[derive(Clone, Debug)]
pub(crate) struct Observed<'a> {
    pub(crate) spec: GlobalPullSecretSpec,
    pub(crate) additional: Source,
    /// Type of the Secret that it is.
    pub(crate) additional_type: Option<String>,
    pub(crate) original: Source,
    /// `spec.sources` by name, in their order.
    pub(crate) sources: Vec<(String, Source)>,
    pub(crate) global: Option<Global>,
    /// Somebody else deleted it, and `global` is what it was.
    pub(crate) global_is_lost: bool,
    /// The newest additional Secret of the history, which every node had; `None`: not looked for.
    pub(crate) last_rolled_out: Option<Source>,
    /// The syncer's `DaemonSet` is there.
    pub(crate) daemon_set: bool,
    pub(crate) nodes: Cow<'a, BTreeMap<String, NodeView>>,
    /// Nodes whose object somebody deleted.
    pub(crate) robbed: Cow<'a, BTreeSet<String>>,
    pub(crate) node_pull_secrets: Cow<'a, BTreeMap<String, Box<NodePullSecret>>>,
    pub(crate) now: Timestamp,
}

/// A new content of `global-pull-secret`.
#[derive(Clone, Debug)]
pub(crate) struct GlobalWrite {
    pub(crate) merged: DockerConfig,
    pub(crate) global: Global,
}

/// An additional Secret that is kept, to go back to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HistoryWrite {
    /// The last revision that it was part of.
    pub(crate) revision: i64,
    pub(crate) rolled_out: Timestamp,
    pub(crate) additional: Data,
}

/// What the nodes are coming to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    /// No additional Secret, no source, and nothing left of an earlier one.
    Nothing,
    Reach(Goal),
    /// Every node is as it was: what the controller created goes.
    CleanUp,
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) resolved: Resolved,
    pub(crate) aim: Aim,
    /// The fleet is to go back, and it must be known to what: `last_rolled_out` is to be looked for.
    pub(crate) asks_history: bool,
    /// Comes before `global`, which forgets what is kept here.
    pub(crate) history: Option<HistoryWrite>,
    pub(crate) global: Option<GlobalWrite>,
    /// Nodes whose `NodePullSecret` is to be written, with its spec, in this order.
    pub(crate) grants: Vec<(String, NodePullSecretSpec)>,
}

impl Plan {
    /// Nothing is to be done.
    fn new(resolved: Resolved, aim: Aim) -> Self {
        Self {
            resolved,
            aim,
            asks_history: false,
            history: None,
            global: None,
            grants: Vec::new(),
        }
    }
}

pub(crate) fn plan(observed: &Observed) -> Plan {
    let resolved = resolve(
        &observed.spec,
        &observed.additional,
        &observed.original,
        &observed.sources,
        observed.global.as_ref(),
    );
    match &resolved.desired {
        Some(desired) => reach(observed, &resolved, desired),
        None => put_back(observed, resolved),
    }
}

/// Towards what is desired.
fn reach(observed: &Observed, resolved: &Resolved, desired: &Desired) -> Plan {
    let before = observed.global.as_ref();
    let is_same = before
        .and_then(|global| global.merged.as_ref())
        .is_some_and(|merged| merged.means_the_same(&desired.config));
    let last = before.map_or(0, |global| global.revision);
    // Where the Secret or its revision was lost, no number may come back that meant something else to a node.
    let highest = highest_revision(observed).max(last);
    let is_same = is_same && highest == last;
    let revision = highest + i64::from(!is_same);
    let goal = Goal::Revision(revision);
    let nodes = fleet(observed, goal);
    let before_proven = before.is_some_and(|global| is_same && global.proven == revision);
    let proven = before_proven || has_one(&nodes, goal);
    let rolled_out = before
        .filter(|_| is_same)
        .and_then(|global| global.rolled_out)
        .or_else(|| is_complete(&nodes, observed.now).then_some(observed.now));
    let mut plan = Plan::new(resolved.clone(), Aim::Reach(goal));
    let next = Global {
        revision,
        merged: None,
        last_additional: desired.additional.clone(),
        last_original: desired.original.clone(),
        last_sources: desired.sources.clone(),
        proven: match before {
            _ if proven => revision,
            Some(global) => global.proven,
            None => 0,
        },
        rolled_out,
        is_additional_proven: rolled_out.is_none()
            && before.is_some_and(|global| {
                global.last_additional == desired.additional
                    && (global.is_additional_proven || global.rolled_out.is_some())
            }),
        refused: resolved.refused.clone(),
        refused_why: before
            .filter(|_| resolved.refused.is_some())
            .and_then(|global| global.refused_why.clone()),
    };
    if is_same
        && next.refused.is_none()
        && let Some(additional) = &desired.additional
        && is_to_go_back(observed, &nodes, &next)
    {
        match &observed.last_rolled_out {
            None => plan.asks_history = true,
            Some(Source::Found(good)) if good != additional => {
                let back = go_back(observed, additional, good, &nodes);
                // Where both do not fit, all stays as it is.
                if back.resolved.too_large.is_none() {
                    return back;
                }
            }
            Some(_) => {}
        }
    }
    plan.history = before
        .filter(|global| global.last_additional != desired.additional)
        .filter(|_| !is_same && observed.spec.history_limit > 0)
        .and_then(kept);
    let merged = before.and_then(|global| global.merged.clone());
    let is_written =
        !observed.global_is_lost && before.is_some_and(|global| global.says_the_same(&next));
    if !is_same || !is_written {
        let merged = merged.filter(|_| is_same);
        plan.global = Some(GlobalWrite {
            merged: merged.unwrap_or_else(|| desired.config.clone()),
            global: next,
        });
    }
    plan.grants = grants(observed, &nodes, goal, proven);
    plan
}

/// The highest revision that a node says it has; where there is no Secret any more, or that one was granted.
fn highest_revision(observed: &Observed) -> i64 {
    let objects = observed.node_pull_secrets.values();
    let revisions = objects.map(|object| {
        let told = object.status.as_ref().map_or(0, |status| status.revision);
        let granted = if observed.global.is_none() {
            object.spec.revision
        } else {
            0
        };
        told.max(granted)
    });
    revisions.max().unwrap_or_default()
}

/// Too many failed at this revision, and the user wants the last good one then. Where the additional Secret is the same as
/// in that, another one would not help.
fn is_to_go_back(observed: &Observed, nodes: &[rollout::Node], global: &Global) -> bool {
    observed.spec.rollout.on_failure == OnFailure::Rollback
        && !observed.spec.rollout.paused
        && global.rolled_out.is_none()
        && !global.is_additional_proven
        && rollout::is_halted(failed(nodes).count(), &observed.spec.rollout)
}

/// The plan with the last good additional Secret in place of the present one, which is refused until it is another one.
fn go_back(observed: &Observed, additional: &Data, good: &Data, nodes: &[rollout::Node]) -> Plan {
    let mut observed = observed.clone();
    let failed: Vec<&str> = failed(nodes)
        .map(|node| node.name.as_str())
        .take(3)
        .collect();
    if let Some(global) = &mut observed.global {
        global.refused = Some(additional.clone());
        global.refused_why = Some(format!(
            "revision {} failed on {} and was taken back from every node",
            global.revision,
            failed.join(", ")
        ));
        global.last_additional = Some(good.clone());
    }
    observed.last_rolled_out = None;
    plan(&observed)
}

/// What is to be kept of the additional Secret that goes: every node had it.
fn kept(global: &Global) -> Option<HistoryWrite> {
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

/// Every node that can be reached has it, and there is one.
fn is_complete(nodes: &[rollout::Node], now: Timestamp) -> bool {
    selected(nodes).any(rollout::Node::is_done)
        && selected(nodes).all(|node| node.is_done() || node.ready.is_err() || node.is_silent(now))
}

/// Those that are to come to a revision.
fn selected(nodes: &[rollout::Node]) -> impl Iterator<Item = &rollout::Node> {
    nodes.iter().filter(|node| node.goal != Goal::Restore)
}

fn failed(nodes: &[rollout::Node]) -> impl Iterator<Item = &rollout::Node> {
    selected(nodes).filter(|node| node.has_failed())
}

/// No additional Secret and no source: every node is put back, and then everything goes.
fn put_back(observed: &Observed, resolved: Resolved) -> Plan {
    let global = observed.global.as_ref();
    let mut plan = Plan::new(resolved, Aim::Nothing);
    let left_over =
        global.is_some() || observed.daemon_set || !observed.node_pull_secrets.is_empty();
    // What was the last good one is lost with the Secret; the nodes keep what they have until there is a good one.
    let is_unknown = global.is_none() && observed.additional != Source::Absent;
    if !left_over || is_unknown {
        return plan;
    }
    let goal = Goal::Restore;
    let nodes = fleet(observed, goal);
    plan.grants = grants(observed, &nodes, goal, true);
    if plan.grants.is_empty() && nodes.iter().all(rollout::Node::is_done) {
        plan.aim = Aim::CleanUp;
        return plan;
    }
    plan.aim = Aim::Reach(goal);
    // The way back has begun: an invalid Secret that comes now must not bring the last good one back, and no node that
    // joins takes what is being taken away.
    plan.global = global
        .filter(|global| {
            global.last_additional.is_some() || !global.last_sources.is_empty() || global.proven > 0
        })
        .and_then(|global| {
            Some(GlobalWrite {
                merged: global.merged.clone()?,
                global: Global {
                    revision: global.revision,
                    last_original: global.last_original.clone(),
                    // No node that joins takes it now, and that some may have is not forgotten.
                    proven: -global.proven.abs(),
                    ..Global::default()
                },
            })
        });
    plan
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::format_push_string)]
pub(crate) mod tests {
    use globalps_core::api::NodePullSecretStatus;

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
            proven: revision,
            rolled_out: Some(Timestamp::UNIX_EPOCH),
            ..Global::default()
        }
    }

    /// Written, and no node has it yet.
    fn unproven(revision: i64, text: &str) -> Global {
        Global {
            proven: 0,
            rolled_out: None,
            ..global(revision, text)
        }
    }

    /// `n1 n2=5 n3=5:Synced n4=R:Restored n5=5:never !n6 -n7 %n8`: name, what it was granted (`R`: restore), what it says of
    /// it (`never`: anything); before the name: `!` not ready for a minute, `-` excluded, `%` its file is another program's, `@` it has been
    /// there for an hour.
    pub(crate) fn observed(
        additional: Source,
        global: Option<Global>,
        nodes: &str,
    ) -> Observed<'static> {
        let now = Timestamp::UNIX_EPOCH;
        let mut observed = Observed {
            spec: GlobalPullSecretSpec::default(),
            additional,
            additional_type: None,
            original: Source::Absent,
            sources: Vec::new(),
            last_rolled_out: None,
            daemon_set: global.is_some(),
            global,
            global_is_lost: false,
            nodes: Cow::default(),
            robbed: Cow::default(),
            node_pull_secrets: Cow::default(),
            now,
        };
        for word in nodes.split_whitespace() {
            let mut labels = BTreeMap::from([("kubernetes.io/os".to_owned(), "linux".to_owned())]);
            let (mut ready, is_foreign) = (Ok(()), word.starts_with('%'));
            let is_old = word.starts_with('@');
            let word = word.trim_start_matches(['%', '@']);
            let word = if let Some(rest) = word.strip_prefix('!') {
                ready = Err(now - jiff::SignedDuration::from_mins(1));
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
            observed.nodes.to_mut().insert(
                name.to_owned(),
                NodeView {
                    name: name.to_owned(),
                    uid: String::new(),
                    version: 0,
                    labels: (&labels).into(),
                    ready,
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
            observed
                .node_pull_secrets
                .to_mut()
                .insert(name.to_owned(), Box::new(object));
        }
        observed
    }

    /// The plan in one line: aim, what is kept, revision to be written, grants.
    fn line(observed: &Observed) -> String {
        let plan = plan(observed);
        let mut words = vec![format!("{:?}", plan.aim)];
        words.extend(plan.history.map(|kept| format!("keep {}", kept.revision)));
        if let Some(GlobalWrite { global, .. }) = plan.global {
            words.push(format!("write {}", global.revision));
            let marks = [
                (
                    global.last_additional.is_none() && global.last_sources.is_empty(),
                    "withdrawn",
                ),
                (global.refused.is_some(), "refused"),
                (global.proven == global.revision, "proven"),
                (global.rolled_out.is_some(), "rolled out"),
            ];
            let marks = marks.into_iter().filter(|(holds, _)| *holds);
            words.extend(marks.map(|(_, mark)| mark.to_owned()));
        }
        words.extend(plan.grants.into_iter().map(|(name, spec)| {
            let restore = if spec.restore { "R" } else { "" };
            let withdrawn = if spec.withdrawn { "W" } else { "" };
            format!("{name}={}{restore}{withdrawn}", spec.revision)
        }));
        words.join(" ")
    }

    #[test]
    fn the_plan_follows_from_what_is_there() {
        for (sentence, observed, expected) in vec![
            (
                "nothing there: nothing to do",
                observed(Source::Absent, None, "a b"),
                "Nothing",
            ),
            (
                "the first add writes revision 1 and makes an object a node, and grants nothing yet",
                observed(found(A), None, "a b -x"),
                "Reach(Revision(1)) write 1 a=0 b=0 x=0R",
            ),
            (
                "then one goes first",
                observed(found(A), Some(unproven(1, A)), "a=0 b=0 -x=0"),
                "Reach(Revision(1)) a=1",
            ),
            (
                "a node whose syncer has not said anything yet is not asked",
                observed(found(A), Some(unproven(1, A)), "a=0:never b=0"),
                "Reach(Revision(1)) b=1",
            ),
            (
                "the first that has it proves it",
                observed(found(A), Some(unproven(1, A)), "a=1:Synced b=0 c=0"),
                "Reach(Revision(1)) write 1 proven b=1",
            ),
            (
                "when all have it, that is written down",
                observed(found(A), Some(unproven(1, A)), "a=1:Synced b=1:Synced"),
                "Reach(Revision(1)) write 1 proven rolled out",
            ),
            (
                "no node that joins takes what is not proven",
                observed(found(A), Some(unproven(1, A)), "a=1 b"),
                "Reach(Revision(1)) b=0",
            ),
            (
                "one that joins takes what is, beside the others",
                observed(found(A), Some(global(1, A)), "a=1 b"),
                "Reach(Revision(1)) b=1",
            ),
            (
                "an old one whose object is gone does not: somebody deleted it, and it waits for its turn",
                observed(found(A), Some(global(1, A)), "a=1 @b"),
                "Reach(Revision(1)) b=0",
            ),
            (
                "and the next one, if it has not said anything since",
                observed(found(B), Some(unproven(2, B)), "a=1 b=1:never"),
                "Reach(Revision(2)) b=0",
            ),
            (
                "a file that is another program's is left to it",
                observed(found(A), Some(global(1, A)), "%a b=1:Synced"),
                "Reach(Revision(1)) a=0",
            ),
            (
                "an invalid first add does nothing",
                observed(found(BAD), None, "a b"),
                "Nothing",
            ),
            (
                "the next one follows when the first is done",
                observed(found(A), Some(global(1, A)), "a=1:Synced b=0 c=0"),
                "Reach(Revision(1)) b=1",
            ),
            (
                "a node that has not confirmed holds the next",
                observed(found(A), Some(global(1, A)), "a=1:Syncing b=0"),
                "Reach(Revision(1))",
            ),
            (
                "all done: nothing to do",
                observed(found(A), Some(global(1, A)), "a=1:Synced b=1:Synced"),
                "Reach(Revision(1))",
            ),
            (
                "a rotation is a new revision",
                observed(found(B), Some(global(1, A)), "a=1:Synced b=1:Synced"),
                "Reach(Revision(2)) keep 1 write 2 a=2",
            ),
            (
                "another spelling is not",
                observed(found(A_SPELLED_OTHERWISE), Some(global(1, A)), "a=1:Synced"),
                "Reach(Revision(1)) write 1 proven rolled out",
            ),
            (
                "an invalid rotation changes nothing",
                observed(found(BAD), Some(global(1, A)), "a=1:Synced"),
                "Reach(Revision(1))",
            ),
            (
                "a node that failed stops the rollout",
                observed(found(A), Some(global(1, A)), "a=1:RolledBack b=0"),
                "Reach(Revision(1))",
            ),
            (
                "a node that joins gets its object and its turn",
                observed(found(A), Some(global(1, A)), "a=1:Synced b"),
                "Reach(Revision(1)) b=1",
            ),
            (
                "a node that is excluded later is put back",
                observed(found(A), Some(global(1, A)), "a=1:Synced -b=1:Synced"),
                "Reach(Revision(1)) b=1R",
            ),
            (
                "deletion restores one node after the other, and forgets the last good Secret",
                observed(Source::Absent, Some(global(1, A)), "a=1:Synced b=1:Synced"),
                "Reach(Restore) write 1 withdrawn a=1R",
            ),
            (
                "an excluded node is not forgotten",
                observed(
                    Source::Absent,
                    Some(global(1, A)),
                    "a=R:Restored -b=5:Synced",
                ),
                "Reach(Restore) write 1 withdrawn b=5R",
            ),
            (
                "when all are restored, everything goes",
                observed(Source::Absent, Some(global(1, A)), "a=R:Restored b=0"),
                "CleanUp",
            ),
            (
                "a Secret that returns in the middle rolls out again",
                observed(found(A), Some(global(5, A)), "a=R:Restored b=5:Synced"),
                "Reach(Revision(5)) a=5",
            ),
            (
                "an invalid one that returns in the middle does not stop the restore",
                observed(
                    found(BAD),
                    Some(Global {
                        last_additional: None,
                        ..unproven(5, A)
                    }),
                    "a=R:Restored b=5:Synced",
                ),
                "Reach(Restore) b=5R",
            ),
            (
                "a node that is not ready is passed over",
                observed(found(B), Some(global(1, A)), "!a=1:Synced b=1:Synced"),
                "Reach(Revision(2)) keep 1 write 2 b=2",
            ),
        ] {
            assert_eq!(line(&observed), expected, "{sentence}");
        }
    }

    #[test]
    fn what_was_lost_comes_back_and_no_number_comes_back_with_another_meaning() {
        let mut lost = observed(found(A), Some(global(2, A)), "a=2:Synced b=2:Synced");
        lost.global_is_lost = true;
        for (sentence, observed, expected) in [
            (
                "deleted by somebody: as it was",
                lost,
                "Reach(Revision(2)) write 2 proven rolled out",
            ),
            (
                "lost while nobody looked: above what any node has or was granted",
                observed(found(B), None, "a=2:Synced b=3"),
                "Reach(Revision(4)) write 4 b=4",
            ),
            (
                "its revision was set back",
                observed(found(A), Some(global(1, A)), "a=2:Synced"),
                "Reach(Revision(3)) write 3 a=3",
            ),
            (
                "lost, and nobody knows what was good: the nodes keep what they have",
                observed(found(BAD), None, "a=2:Synced"),
                "Nothing",
            ),
        ] {
            assert_eq!(line(&observed), expected, "{sentence}");
        }
    }

    #[test]
    fn where_the_user_wants_it_a_fleet_that_failed_goes_back_to_what_every_node_had() {
        let failed = |last_rolled_out| {
            let mut observed = observed(
                found(B),
                Some(unproven(2, B)),
                "a=2:Synced b=2:RolledBack c=1:Synced",
            );
            observed.spec.rollout.on_failure = OnFailure::Rollback;
            observed.last_rolled_out = last_rolled_out;
            observed
        };
        let data = |text: &str| Data(Some(text.as_bytes().to_vec()));
        assert!(plan(&failed(None)).asks_history);
        for (sentence, observed, expected) in [
            (
                "there is nothing to go back to",
                failed(Some(Source::Absent)),
                "Reach(Revision(2)) write 2 proven",
            ),
            (
                "what is kept is what failed",
                failed(Some(found(B))),
                "Reach(Revision(2)) write 2 proven",
            ),
            (
                "the one from before is a revision like any other",
                failed(Some(found(A))),
                "Reach(Revision(3)) write 3 refused a=3",
            ),
        ] {
            assert_eq!(line(&observed), expected, "{sentence}");
        }
        let back = plan(&failed(Some(found(A)))).global.unwrap().global;
        assert_eq!(back.last_additional, Some(data(A)));
        let mut other_source = failed(Some(found(A)));
        other_source.global.as_mut().unwrap().is_additional_proven = true;
        assert_eq!(
            line(&other_source),
            "Reach(Revision(2)) write 2 proven",
            "an additional Secret that every node had is not taken back"
        );
        let why = back.refused_why.clone().unwrap();
        assert_eq!(
            why,
            "revision 2 failed on b and was taken back from every node"
        );
        let refusing = |additional| {
            let global = Global {
                merged: global(3, A).merged,
                ..back.clone()
            };
            line(&observed(
                found(additional),
                Some(global),
                "a=3:Synced b=3:Synced c=3",
            ))
        };
        assert_eq!(
            refusing(B),
            "Reach(Revision(3)) write 3 refused proven",
            "as long as it is the same, it stays refused"
        );
        assert_eq!(
            refusing(A_SPELLED_OTHERWISE),
            "Reach(Revision(3)) write 3 proven",
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
            let mut observed = observed(Source::Absent, Some(global), "a=1:Synced b=1:Synced");
            observed.sources = vec![("one".to_owned(), text)];
            line(&observed)
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
        let mut observed = observed(found(A), Some(global(1, A)), "a=1:Synced");
        observed.sources = vec![("one".to_owned(), found(B))];
        let next = plan(&observed).global.unwrap().global;
        assert!(next.is_additional_proven && next.rolled_out.is_none());
        observed.additional = found(B);
        let next = plan(&observed).global.unwrap().global;
        assert!(!next.is_additional_proven);
    }

    #[test]
    fn a_status_about_another_spec_says_nothing() {
        let mut observed = observed(found(A), Some(global(1, A)), "a=1:Synced b=0");
        observed
            .node_pull_secrets
            .to_mut()
            .get_mut("a")
            .unwrap()
            .metadata
            .generation = Some(3);
        assert_eq!(line(&observed), "Reach(Revision(1))");
    }
}
