//! Objects as JSON, by their paths.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Objects by their paths.
pub type Objects = BTreeMap<String, Value>;

/// A JSON merge patch. An empty object is as if it were absent.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let target = target.as_object_mut().unwrap();
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else if *value != json!({}) || target.contains_key(key) {
            merge(target.entry(key).or_insert(Value::Null), value);
        }
    }
}

/// Whether the object has the UID and the version that a request may name.
pub(crate) fn is_meant(wanted: &Value, object: &Value) -> bool {
    let mut fields = ["uid", "resourceVersion"].into_iter();
    fields.all(|field| wanted[field].is_null() || wanted[field] == object["metadata"][field])
}

/// Sets name and namespace by the path.
pub(crate) fn name(path: &str, object: &mut Value) {
    let (_, name) = path.rsplit_once('/').unwrap_or_default();
    object["metadata"]["name"] = json!(name);
    let mut parts = path.split("/namespaces/").skip(1);
    if let Some((namespace, _)) = parts.next().and_then(|rest| rest.split_once('/')) {
        object["metadata"]["namespace"] = json!(namespace);
    }
}

/// Removes what an apply named before and does not name now. A list is one value.
pub(crate) fn take_back(object: &mut Value, before: &Value, now: &Value) {
    let (Some(object), Some(before)) = (object.as_object_mut(), before.as_object()) else {
        return;
    };
    for (field, before) in before {
        match (now.get(field), object.get_mut(field)) {
            (Some(now), Some(object)) => take_back(object, before, now),
            (None, Some(_)) => drop(object.remove(field)),
            (_, None) => {}
        }
    }
}

pub(crate) fn children<'a>(
    objects: &'a Objects,
    list: &'a str,
) -> impl Iterator<Item = (&'a String, &'a Value)> {
    objects.iter().filter(move |(path, _)| is_child(path, list))
}

pub(crate) fn is_child(path: &str, list: &str) -> bool {
    let (api, resource) = list.rsplit_once('/').unwrap_or_default();
    let Some((parent, _)) = path.rsplit_once('/') else {
        return false;
    };
    // In every namespace.
    let namespaced = parent
        .strip_prefix(api)
        .and_then(|rest| rest.strip_prefix("/namespaces/"))
        .and_then(|rest| rest.split_once('/'));
    parent == list || namespaced.is_some_and(|(_, found)| found == resource)
}
