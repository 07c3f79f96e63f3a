//! Which entries of the credentials file are managed, as the journal keeps them.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use globalps_core::dockerconfig::{self, DockerConfig, Entry};
use serde::{Deserialize, Serialize};

/// Entries in the file that globalps manages: canonical keys, and the node's own entries that they override.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct ManagedEntries {
    pub(crate) keys: BTreeSet<String>,
    /// As a credentials file.
    overridden: serde_json::Value,
    /// The entries with their values, as a credentials file; null: written by an older syncer, or not one revision's.
    #[serde(default)]
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

    /// Union of both; of two overridden entries with one key, that of `later` wins.
    pub(crate) fn and(&self, later: &Self) -> Self {
        let mut overridden = self.overridden();
        overridden.extend(later.overridden());
        let both: BTreeMap<String, Entry> = overridden
            .into_iter()
            .map(|entry| (entry.canonical_key().into_owned(), entry))
            .collect();
        Self {
            keys: &self.keys | &later.keys,
            overridden: as_value(both.into_values().collect()),
            entries: serde_json::Value::Null,
        }
    }

    /// The managed ones of these entries.
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

    /// The entries with their values; `None`: an older syncer did not keep the values.
    pub(crate) fn content(&self) -> Option<DockerConfig> {
        // As Go does it, `null` parses to no entries.
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
