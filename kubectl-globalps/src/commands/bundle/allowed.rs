//! The allow-list: the only fields of objects that a bundle contains. Pure.

use globalps_core::{machine_config, names};
use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// Containers whose arguments and logs are included. Those of other containers, such as a sidecar, may contain anything.
pub(super) const CONTAINERS: [&str; 3] = ["controller", "hub", "syncer"];
/// Prefixes of the names of globalps' objects.
const NAMES: [&str; 3] = ["globalps-", names::GLOBAL_SECRET, names::ADDITIONAL_SECRET];

const LABELS: [&str; 5] = [
    "name",
    "pod-template-hash",
    "controller-revision-hash",
    names::NODE_POOL_LABEL,
    names::RESTRICTED_EXCLUDE_LABEL,
];
const LABEL_PREFIXES: [&str; 6] = [
    "globalps.io/",
    "app.kubernetes.io/",
    "kubernetes.io/",
    "node.kubernetes.io/",
    "node-role.kubernetes.io/",
    "topology.kubernetes.io/",
];
const ANNOTATIONS: [&str; 29] = [
    names::REVISION_ANNOTATION,
    names::REVISION_ID_ANNOTATION,
    names::CANARY_PASSED_ANNOTATION,
    names::ROLLED_OUT_ANNOTATION,
    names::ROLLED_OUT_REVISION_ANNOTATION,
    names::ADDITIONAL_ROLLED_OUT_ANNOTATION,
    names::REJECTED_ANNOTATION,
    names::RETRY_ANNOTATION,
    names::FORGET_ANNOTATION,
    names::MAY_REPLACE_ANNOTATION,
    names::LEADER_ANNOTATION,
    names::ACCOUNT_ANNOTATION,
    names::CONFIG_FILE_ANNOTATION,
    names::DELIVERY_ANNOTATION,
    names::PROVIDER_SINCE_ANNOTATION,
    names::RESTORING_ANNOTATION,
    names::ABANDON_ANNOTATION,
    names::CONTENT_ANNOTATION,
    names::CONTENT_SINCE_ANNOTATION,
    names::ATTACHED_ANNOTATION,
    names::OPERATOR_SECRETS_ANNOTATION,
    names::FLEET_ANNOTATION,
    names::INSTALLATION_ANNOTATION,
    names::MCO_ANNOTATION,
    machine_config::DESIRED_ANNOTATION,
    machine_config::STATE_ANNOTATION,
    machine_config::DRAIN_ANNOTATION,
    "deployment.kubernetes.io/revision",
    "deprecated.daemonset.template.generation",
];
const METADATA: [&str; 15] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "finalizers",
    "ownerReferences.kind",
    "ownerReferences.name",
    "ownerReferences.uid",
    "managedFields.manager",
    "managedFields.operation",
    "managedFields.time",
    "managedFields.subresource",
];

/// Fields of Deployments and `DaemonSets`.
pub(super) const WORKLOAD: [&str; 27] = [
    "spec.replicas",
    "spec.selector",
    "spec.strategy",
    "spec.updateStrategy",
    "spec.template.spec.nodeSelector",
    "spec.template.spec.affinity",
    "spec.template.spec.tolerations",
    "spec.template.spec.hostNetwork",
    "spec.template.spec.hostPID",
    "spec.template.spec.priorityClassName",
    "spec.template.spec.serviceAccountName",
    "spec.template.spec.imagePullSecrets",
    "spec.template.spec.securityContext",
    "spec.template.spec.volumes.name",
    "spec.template.spec.volumes.hostPath",
    "spec.template.spec.containers.name",
    "spec.template.spec.containers.image",
    "spec.template.spec.containers.args",
    "spec.template.spec.containers.resources",
    "spec.template.spec.containers.securityContext",
    "status.observedGeneration",
    "status.conditions",
    "status.replicas",
    "status.availableReplicas",
    "status.updatedReplicas",
    "status.desiredNumberScheduled",
    "status.numberReady",
];
pub(super) const POD: [&str; 33] = [
    "spec.nodeName",
    "spec.hostNetwork",
    "spec.priorityClassName",
    "spec.serviceAccountName",
    "spec.imagePullSecrets",
    "spec.tolerations",
    "spec.volumes.name",
    "spec.volumes.hostPath",
    "spec.containers.name",
    "spec.containers.image",
    "spec.containers.args",
    "spec.containers.resources",
    "spec.containers.securityContext",
    "status.phase",
    "status.reason",
    "status.message",
    "status.startTime",
    "status.qosClass",
    "status.conditions",
    "status.containerStatuses.name",
    "status.containerStatuses.image",
    "status.containerStatuses.imageID",
    "status.containerStatuses.ready",
    "status.containerStatuses.started",
    "status.containerStatuses.restartCount",
    "status.containerStatuses.state.running",
    "status.containerStatuses.state.waiting",
    // Without the message: that of a sidecar may be the end of its log.
    "status.containerStatuses.state.terminated.reason",
    "status.containerStatuses.state.terminated.exitCode",
    "status.containerStatuses.lastState.terminated.reason",
    "status.containerStatuses.lastState.terminated.exitCode",
    "status.containerStatuses.lastState.terminated.startedAt",
    "status.containerStatuses.lastState.terminated.finishedAt",
];
pub(super) const EVENT: [&str; 18] = [
    "involvedObject.apiVersion",
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.fieldPath",
    "reason",
    "message",
    "type",
    "action",
    "count",
    "firstTimestamp",
    "lastTimestamp",
    "eventTime",
    "reportingComponent",
    "reportingInstance",
    "series",
    "source",
];
pub(super) const NODE: [&str; 4] = [
    "spec.unschedulable",
    "spec.taints",
    "status.nodeInfo",
    "status.conditions",
];
const SECRET: [&str; 2] = ["type", "immutable"];

