//! What the API server stores of a Secret otherwise than the controller wrote it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use globalps_core::names::GROUP;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};

/// Fields with another value than the written one, and the written one; `None`: it was written without this field. A server-side apply
/// removes no field that another client owns, too.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Deviation {
    annotations: BTreeMap<String, Option<String>>,
    data: BTreeMap<String, Option<ByteString>>,
}

impl Deviation {
    /// `None`: it is stored as it was written, as far as globalps reads it.
    pub(super) fn of(written: &Secret, stored: &Secret) -> Option<Self> {
        let prefix = format!("{GROUP}/");
        let is_own = |key: &str| key.starts_with(&prefix);
        let (is, was) = (&written.metadata.annotations, &stored.metadata.annotations);
        let deviation = Self {
            annotations: differing(is.as_ref(), was.as_ref(), is_own),
            data: differing(written.data.as_ref(), stored.data.as_ref(), |_| true),
        };
        (deviation != Self::default()).then_some(deviation)
    }

    /// A merge patch that makes it what was written, unless it changes meanwhile.
    pub(super) fn patch(&self, resource_version: Option<&str>) -> Value {
        json!({
            "metadata": {"resourceVersion": resource_version, "annotations": self.annotations},
            "data": self.data,
        })
    }

    /// The names of its fields.
    pub(super) fn names(&self) -> String {
        let annotations = self.annotations.keys();
        let annotations = annotations.map(|key| format!("annotation `{key}`"));
        let keys = self.data.keys().map(|key| format!("key `{key}`"));
        annotations.chain(keys).collect::<Vec<_>>().join(", ")
    }
}

fn differing<V: Clone + PartialEq>(
    written: Option<&BTreeMap<String, V>>,
    stored: Option<&BTreeMap<String, V>>,
    is_own: impl Fn(&str) -> bool,
) -> BTreeMap<String, Option<V>> {
    let keys = [written, stored]
        .into_iter()
        .flatten()
        .flat_map(BTreeMap::keys);
    let keys: BTreeSet<&String> = keys.filter(|key| is_own(key)).collect();
    let values = keys.into_iter().map(|key| {
        let value = |of: Option<&BTreeMap<String, V>>| of.and_then(|all| all.get(key)).cloned();
        (key, value(written), value(stored))
    });
    values
        .filter(|(_, written, stored)| written != stored)
        .map(|(key, written, _)| (key.clone(), written))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(annotations: &Value, data: &Value) -> Secret {
        let secret = json!({"metadata": {"annotations": annotations}, "data": data});
        serde_json::from_value(secret).unwrap()
    }

    #[test]
    fn what_others_added_changed_and_removed_is_named_and_reverted() {
        let written = secret(
            &json!({"globalps.io/revision": "2", "globalps.io/canary-passed": "2"}),
            &json!({"a": "YQ==", "b": "Yg=="}),
        );
        assert_eq!(Deviation::of(&written, &written), None);
        let noted = secret(
            &json!({"globalps.io/revision": "2", "globalps.io/canary-passed": "2", "x.io/y": "z"}),
            &json!({"a": "YQ==", "b": "Yg=="}),
        );
        assert_eq!(
            Deviation::of(&written, &noted),
            None,
            "others may annotate it"
        );
        let stored = secret(
            &json!({"globalps.io/revision": "3", "globalps.io/restoring": "true"}),
            &json!({"a": "Yg==", "b": "Yg==", "c": "Yw=="}),
        );
        let deviation = Deviation::of(&written, &stored).unwrap();
        let patch = json!({
            "metadata": {"resourceVersion": "7", "annotations": {
                "globalps.io/revision": "2", "globalps.io/canary-passed": "2", "globalps.io/restoring": null,
            }},
            "data": {"a": "YQ==", "c": null},
        });
        assert_eq!(deviation.patch(Some("7")), patch);
        let names = deviation.names();
        assert_eq!(
            names,
            "annotation `globalps.io/canary-passed`, annotation `globalps.io/restoring`, annotation `globalps.io/revision`, key `a`, key `c`"
        );
    }
}
