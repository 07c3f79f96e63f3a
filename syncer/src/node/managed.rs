//! The managed entries of the credentials file, as the journal keeps them.

use std::borrow::Cow;
use std::collections::BTreeSet;

use globalps_core::dockerconfig::{self, DockerConfig, Entry};
use serde::{Deserialize, Serialize};

/// The managed entries in the file: canonical keys, and the node's own entries that they override.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct ManagedEntries {
    pub(crate) keys: BTreeSet<String>,
    /// As a credentials file.
    overridden: serde_json::Value,
    /// The entries with their values, as a credentials file; null: combined from several revisions.
    entries: serde_json::Value,
}

impl std::fmt::Debug for ManagedEntries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ManagedEntries").field(&self.keys).finish()
    }
}

impl ManagedEntries {
    pub(crate) fn new(desired: &DockerConfig, overridden: Vec<Entry>) -> Self {
        let keys = desired
            .by_canonical_key()
            .into_keys()
            .map(Cow::into_owned)
            .collect();
        Self {
            keys,
            overridden: as_value(overridden),
            entries: as_value(desired.entries().to_vec()),
        }
    }

    /// The same keys, overriding these entries.
    pub(crate) fn overriding(&self, overridden: Vec<Entry>) -> Self {
        Self {
            overridden: as_value(overridden),
            ..self.clone()
        }
    }

    /// Union of both. For a key that both override, `later` takes precedence, including the number of spellings.
    pub(crate) fn and(&self, later: &Self) -> Self {
        let later_overridden = later.overridden();
        let is_later = |entry: &Entry| {
            let key = entry.canonical_key();
            later_overridden
                .iter()
                .any(|later| later.canonical_key() == key)
        };
        let mut overridden = self.overridden();
        overridden.retain(|entry| !is_later(entry));
        overridden.extend(later_overridden);
        Self {
            keys: &self.keys | &later.keys,
            overridden: as_value(overridden),
            entries: serde_json::Value::Null,
        }
    }

    /// Without the keys that these entries don't have.
    pub(crate) fn within(&self, config: &DockerConfig) -> Self {
        let present = config.by_canonical_key();
        let mut within = self.clone();
        within.keys.retain(|key| present.contains_key(&**key));
        within
    }

    /// The managed entries among these.
    pub(crate) fn among(&self, config: &DockerConfig) -> DockerConfig {
        let is_managed = |entry: &&Entry| self.keys.contains(&*entry.canonical_key());
        DockerConfig::new(
            config
                .entries()
                .iter()
                .filter(is_managed)
                .cloned()
                .collect(),
        )
    }

    /// The entries with their values; `None`: combined from several revisions.
    pub(crate) fn content(&self) -> Option<DockerConfig> {
        // As in Go, `null` parses to no entries.
        let entries = Some(&self.entries).filter(|entries| !entries.is_null())?;
        dockerconfig::parse(entries.to_string().as_bytes()).ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub(crate) fn overridden(&self) -> Vec<Entry> {
        let config = dockerconfig::parse(self.overridden.to_string().as_bytes());
        config
            .map(|config| config.entries().to_vec())
            .unwrap_or_default()
    }
}

fn as_value(entries: Vec<Entry>) -> serde_json::Value {
    serde_json::from_slice(&DockerConfig::new(entries).render()).unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn config(text: &str) -> DockerConfig {
        dockerconfig::parse(text.as_bytes()).unwrap()
    }

    fn overriding(own: &str) -> ManagedEntries {
        let desired = config(r#"{"auths":{"r":{"auth":"dTpw"}}}"#);
        ManagedEntries::new(&desired, config(own).entries().to_vec())
    }

    #[test]
    fn every_spelling_of_an_overridden_registry_is_kept() {
        let two = r#"{"auths":{"https://r":{"auth":"bzpv"},"r":{"auth":"bzpx"}}}"#;
        let one = r#"{"auths":{"https://r/":{"auth":"bzpy"}}}"#;
        let (none, one, two) = (ManagedEntries::default(), overriding(one), overriding(two));
        for (sentence, earlier, later, expected) in [
            ("only earlier", &two, &none, "https://r r"),
            ("only later", &none, &two, "https://r r"),
            ("the later one takes precedence", &two, &one, "https://r/"),
            ("also with more spellings", &one, &two, "https://r r"),
        ] {
            let overridden = earlier.and(later).overridden();
            let keys: Vec<&str> = overridden.iter().map(Entry::key).collect();
            assert_eq!(keys.join(" "), expected, "{sentence}");
        }
    }
}