/// Whether an object of this name belongs to globalps.
pub(super) fn is_ours(name: &str) -> bool {
    NAMES.iter().any(|first| name.starts_with(first))
}

/// Whether the event is about an object of globalps.
pub(super) fn is_about_us(event: &Value) -> bool {
    let text = |field: &str| {
        event["involvedObject"][field]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let group = format!("{}/", names::GROUP);
    text("apiVersion").starts_with(&group) || is_ours(&text("name"))
}

/// The metadata of an object, and these fields. A path separates fields by dots, and applies to every element of a list.
pub(super) fn object(value: &Value, paths: &[&str]) -> Value {
    let mut kept = keep(value, paths).unwrap_or_else(|| json!({}));
    for spec in ["/spec", "/spec/template/spec"] {
        let containers = kept.pointer_mut(spec).map(|spec| &mut spec["containers"]);
        for container in containers
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            let is_ours = CONTAINERS.contains(&container["name"].as_str().unwrap_or_default());
            if let Some(fields) = container.as_object_mut().filter(|_| !is_ours) {
                fields.remove("args");
            }
        }
    }
    kept["metadata"] = metadata(&value["metadata"]);
    kept
}

/// A custom resource: the fields of its spec and status that this version knows. `None`: it can't be parsed.
pub(super) fn custom<K: Resource<DynamicType = ()> + DeserializeOwned + Serialize>(
    value: &Value,
) -> Option<Value> {
    let typed: K = serde_json::from_value(value.clone()).ok()?;
    let typed = serde_json::to_value(typed).ok()?;
    Some(object(&typed, &["apiVersion", "kind", "spec", "status"]))
}

/// A Secret: never its data, only keys and sizes in bytes.
pub(super) fn secret(secret: &k8s_openapi::api::core::v1::Secret) -> Value {
    let value = serde_json::to_value(secret).unwrap_or_default();
    let mut kept = object(&value, &SECRET);
    let sizes: Map<String, Value> = secret
        .data
        .iter()
        .flatten()
        .map(|(key, value)| (key.clone(), json!(value.0.len())))
        .collect();
    kept["sizes"] = sizes.into();
    kept
}

