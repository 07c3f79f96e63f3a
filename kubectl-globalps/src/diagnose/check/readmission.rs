//! Pods that end at the next restart of their kubelet. Pure.
//!
//! When a kubelet starts, it admits the pods on its node again, and compares their node selectors with the node's
//! current labels (kubernetes#123980).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Pod};
use kube::ResourceExt as _;

use super::{Check, well};
use crate::terminal::few;

/// Maximum number of pods that are listed.
const NAMED: usize = 5;
/// The only field of a Node that a selector can match.
const NAME: &str = "metadata.name";

pub(crate) type Labels = BTreeMap<String, String>;

/// The pod, if its kubelet would reject it. `nodes`: the labels of each node.
pub(crate) fn rejected(pod: &Pod, nodes: &BTreeMap<String, Labels>) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let node = spec.node_name.as_ref()?;
    // The pod ends anyway.
    if pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let labels = nodes.get(node)?;
    let mut selector = spec.node_selector.iter().flatten();
    let is_selected = selector.all(|(key, value)| labels.get(key) == Some(value));
    let affinity = spec.affinity.as_ref();
    let affinity = affinity.and_then(|it| it.node_affinity.as_ref());
    let required = affinity.and_then(|it| {
        it.required_during_scheduling_ignored_during_execution
            .as_ref()
    });
    let has_term = required.is_none_or(|required| {
        let mut terms = required.node_selector_terms.iter();
        terms.any(|term| matches(term, node, labels))
    });
    let name = || {
        let namespace = pod.namespace().unwrap_or_default();
        format!("{namespace}/{} on {node}", pod.name_any())
    };
    (!is_selected || !has_term).then(name)
}

/// An empty term matches no node.
fn matches(term: &NodeSelectorTerm, node: &str, labels: &Labels) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let of_field = |it: &NodeSelectorRequirement| (it.key == NAME).then_some(node);
    let of_label = |it: &NodeSelectorRequirement| labels.get(&it.key).map(String::as_str);
    !(expressions.is_empty() && fields.is_empty())
        && expressions.iter().all(|it| holds(it, of_label(it)))
        && fields.iter().all(|it| holds(it, of_field(it)))
}

fn holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let is_among = || value.is_some_and(|value| values.iter().any(|it| it == value));
    let number = |text: &str| text.parse::<i64>().ok();
    let both = || {
        let [limit] = values else { return None };
        Some((number(value?)?, number(limit)?))
    };
    match requirement.operator.as_str() {
        "In" => is_among(),
        "NotIn" => !is_among(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => both().is_some_and(|(value, limit)| value > limit),
        "Lt" => both().is_some_and(|(value, limit)| value < limit),
        // An operator of a newer Kubernetes, whose result is unknown.
        _ => true,
    }
}

