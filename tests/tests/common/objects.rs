//! Namespaces, pods and service accounts as users create them, and their state after delivery.

use std::time::Duration;

use globalps_testkit::product::DEADLINE;
use globalps_testkit::{Cluster, until, wait};
use serde_json::{Value, json};

const POLL: Duration = Duration::from_millis(50);

/// Retries while the service account of a new namespace is missing, which Kubernetes' controllers create.
pub fn apply(cluster: &Cluster, objects: &[Value]) {
    wait("the objects", POLL, || match cluster.apply_all(objects) {
        Err(error) if format!("{error:#}").contains("serviceaccount \"default\" not found") => {
            Ok(None)
        }
        done => done.map(Some),
    });
}

/// A policy of the cluster's owner: it denies the requests that match, unless the validation holds.
pub fn denying(name: &str, matches: &Value, validation: &Value) -> [Value; 2] {
    let api = "admissionregistration.k8s.io/v1";
    let object = |kind: &str, spec: Value| json!({"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": spec});
    let policy = json!({"matchConstraints": matches, "validations": [validation]});
    let binding = json!({"policyName": name, "validationActions": ["Deny"]});
    [
        object("ValidatingAdmissionPolicy", policy),
        object("ValidatingAdmissionPolicyBinding", binding),
    ]
}

pub fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

pub fn account(namespace: &str, name: &str, references: &[&str]) -> Value {
    let references: Vec<Value> = references
        .iter()
        .map(|name| json!({"name": name}))
        .collect();
    json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace},
        "imagePullSecrets": references,
    })
}

pub fn pod(namespace: &str, name: &str, image: &str, more: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": image, "imagePullPolicy": "Always"}],
        },
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        pod["spec"][field] = value.clone();
    }
    pod
}

pub fn get(cluster: &Cluster, namespace: &str, what: &str) -> Value {
    cluster.get(namespace, what).unwrap()
}

/// The registries in the Secret's content; empty if the Secret does not exist.
pub fn registries_of(cluster: &Cluster, namespace: &str, secret: &str) -> Vec<String> {
    use base64::Engine as _;
    let secret = get(cluster, namespace, &format!("secret/{secret}"));
    let data = secret["data"][".dockerconfigjson"]
        .as_str()
        .unwrap_or_default();
    let data = base64::prelude::BASE64_STANDARD.decode(data).unwrap();
    let config: Value = serde_json::from_slice(&data).unwrap_or_default();
    let auths = config["auths"].as_object().cloned().unwrap_or_default();
    auths.into_iter().map(|(registry, _)| registry).collect()
}

pub fn references(cluster: &Cluster, namespace: &str, account: &str) -> Vec<String> {
    let account = get(cluster, namespace, &format!("serviceaccount/{account}"));
    let references = account["imagePullSecrets"].as_array().cloned();
    let names = references.unwrap_or_default().into_iter();
    names
        .map(|one| one["name"].as_str().unwrap_or_default().to_owned())
        .collect()
}

pub fn wait_references(cluster: &Cluster, namespace: &str, account: &str, wanted: &[&str]) {
    let what = format!("{wanted:?} in {namespace}/{account}");
    until(&what, DEADLINE, POLL, || {
        Ok((references(cluster, namespace, account) == wanted).then_some(()))
    })
    .unwrap_or_else(|error| panic!("{error:#}: {:?}", references(cluster, namespace, account)));
}

pub fn wait_pod(cluster: &Cluster, namespace: &str, name: &str, is_refused: bool) {
    let what = format!("{namespace}/{name}, refused: {is_refused}");
    until(&what, DEADLINE, POLL, || {
        let pod = get(cluster, namespace, &format!("pod/{name}"));
        if !is_refused {
            return Ok((pod["status"]["phase"] == "Running").then_some(()));
        }
        let reason = &pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"];
        Ok((reason == "ErrImagePull" || reason == "ImagePullBackOff").then_some(()))
    })
    .unwrap_or_else(|error| {
        panic!(
            "{error:#}: {}",
            get(cluster, namespace, &format!("pod/{name}"))["status"]
        )
    });
}

pub fn apply_references(cluster: &Cluster, namespace: &str, name: &str, names: &[&str]) {
    let references: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
    let patch = json!({"imagePullSecrets": references});
    merge_in(
        cluster,
        namespace,
        &format!("serviceaccount/{name}"),
        &patch,
    );
}

/// Runs `kubectl patch --type=merge` in any namespace.
pub fn merge_in(cluster: &Cluster, namespace: &str, what: &str, patch: &Value) {
    cluster.patch(namespace, what, patch).unwrap();
}
