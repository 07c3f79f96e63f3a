//! What observers compare the nodes' files with, where another program writes them. Pure.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use globalps_core::api::{MachineConfigState, NodePullSecret, NodePullSecretSpec, Observed, Phase};
use globalps_core::rollout::{Goal, Revision};
use globalps_dockerconfig::{DockerConfig, Entry, parse};

use super::input::Nodes;
use super::node::NodeView;
use crate::content::secret::Global;

/// Most registries that a node looks for after a removal.
const GONE: usize = 1000;
/// Longest name of one.
const NAME: usize = 512;

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
        nodes: &Nodes,
        before: Option<&Global>,
    ) -> Self {
        let revision = match goal {
            Some(Goal::Revision(revision)) => revision,
            Some(Goal::Restore) | None => Revision::NONE,
        };
        let merged = nodes.merged.as_ref().filter(|merged| {
            let has = |(wanted, is_whole)| has(merged.content.as_ref(), wanted, is_whole);
            content.is_some_and(has)
        });
        Self {
            revision,
            observed: merged.map(|merged| Observed {
                uid: merged.uid.clone(),
                resource_version: merged.resource_version.clone(),
                ..Observed::default()
            }),
            gone: if goal == Some(Goal::Restore) {
                gone(before, &nodes.of_others)
            } else {
                Vec::new()
            },
        }
    }

    fn for_node(&self, spec: &NodePullSecretSpec, view: Option<&NodeView>) -> Observed {
        let machine_config = view.and_then(|view| view.machine_config.as_ref());
        let machine_config = machine_config.map(|it| it.state);
        if spec.restore {
            return Observed {
                gone: self.gone.clone(),
                machine_config,
                ..Observed::default()
            };
        }
        let is_it = spec.revision > 0 && spec.assigned() == self.revision;
        let observed = self.observed.clone().filter(|_| is_it);
        Observed {
            machine_config,
            ..observed.unwrap_or_default()
        }
    }

    /// Completes these assignments, and assigns it to the nodes that have something else.
    pub(super) fn assign(
        &self,
        assignments: &mut Vec<(String, NodePullSecretSpec)>,
        nodes: &Nodes,
    ) {
        let views = &nodes.views;
        let view = |name: &str| views.get(name).map(|view| &**view);
        for (name, spec) in assignments.iter_mut() {
            spec.observed = Some(self.for_node(spec, view(name)));
        }
        let told = nodes.objects.iter().filter_map(|(name, object)| {
            let mut observed = self.for_node(&object.spec, view(name));
            // Each change needs a new report: not for what tells a node with the content nothing.
            if let Some(known) = known_state(object) {
                observed.machine_config = Some(known);
            }
            let observed = Some(observed);
            let is_due = object.spec.observed != observed
                && assignments.iter().all(|(other, _)| other != name)
                && views.contains_key(name)
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

/// What the node knows of its Machine Config, if it has the content.
fn known_state(object: &NodePullSecret) -> Option<MachineConfigState> {
    let status = object.status.as_ref()?;
    let has_it = status.phase == Phase::Synced && status.in_force() == object.spec.assigned();
    let known = object.spec.observed.as_ref()?;
    known.machine_config.filter(|_| has_it)
}

/// Whether a kubelet has the same from both, as far as the revision says. `is_whole`: nothing else may be there, so that a
/// registry that was removed is not treated as one of the original.
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
fn gone(before: Option<&Global>, of_others: &BTreeSet<String>) -> Vec<String> {
    let content = before.and_then(|global| global.content.as_ref());
    let content = content.map(|content| content.config.by_canonical_key());
    let original = before.and_then(|global| global.last_original.as_ref());
    let original = original.and_then(|data| parse(data.0.as_ref()?).ok());
    let original: BTreeMap<_, _> = original
        .as_ref()
        .map(DockerConfig::by_canonical_key)
        .unwrap_or_default();
    let gone = content.into_iter().flatten();
    let stays = |key: &Cow<str>| original.contains_key(key) || of_others.contains(&**key);
    let gone = gone.filter(|(key, _)| !stays(key) && key.len() <= NAME);
    gone.map(|(key, _)| key.into_owned()).take(GONE).collect()
}

#[cfg(test)]
mod tests {
    use globalps_core::api::DeliveryType;
    use globalps_core::machine_config::MachineConfig;

    use super::super::input::{Merged, Snapshot};
    use super::super::plan::plan;
    use super::super::testing::{found, global, snapshot};
    use super::*;
    use crate::content::source::{Data, Source};

    const A: &str = r#"{"auths":{"a":{"auth":"dTpw"}}}"#;
    const B: &str = r#"{"auths":{"a":{"auth":"dTpx"},"b":{"auth":"dTpw"}}}"#;
    const A_MERGED: &str = r#"{"auths":{"a":{"auth":"dTpw"},"o":{"auth":"dTpw"}}}"#;
    const ORIGINAL: &str = r#"{"auths":{"o":{"auth":"dTpw"}}}"#;
    const B_MERGED: &str =
        r#"{"auths":{"o":{"auth":"dTpw"},"a":{"auth":"dTpx"},"https://b":{"auth":"dTpw"}}}"#;

    fn observing(
        additional: Source,
        global: Option<Global>,
        nodes: &str,
        merged: &str,
    ) -> Snapshot<'static> {
        let mut snapshot = snapshot(additional, global, nodes);
        snapshot.config.spec.kubelet.delivery = DeliveryType::Observe;
        snapshot.config.spec.precedence = globalps_core::api::Precedence::Original;
        snapshot.secrets.original = found(ORIGINAL);
        snapshot.nodes.merged = (!merged.is_empty()).then(|| Merged {
            uid: "u".to_owned(),
            resource_version: "7".to_owned(),
            content: parse(merged.as_bytes()).ok(),
        });
        snapshot
    }

    /// `a=2@7`: node, assigned revision, and the version of the Secret; `R`: restore, `-` and the registries that are to go.
    fn assigned(snapshot: &Snapshot) -> String {
        let mut all = plan(snapshot).assignments;
        all.sort_by(|one, other| one.0.cmp(&other.0));
        let text = |(name, spec): (String, NodePullSecretSpec)| {
            let observed = spec.observed.expect("each says what to compare");
            let gone = observed.gone.join(",");
            match (spec.restore, observed.resource_version.as_str()) {
                (true, _) => format!("{name}=R-{gone}"),
                (false, "") => format!("{name}={}", spec.revision),
                (false, version) => format!("{name}={}@{version}", spec.revision),
            }
        };
        all.into_iter().map(text).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn nodes_get_the_version_that_has_the_revision() {
        let three = "a=1:Synced b=1:Synced c=1:Syncing";
        for (case, merged, expected) in [
            ("all at once, before it is merged", A, "a=2 b=2 c=2"),
            ("there is no Secret", "", "a=2 b=2 c=2"),
            ("it is no JSON", "x", "a=2 b=2 c=2"),
            ("without the original", B, "a=2 b=2 c=2"),
            ("merged", B_MERGED, "a=2@7 b=2@7 c=2@7"),
        ] {
            let snapshot = observing(found(B), Some(global(1, A)), three, merged);
            assert_eq!(assigned(&snapshot), expected, "{case}");
        }
        // The revision is assigned; only now the Secret has it. Both have the original.
        let mut in_force = global(2, B_MERGED);
        in_force.last_additional = Some(Data(Some(B.as_bytes().to_vec())));
        in_force.last_original = Some(Data(Some(ORIGINAL.as_bytes().to_vec())));
        let snapshot = observing(found(B), Some(in_force.clone()), "a=2 b=2:Synced", B_MERGED);
        assert_eq!(assigned(&snapshot), "a=2@7 b=2@7");
        let more = B_MERGED.replace(r#""o""#, r#""removed":{"auth":"dTpw"},"o""#);
        let snapshot = observing(found(B), Some(in_force.clone()), "a=2", &more);
        assert_eq!(
            assigned(&snapshot),
            "a=2",
            "it still has a removed registry"
        );
        let mut snapshot = observing(Source::Absent, Some(in_force), "a=2:Synced b=2:Synced", "");
        assert_eq!(assigned(&snapshot), "a=R-a,b b=R-a,b", "the original stays");
        snapshot.nodes.of_others = ["a".to_owned()].into();
        assert_eq!(assigned(&snapshot), "a=R-b b=R-b", "and what others have");
    }

    #[test]
    fn each_node_gets_how_far_its_machine_config_is() {
        use MachineConfigState::{Applies, Paused};
        let nodes = "a=1:Syncing b=1:Syncing c=1:Synced d=1:Synced";
        let mut in_force = global(1, A_MERGED);
        in_force.last_additional = Some(Data(Some(A.as_bytes().to_vec())));
        in_force.last_original = Some(Data(Some(ORIGINAL.as_bytes().to_vec())));
        let mut snapshot = observing(found(A), Some(in_force), nodes, A_MERGED);
        for name in ["b", "c", "d"] {
            let view = snapshot.nodes.views.to_mut().get_mut(name).unwrap();
            view.machine_config = Some(Box::new(MachineConfig {
                pool: "worker".into(),
                state: Paused,
            }));
        }
        let object = snapshot.nodes.objects.to_mut().get_mut("d").unwrap();
        object.spec.observed = Some(Observed {
            machine_config: Some(Applies),
            ..Observed::default()
        });
        let assignments = plan(&snapshot).assignments;
        let state = |name: &str| {
            let mut all = assignments.iter();
            let found = all.find(|(node, _)| node == name);
            found.and_then(|(_, spec)| spec.observed.as_ref()?.machine_config)
        };
        assert_eq!((state("a"), state("b")), (None, Some(Paused)));
        assert_eq!(state("c"), Some(Paused), "it knew nothing before");
        assert_eq!(state("d"), Some(Applies), "it has the content");
    }

    #[test]
    fn a_late_node_is_blocked_and_not_revoked() {
        let in_force = Some(global(1, A_MERGED));
        let snapshot = observing(found(A), in_force, "a=1:Syncing.FileOutdated", A_MERGED);
        let mut late = snapshot.clone();
        let clock = late.clock.leader.to_mut();
        let objects = snapshot.nodes.objects.values().map(|object| &**object);
        let nodes = snapshot.nodes.views.values().map(|node| &**node);
        clock.observe(objects, nodes, snapshot.clock.uptime);
        late.clock.uptime += globalps_core::rollout::DEADLINE;
        let plan = plan(&late);
        let progress = plan.members[0].at_goal();
        assert_eq!(progress, Some(globalps_core::rollout::Progress::Blocked));
        assert!(plan.assignments.iter().all(|(_, spec)| !spec.revoked));
    }
}
