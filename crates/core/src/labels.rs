//! Selectors by labels that users write. The API server accepts keys and values in them that no label can have. Such a selector
//! selects nothing, and what it selected before would lose its credentials: it is an error instead. Pure.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::Selector;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Maximum length of the name in a key, and of a value.
const NAME_LIMIT: usize = 63;
const PREFIX_LIMIT: usize = 253;

/// Whether a label can have this key: `NAME` or `PREFIX/NAME`.
pub fn is_key(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let is_part = |part: &str| {
        is_name(
            part,
            |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit(),
            b"-",
        )
    };
    !name.is_empty()
        && is_value(name)
        && prefix
            .is_none_or(|prefix| prefix.len() <= PREFIX_LIMIT && prefix.split('.').all(is_part))
}

/// Whether a label can have this value.
pub fn is_value(value: &str) -> bool {
    value.is_empty()
        || value.len() <= NAME_LIMIT && is_name(value, |byte| byte.is_ascii_alphanumeric(), b"-_.")
}

/// Begins and ends with one of the `outer` bytes.
fn is_name(text: &str, outer: impl Fn(u8) -> bool, inner: &[u8]) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|byte| outer(*byte))
        && bytes.last().is_some_and(|byte| outer(*byte))
        && bytes
            .iter()
            .all(|byte| outer(*byte) || inner.contains(byte))
}

/// The error says which key or value no label can have, or which requirement is none.
pub fn selector(selector: &LabelSelector) -> Result<Selector, String> {
    let labels = selector.match_labels.iter().flatten();
    for (key, value) in labels {
        reject(key, [value])?;
    }
    for requirement in selector.match_expressions.iter().flatten() {
        reject(&requirement.key, requirement.values.iter().flatten())?;
    }
    Selector::try_from(selector.clone()).map_err(|error| error.to_string())
}

fn reject<'a>(key: &str, values: impl IntoIterator<Item = &'a String>) -> Result<(), String> {
    const SHOWN: usize = 64;
    let shown = |text: &str| text.chars().take(SHOWN).collect::<String>();
    if !is_key(key) {
        return Err(format!("no label can have the key {:?}", shown(key)));
    }
    match values.into_iter().find(|value| !is_value(value)) {
        Some(value) => Err(format!("no label can have the value {:?}", shown(value))),
        None => Ok(()),
    }
}

/// Labels that nodes are selected by.
pub fn node_selector<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    deserializer.deserialize_map(NodeSelector)
}

/// Checks the labels before the parser continues, so that an error has their position.
struct NodeSelector;

impl<'de> Visitor<'de> for NodeSelector {
    type Value = BTreeMap<String, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("labels")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let labels = BTreeMap::<String, String>::deserialize(MapAccessDeserializer::new(map))?;
        for (key, value) in &labels {
            reject(key, [value]).map_err(A::Error::custom)?;
        }
        Ok(labels)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::GlobalPullSecret;
    use crate::decode::Item;

    #[test]
    fn keys_and_values_are_those_of_labels() {
        let long = "a".repeat(63);
        for (text, as_key, as_value) in [
            ("team", true, true),
            ("Team.A_b-9", true, true),
            (long.as_str(), true, true),
            (&format!("{long}a"), false, false),
            ("", false, true),
            ("a b", false, false),
            ("-a", false, false),
            ("a.", false, false),
            ("ä", false, false),
            ("example.com/team", true, false),
            ("a/b/c", false, false),
            ("/team", false, false),
            ("example.com/", false, false),
            ("Example.com/team", false, false),
            ("a..b/team", false, false),
            (&format!("{}/team", "a".repeat(254)), false, false),
        ] {
            assert_eq!(
                (is_key(text), is_value(text)),
                (as_key, as_value),
                "{text:?}"
            );
        }
    }

    #[test]
    fn a_selector_that_selects_nothing_by_mistake_is_an_error() {
        for (given, expected) in [
            (json!({}), Ok("")),
            (json!({"matchLabels": {"a": "b"}}), Ok("a=b")),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b", ""]}]}),
                Ok("a in (,b)"),
            ),
            (
                json!({"matchLabels": {"a b!!": "c"}}),
                Err(r#"no label can have the key "a b!!""#),
            ),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b "]}]}),
                Err(r#"no label can have the value "b ""#),
            ),
        ] {
            let found = selector(&serde_json::from_value(given.clone()).unwrap());
            let found = found.map(|selector| selector.to_string());
            assert_eq!(
                found,
                expected.map(str::to_owned).map_err(str::to_owned),
                "{given}"
            );
        }
        let unknown = json!({"matchExpressions": [{"key": "a", "operator": "Is"}]});
        assert!(selector(&serde_json::from_value(unknown).unwrap()).is_err());
    }

    #[test]
    fn a_configuration_with_such_a_node_selector_is_unreadable() {
        for (spec, field) in [
            (json!({"nodeSelector": {"a b!!": "x"}}), "spec.nodeSelector"),
            (
                json!({"paused": true, "rollout": {"canary": {"nodeSelector": {"a": "b!"}, "nodes": 2}}}),
                "spec.rollout.canary.nodeSelector",
            ),
            (json!({"nodeSelector": {"example.com/a": ""}}), ""),
        ] {
            let object = json!({"metadata": {"name": "g"}, "spec": spec}).to_string();
            let item: Item<GlobalPullSecret> = serde_json::from_str(&object).unwrap();
            let found = item.into_result().map_err(|unreadable| unreadable.field);
            let found = found.err().unwrap_or_default();
            assert_eq!(found, field);
        }
    }
}
