//! Merging of files: on the controller (sources and original), in namespaces and in the credential provider (scoped sources), and on
//! the node (managed entries and the node's own).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::canonical::{canonical_key, shown_key};
use super::effective::Ability;
use super::entry::Entry;
use super::parse::DockerConfig;

/// Which file is effective for a registry in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[expect(missing_docs, reason = "its sentences are those of `kubectl explain`")]
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
    /// The file whose credentials are in the merged file.
    pub effective: Precedence,
}

/// The result of merging two files.
#[derive(Clone, Debug)]
pub struct Merged {
    /// One entry for each registry of either file.
    pub config: DockerConfig,
    /// In the order of the canonical keys.
    pub conflicts: Vec<Conflict>,
}

/// The combination of several files: one effective entry for each registry, however its key is written.
pub struct Combined<'a> {
    /// By canonical key.
    registries: BTreeMap<Cow<'a, str>, Registry<'a>>,
    /// Registries for which two files have different credentials.
    pub shadowed: Vec<Shadowed>,
}

struct Registry<'a> {
    /// Index of the file with the effective entry.
    file: usize,
    entry: &'a Entry,
    /// Further keys under which readers look for it.
    also: BTreeSet<Cow<'a, str>>,
}

/// Files, by index, with different credentials for a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shadowed {
    /// Canonical key.
    pub registry: String,
    /// Index of the file whose entry is in force.
    pub effective: usize,
    /// Index of the file whose different entry is not.
    pub shadowed: usize,
}

/// Combines files in order of precedence. An entry is effective if no earlier file has one for its registry that can authenticate
/// with the same readers. Entries that can't authenticate are skipped, and equivalent ones don't shadow each other.
pub fn combine<'a>(files: &[&'a DockerConfig]) -> Combined<'a> {
    let mut entries: BTreeMap<_, Vec<(usize, &Entry)>> = BTreeMap::new();
    let mut also: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for (at, file) in files.iter().enumerate() {
        for (key, entry) in file.by_canonical_key() {
            entries.entry(key).or_default().push((at, entry));
        }
        for entry in file.usable() {
            let keys = also.entry(entry.canonical_key()).or_default();
            keys.extend(entry.further_keys());
        }
    }
    let mut combined = Combined {
        registries: BTreeMap::new(),
        shadowed: Vec::new(),
    };
    for (key, entries) in entries {
        let first = entries.iter().rev();
        let Some((file, entry)) = first.max_by_key(|(_, entry)| entry.ability()).copied() else {
            continue;
        };
        let others = entries
            .iter()
            .filter(|(_, other)| !other.means_the_same(entry));
        combined.shadowed.extend(others.map(|(other, _)| Shadowed {
            registry: shown_key(&key),
            effective: file,
            shadowed: *other,
        }));
        let also = also.remove(&key).unwrap_or_default();
        let registry = Registry { file, entry, also };
        combined.registries.insert(key, registry);
    }
    combined
}

impl Combined<'_> {
    /// The effective entries, each with a padded `auth`, and under a key that kubelet and CRI-O find.
    pub fn config(&self) -> DockerConfig {
        let registries = self.registries.values();
        DockerConfig::new(registries.flat_map(Registry::written).collect())
    }

    /// The effective entries of a file, by canonical key.
    pub fn of_file(&self, file: usize) -> impl Iterator<Item = (&str, &Entry)> {
        let of_file = move |registry: &Registry| registry.file == file;
        let registries = self.registries.iter();
        registries
            .filter(move |(_, registry)| of_file(registry))
            .map(|(key, registry)| (&**key, registry.entry))
    }

    /// The file that the entry for this registry comes from.
    pub fn file_of(&self, key: &str) -> Option<usize> {
        let registry = self.registries.get(&*canonical_key(key));
        registry.map(|registry| registry.file)
    }
}

impl Registry<'_> {
    fn written(&self) -> impl Iterator<Item = Entry> {
        // A key that is not its own canonical key may be among the further ones too.
        let mut keys = self.also.clone();
        keys.insert(self.entry.written_key());
        keys.into_iter()
            .map(|key| self.entry.normalised_as(key.into_owned()))
    }
}

/// The entries of both as [`combine`] has them. Members other than `auths` are dropped, because they aren't credentials.
pub fn merge(original: &DockerConfig, additional: &DockerConfig, precedence: Precedence) -> Merged {
    let (files, sides) = match precedence {
        Precedence::Additional => (
            [additional, original],
            [Precedence::Additional, Precedence::Original],
        ),
        Precedence::Original => (
            [original, additional],
            [Precedence::Original, Precedence::Additional],
        ),
    };
    let combined = combine(&files);
    let conflicts = combined.shadowed.iter().map(|shadowed| Conflict {
        registry: shadowed.registry.clone(),
        effective: sides[shadowed.effective],
    });
    Merged {
        conflicts: conflicts.collect(),
        config: combined.config(),
    }
}

/// The result of a merge on a node.
#[derive(Clone, Debug)]
pub struct NodeMerge {
    /// The resulting file of the node: its own entries and the managed ones.
    pub config: DockerConfig,
    /// The managed entries in it.
    pub managed: DockerConfig,
    /// The node's own entries that managed entries replace. They are restored when the managed ones are removed.
    pub overridden: Vec<Entry>,
}

/// The three-way merge on a node. `existing` is the current file; `desired` the managed entries that it should have (empty on
/// removal); `applied` the managed entries that were written, in each version that may still be there; `overridden` the node's own
/// entries that those replaced.
///
/// The result has all of `desired` that [`combine`] prefers to the node's own entries, the node's own entries except those that
/// are replaced, and, in place of managed entries that are no longer desired, the node's own entries from before. An entry that
/// another process wrote over a managed one is the node's own, unless nothing can authenticate with it. Members other than `auths`
/// stay.
pub fn merge_on_node(
    existing: &DockerConfig,
    desired: &DockerConfig,
    applied: &[DockerConfig],
    overridden: &[Entry],
) -> NodeMerge {
    let mut managed: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
    for entry in applied.iter().flat_map(DockerConfig::entries) {
        managed.entry(entry.key()).or_default().push(entry);
    }
    let is_managed = |entry: &&Entry| {
        managed.get(entry.key()).is_some_and(|versions| {
            entry.ability() == Ability::Nothing
                || versions.iter().any(|version| version.means_the_same(entry))
        })
    };
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
    let own = DockerConfig::new(own.cloned().collect());
    let combined = combine(&[desired, &own]);
    let of_desired = |registry: &&Registry| registry.file == 0;
    let managed = combined.registries.values().filter(of_desired);
    let managed: Vec<Entry> = managed.flat_map(Registry::written).collect();
    let is_replaced = |entry: &Entry| combined.file_of(entry.key()) == Some(0);
    let (overridden, kept): (Vec<Entry>, Vec<Entry>) =
        own.entries().iter().cloned().partition(is_replaced);
    NodeMerge {
        config: existing.with_entries(managed.iter().cloned().chain(kept).collect()),
        managed: DockerConfig::new(managed),
        overridden,
    }
}

#[cfg(test)]
mod tests;
