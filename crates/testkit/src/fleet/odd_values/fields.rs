//! The fields of an object or schema, and merge patches of one field. Pure.

use std::collections::BTreeSet;

use globalps_manifests::{HubInstall, Manifests};
use serde_json::{Map, Value, json};

use crate::kubernetes::VERSION;

/// Values that Go's types, or a schema, may accept.
pub(crate) fn values() -> Vec<Value> {
    vec![
        Value::Null,
        json!(""),
        json!("9999-12-31T00:00:00Z"),
        json!("0000-01-01T00:00:00Z"),
        json!("1970-01-01T00:00:00-23:59"),
        json!("2026-01-01T23:59:59.999999999+23:59"),
        json!("x".repeat(200)),
        json!(-1),
        json!(3_000_000_000_u32),
        json!(i64::MAX),
        json!(1e21),
        json!(true),
        json!([]),
        json!({}),
    ]
}

pub(in crate::fleet) fn node(name: &str) -> Value {
    let time = "2026-01-01T00:00:00Z";
    let ready = json!({"type": "Ready", "status": "True", "lastHeartbeatTime": time, "lastTransitionTime": time});
    json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/os": "linux"}},
        "spec": {"taints": [{"key": "a", "effect": "NoSchedule", "timeAdded": time}]},
        "status": {"conditions": [ready], "nodeInfo": {
            "kubeletVersion": VERSION, "architecture": "", "bootID": "", "containerRuntimeVersion": "",
            "kernelVersion": "", "kubeProxyVersion": "", "machineID": "", "operatingSystem": "linux",
            "osImage": "", "systemUUID": "",
        }},
    })
}

/// JSON pointers of all writable fields of an object of this kind, including absent ones.
pub(crate) fn paths(object: &Value, kind: &str) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    leaves(object, &mut String::new(), &mut paths);
    if let Some(schema) = schema(kind) {
        properties(&schema, &mut String::new(), &mut paths);
    }
    paths.retain(|path| is_writable(path));
    paths
}

/// The schema of a custom resource.
fn schema(kind: &str) -> Option<Value> {
    let hub = HubInstall {
        image: "none".to_owned(),
        namespaces: Vec::new(),
        trusted_namespaces: Vec::new(),
        shards: 1,
    };
    let objects = Manifests::of_images("none", "none").objects();
    let mut crds = objects.into_iter().chain(hub.objects());
    let crd = crds.find(|object| object["spec"]["names"]["kind"] == kind)?;
    Some(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone())
}

/// JSON pointers of the fields in a schema, outside lists.
fn properties(schema: &Value, path: &mut String, found: &mut BTreeSet<String>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let length = path.len();
        path.push_str(&format!("/{name}"));
        found.insert(path.clone());
        properties(property, path, found);
        path.truncate(length);
    }
}

/// JSON pointers of all values; in a list, only of the first element.
fn leaves(value: &Value, path: &mut String, found: &mut BTreeSet<String>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (key.replace('~', "~0").replace('/', "~1"), value))
            .collect(),
        Value::Array(items) => items
            .first()
            .map(|item| ("0".to_owned(), item))
            .into_iter()
            .collect(),
        _ => Vec::new(),
    };
    if !path.is_empty() {
        found.insert(path.clone());
    }
    for (key, child) in children {
        let length = path.len();
        path.push_str(&format!("/{key}"));
        leaves(child, path, found);
        path.truncate(length);
    }
}

/// Excludes the object's identity, and whole sections of it.
fn is_writable(path: &str) -> bool {
    const IDENTITY: [&str; 7] = [
        "/apiVersion",
        "/kind",
        "/metadata/name",
        "/metadata/namespace",
        "/metadata/uid",
        "/metadata/resourceVersion",
        // There are many owned fields, all alike.
        "/metadata/managedFields/0/fieldsV1/",
    ];
    let is_part = ["/metadata", "/spec", "/status", "/data"].contains(&path);
    !is_part && !IDENTITY.iter().any(|fixed| path.starts_with(fixed))
}