/// `rejected`: all such pods.
pub(crate) fn readmission(mut rejected: Vec<String>) -> Check {
    rejected.sort_unstable();
    let check = |message: String| well("delivery", "kubelet-readmission", message);
    let number = rejected.len();
    if number == 0 {
        return check("every pod matches the labels of its node".to_owned());
    }
    let named = few(&rejected, NAMED);
    let pods = if number == 1 {
        "1 pod that no longer matches".to_owned()
    } else {
        format!("{number} pods that no longer match")
    };
    check(format!(
        "any restart of the kubelet ends {pods} the labels of the node: {named}"
    ))
    .warn("give the nodes their labels again, or delete these pods when it suits you, before the next change of credentials does")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: &Value) -> Pod {
        let mut spec = spec.clone();
        spec["nodeName"] = "n".into();
        spec["containers"] = json!([]);
        let metadata = json!({"name": "p", "namespace": "team"});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    fn required(terms: &Value) -> Value {
        json!({"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
        }}})
    }

    fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
        json!({"key": key, "operator": operator, "values": values})
    }

    fn nodes() -> BTreeMap<String, Labels> {
        let labels = [("tier", "a"), ("cores", "8"), ("word", "x")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        [("n".to_owned(), labels.into())].into()
    }

    /// The expected results are those of `GetRequiredNodeAffinity(pod).Match(node)` in Kubernetes 1.36.
    #[test]
    fn a_pod_is_rejected_as_the_kubelet_would_reject_it() {
        let labels = |it: Value| json!([{"matchExpressions": [it]}]);
        let fields = |it: Value| json!([{"matchFields": [it]}]);
        #[rustfmt::skip]
        let cases = [
            ("no selector", json!({}), false),
            ("its label", json!({"nodeSelector": {"tier": "a"}}), false),
            ("another value", json!({"nodeSelector": {"tier": "b"}}), true),
            ("no such label", json!({"nodeSelector": {"tier": "a", "gone": ""}}), true),
            ("in", required(&labels(expression("tier", "In", &["b", "a"]))), false),
            ("not in it", required(&labels(expression("tier", "In", &["b"]))), true),
            ("in without the label", required(&labels(expression("gone", "In", &["a"]))), true),
            ("not in", required(&labels(expression("tier", "NotIn", &["a"]))), true),
            ("without the label", required(&labels(expression("gone", "NotIn", &["a"]))), false),
            ("exists", required(&labels(expression("tier", "Exists", &[]))), false),
            ("exists not", required(&labels(expression("gone", "Exists", &[]))), true),
            ("is absent", required(&labels(expression("gone", "DoesNotExist", &[]))), false),
            ("is there", required(&labels(expression("tier", "DoesNotExist", &[]))), true),
            ("more", required(&labels(expression("cores", "Gt", &["7"]))), false),
            ("not more", required(&labels(expression("cores", "Gt", &["8"]))), true),
            ("less", required(&labels(expression("cores", "Lt", &["9"]))), false),
            ("no number", required(&labels(expression("word", "Lt", &["9"]))), true),
            ("its name", required(&fields(expression(NAME, "In", &["n"]))), false),
            ("another name", required(&fields(expression(NAME, "In", &["m"]))), true),
            ("no term", required(&json!([])), true),
            ("an empty term", required(&json!([{}])), true),
            (
                "one term of two",
                required(&json!([{}, {"matchExpressions": [expression("tier", "Exists", &[])]}])),
                false,
            ),
            (
                "half a term",
                required(&json!([{
                    "matchExpressions": [expression("tier", "Exists", &[])],
                    "matchFields": [expression(NAME, "In", &["m"])],
                }])),
                true,
            ),
            (
                "selector and affinity",
                {
                    let mut spec = required(&labels(expression("tier", "Exists", &[])));
                    spec["nodeSelector"] = json!({"gone": "x"});
                    spec
                },
                true,
            ),
        ];
        for (case, spec, expected) in cases {
            let found = rejected(&pod(&spec), &nodes());
            let expected = expected.then(|| "team/p on n".to_owned());
            assert_eq!(found, expected, "{case}");
        }
        let selects = json!({"nodeSelector": {"gone": "x"}});
        let mut ends = pod(&selects);
        ends.metadata.deletion_timestamp = serde_json::from_str("\"2026-01-01T00:00:00Z\"").ok();
        assert_eq!(rejected(&ends, &nodes()), None);
        let mut waits = pod(&selects);
        waits.spec.as_mut().unwrap().node_name = None;
        assert_eq!(rejected(&waits, &nodes()), None);
        assert_eq!(rejected(&pod(&selects), &BTreeMap::new()), None, "unknown");
    }

    #[test]
    fn a_few_pods_are_named_and_all_are_counted() {
        assert_eq!(
            readmission(Vec::new()).result,
            super::super::CheckResult::Ok
        );
        let pods = (0..7).rev().map(|number| format!("team/p{number} on n"));
        let check = readmission(pods.collect());
        assert!(check.message.contains("ends 7 pods"), "{}", check.message);
        assert!(
            check.message.contains(": team/p0 on n, "),
            "{}",
            check.message
        );
        assert!(check.message.ends_with("team/p4 on n and 2 more"));
    }
}
