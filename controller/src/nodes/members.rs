//! The nodes as the rollout sees them, and what each is to be granted next. Pure.

use std::collections::BTreeMap;

use globalps_core::api::{GlobalPullSecretSpec, NodePullSecret, NodePullSecretSpec, Phase};
use globalps_core::names::{EXCLUDE_LABEL, MACHINE_CONFIG_OPERATOR, RETRY_ANNOTATION};
use globalps_core::rollout::{self, Goal, Progress};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;

use crate::nodes::labels::Labels;
use crate::nodes::plan::Observed;

/// A Node, as far as the rollout is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeView {
    pub(crate) name: String,
    pub(crate) uid: String,
    /// Its `resourceVersion`.
    pub(crate) version: u64,
    pub(crate) labels: Labels,
    /// `Err`: not ready since then.
    pub(crate) ready: Result<(), Timestamp>,
    /// The Machine Config Operator manages its credentials file.
    pub(crate) is_foreign: bool,
    pub(crate) created: Timestamp,
}

/// A Node that is older and has no object had one, which somebody deleted: it waits for its turn again.
const NEW_FOR: SignedDuration = SignedDuration::from_mins(10);

impl NodeView {
    fn has(&self, label: &str, value: &str) -> bool {
        self.labels.get(label) == Some(value)
    }

    /// A syncer runs there.
    fn is_linux(&self) -> bool {
        self.has("kubernetes.io/os", "linux")
    }

    fn is_new(&self, now: Timestamp) -> bool {
        now.duration_since(self.created) < NEW_FOR
    }

    fn foreign_owner(&self) -> String {
        let owner = if self.is_foreign {
            MACHINE_CONFIG_OPERATOR
        } else {
            ""
        };
        owner.to_owned()
    }
}

/// Whether globalps shall care for the node.
pub(crate) fn is_selected(spec: &GlobalPullSecretSpec, node: &NodeView) -> bool {
    node.is_linux()
        && !node.has(EXCLUDE_LABEL, "true")
        && spec
            .node_selector
            .iter()
            .all(|(key, value)| node.has(key, value))
}

/// The nodes that have something to come to: the selected ones; those that are to be put back.
pub(crate) fn fleet(observed: &Observed, goal: Goal) -> Vec<rollout::Node> {
    let nodes = observed.nodes.values();
    nodes
        .filter_map(|node| {
            let object = observed
                .node_pull_secrets
                .get(&node.name)
                .map(AsRef::as_ref);
            let is_selected = goal != Goal::Restore && is_selected(&observed.spec, node);
            let view = view(node, object, is_selected.then_some(goal));
            let is_here = is_selected
                || view.granted.is_some()
                || goal == Goal::Restore && (node.is_linux() || object.is_some());
            is_here.then_some(view)
        })
        .collect()
}

/// The node with what it was granted last; `goal` none: it is to be as it was.
fn view(node: &NodeView, object: Option<&NodePullSecret>, goal: Option<Goal>) -> rollout::Node {
    let goal = goal.unwrap_or(Goal::Restore);
    let granted = if node.is_foreign && goal != Goal::Restore {
        Some((goal, Progress::Foreign))
    } else {
        object.and_then(progress)
    };
    let asked = object.and_then(|object| object.annotations().get(RETRY_ANNOTATION));
    rollout::Node {
        name: node.name.clone(),
        goal,
        ready: node.ready,
        granted,
        granted_at: object
            .and_then(|object| object.spec.granted_at.as_ref())
            .map_or(Timestamp::MAX, |time| time.0),
        answers: object.is_some_and(answers),
        retry: object.is_some_and(|object| asked.is_some_and(|asked| *asked != object.spec.retry)),
    }
}

/// Its syncer has told of its spec as it is.
fn answers(object: &NodePullSecret) -> bool {
    let told = object.status.as_ref();
    let about = told.map(|status| status.observed_generation);
    about.is_some() && about == object.metadata.generation
}

/// What the node was granted last and how far it is. A status that is about another spec says nothing of it.
pub(crate) fn progress(object: &NodePullSecret) -> Option<(Goal, Progress)> {
    let spec = &object.spec;
    let goal = match (spec.restore, spec.revision) {
        (true, _) => Goal::Restore,
        (false, 0) => return unasked(object),
        (false, revision) => Goal::Revision(revision),
    };
    let Some(status) = object
        .status
        .as_ref()
        .filter(|status| status.observed_generation > 0)
    else {
        return Some((goal, Progress::Joining));
    };
    let progress = match (status.phase, goal) {
        // What it is asked for now it had before its grant was taken back.
        _ if !answers(object) && spec.withdrawn => Progress::Done,
        _ if !answers(object) => Progress::InFlight,
        (Phase::Synced, Goal::Revision(revision)) if status.revision == revision => Progress::Done,
        (Phase::Restored, Goal::Restore) => Progress::Done,
        (Phase::RolledBack | Phase::Failed | Phase::ForeignOwner, _) => Progress::Failed,
        _ => Progress::InFlight,
    };
    Some((goal, progress))
}

