//! What observers compare the nodes' files with, where another program writes them. Pure.

use std::borrow::Cow;
use std::collections::BTreeMap;

use globalps_core::api::{NodePullSecretSpec, Observed};
use globalps_core::rollout::{Goal, Revision};
use globalps_dockerconfig::{DockerConfig, Entry, parse};

use super::input::Nodes;
use crate::content::secret::Global;

/// Most registries that a node is told to look for after a removal.
const GONE: usize = 1000;
/// Longest name of one.
const NAME: usize = 512;

/// The Secret `global-pull-secret` of another program.
#[derive(Clone, Debug)]
pub struct Merged {
    /// Of the Secret.
    pub uid: String,
    /// Of the Secret.
    pub resource_version: String,
    /// Its credentials; `None`: it has none that can be read.
    pub content: Option<DockerConfig>,
}

/// What nodes with the goal should have.
pub(super) struct Target {
    revision: Revision,
    observed: Option<Observed>,
    gone: Vec<String>,
}

impl Target {
    /// `content`: of the revision, and whether it includes the original. `before`: what is removed.
    pub(super) fn of(
        goal: Option<Goal>,
        content: Option<(&DockerConfig, bool)>,
        merged: Option<&Merged>,
        before: Option<&Global>,
    ) -> Self {
        let revision = match goal {
            Some(Goal::Revision(revision)) => revision,
            Some(Goal::Restore) | None => Revision::NONE,
        };
        let merged = merged.filter(|merged| {
            let has = |(wanted, is_whole)| has(merged.content.as_ref(), wanted, is_whole);
            content.is_some_and(has)
        });
        Self {
            revision,
            observed: merged.map(|merged| Observed {
                uid: merged.uid.clone(),
                resource_version: merged.resource_version.clone(),
                gone: Vec::new(),
            }),
            gone: if goal == Some(Goal::Restore) {
                gone(before)
            } else {
                Vec::new()
            },
        }
    }

    fn for_node(&self, spec: &NodePullSecretSpec) -> Observed {
        if spec.restore {
            return Observed {
                gone: self.gone.clone(),
                ..Observed::default()
            };
        }
        let is_it = spec.revision > 0 && spec.assigned() == self.revision;
        let observed = self.observed.clone().filter(|_| is_it);
        observed.unwrap_or_default()
    }

    /// Completes these assignments, and assigns it to the nodes that were told something else.
    pub(super) fn assign(
        &self,
        assignments: &mut Vec<(String, NodePullSecretSpec)>,
        nodes: &Nodes,
    ) {
        for (_, spec) in assignments.iter_mut() {
            spec.observed = Some(self.for_node(spec));
        }
        let told = nodes.objects.iter().filter_map(|(name, object)| {
            let observed = Some(self.for_node(&object.spec));
            let is_due = object.spec.observed != observed
                && assignments.iter().all(|(other, _)| other != name)
                && nodes.views.contains_key(name)
                && !nodes.unreadable.contains_key(name);
            is_due.then(|| {
                let spec = NodePullSecretSpec {
                    observed,
                    ..object.spec.clone()
                };
                (name.clone(), spec)
            })
        });
        let told: Vec<_> = told.collect();
        assignments.extend(told);
    }
}

/// Whether a kubelet has the same from both, as far as the revision says. `is_whole`: nothing else may be there, so that a
/// registry that was removed is not taken for one of the original.
fn has(merged: Option<&DockerConfig>, wanted: &DockerConfig, is_whole: bool) -> bool {
    let there = merged
        .map(DockerConfig::by_canonical_key)
        .unwrap_or_default();
    let wanted = wanted.by_canonical_key();
    let is_same = |(key, entry): (&Cow<str>, &&Entry)| {
        there
            .get(key)
            .is_some_and(|found| found.means_the_same(entry))
    };
    wanted.iter().all(is_same) && (!is_whole || there.len() == wanted.len())
}

/// The registries that nodes have from the pull secrets alone.
fn gone(before: Option<&Global>) -> Vec<String> {
    let content = before.and_then(|global| global.content.as_ref());
    let content = content.map(|content| content.config.by_canonical_key());
    let original = before.and_then(|global| global.last_original.as_ref());
    let original = original.and_then(|data| parse(data.0.as_ref()?).ok());
    let original: BTreeMap<_, _> = original
        .as_ref()
        .map(DockerConfig::by_canonical_key)
        .unwrap_or_default();
    let gone = content.into_iter().flatten();
    let gone = gone.filter(|(key, _)| !original.contains_key(key) && key.len() <= NAME);
    gone.map(|(key, _)| key.into_owned()).take(GONE).collect()
}
