//! Which nodes run which agent.

use globalps_core::api::GlobalPullSecretSpec;
use globalps_core::names::NODE_EXCLUDE_LABELS;
use globalps_core::virtual_nodes::VIRTUAL_NODE_LABELS;
use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};

use super::agent::Agent;

/// The nodes of an agent: those of syncer and restorer are disjoint and together all Linux nodes that are not known to be virtual,
/// which are the observer's too. Affinity can't match taints.
pub(super) fn nodes(agent: Agent, spec: &GlobalPullSecretSpec) -> NodeSelector {
    let selected = spec.node_selector.iter();
    let of = |key: &str, operator: &str, values: &[&str]| NodeSelectorRequirement {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values: Some(values.iter().map(|value| (*value).to_owned()).collect()),
    };
    let requirements = |operator: &str, excluded: &str| {
        let is = |key: &str, operator: &str, value: &str| of(key, operator, &[value]);
        let labels = NODE_EXCLUDE_LABELS.map(|label| is(label, excluded, "true"));
        let selected = selected.clone();
        let selected = selected.map(|(key, value)| is(key, operator, value));
        labels.into_iter().chain(selected).collect::<Vec<_>>()
    };
    let real = || {
        let labels = VIRTUAL_NODE_LABELS.into_iter();
        labels.map(|(key, values)| of(key, "NotIn", values))
    };
    // Terms are ORed, the expressions of a term ANDed. `NotIn` also matches a node without the label.
    let terms = match agent {
        Agent::Syncer => vec![requirements("In", "NotIn")],
        Agent::Restorer => requirements("NotIn", "In")
            .into_iter()
            .map(|requirement| vec![requirement])
            .collect(),
        Agent::Observer => vec![Vec::new()],
    };
    NodeSelector {
        node_selector_terms: terms
            .into_iter()
            .map(|requirements| NodeSelectorTerm {
                match_expressions: Some(requirements.into_iter().chain(real()).collect()),
                ..NodeSelectorTerm::default()
            })
            .collect(),
    }
}
