//! What is to be done next, from what is there. Pure: everything that the controller decides is decided here.

use std::collections::BTreeMap;

use globalps_core::api::{GlobalPullSecretSpec, NodePullSecret, NodePullSecretSpec, Phase};
use globalps_core::dockerconfig::DockerConfig;
use globalps_core::rollout::{self, Fleet, Goal, Progress};
use jiff::Timestamp;

use crate::sources::{Data, Global, Resolved, Source, resolve};

/// A Node, as far as the rollout is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeView {
    pub(crate) name: String,
    pub(crate) uid: String,
    /// Its `resourceVersion`.
    pub(crate) version: u64,
    pub(crate) labels: BTreeMap<String, String>,
    /// `Err`: not ready since then.
    pub(crate) ready: Result<(), Timestamp>,
}

/// Everything that the plan depends on.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) spec: GlobalPullSecretSpec,
    pub(crate) additional: Source,
    pub(crate) original: Source,
    pub(crate) global: Option<Global>,
    /// The syncer's `DaemonSet` is there.
    pub(crate) daemon_set: bool,
    pub(crate) nodes: BTreeMap<String, NodeView>,
    pub(crate) node_pull_secrets: BTreeMap<String, NodePullSecret>,
    pub(crate) now: Timestamp,
}

/// A new content of `global-pull-secret`.
#[derive(Clone, Debug)]
pub(crate) struct GlobalWrite {
    pub(crate) revision: i64,
    pub(crate) merged: DockerConfig,
    pub(crate) additional: Option<Data>,
    pub(crate) original: Option<Data>,
}

/// What the nodes are coming to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    /// No additional Secret and nothing left of an earlier one.
    Nothing,
    Reach(Goal),
    /// Every node is as it was: what the controller created goes.
    CleanUp,
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) resolved: Resolved,
    pub(crate) aim: Aim,
    pub(crate) global: Option<GlobalWrite>,
    /// Nodes whose `NodePullSecret` is to be written, with its spec.
    pub(crate) grants: Vec<(String, NodePullSecretSpec)>,
}

pub(crate) fn plan(observed: &Observed) -> Plan {
    let resolved = resolve(
        &observed.spec,
        &observed.additional,
        &observed.original,
        observed.global.as_ref(),
    );
    let (aim, global) = aim_for(observed, &resolved);
    let grants = match aim {
        Aim::Reach(goal) => grants(observed, goal),
        Aim::Nothing | Aim::CleanUp => Vec::new(),
    };
    Plan {
        resolved,
        aim,
        global,
        grants,
    }
}

fn aim_for(observed: &Observed, resolved: &Resolved) -> (Aim, Option<GlobalWrite>) {
    let global = observed.global.as_ref();
    if let Some(desired) = &resolved.desired {
        let before = global.map_or(0, |global| global.revision);
        let merged = global.and_then(|global| global.merged.as_ref());
        let same_meaning = merged.is_some_and(|merged| merged.means_the_same(&desired.config));
        let revision = if same_meaning { before } else { before + 1 };
        let same_sources = global.is_some_and(|global| {
            global.last_additional.as_ref() == Some(&desired.additional)
                && global.last_original.as_ref() == desired.original.as_ref()
        });
        let write = (!same_meaning || !same_sources).then(|| GlobalWrite {
            revision,
            merged: desired.config.clone(),
            additional: Some(desired.additional.clone()),
            original: desired.original.clone(),
        });
        return (Aim::Reach(Goal::Revision(revision)), write);
    }
    let left_over =
        global.is_some() || observed.daemon_set || !observed.node_pull_secrets.is_empty();
    if !left_over {
        return (Aim::Nothing, None);
    }
    if fleet_nodes(observed, Goal::Restore)
        .iter()
        .all(|node| node.is_done(Goal::Restore))
    {
        return (Aim::CleanUp, None);
    }
    // The way back has begun: an invalid Secret that comes now must not bring the last good one back.
    let write = global
        .filter(|global| global.last_additional.is_some())
        .and_then(|global| {
            Some(GlobalWrite {
                revision: global.revision,
                merged: global.merged.clone()?,
                additional: None,
                original: global.last_original.clone(),
            })
        });
    (Aim::Reach(Goal::Restore), write)
}

