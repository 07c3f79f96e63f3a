//! The fields of the agents' pods that a `GlobalPullSecret` changes, in Kubernetes' form: placement and resources.

use serde_json::{Value, json};

use globalps_core::api::{NODE_TERMS, Syncer};

/// The `DaemonSet` with these settings in place of its defaults.
pub(super) fn placed(mut daemon_set: Value, syncer: &Syncer) -> Value {
    let pod = &mut daemon_set["spec"]["template"]["spec"];
    if let Some(tolerations) = &syncer.tolerations {
        pod["tolerations"] = json!(tolerations);
    }
    if let Some(name) = &syncer.priority_class_name {
        pod["priorityClassName"] = json!(name);
    }
    if let Some(resources) = &syncer.resources {
        pod["containers"][0]["resources"] = resources.clone();
    }
    let theirs = syncer.affinity.as_ref();
    let theirs = theirs.and_then(|affinity| affinity.pointer(NODE_TERMS));
    let ours = pod["affinity"].pointer_mut(NODE_TERMS);
    if let (Some(theirs), Some(ours)) = (theirs.and_then(Value::as_array), ours) {
        *ours = both(ours, theirs);
    }
    daemon_set
}

/// Terms for the nodes that match a default term and one of the configuration. A node must match one term, and everything in it.
fn both(ours: &Value, theirs: &[Value]) -> Value {
    let ours = ours.as_array().into_iter().flatten();
    ours.flat_map(|one| theirs.iter().map(move |other| joined(one, other)))
        .collect()
}

fn joined(one: &Value, other: &Value) -> Value {
    let mut term = json!({});
    for name in ["matchExpressions", "matchFields"] {
        let lists = [one, other].into_iter();
        let items = lists.filter_map(|term| term[name].as_array()).flatten();
        let items: Vec<Value> = items.cloned().collect();
        if !items.is_empty() {
            term[name] = json!(items);
        }
    }
    term
}

#[cfg(test)]
mod tests {
    use super::super::syncer_objects;
    use super::*;
    use globalps_core::api::GlobalPullSecretSpec;

    fn pods(syncer: &Value) -> [Value; 2] {
        let spec: GlobalPullSecretSpec =
            serde_json::from_value(json!({"syncer": syncer})).expect("a configuration");
        let objects = syncer_objects("kube-system", "i", &spec);
        [objects.syncer, objects.restorer]
            .map(|agent| agent.daemon_set["spec"]["template"]["spec"].clone())
    }

    #[test]
    fn settings_replace_the_defaults_of_both_agents() {
        let toleration = json!({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"});
        let resources = json!({"requests": {"cpu": "1m"}, "limits": {"memory": "96Mi"}});
        for pod in pods(&json!({
            "tolerations": [toleration], "resources": resources, "priorityClassName": "high",
        })) {
            assert_eq!(pod["tolerations"], json!([toleration]));
            assert_eq!(pod["containers"][0]["resources"], resources);
            assert_eq!(pod["priorityClassName"], "high");
        }
        for pod in pods(&json!({"tolerations": []})) {
            assert_eq!(pod["tolerations"], json!([]));
            assert_eq!(pod["priorityClassName"], "system-node-critical");
            assert_eq!(
                pod["containers"][0]["resources"]["limits"]["memory"],
                "64Mi"
            );
        }
        for pod in pods(&json!({})) {
            assert_eq!(pod["tolerations"], json!([{"operator": "Exists"}]));
        }
    }

    #[test]
    fn a_node_matches_a_term_of_both() {
        let pool = json!({"key": "pool", "operator": "In", "values": ["a"]});
        let name = json!({"key": "metadata.name", "operator": "In", "values": ["node-1"]});
        let terms = json!([{"matchExpressions": [pool]}, {"matchFields": [name]}]);
        let mut affinity = json!({});
        affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] =
            terms;
        let plain = pods(&json!({}));
        let pods = pods(&json!({"affinity": affinity}));
        for (plain, pod) in plain.iter().zip(&pods) {
            let of = |pod: &Value| {
                pod["affinity"]
                    .pointer(NODE_TERMS)
                    .cloned()
                    .unwrap_or_default()
            };
            let (before, after) = (of(plain), of(pod));
            let (before, after) = (before.as_array().unwrap(), after.as_array().unwrap());
            assert_eq!(after.len(), before.len() * 2);
            for (at, term) in after.iter().enumerate() {
                let ours = before[at / 2]["matchExpressions"].as_array().unwrap();
                let found = term["matchExpressions"].as_array().unwrap();
                assert!(ours.iter().all(|own| found.contains(own)), "{term}");
                let (has_pool, has_name) =
                    (found.contains(&pool), term["matchFields"] == json!([name]));
                assert_eq!((has_pool, has_name), (at % 2 == 0, at % 2 == 1), "{term}");
            }
        }
    }
}
