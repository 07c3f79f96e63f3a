//! Bytes to entries, and back.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::canonical::canonical_key;
use super::entry::Entry;

/// A whole `config.json`: the entries of `auths`, and every other top-level member as it was.
#[derive(Clone, Debug, Default)]
pub struct DockerConfig {
    entries: Vec<Entry>,
    others: Others,
}

/// Top-level members besides `auths`. They may hold credentials too, so `Debug` shows the names only.
#[derive(Clone, Default, PartialEq)]
struct Others(Map<String, Value>);

impl std::fmt::Debug for Others {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Why the bytes are no registry credentials file. Every message is about form, never about content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error("not JSON (line {line}, column {column})")]
    NotJson { line: usize, column: usize },
    #[error("not a JSON object")]
    NotObject,
    #[error("there is no `auths`")]
    NoAuths,
    #[error("`auths` is not an object")]
    AuthsNotObject,
    #[error("`{registry}`: the entry is not an object")]
    EntryNotObject { registry: String },
}

/// Reads the modern form, `{"auths": {...}}`. `auths` in any case is `auths`, as to the kubelet.
/// Entries are not looked into: [`super::validate`] does that.
pub fn parse(bytes: &[u8]) -> Result<DockerConfig, ParseError> {
    let value: Value = serde_json::from_slice(bytes).map_err(|error| ParseError::NotJson {
        line: error.line(),
        column: error.column(),
    })?;
    let Value::Object(mut members) = value else {
        return Err(ParseError::NotObject);
    };
    let names: Vec<String> = members
        .keys()
        .filter(|name| name.eq_ignore_ascii_case("auths"))
        .cloned()
        .collect();
    if names.is_empty() {
        return Err(ParseError::NoAuths);
    }
    let mut entries = Vec::new();
    for name in names {
        let Some(Value::Object(auths)) = members.remove(&name) else {
            return Err(ParseError::AuthsNotObject);
        };
        for (key, value) in auths {
            let Value::Object(fields) = value else {
                return Err(ParseError::EntryNotObject { registry: key });
            };
            entries.push(Entry::new(key, fields));
        }
    }
    Ok(DockerConfig {
        entries,
        others: Others(members),
    })
}

impl DockerConfig {
    pub fn new(entries: Vec<Entry>) -> Self {
        Self {
            entries,
            others: Others::default(),
        }
    }

    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The same top-level members besides `auths`, other entries.
    #[must_use]
    pub fn with_entries(&self, entries: Vec<Entry>) -> Self {
        Self {
            entries,
            others: self.others.clone(),
        }
    }

    /// Nothing in it that a reader could use.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.others.0.is_empty()
    }

    /// Entries by canonical key. Of two spellings of one key the first counts.
    pub fn by_canonical_key(&self) -> BTreeMap<String, &Entry> {
        let mut entries = BTreeMap::new();
        for entry in &self.entries {
            entries.entry(canonical_key(entry.key())).or_insert(entry);
        }
        entries
    }

    /// Whether a node does the same with both, whatever order, form and spelling.
    pub fn means_the_same(&self, other: &Self) -> bool {
        let (ours, theirs) = (self.by_canonical_key(), other.by_canonical_key());
        self.others == other.others
            && ours.len() == theirs.len()
            && ours.iter().all(|(key, entry)| {
                theirs
                    .get(key)
                    .is_some_and(|other| entry.means_the_same(other))
            })
    }

    /// Compact JSON, sorted by name: the same content is always the same bytes.
    pub fn render(&self) -> Vec<u8> {
        let mut auths = Map::new();
        for entry in &self.entries {
            auths.insert(
                entry.key().to_owned(),
                Value::Object(entry.fields().clone()),
            );
        }
        let mut members = self.others.0.clone();
        members.insert("auths".to_owned(), Value::Object(auths));
        Value::Object(members).to_string().into_bytes()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_credentials_file_is_refused_with_the_reason() {
        for (text, expected) in [
            ("", ParseError::NotJson { line: 1, column: 0 }),
            ("   ", ParseError::NotJson { line: 1, column: 3 }),
            ("invalid json", ParseError::NotJson { line: 1, column: 1 }),
            (
                r#"{"auths":{}"#,
                ParseError::NotJson {
                    line: 1,
                    column: 11,
                },
            ),
            (
                r#"{"auths":{},}"#,
                ParseError::NotJson {
                    line: 1,
                    column: 13,
                },
            ),
            ("{auths:{}}", ParseError::NotJson { line: 1, column: 2 }),
            ("null", ParseError::NotObject),
            ("\"text\"", ParseError::NotObject),
            ("[]", ParseError::NotObject),
            ("123", ParseError::NotObject),
            ("{}", ParseError::NoAuths),
            (r#"{"config":{"auths":{}}}"#, ParseError::NoAuths),
            (r#"{"auths":null}"#, ParseError::AuthsNotObject),
            (r#"{"auths":"not an object"}"#, ParseError::AuthsNotObject),
            (r#"{"auths":[]}"#, ParseError::AuthsNotObject),
            (
                r#"{"auths":{"r":1}}"#,
                ParseError::EntryNotObject {
                    registry: "r".to_owned(),
                },
            ),
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap_err(), expected, "{text}");
        }
    }

    #[test]
    fn the_form_of_a_file_does_not_change_its_meaning() {
        let one = parse(br#"{"auths":{"a":{"auth":"dTpw"},"b":{"auth":"dTpx"}}}"#).unwrap();
        for same in [
            r#"{ "auths": {"b": {"auth":"dTpx"}, "a": {"auth":"dTpw"}} }"#,
            r#"{"AUTHS":{"a":{"auth":"dTpw"},"b":{"auth":"dTpx"}}}"#,
            r#"{"auths":{"https://a/v1/":{"username":"u","password":"p"},"b/":{"auth":"dTpx"}}}"#,
        ] {
            assert!(
                one.means_the_same(&parse(same.as_bytes()).unwrap()),
                "{same}"
            );
        }
        for other in [
            r#"{"auths":{"a":{"auth":"dTpw"}}}"#,
            r#"{"auths":{"a":{"auth":"dTpw"},"b":{"auth":"dTpw"}}}"#,
            r#"{"auths":{"a":{"auth":"dTpw"},"b":{"auth":"dTpx"}},"credsStore":"x"}"#,
        ] {
            assert!(
                !one.means_the_same(&parse(other.as_bytes()).unwrap()),
                "{other}"
            );
        }
    }

    #[test]
    fn rendering_is_sorted_and_compact_and_keeps_other_members() {
        let config = parse(br#"{"z": 1, "auths": {"b":{"x":1,"auth":"dTpw"}, "a":{}}}"#).unwrap();
        assert_eq!(
            String::from_utf8(config.render()).unwrap(),
            r#"{"auths":{"a":{},"b":{"auth":"dTpw","x":1}},"z":1}"#
        );
    }
}