/// Whether globalps shall care for the node.
pub(crate) fn is_selected(spec: &GlobalPullSecretSpec, node: &NodeView) -> bool {
    let has = |key: &str, value: &str| node.labels.get(key).is_some_and(|actual| actual == value);
    has("kubernetes.io/os", "linux")
        && !has(globalps_core::names::EXCLUDE_LABEL, "true")
        && spec
            .node_selector
            .iter()
            .all(|(key, value)| has(key, value))
}

/// The nodes that are to come to the goal: the selected ones, or to be put back, all of them.
pub(crate) fn fleet_nodes(observed: &Observed, goal: Goal) -> Vec<rollout::Node> {
    let member = |node: &&NodeView| goal == Goal::Restore || is_selected(&observed.spec, node);
    observed
        .nodes
        .values()
        .filter(member)
        .map(|node| view(observed, node))
        .collect()
}

fn view(observed: &Observed, node: &NodeView) -> rollout::Node {
    let granted = observed
        .node_pull_secrets
        .get(&node.name)
        .and_then(progress);
    rollout::Node {
        name: node.name.clone(),
        ready: node.ready,
        granted,
    }
}

/// What the node was granted last and how far it is. A status that is about another spec says nothing.
pub(crate) fn progress(object: &NodePullSecret) -> Option<(Goal, Progress)> {
    let goal = match &object.spec {
        NodePullSecretSpec { restore: true, .. } => Goal::Restore,
        NodePullSecretSpec { revision: 0, .. } => return None,
        NodePullSecretSpec { revision, .. } => Goal::Revision(*revision),
    };
    let status = object.status.clone().unwrap_or_default();
    if object.metadata.generation != Some(status.observed_generation) {
        return Some((goal, Progress::InFlight));
    }
    let progress = match (status.phase, goal) {
        (Phase::Synced, Goal::Revision(revision)) if status.revision == revision => Progress::Done,
        (Phase::Restored, Goal::Restore) => Progress::Done,
        (Phase::RolledBack | Phase::Failed | Phase::ForeignOwner, _) => Progress::Failed,
        _ => Progress::InFlight,
    };
    Some((goal, progress))
}

fn grants(observed: &Observed, goal: Goal) -> Vec<(String, NodePullSecretSpec)> {
    let nodes = fleet_nodes(observed, goal);
    let mut grants: BTreeMap<String, NodePullSecretSpec> = BTreeMap::new();
    if matches!(goal, Goal::Revision(_)) {
        // An object for every node, so that each one that waits can be seen.
        for node in nodes
            .iter()
            .filter(|node| !observed.node_pull_secrets.contains_key(&node.name))
        {
            grants.insert(node.name.clone(), NodePullSecretSpec::default());
        }
    }
    for name in next(observed, &nodes, goal) {
        let spec = granted_spec(observed, &name, goal);
        grants.insert(name, spec);
    }
    // A node that left the selection is put back once the others rest, under the same limits.
    let resting = nodes
        .iter()
        .all(|node| !matches!(node.granted, Some((_, Progress::InFlight))));
    if goal != Goal::Restore && resting && grants.is_empty() {
        let left = observed
            .nodes
            .values()
            .filter(|node| !is_selected(&observed.spec, node));
        let left: Vec<rollout::Node> = left.map(|node| view(observed, node)).collect();
        for name in next(observed, &left, Goal::Restore) {
            let spec = granted_spec(observed, &name, Goal::Restore);
            grants.insert(name, spec);
        }
    }
    grants.into_iter().collect()
}

fn next(observed: &Observed, nodes: &[rollout::Node], goal: Goal) -> Vec<String> {
    rollout::next(&Fleet {
        goal,
        nodes,
        limits: &observed.spec.rollout,
        now: observed.now,
    })
}

