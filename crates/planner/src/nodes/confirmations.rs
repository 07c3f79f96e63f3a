//! Files of others that syncers may replace on nodes which a daemon updates in place. Pure.
//!
//! The daemon marks its Node before it writes. So what a Node says *after* a report of its syncer tells whether the reported file can
//! be part of an update: the caller reads the Node again before it answers.

use std::collections::BTreeSet;

use globalps_core::api::NodePullSecretSpec;
use globalps_core::names::MAY_REPLACE_ANNOTATION;
use kube::ResourceExt as _;

use super::clock::up_to_date;
use super::state::NodeState;

/// Maximum number in one plan: each costs a read and a write.
const AT_ONCE: usize = 64;

/// The file that a node's syncer may replace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confirmation {
    pub node: String,
    /// As in `status.foundFile`.
    pub found_file: String,
    /// The spec as it is.
    pub spec: NodePullSecretSpec,
}

/// The reports that are not answered, of nodes that no update is known of and whose objects this plan does not write.
pub(super) fn confirmations(
    states: &[NodeState],
    written: &[(String, NodePullSecretSpec)],
) -> Vec<Confirmation> {
    let written: BTreeSet<&str> = written.iter().map(|(name, _)| name.as_str()).collect();
    let confirmation = |state: &NodeState| {
        let object = state.object.filter(|_| !state.is_unreadable)?;
        let found_file = &up_to_date(object)?.found_file;
        let answered = object.annotations().get(MAY_REPLACE_ANNOTATION);
        let is_due = !found_file.is_empty()
            && answered != Some(found_file)
            && object.spec.updated_in_place
            && object.spec.foreign_owner.is_empty()
            && state.node.file_owner.is_empty()
            && !written.contains(state.node.name.as_str());
        is_due.then(|| Confirmation {
            node: state.node.name.clone(),
            found_file: found_file.clone(),
            spec: object.spec.clone(),
        })
    };
    states
        .iter()
        .filter_map(confirmation)
        .take(AT_ONCE)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use globalps_core::names::{MACHINE_CONFIG_UPDATE, NODE_POOL_LABEL};

    use super::*;
    use crate::content::source::Source;
    use crate::nodes::input::Snapshot;
    use crate::nodes::state::node_states;
    use crate::nodes::testing::snapshot;

    fn found(change: impl FnOnce(&mut Snapshot)) -> Vec<String> {
        let mut snapshot = snapshot(Source::Absent, None, "a=5:Syncing b=5:Synced");
        let labels = [("kubernetes.io/os", "linux"), (NODE_POOL_LABEL, "p")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let view = snapshot.nodes.views.to_mut().get_mut("a").unwrap();
        view.labels = (&BTreeMap::from(labels)).into();
        let object = snapshot.nodes.objects.to_mut().get_mut("a").unwrap();
        object.spec.updated_in_place = true;
        object.status.as_mut().unwrap().found_file = "1.2".to_owned();
        change(&mut snapshot);
        let states = node_states(&snapshot);
        let all = confirmations(&states, &[("b".to_owned(), NodePullSecretSpec::default())]);
        all.into_iter()
            .map(|it| format!("{} {}", it.node, it.found_file))
            .collect()
    }

    type Change = Box<dyn Fn(&mut Snapshot)>;

    fn object(
        snapshot: &mut Snapshot,
        change: impl FnOnce(&mut globalps_core::api::NodePullSecret),
    ) {
        change(snapshot.nodes.objects.to_mut().get_mut("a").unwrap());
    }

    #[test]
    fn a_report_is_answered_once_and_not_during_an_update() {
        let answer = |value: &'static str| {
            move |it: &mut Snapshot| {
                object(it, |object| {
                    let annotation = (MAY_REPLACE_ANNOTATION.to_owned(), value.to_owned());
                    object.metadata.annotations = Some([annotation].into());
                });
            }
        };
        assert_eq!(found(|_| ()), ["a 1.2"]);
        assert_eq!(found(answer("1.1")), ["a 1.2"], "another file was answered");
        #[rustfmt::skip]
        let cases: [(&str, Change); 6] = [
            ("answered", Box::new(answer("1.2"))),
            ("nothing found", Box::new(|it| object(it, |it| it.status.as_mut().unwrap().found_file.clear()))),
            ("of another assignment", Box::new(|it| object(it, |it| it.status.as_mut().unwrap().observed_generation -= 1))),
            ("not of a node pool", Box::new(|it| object(it, |it| it.spec.updated_in_place = false))),
            ("assigned to step aside", Box::new(|it| object(it, |it| MACHINE_CONFIG_UPDATE.clone_into(&mut it.spec.foreign_owner)))),
            ("updated", Box::new(|it| it.nodes.views.to_mut().get_mut("a").unwrap().file_owner = MACHINE_CONFIG_UPDATE)),
        ];
        for (case, change) in cases {
            assert_eq!(found(change), Vec::<String>::new(), "{case}");
        }
    }
}
