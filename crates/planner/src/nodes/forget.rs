//! What is to be forgotten of earlier content, because a password in it leaked. Pure.
//!
//! Nothing is forgotten before every reachable node and every namespace has newer content: until then the earlier one is what a
//! rollback goes to. A node that stays away or has an error of its own is not waited for: it could prevent the deletion.

use std::collections::BTreeSet;

use globalps_core::api::{NodePullSecret, NodePullSecretSpec};
use globalps_core::names::forget_up_to;
use globalps_core::rollout::{Goal, Revision};
use kube::ResourceExt as _;

use super::input::{Configuration, Nodes, Recorded};
use crate::content::source::Verdict;

/// Maximum number of objects to annotate in one plan.
const AT_ONCE: usize = 1024;

/// What a leader did for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forgotten {
    /// Content of no later revision is forgotten.
    pub up_to: i64,
    /// The revision in force then.
    pub revision: Revision,
    /// Nothing was deleted: that revision has the content that is to be forgotten.
    pub is_back: bool,
}

impl Forgotten {
    /// Adds it to what is recorded.
    pub fn add(forgotten: Option<Self>, recorded: &mut Recorded) {
        let Some(forgotten) = forgotten else { return };
        let in_force = recorded.global.as_ref().map(|global| global.revision);
        if !forgotten.is_back {
            recorded.forgotten = recorded.forgotten.max(forgotten.up_to);
        } else if in_force == Some(forgotten.revision) {
            recorded.is_content_back = true;
        }
    }

    /// Whether this is the answer to a request up to this revision, while this one is in force.
    pub fn answers(self, up_to: i64, in_force: Revision) -> bool {
        self.up_to == up_to && (!self.is_back || self.revision == in_force)
    }
}

/// The answer to the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Forget {
    /// Nobody asks for it, or nothing is left anyway.
    #[default]
    NotAsked,
    /// The annotation names no revision.
    Invalid,
    /// The content stays for now.
    Waits(i64, Wait),
    /// The controller's copies of the content up to this revision may be deleted now.
    Due(i64),
    /// They are deleted. Nodes forget it, too.
    Done(i64),
}

/// Why the content up to a revision stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It is in force: no later revision replaces it, or one with the same content.
    StillInForce,
    /// What is in the additional Secret is not in force.
    NotInForce,
    /// Nothing changes now.
    Held,
    /// Too many nodes have failed with it.
    Halted,
    /// Some reachable node does not have the newest revision yet.
    RollingOut,
    /// The same for a namespace.
    Namespaces,
}

impl Forget {
    /// The controller's copies of the content up to this revision are not needed.
    pub fn up_to(self) -> Option<i64> {
        match self {
            Self::Due(up_to) | Self::Done(up_to) => Some(up_to),
            Self::NotAsked | Self::Invalid | Self::Waits(..) => None,
        }
    }

    /// What a write of this object asks of its node. An unanswered request stays.
    pub fn of_node(self, object: Option<&NodePullSecret>) -> Option<i64> {
        let asked = object.and_then(asked);
        match self {
            Self::Done(up_to) => asked.max(Some(up_to)),
            _ => asked,
        }
    }
}

/// What the node is asked to forget.
fn asked(object: &NodePullSecret) -> Option<i64> {
    forget_up_to(object.annotations()).and_then(Result::ok)
}

/// `goal`: of the nodes; `None`: nothing changes. `additional`: the verdict on what is in the Secret now.
pub(super) fn forget(
    config: &Configuration,
    recorded: &Recorded,
    goal: Option<Goal>,
    additional: &Verdict,
    is_halted: bool,
) -> Forget {
    let up_to = match config.forget_request {
        None => return Forget::NotAsked,
        Some(Err(_)) => return Forget::Invalid,
        Some(Ok(up_to)) => up_to,
    };
    let revision = match goal {
        Some(Goal::Restore) => return Forget::NotAsked,
        _ if recorded.forgotten >= up_to => return Forget::Done(up_to),
        None => return Forget::Waits(up_to, Wait::Held),
        Some(Goal::Revision(revision)) => revision,
    };
    let is_in_force = matches!(additional, Verdict::Valid(_) | Verdict::Absent);
    let global = recorded.global.as_ref();
    let global = global.filter(|global| global.revision == revision);
    let is_rolled_out = global.is_some_and(|global| global.rolled_out.is_some());
    let to_namespaces = config.spec.image_pull_secrets.enabled;
    let wait = if !is_in_force {
        Wait::NotInForce
    } else if revision.number <= up_to || recorded.is_content_back {
        Wait::StillInForce
    } else if !is_rolled_out && is_halted {
        Wait::Halted
    } else if !is_rolled_out {
        Wait::RollingOut
    } else if to_namespaces && recorded.namespaces_have != Some(revision) {
        Wait::Namespaces
    } else {
        return Forget::Due(up_to);
    };
    Forget::Waits(up_to, wait)
}