/// A restore keeps the revision that was granted last, so that one look at the object tells what is being undone.
fn granted_spec(observed: &Observed, node: &str, goal: Goal) -> NodePullSecretSpec {
    match goal {
        Goal::Revision(revision) => NodePullSecretSpec {
            revision,
            ..NodePullSecretSpec::default()
        },
        Goal::Restore => {
            let revision = observed
                .node_pull_secrets
                .get(node)
                .map_or(0, |object| object.spec.revision);
            NodePullSecretSpec {
                revision,
                restore: true,
                ..NodePullSecretSpec::default()
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::format_push_string)]
mod tests {
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
            last_original: None,
        }
    }

    /// `n1 n2=5 n3=5:Synced n4=R:Restored !n5 -n6`: name, what it was granted (`R`: restore), what it says of it;
    /// `!`: not ready for a minute; `-`: excluded.
    fn observed(additional: Source, global: Option<Global>, nodes: &str) -> Observed {
        let now = Timestamp::UNIX_EPOCH;
        let mut observed = Observed {
            spec: GlobalPullSecretSpec::default(),
            additional,
            original: Source::Absent,
            daemon_set: global.is_some(),
            global,
            nodes: BTreeMap::new(),
            node_pull_secrets: BTreeMap::new(),
            now,
        };
        for word in nodes.split_whitespace() {
            let mut labels = BTreeMap::from([("kubernetes.io/os".to_owned(), "linux".to_owned())]);
            let mut ready = Ok(());
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
            observed.nodes.insert(
                name.to_owned(),
                NodeView {
                    name: name.to_owned(),
                    uid: String::new(),
                    version: 0,
                    labels,
                    ready,
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
            object.status = phase.map(|phase| NodePullSecretStatus {
                observed_generation: 2,
                revision,
                phase: serde_json::from_value(phase.into()).unwrap(),
                ..NodePullSecretStatus::default()
            });
            observed.node_pull_secrets.insert(name.to_owned(), object);
        }
        observed
    }

    /// The plan in one line: aim, revision to be written, grants.
    fn line(observed: &Observed) -> String {
        let plan = plan(observed);
        let mut line = format!("{:?}", plan.aim);
        if let Some(write) = plan.global {
            line += &format!(
                " write {}{}",
                write.revision,
                if write.additional.is_none() {
                    " withdrawn"
                } else {
                    ""
                }
            );
        }
        for (name, spec) in plan.grants {
            line += &format!(
                " {name}={}{}",
                spec.revision,
                if spec.restore { "R" } else { "" }
            );
        }
        line
    }

    #[test]
    fn the_plan_follows_from_what_is_there() {
        for (sentence, observed, expected) in [
            (
                "nothing there: nothing to do",
                observed(Source::Absent, None, "a b"),
                "Nothing",
            ),
            (
                "the first add writes revision 1, makes an object a node and grants one",
                observed(found(A), None, "a b -x"),
                "Reach(Revision(1)) write 1 a=1 b=0",
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
                "Reach(Revision(2)) write 2 a=2",
            ),
            (
                "another spelling is not",
                observed(found(A_SPELLED_OTHERWISE), Some(global(1, A)), "a=1:Synced"),
                "Reach(Revision(1)) write 1",
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
                        ..global(5, A)
                    }),
                    "a=R:Restored b=5:Synced",
                ),
                "Reach(Restore) b=5R",
            ),
            (
                "a node that is not ready is passed over",
                observed(found(B), Some(global(1, A)), "!a=1:Synced b=1:Synced"),
                "Reach(Revision(2)) write 2 b=2",
            ),
        ] {
            assert_eq!(line(&observed), expected, "{sentence}");
        }
    }

    #[test]
    fn a_status_about_another_spec_says_nothing() {
        let mut observed = observed(found(A), Some(global(1, A)), "a=1:Synced b=0");
        observed
            .node_pull_secrets
            .get_mut("a")
            .unwrap()
            .metadata
            .generation = Some(3);
        assert_eq!(line(&observed), "Reach(Revision(1))");
    }
}
