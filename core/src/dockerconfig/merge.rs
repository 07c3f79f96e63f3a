//! Merging of two files: on the controller (additional and original) and on the node (managed entries and the node's own).

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::canonical::shown_key;
use super::entry::Entry;
use super::parse::DockerConfig;

/// Which file is effective for a registry in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Precedence {
    #[default]
    Additional,
    Original,
}

/// A registry with different credentials in both files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Canonical key.
    pub registry: String,
    pub effective: Precedence,
}

#[derive(Clone, Debug)]
pub struct Merged {
    pub config: DockerConfig,
    pub conflicts: Vec<Conflict>,
}

/// The entries of both, one per canonical key, each with a padded `auth`. Members other than `auths` are dropped, because they
/// aren't credentials. Equivalent entries are no conflict.
pub fn merge(original: &DockerConfig, additional: &DockerConfig, precedence: Precedence) -> Merged {
    let (effective, shadowed) = match precedence {
        Precedence::Additional => (additional, original),
        Precedence::Original => (original, additional),
    };
    let mut entries = shadowed.by_canonical_key();
    let mut conflicts = Vec::new();
    for (key, entry) in effective.by_canonical_key() {
        let replaced = entries.insert(key.clone(), entry);
        if replaced.is_some_and(|other| !other.means_the_same(entry)) {
            conflicts.push(Conflict {
                registry: shown_key(&key),
                effective: precedence,
            });
        }
    }
    Merged {
        config: DockerConfig::new(entries.into_values().map(Entry::normalised).collect()),
        conflicts,
    }
}

/// The result of a merge on a node.
#[derive(Clone, Debug)]
pub struct NodeMerge {
    pub config: DockerConfig,
    /// The node's own entries that managed entries replace. They are restored when the managed ones are removed.
    pub overridden: Vec<Entry>,
}