/// The node may have content up to this revision: in force, or in its journal.
pub fn may_have_old(object: &NodePullSecret, up_to: i64) -> bool {
    match &object.status {
        Some(status) => !status.restored && status.forgotten_revision < up_to,
        None => (1..=up_to).contains(&object.spec.revision),
    }
}

/// Objects to write again with the annotation that makes their node forget. Their specs stay the same, so it is no new assignment.
pub(super) fn to_annotate(
    nodes: &Nodes,
    forget: Forget,
    assignments: &[(String, NodePullSecretSpec)],
) -> Vec<(String, NodePullSecretSpec)> {
    let Forget::Done(up_to) = forget else {
        return Vec::new();
    };
    let is_written: BTreeSet<&str> = assignments.iter().map(|(name, _)| name.as_str()).collect();
    let objects = nodes.objects.iter().filter(|(name, object)| {
        may_have_old(object, up_to)
            && asked(object) < Some(up_to)
            && nodes.views.contains_key(*name)
            // What an unreadable one says is unknown.
            && !nodes.unreadable.contains_key(*name)
            && !is_written.contains(name.as_str())
    });
    let objects = objects.map(|(name, object)| (name.clone(), object.spec.clone()));
    objects.take(AT_ONCE).collect()
}

#[cfg(test)]
mod tests {
    use globalps_core::names::{FORGET_ANNOTATION, InvalidForget};

    use super::super::input::Snapshot;
    use super::super::plan::tests::planned;
    use super::super::testing::{A, found, global, snapshot};
    use super::*;
    use crate::content::secret::{Global, revision_of_test};
    use crate::content::source::Source;

    type Change = fn(&mut Snapshot);