/// What a node has that is asked for nothing: it may have joined by itself, or finished what was taken back.
fn unasked(object: &NodePullSecret) -> Option<(Goal, Progress)> {
    let revision = object.status.as_ref().map_or(0, |status| status.revision);
    let may_have_some = if answers(object) {
        revision > 0
    } else {
        object.spec.withdrawn
    };
    may_have_some.then_some((Goal::Revision(revision), Progress::Done))
}

/// A node of which nothing is known may have taken a revision by itself, if one was ever proven. One that is not new had
/// an object, which somebody deleted, and may have been granted anything by it.
fn may_have_some(observed: &Observed, node: &NodeView, is_unseen: bool) -> bool {
    let global = observed.global.as_ref();
    let may_have_joined =
        global.is_some_and(|global| global.proven != 0 || global.last_additional.is_none());
    observed.daemon_set && (may_have_joined || is_unseen && is_robbed(observed, node))
}

/// Without an object, it is one that had one.
fn is_robbed(observed: &Observed, node: &NodeView) -> bool {
    !node.is_new(observed.now) || observed.robbed.contains(&node.name)
}

/// Specs to be written, in this order.
pub(crate) fn grants(
    observed: &Observed,
    nodes: &[rollout::Node],
    goal: Goal,
    proven: bool,
) -> Vec<(String, NodePullSecretSpec)> {
    let new = newcomers(observed, goal, proven);
    if !new.is_empty() && !proven {
        // A syncer whose node has no object takes what is proven by itself: all of them have one before anything is.
        return new;
    }
    let next = rollout::next(&rollout::Fleet {
        nodes,
        limits: &observed.spec.rollout,
        now: observed.now,
    });
    let goals: BTreeMap<&str, Goal> = nodes
        .iter()
        .map(|node| (node.name.as_str(), node.goal))
        .collect();
    let withdrawals = next.withdrawals.into_iter().map(|name| {
        let spec = withdrawn(observed, &name);
        (name, spec)
    });
    let grants = next.grants.into_iter().map(|name| {
        let spec = granted(observed, &name, goals.get(name.as_str()).copied());
        (name, spec)
    });
    // What is taken back first, so that no more nodes are at work than may be at any moment.
    withdrawals.chain(new).chain(grants).collect()
}

/// A node without an object gets one, so that each one that waits can be seen. Where the revision is proven, it has it by
/// right. One that has never said anything, and so has nothing under way, is asked for what it would be asked for now.
fn newcomers(observed: &Observed, goal: Goal, proven: bool) -> Vec<(String, NodePullSecretSpec)> {
    let spec = |node: &NodeView| {
        let is_selected = is_selected(&observed.spec, node);
        let revision = match goal {
            Goal::Revision(revision)
                if proven && is_selected && !node.is_foreign && !is_robbed(observed, node) =>
            {
                revision
            }
            _ => 0,
        };
        NodePullSecretSpec {
            revision,
            // Its syncer may have taken the revision by itself while nobody looked.
            restore: goal == Goal::Restore || !is_selected,
            granted_at: Some(Time(observed.now)),
            foreign_owner: node.foreign_owner(),
            ..NodePullSecretSpec::default()
        }
    };
    let wanted = |node: &&NodeView| match observed.node_pull_secrets.get(&node.name) {
        None => {
            let is_asked = goal != Goal::Restore || may_have_some(observed, node, true);
            node.is_linux() && is_asked
        }
        Some(object) if object.status.is_some() => false,
        Some(_) if goal == Goal::Restore && !may_have_some(observed, node, false) => false,
        Some(object) => {
            let is_to_restore = goal == Goal::Restore || !is_selected(&observed.spec, node);
            let asked = object.spec.revision;
            object.spec.restore != is_to_restore
                || !is_to_restore && asked > 0 && Goal::Revision(asked) != goal
        }
    };
    let nodes = observed.nodes.values().filter(wanted);
    nodes.map(|node| (node.name.clone(), spec(node))).collect()
}

/// A restore keeps the revision that was granted last, so that one look at the object tells what is being undone.
fn granted(observed: &Observed, node: &str, goal: Option<Goal>) -> NodePullSecretSpec {
    let object = observed.node_pull_secrets.get(node);
    let last = object.map_or(0, |object| object.spec.revision);
    let retry = object.and_then(|object| object.annotations().get(RETRY_ANNOTATION));
    let view = observed.nodes.get(node);
    NodePullSecretSpec {
        revision: match goal {
            Some(Goal::Revision(revision)) => revision,
            Some(Goal::Restore) | None => last,
        },
        restore: goal == Some(Goal::Restore),
        granted_at: Some(Time(observed.now)),
        withdrawn: false,
        retry: retry.cloned().unwrap_or_default(),
        foreign_owner: view.map(NodeView::foreign_owner).unwrap_or_default(),
    }
}

/// What the node is known to have, instead of what it was granted.
fn withdrawn(observed: &Observed, node: &str) -> NodePullSecretSpec {
    let object = observed.node_pull_secrets.get(node);
    let status = object.and_then(|object| object.status.as_ref());
    NodePullSecretSpec {
        revision: status.map_or(0, |status| status.revision),
        withdrawn: true,
        ..granted(observed, node, None)
    }
}