/// The three-way merge on a node. `existing` is the current file; `desired` the managed entries that it should have (empty on
/// removal); `applied` the canonical keys of the managed entries that were written last; `overridden` the node's own entries that
/// those replaced.
///
/// The result has all of `desired`, the node's own entries except those that `desired` replaces, and, in place of managed entries
/// that are no longer desired, the node's own entries from before. Members other than `auths` stay.
pub fn merge_on_node(
    existing: &DockerConfig,
    desired: &DockerConfig,
    applied: &BTreeSet<String>,
    overridden: &[Entry],
) -> NodeMerge {
    let desired = desired.by_canonical_key();
    let is_managed = |entry: &&Entry| applied.contains(&*entry.canonical_key());
    let unmanaged: Vec<&Entry> = existing
        .entries()
        .iter()
        .filter(|entry| !is_managed(entry))
        .collect();
    // An entry that another process wrote under the same key replaces the one from before.
    let written: BTreeSet<&str> = unmanaged.iter().map(|entry| entry.key()).collect();
    let own = overridden
        .iter()
        .filter(|entry| !written.contains(entry.key()))
        .chain(unmanaged.iter().copied());
    let (overridden, kept): (Vec<Entry>, Vec<Entry>) = own
        .cloned()
        .partition(|entry| desired.contains_key(&entry.canonical_key()));
    let entries = desired.into_values().cloned().chain(kept).collect();
    NodeMerge {
        config: existing.with_entries(entries),
        overridden,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::parse::parse;
    use super::*;

    const USER: &str = "dXNlcjpwYXNz";
    const OLD: &str = "b2xkdXNlcjpvbGRwYXNz";

    /// `"quay.io:USER r2:OLD"` as a file.
    fn config(entries: &[(&str, &str)]) -> DockerConfig {
        let auths: Vec<String> = entries
            .iter()
            .map(|(key, auth)| format!(r#""{key}":{{"auth":"{auth}"}}"#))
            .collect();
        parse(format!(r#"{{"auths":{{{}}}}}"#, auths.join(",")).as_bytes()).unwrap()
    }

    fn text(config: &DockerConfig) -> String {
        String::from_utf8(config.render()).unwrap()
    }

    #[test]
    fn merging_matches_the_reference_implementation() {
        for (original, additional, additional_wins, original_wins) in [
            (
                vec![("r1", USER)],
                vec![("r2", USER)],
                vec![("r1", USER), ("r2", USER)],
                vec![("r1", USER), ("r2", USER)],
            ),
            (
                vec![("r1", USER), ("r2", USER)],
                vec![("r3", USER)],
                vec![("r1", USER), ("r2", USER), ("r3", USER)],
                vec![("r1", USER), ("r2", USER), ("r3", USER)],
            ),
            (
                vec![("r1", OLD)],
                vec![("r1", USER)],
                vec![("r1", USER)],
                vec![("r1", OLD)],
            ),
            (
                vec![("r1", OLD), ("r2", OLD)],
                vec![("r1", USER), ("r3", USER)],
                vec![("r1", USER), ("r2", OLD), ("r3", USER)],
                vec![("r1", OLD), ("r2", OLD), ("r3", USER)],
            ),
            (
                vec![("quay.io", OLD)],
                vec![("quay.io", USER), ("quay.io/mycompany", USER)],
                vec![("quay.io", USER), ("quay.io/mycompany", USER)],
                vec![("quay.io", OLD), ("quay.io/mycompany", USER)],
            ),
            (
                vec![("https://quay.io", OLD)],
                vec![("quay.io", USER)],
                vec![("quay.io", USER)],
                vec![("https://quay.io", OLD)],
            ),
        ] {
            let (original, additional) = (config(&original), config(&additional));
            let merged = |precedence| text(&merge(&original, &additional, precedence).config);
            assert_eq!(
                merged(Precedence::Additional),
                text(&config(&additional_wins))
            );
            assert_eq!(merged(Precedence::Original), text(&config(&original_wins)));
        }
    }

    #[test]
    fn only_entries_that_differ_in_meaning_are_conflicts() {
        let original = config(&[("https://r1/v1/", OLD), ("r2", USER), ("r3", OLD)]);
        let additional = config(&[("r1", USER), ("r2/", USER), ("r4", USER)]);
        let conflicts = merge(&original, &additional, Precedence::Additional).conflicts;
        assert_eq!(
            conflicts,
            [Conflict {
                registry: "r1".to_owned(),
                effective: Precedence::Additional
            }]
        );
    }

    #[test]
    fn every_merged_entry_has_a_padded_auth_and_keeps_its_unknown_fields() {
        let additional =
            parse(br#"{"auths":{"a":{"username":"u","password":"p","x":1},"b":{"auth":"dXNlcjpwYXNzd29yZA"}},"z":1}"#)
                .unwrap();
        let merged = merge(
            &DockerConfig::default(),
            &additional,
            Precedence::Additional,
        );
        assert_eq!(
            text(&merged.config),
            r#"{"auths":{"a":{"auth":"dTpw","password":"p","username":"u","x":1},"b":{"auth":"dXNlcjpwYXNzd29yZA=="}}}"#
        );
    }

    #[test]
    fn the_nodes_own_entries_survive_adding_and_removing_managed_ones() {
        type Entries = Vec<(&'static str, &'static str)>;
        let table: Vec<(&str, Entries, Entries, Vec<&str>, Entries, Entries)> = vec![
            // sentence, existing, desired, applied, result, overridden afterwards
            (
                "both sides are kept",
                vec![("ext", OLD)],
                vec![("h", USER)],
                vec![],
                vec![("ext", OLD), ("h", USER)],
                vec![],
            ),
            (
                "a managed entry takes precedence",
                vec![("s", OLD)],
                vec![("s", USER)],
                vec![],
                vec![("s", USER)],
                vec![("s", OLD)],
            ),
            (
                "an empty file gets the managed entries",
                vec![],
                vec![("h", USER)],
                vec![],
                vec![("h", USER)],
                vec![],
            ),
            (
                "without managed entries the file stays",
                vec![("ext", OLD)],
                vec![],
                vec![],
                vec![("ext", OLD)],
                vec![],
            ),
            (
                "a managed entry that is no longer desired is removed",
                vec![("gone", USER), ("ext", OLD)],
                vec![("h", USER)],
                vec!["gone", "h"],
                vec![("ext", OLD), ("h", USER)],
                vec![],
            ),
            (
                "all managed entries are removed",
                vec![("a", USER), ("b", USER)],
                vec![],
                vec!["a", "b"],
                vec![],
                vec![],
            ),
            (
                "another spelling is the same registry",
                vec![("https://s/v1/", OLD)],
                vec![("s", USER)],
                vec![],
                vec![("s", USER)],
                vec![("https://s/v1/", OLD)],
            ),
        ];
        for (sentence, existing, desired, applied, result, overridden) in table {
            let applied = applied.into_iter().map(str::to_owned).collect();
            let merged = merge_on_node(&config(&existing), &config(&desired), &applied, &[]);
            assert_eq!(text(&merged.config), text(&config(&result)), "{sentence}");
            assert_eq!(
                text(&DockerConfig::new(merged.overridden)),
                text(&config(&overridden)),
                "{sentence}"
            );
        }
    }

    #[test]
    fn two_spellings_of_one_registry_are_kept_and_restored() {
        let own = config(&[("https://q", OLD), ("q", USER), ("x", USER)]);
        let none = BTreeSet::new();
        let beside = merge_on_node(&own, &config(&[("r", USER)]), &none, &[]);
        assert_eq!(
            text(&beside.config),
            text(&config(&[
                ("https://q", OLD),
                ("q", USER),
                ("r", USER),
                ("x", USER)
            ]))
        );
        let over = merge_on_node(&own, &config(&[("q/", USER)]), &none, &[]);
        assert_eq!(
            text(&over.config),
            text(&config(&[("q/", USER), ("x", USER)]))
        );
        let applied = BTreeSet::from(["q".to_owned()]);
        let back = merge_on_node(
            &over.config,
            &DockerConfig::default(),
            &applied,
            &over.overridden,
        );
        assert_eq!(text(&back.config), text(&own));
    }

    #[test]
    fn an_overridden_entry_is_restored_on_removal() {
        let own =
            parse(br#"{"auths":{"https://s/":{"auth":"b2xkdXNlcjpvbGRwYXNz","x":1}},"top":true}"#)
                .unwrap();
        let managed = config(&[("s", USER)]);
        let first = merge_on_node(&own, &managed, &BTreeSet::new(), &[]);
        let applied = BTreeSet::from(["s".to_owned()]);
        let again = merge_on_node(&first.config, &managed, &applied, &first.overridden);
        assert!(again.config.means_the_same(&first.config));
        let removed = merge_on_node(
            &again.config,
            &DockerConfig::default(),
            &applied,
            &again.overridden,
        );
        assert_eq!(text(&removed.config), text(&own));
        assert!(removed.overridden.is_empty());
    }
}