    #[test]
    fn nothing_is_forgotten_before_newer_content_is_everywhere() {
        let unfinished = || Global {
            rolled_out: None,
            ..global(5, A)
        };
        let rolled_out = || global(5, A);
        let wait = |wait| Forget::Waits(4, wait);
        let same: Change = |_| {};
        let cases: [(&str, Global, &str, Change, Forget); 17] = [
            (
                "every node has it",
                rolled_out(),
                "a=5:Synced",
                same,
                Forget::Due(4),
            ),
            (
                "one waits for its canary",
                unfinished(),
                "a=4:Synced b=4:Synced",
                same,
                wait(Wait::RollingOut),
            ),
            (
                "one failed",
                unfinished(),
                "a=5:Synced b=5:RolledBack/4 c=4:Synced",
                same,
                wait(Wait::Halted),
            ),
            (
                "one was unreachable then",
                rolled_out(),
                "a=5:Synced !b=4:Synced",
                same,
                Forget::Due(4),
            ),
            (
                "one has a full disk",
                rolled_out(),
                "a=5:Synced b=5:Failed.DiskFull/4",
                same,
                Forget::Due(4),
            ),
            (
                "the rollout is paused",
                unfinished(),
                "a=5:Synced b=4:Synced",
                |it| it.config.spec.rollout.paused = true,
                wait(Wait::RollingOut),
            ),
            (
                "another Secret is being written",
                rolled_out(),
                "a=5:Synced",
                |it| it.secrets.additional = found(r#"{"auths":{"b":{"auth":"dTpw"}}}"#),
                wait(Wait::RollingOut),
            ),
            (
                "the Secret is invalid now",
                rolled_out(),
                "a=5:Synced",
                |it| it.secrets.additional = found("{"),
                wait(Wait::NotInForce),
            ),
            (
                "the configuration is gone",
                rolled_out(),
                "a=5:Synced",
                |it| it.config.is_missing = true,
                wait(Wait::Held),
            ),
            (
                "it is to forget what is in force",
                rolled_out(),
                "a=5:Synced",
                |it| it.config.forget_request = Some(Ok(5)),
                Forget::Waits(5, Wait::StillInForce),
            ),
            (
                "the old content is back",
                rolled_out(),
                "a=5:Synced",
                |it| it.recorded.is_content_back = true,
                wait(Wait::StillInForce),
            ),
            (
                "a namespace has the old content",
                rolled_out(),
                "a=5:Synced",
                |it| it.config.spec.image_pull_secrets.enabled = true,
                wait(Wait::Namespaces),
            ),
            (
                "no namespace has",
                rolled_out(),
                "a=5:Synced",
                |it| {
                    it.config.spec.image_pull_secrets.enabled = true;
                    it.recorded.namespaces_have = Some(revision_of_test(5));
                },
                Forget::Due(4),
            ),
            (
                "it was forgotten, and a later rollout is under way",
                unfinished(),
                "a=5:Synced b=4:Synced",
                |it| it.recorded.forgotten = 4,
                Forget::Done(4),
            ),
            (
                "the annotation is no revision",
                rolled_out(),
                "a=5:Synced",
                |it| it.config.forget_request = Some(Err(InvalidForget)),
                Forget::Invalid,
            ),
            (
                "nobody asks",
                rolled_out(),
                "a=5:Synced",
                |it| it.config.forget_request = None,
                Forget::NotAsked,
            ),
            (
                "everything is being removed",
                rolled_out(),
                "a=5:Synced",
                |it| it.secrets.additional = Source::Absent,
                Forget::NotAsked,
            ),
        ];
        for (case, global, nodes, change, expected) in cases {
            let mut snapshot = snapshot(found(A), Some(global), nodes);
            snapshot.config.forget_request = Some(Ok(4));
            change(&mut snapshot);
            assert_eq!(planned(&snapshot).forget, expected, "{case}");
        }
    }

    /// A write with the same spec has the same generation: it is no new assignment, and restarts nothing.
    #[test]
    fn once_the_cluster_has_forgotten_each_node_is_asked_once() {
        let nodes = "a=5:Synced b=5:Synced !c=4:Synced d=5 e=5:Synced f=0 g=5:Synced";
        let mut it = snapshot(found(A), Some(global(5, A)), nodes);
        it.config.forget_request = Some(Ok(4));
        let ask = |it: &mut Snapshot, name: &str, up_to: &str| {
            let object = it.nodes.objects.to_mut().get_mut(name).unwrap();
            let annotation = (FORGET_ANNOTATION.to_owned(), up_to.to_owned());
            object.metadata.annotations = Some([annotation].into());
        };
        ask(&mut it, "a", "4");
        ask(&mut it, "e", "3");
        let object = it.nodes.objects.to_mut().get_mut("b").unwrap();
        object.status.as_mut().unwrap().forgotten_revision = 4;
        let asked = |it: &Snapshot| {
            let plan = planned(it);
            let names = plan.assignments.iter().map(|(name, spec)| {
                let object = &it.nodes.objects[name];
                assert_eq!(*spec, object.spec, "{name}");
                let asks = plan.forget.of_node(Some(object));
                format!("{name}={}", asks.unwrap_or_default())
            });
            names.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(asked(&it), "", "not yet");
        it.recorded.forgotten = 4;
        assert_eq!(asked(&it), "c=4 d=4 e=4 g=4");
        for name in ["c", "d", "e", "g"] {
            ask(&mut it, name, "4");
        }
        assert_eq!(asked(&it), "");
        // Without the request, one that a node has not answered stays.
        it.config.forget_request = None;
        let plan = planned(&it);
        let object = it.nodes.objects.get("a").unwrap();
        assert_eq!(plan.forget.of_node(Some(object)), Some(4));
        assert_eq!(plan.forget.of_node(None), None);
    }
}