fn metadata(value: &Value) -> Value {
    let mut kept = keep(value, &METADATA).unwrap_or_else(|| json!({}));
    let is_label = |key: &str| {
        LABELS.contains(&key) || LABEL_PREFIXES.iter().any(|prefix| key.starts_with(prefix))
    };
    for (field, is_allowed) in [
        ("labels", &is_label as &dyn Fn(&str) -> bool),
        ("annotations", &|key: &str| ANNOTATIONS.contains(&key)),
    ] {
        let all = value[field].as_object().into_iter().flatten();
        let known: Map<String, Value> = all
            .filter(|(key, _)| is_allowed(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        if !known.is_empty() {
            kept[field] = known.into();
        }
    }
    kept
}

fn keep(value: &Value, paths: &[&str]) -> Option<Value> {
    match value {
        Value::Array(items) => Some(items.iter().filter_map(|item| keep(item, paths)).collect()),
        Value::Object(fields) => {
            let kept = fields.iter().filter_map(|(name, value)| {
                let rest_of = |path: &&str| {
                    let rest = path.strip_prefix(name.as_str())?.to_owned();
                    (rest.is_empty() || rest.starts_with('.')).then_some(rest)
                };
                let below: Vec<String> = paths.iter().filter_map(rest_of).collect();
                if below.iter().any(String::is_empty) {
                    return Some((name.clone(), value.clone()));
                }
                let below: Vec<&str> = below
                    .iter()
                    .map(|rest| rest.trim_start_matches('.'))
                    .collect();
                let value = keep(value, &below).filter(|_| !below.is_empty())?;
                Some((name.clone(), value))
            });
            Some(Value::Object(kept.collect()))
        }
        // The path names a field of a value that has none.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Secret;

    #[test]
    fn only_known_fields_are_kept() {
        let pod = json!({
            "metadata": {
                "name": "p", "labels": {"name": "syncer", "team": "s3cret"}, "selfLink": "s3cret",
                "annotations": {"globalps.io/service-account-uid": "u", "vault/token": "s3cret"},
                "managedFields": [{"manager": "m", "fieldsV1": {"f:s3cret": {}}}],
            },
            "spec": {
                "nodeName": "n",
                "containers": [
                    {"name": "syncer", "image": "i", "args": ["run"], "env": [{"name": "A", "value": "s3cret"}]},
                    {"name": "sidecar", "image": "j", "args": ["--password=s3cret"], "command": ["s3cret"]},
                ],
            },
            "status": {"containerStatuses": [
                {"name": "syncer", "state": {"terminated": {"exitCode": 1, "message": "s3cret"}}},
            ]},
            "other": "s3cret",
        });
        let kept = object(&pod, &POD);
        let expected = json!({
            "metadata": {
                "name": "p", "labels": {"name": "syncer"}, "annotations": {"globalps.io/service-account-uid": "u"},
                "managedFields": [{"manager": "m"}],
            },
            "spec": {
                "nodeName": "n",
                "containers": [
                    {"name": "syncer", "image": "i", "args": ["run"]},
                    {"name": "sidecar", "image": "j"},
                ],
            },
            "status": {"containerStatuses": [
                {"name": "syncer", "state": {"terminated": {"exitCode": 1}}},
            ]},
        });
        assert_eq!(kept, expected);
    }

    #[test]
    fn a_secret_is_its_names_and_sizes() {
        let given = json!({
            "metadata": {
                "name": "additional-pull-secret", "namespace": "kube-system",
                "annotations": {
                    "kubectl.kubernetes.io/last-applied-configuration": "s3cret",
                    "unknown": "s3cret", "globalps.io/revision": "3",
                },
            },
            "type": "Opaque",
            "data": {"key": "czNjcmV0"},
        });
        let given: Secret = serde_json::from_value(given).expect("a Secret");
        let expected = json!({
            "metadata": {
                "name": "additional-pull-secret", "namespace": "kube-system",
                "annotations": {"globalps.io/revision": "3"},
            },
            "type": "Opaque",
            "sizes": {"key": 6},
        });
        assert_eq!(secret(&given), expected);
    }

    #[test]
    fn a_custom_resource_has_only_fields_that_this_version_knows() {
        let given = json!({
            "metadata": {"name": "node-1"}, "spec": {"revision": 2, "token": "s3cret"},
            "status": {"phase": "Synced", "token": "s3cret"},
        });
        let kept = custom::<globalps_core::api::NodePullSecret>(&given).expect("parsed");
        assert_eq!(kept["spec"]["revision"], 2);
        assert_eq!(kept["status"]["phase"], "Synced");
        assert!(!kept.to_string().contains("s3cret"), "{kept}");
        assert_eq!(
            custom::<globalps_core::api::NodePullSecret>(&json!({"spec": 1})),
            None
        );
    }

    #[test]
    fn an_event_counts_only_if_it_is_about_globalps() {
        for (involved, expected) in [
            (
                json!({"apiVersion": "globalps.io/v1alpha1", "name": "node-1"}),
                true,
            ),
            (
                json!({"kind": "Pod", "name": "global-pull-secret-syncer-x"}),
                true,
            ),
            (json!({"kind": "Pod", "name": "coredns-x"}), false),
            (json!({}), false),
        ] {
            assert_eq!(
                is_about_us(&json!({"involvedObject": involved})),
                expected,
                "{involved}"
            );
        }
    }
}
