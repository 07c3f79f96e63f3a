//! The managed entries of the credentials file, as the journal keeps them.

use std::collections::BTreeSet;

use globalps_dockerconfig::{DockerConfig, Entry, NodeMerge};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The managed entries in the file: their keys as they are written, and the node's own entries that they override.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct ManagedEntries {
    pub(crate) keys: BTreeSet<String>,
    /// A credentials file, stored as text: docker's readers accept values that no JSON value can represent, such as
    /// half of a surrogate pair.
    overridden: Box<RawValue>,
    /// The entries with their values, as a credentials file; null: combined from several revisions.
    entries: Box<RawValue>,
    /// Overridden entries from before and from other revisions: a file with them is not the node's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    others: Vec<Box<RawValue>>,
}

impl std::fmt::Debug for ManagedEntries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ManagedEntries").field(&self.keys).finish()
    }
}

impl ManagedEntries {
    pub(crate) fn of(merged: &NodeMerge) -> Self {
        Self {
            entries: as_text(merged.managed.entries()),
            ..Self::default().merged(merged)
        }
    }

    /// These values, with the keys and overridden entries of another file.
    pub(crate) fn merged(&self, merged: &NodeMerge) -> Self {
        let keys = merged.managed.entries().iter();
        Self {
            keys: keys.map(|entry| entry.key().to_owned()).collect(),
            overridden: as_text(&merged.overridden),
            entries: self.entries.clone(),
            others: self.others.clone(),
        }
    }

    /// Remembers the values that the file had before.
    #[must_use]
    pub(crate) fn after(self, before: &Self) -> Self {
        let is_other = before.entries.get() != self.entries.get();
        let others = match before.content() {
            Some(_) if is_other => vec![before.entries.clone()],
            _ => before.others.clone(),
        };
        Self { others, ..self }
    }

    /// Forgets the values from before and from other revisions.
    pub(super) fn forget_others(&mut self) {
        self.others.clear();
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
        let mut others: Vec<_> = self.texts().chain(later.texts()).cloned().collect();
        others.sort_by(|one, other| one.get().cmp(other.get()));
        others.dedup_by(|one, other| one.get() == other.get());
        Self {
            keys: &self.keys | &later.keys,
            overridden: as_text(&overridden),
            entries: Box::default(),
            others,
        }
    }

    fn texts(&self) -> impl Iterator<Item = &Box<RawValue>> {
        let entries = Some(&self.entries).filter(|entries| entries.get() != "null");
        entries.into_iter().chain(&self.others)
    }

    /// The entries that may be in the file, in each version. An entry with another value under the same key is the node's own.
    pub(crate) fn applied(&self) -> Vec<DockerConfig> {
        let of_keys = |config: DockerConfig| {
            let entries = config.entries().iter();
            let entries = entries.filter(|entry| self.keys.contains(entry.key()));
            DockerConfig::new(entries.cloned().collect())
        };
        self.texts()
            .filter_map(|text| globalps_dockerconfig::parse(text.get().as_bytes()).ok())
            .map(of_keys)
            .collect()
    }

    /// The managed entries among these.
    pub(crate) fn among(&self, config: &DockerConfig) -> DockerConfig {
        let applied = self.applied();
        let is_managed = |entry: &&Entry| {
            let mut ours = applied.iter().flat_map(DockerConfig::entries);
            self.keys.contains(entry.key())
                && ours.any(|it| it.key() == entry.key() && it.means_the_same(entry))
        };
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
        // Like in Go, `null` parses to no entries.
        let entries = Some(self.entries.get()).filter(|entries| *entries != "null")?;
        globalps_dockerconfig::parse(entries.as_bytes()).ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub(crate) fn overridden(&self) -> Vec<Entry> {
        let config = globalps_dockerconfig::parse(self.overridden.get().as_bytes());
        config
            .map(|config| config.entries().to_vec())
            .unwrap_or_default()
    }
}

fn as_text(entries: &[Entry]) -> Box<RawValue> {
    let text = DockerConfig::new(entries.to_vec()).render();
    let text = String::from_utf8_lossy(&text).into_owned();
    RawValue::from_string(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use globalps_dockerconfig::merge_on_node;

    use super::*;

    fn config(text: &str) -> DockerConfig {
        globalps_dockerconfig::parse(text.as_bytes()).unwrap()
    }

    fn overriding(own: &str) -> ManagedEntries {
        let desired = config(r#"{"auths":{"r":{"auth":"dTpw"}}}"#);
        let merged = merge_on_node(&config(own), &desired, &[], &[]);
        ManagedEntries::of(&merged)
    }

    /// Values that the kubelet accepts, and few other programs.
    #[test]
    fn an_odd_value_is_kept_as_it_is_written() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for odd in [
            r#""andr\udce9""#,
            "1e400",
            "-0.0",
            r#""\u0000""#,
            "\"\u{7f}\"",
            &deep,
        ] {
            let own =
                format!(r#"{{"auths":{{"r":{{"auth":"bzpv","x":{odd}}},"s":{{"auth":"bzpv"}}}}}}"#);
            let managed = overriding(&own);
            let journal = serde_json::to_vec(&managed).unwrap();
            let read: ManagedEntries = serde_json::from_slice(&journal).unwrap();
            let overridden = DockerConfig::new(read.overridden()).render();
            let text = String::from_utf8(overridden).unwrap();
            assert!(text.contains(&format!(r#""x":{odd}"#)), "{odd}: {text}");
            assert!(read.content().is_some(), "{odd}");
            let both = read.and(&ManagedEntries::default());
            assert_eq!(both.overridden().len(), 1, "{odd}");
        }
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
