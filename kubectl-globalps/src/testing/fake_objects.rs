//! Objects that tests put into the fake API server.

use globalps_core::names;
use k8s_openapi::ByteString;
use serde_json::{Value, json};

pub(crate) fn config(auths: &[(&str, &str)]) -> Value {
    let auths = auths
        .iter()
        .map(|(key, auth)| ((*key).to_owned(), json!({"auth": auth})));
    let auths: serde_json::Map<String, Value> = auths.collect();
    json!(ByteString(json!({"auths": auths}).to_string().into_bytes()))
}

pub(crate) fn secret(auths: &[(&str, &str)]) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {}, "type": names::SECRET_TYPE,
        "data": {names::DATA_KEY: config(auths)},
    })
}

/// An additional pull secret that was rolled out.
pub(crate) fn kept(revision: &str, auths: &[(&str, &str)]) -> Value {
    let mut secret = secret(auths);
    secret["metadata"]["annotations"] = json!({
        names::REVISION_ANNOTATION: revision, names::ROLLED_OUT_ANNOTATION: "2026-01-01T00:00:00Z",
    });
    secret
}

pub(crate) fn deployment(namespace: &str, replicas: i32, available: i32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {},
        "spec": {
            "replicas": replicas, "selector": {},
            "template": {"spec": {"containers": [{
                "name": "controller", "image": "r/c:1",
                "args": [format!("--namespace={namespace}"), "--syncer-image=r/s:1"],
            }]}},
        },
        "status": {"availableReplicas": available},
    })
}