/// An unused annotation and label, for objects that have none.
pub(crate) const ANNOTATION: &str = "/metadata/annotations/soak.example.com~1odd";
pub(crate) const LABEL: &str = "/metadata/labels/soak.example.com~1odd";

/// Null if it doesn't exist.
pub(crate) fn at_path(object: &Value, path: &str) -> Value {
    object.pointer(path).cloned().unwrap_or_default()
}

/// A merge patch that sets the value at the pointer. Lists are replaced as a whole.
pub(crate) fn replaced(object: &Value, path: &str, value: Value) -> Value {
    let mut keys = path
        .split('/')
        .skip(1)
        .map(|key| key.replace("~1", "/").replace("~0", "~"));
    set(object, &mut keys, value)
}

fn set(object: &Value, keys: &mut impl Iterator<Item = String>, value: Value) -> Value {
    let Some(key) = keys.next() else {
        return value;
    };
    if let (Some(items), Ok(index)) = (object.as_array(), key.parse::<usize>()) {
        let mut items = items.clone();
        if let Some(item) = items.get_mut(index) {
            let change = set(&item.clone(), keys, value);
            merge(item, change);
        }
        return Value::Array(items);
    }
    let inner = set(&object[&key], keys, value);
    Value::Object(Map::from_iter([(key, inner)]))
}

/// Like a merge patch, but keeps nulls.
fn merge(into: &mut Value, change: Value) {
    match change {
        Value::Object(fields) if into.is_object() && !fields.is_empty() => {
            for (key, value) in fields {
                merge(&mut into[key.as_str()], value);
            }
        }
        other => *into = other,
    }
}

/// A merge patch from `now` to `before`, for the status or for everything else.
pub(super) fn difference(now: &Value, before: &Value, is_status: bool) -> Value {
    let mut patch = Map::new();
    let parts = if is_status {
        &["status"][..]
    } else {
        &[
            "spec",
            "data",
            "secrets",
            "imagePullSecrets",
            "automountServiceAccountToken",
            "immutable",
        ]
    };
    for part in parts {
        patch.insert((*part).to_owned(), back(&now[*part], &before[*part]));
    }
    if !is_status {
        for part in ["labels", "annotations", "finalizers"] {
            let (now, before) = (&now["metadata"][part], &before["metadata"][part]);
            patch.entry("metadata").or_insert_with(|| json!({}))[part] = back(now, before);
        }
    }
    Value::Object(patch)
}

fn back(now: &Value, before: &Value) -> Value {
    let (Some(new), Some(old)) = (now.as_object(), before.as_object()) else {
        return before.clone();
    };
    let mut patch = Map::new();
    for key in new.keys().chain(old.keys()) {
        let value = old.get(key).map_or(Value::Null, |old| back(&now[key], old));
        patch.insert(key.clone(), value);
    }
    Value::Object(patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_sets_one_value_and_another_takes_it_back() {
        let object = json!({"spec": {"a": [{"b": 1, "c": 2}], "d": {"e/f": 3}}});
        let mut paths = BTreeSet::new();
        leaves(&object, &mut String::new(), &mut paths);
        assert!(
            paths.contains("/spec/a/0/b") && paths.contains("/spec/d/e~1f"),
            "{paths:?}"
        );
        let patch = replaced(&object, "/spec/a/0/b", json!("x"));
        assert_eq!(patch, json!({"spec": {"a": [{"b": "x", "c": 2}]}}));
        let patch = replaced(&object, "/spec/d/e~1f", Value::Null);
        assert_eq!(patch, json!({"spec": {"d": {"e/f": null}}}));
        let now = json!({"a": {"b": 1, "new": 2}});
        assert_eq!(
            back(&now, &json!({"a": {"b": 3}})),
            json!({"a": {"b": 3, "new": null}})
        );
    }
}
