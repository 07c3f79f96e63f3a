//! The checksum of the Secrets with content: those that nodes read, and the hub's revisions. What another client made of one is not
//! believed: neither by the nodes nor by the controller and the hub, not even by one that starts afterwards. It protects against edits, not against those who
//! compute it again.

use globalps_provider::{CHECKSUM_START, checksum};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;

use crate::names::{CHECKSUM_KEY, GROUP, LEADER_ANNOTATION};

/// Bytes of its value.
pub const CHECKSUM_SIZE: usize = 16;

/// Adds the checksum of everything that globalps reads in the Secret, except annotations with these names, which change
/// later. It is stored as a value, because annotations are shown where values are hidden, and a weak password can be
/// guessed from a checksum.
pub fn add_checksum(secret: &mut Secret, marks: &[&str]) {
    let value = ByteString(value(secret, marks));
    let data = secret.data.get_or_insert_default();
    data.insert(CHECKSUM_KEY.to_owned(), value);
}

/// Whether the Secret is as globalps wrote it, except for annotations with these names.
pub fn has_checksum(secret: &Secret, marks: &[&str]) -> bool {
    let found = secret.data.as_ref().and_then(|data| data.get(CHECKSUM_KEY));
    found.is_some_and(|found| found.0 == value(secret, marks))
}

fn value(secret: &Secret, marks: &[&str]) -> Vec<u8> {
    let annotations = secret.metadata.annotations.iter().flatten();
    // Each leader names itself.
    let annotations = annotations.filter(|(key, _)| {
        let name = key.strip_prefix(GROUP);
        let is_own = name.is_some_and(|name| name.starts_with('/'));
        is_own && *key != LEADER_ANNOTATION && !marks.contains(&key.as_str())
    });
    let annotations = annotations.map(|(key, value)| [key.as_bytes(), value.as_bytes()]);
    let data = secret.data.iter().flatten();
    let data = data.filter(|(key, _)| *key != CHECKSUM_KEY);
    let data = data.map(|(key, value)| [key.as_bytes(), value.0.as_slice()]);
    let sum = annotations
        .chain(data)
        .flatten()
        .fold(CHECKSUM_START, |sum, part| {
            let length = u64::try_from(part.len()).unwrap_or_default();
            checksum(checksum(sum, &length.to_le_bytes()), part)
        });
    format!("{sum:016x}").into_bytes()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn every_change_of_what_globalps_reads_is_noticed() {
        let of = |value: Value| serde_json::from_value::<Secret>(value).unwrap();
        let mut whole = of(json!({
            "metadata": {"annotations": {"globalps.io/revision": "1", "globalps.io/leader": "a"}},
            "data": {".dockerconfigjson": "e30=", "x": "eA=="},
        }));
        assert!(!has_checksum(&whole, &[]), "it was not written by globalps");
        assert!(!has_checksum(&Secret::default(), &[]));
        add_checksum(&mut whole, &[]);
        assert_eq!(
            whole.data.as_ref().unwrap()[CHECKSUM_KEY].0.len(),
            CHECKSUM_SIZE
        );
        let whole = serde_json::to_value(&whole).unwrap();
        #[rustfmt::skip]
        let cases = [
            ("nothing", "/metadata/labels", json!({"a": "b"}), true),
            ("another leader", "/metadata/annotations/globalps.io~1leader", json!("b"), true),
            ("of others", "/metadata/annotations/x.io~1y", json!("z"), true),
            ("one that only begins so", "/metadata/annotations/globalps.iox", json!("z"), true),
            ("number", "/metadata/annotations/globalps.io~1revision", json!("2"), false),
            ("added", "/metadata/annotations/globalps.io~1canary-passed", json!("1"), false),
            ("removed", "/metadata/annotations", json!({}), false),
            ("content", "/data/.dockerconfigjson", json!("e319"), false),
            ("another key", "/data/y", json!("eA=="), false),
            ("moved bytes", "/data", json!({".dockerconfigjsonx": "e30=", "": "eA=="}), false),
            ("the checksum", "/data/checksum", json!("e30="), false),
        ];
        for (case, path, value, expected) in cases {
            let mut changed = whole.clone();
            let (parent, key) = path.rsplit_once('/').unwrap();
            changed.pointer_mut(parent).unwrap()[key.replace("~1", "/")] = value;
            assert_eq!(has_checksum(&of(changed), &[]), expected, "{case}");
        }
    }
}
