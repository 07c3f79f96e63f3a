//! The three-way merge into a document that other programs write too, as bytes: what is not globalps' own stays as it is written,
//! and once nothing of globalps is left, the document is what it would be without it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use zeroize::Zeroizing;

use super::canonical::shown_key;
use super::entry::{Entry, folds_to};
use super::json::{Json, Kind, Span, quote};
use super::parse::{DockerConfig, ParseError, parse};

/// Older versions are kept only while the document has an entry of them.
const VERSIONS: usize = 4;

/// What globalps wrote into the document.
#[derive(Clone, Debug, Default)]
pub struct Applied {
    /// The entries in each version that may still be there, or that another program may restore; the newest first.
    pub versions: Vec<DockerConfig>,
    /// What other programs had under some of their keys, as JSON text.
    pub overridden: BTreeMap<String, Zeroizing<String>>,
}

/// How far a registry is. Of several keys of one registry, the last of these counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// The document has it, maybe from another program.
    InForce,
    /// The next document has it.
    Written,
    /// The platform needs its own entry there, and this one may not override it.
    Platform,
    /// Another program has an entry for the registry, which this one may not override.
    Theirs,
    /// Another program undoes the edit again and again, so it is not the turn of this one yet.
    Waits,
}

/// What decides on an edit besides the documents. Registries are canonical keys.
pub struct Rules<'a> {
    /// Entries of other programs for this registry may be replaced, and those of the platform.
    pub may_override: &'a dyn Fn(&str) -> bool,
    /// The platform needs its own entry for this registry.
    pub is_platform: &'a dyn Fn(&str) -> bool,
    /// Whether this key may become this entry now; `None`: lose it.
    pub has_turn: &'a dyn Fn(&str, Option<&str>) -> bool,
}

/// The result of a merge.
#[derive(Debug)]
pub struct SharedMerge {
    /// `None`: it stays.
    pub document: Option<Vec<u8>>,
    /// Must be stored before the document is written.
    pub applied: Applied,
    /// By registry, for display.
    pub fates: BTreeMap<String, Fate>,
    /// What becomes of each key at which the document changes; `None`: the entry goes.
    pub edits: BTreeMap<String, Option<Zeroizing<String>>>,
    /// Keys at which an entry could not go yet.
    pub left: BTreeSet<String>,
    /// The document had nothing of globalps, and gets nothing.
    pub is_clean: bool,
}

/// Why a document is not edited. Never says what is in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each says it in its message")]
pub enum SharedError {
    #[error("it can't be read: {0}")]
    Parse(#[from] ParseError),
    #[error("it is not UTF-8")]
    NotText,
    #[error("it has no `auths`, or several")]
    NotOneAuths,
    #[error("`auths` has the key `{0}` more than once")]
    Repeated(String),
}

/// Merges `desired` into the document. An entry that means the same as one in `applied` is globalps' own. All others belong to other
/// programs: they stay, unless they may be overridden.
pub fn merge_shared(
    document: &[u8],
    desired: &DockerConfig,
    applied: &Applied,
    rules: &Rules,
) -> Result<SharedMerge, SharedError> {
    let document = str::from_utf8(document).map_err(|_| SharedError::NotText)?;
    let (auths, entries) = Auths::of(document)?;
    let before = Before::of(entries, applied);
    let mut intents = Intents::default();
    let mut groups: BTreeMap<Cow<str>, Vec<&Entry>> = BTreeMap::new();
    for entry in desired.entries() {
        groups.entry(entry.canonical_key()).or_default().push(entry);
    }
    for (registry, entries) in &groups {
        intents.want(registry, entries, &before, rules);
    }
    intents.drop_unwanted(&before, rules);
    Ok(intents.carry_out(auths, &before, applied))
}

/// The entries in the document.
struct Before<'a> {
    entries: BTreeMap<String, Entry>,
    /// The keys of each registry.
    registries: HashMap<String, Vec<String>>,
    /// The keys with an entry of globalps.
    ours: BTreeSet<String>,
    overridden: &'a BTreeMap<String, Zeroizing<String>>,
}

impl<'a> Before<'a> {
    fn of(entries: Vec<Entry>, applied: &'a Applied) -> Self {
        let mut versions: HashMap<&str, Vec<&Entry>> = HashMap::new();
        for entry in applied.versions.iter().flat_map(DockerConfig::entries) {
            versions.entry(entry.key()).or_default().push(entry);
        }
        let is_ours = |entry: &&Entry| {
            let versions = versions.get(entry.key());
            versions.is_some_and(|all| all.iter().any(|own| own.means_the_same(entry)))
        };
        let ours = entries.iter().filter(is_ours);
        let mut registries: HashMap<String, Vec<String>> = HashMap::new();
        for entry in &entries {
            let keys = registries.entry(entry.canonical_key().into_owned());
            keys.or_default().push(entry.key().to_owned());
        }
        Self {
            registries,
            ours: ours.map(|entry| entry.key().to_owned()).collect(),
            entries: entries
                .into_iter()
                .map(|entry| (entry.key().to_owned(), entry))
                .collect(),
            overridden: &applied.overridden,
        }
    }

    /// Those for this registry.
    fn of_registry(&self, registry: &str) -> impl Iterator<Item = &Entry> {
        let keys = self.registries.get(registry).into_iter().flatten();
        keys.filter_map(|key| self.entries.get(key))
    }

    /// Those for this registry of other programs.
    fn theirs(&self, registry: &str) -> impl Iterator<Item = &Entry> {
        let entries = self.of_registry(registry);
        entries.filter(|entry| !self.ours.contains(entry.key()))
    }

    /// The entry is of globalps, and replaces one of another program.
    fn overrides(&self, key: &str) -> bool {
        self.ours.contains(key) && self.overridden.contains_key(key)
    }
}

/// What should become of the document.
#[derive(Default)]
struct Intents {
    /// The entries of globalps that it should have, by key.
    wanted: BTreeMap<String, Entry>,
    edits: BTreeMap<String, Option<Zeroizing<String>>>,
    fates: BTreeMap<String, Fate>,
    left: BTreeSet<String>,
}

impl Intents {
    /// `entries`: for one registry, under each key that readers look for.
    fn want(&mut self, registry: &str, entries: &[&Entry], before: &Before, rules: &Rules) {
        let Some(first) = entries.first() else {
            return;
        };
        let is_free = (rules.may_override)(registry);
        let mut theirs = before.theirs(registry).peekable();
        let has_theirs = theirs.peek().is_some();
        let is_same = theirs.all(|entry| entry.means_the_same(first));
        let mut fate = Fate::InForce;
        let mut keys: BTreeSet<String> = entries.iter().map(|own| own.key().to_owned()).collect();
        let mut of_registry = before.of_registry(registry).map(Entry::key);
        if is_free {
            let others =
                of_registry.filter(|key| !before.ours.contains(*key) || before.overrides(key));
            keys.extend(others.map(str::to_owned));
        } else if (rules.is_platform)(registry) && !(has_theirs && is_same) {
            fate = Fate::Platform;
            keys.clear();
        } else if has_theirs && !is_same || of_registry.any(|key| before.overrides(key)) {
            // What it overrides comes back.
            fate = Fate::Theirs;
            keys.clear();
        } else if has_theirs {
            keys.retain(|key| before.ours.contains(key));
        }
        for key in keys {
            let own = entries.iter().find(|entry| entry.key() == key);
            let wanted = own.map_or_else(|| first.normalised_as(key.clone()), |own| (*own).clone());
            fate = fate.max(self.want_at(key, wanted, before, rules));
        }
        self.fates.insert(shown_key(registry), fate);
    }

    fn want_at(&mut self, key: String, wanted: Entry, before: &Before, rules: &Rules) -> Fate {
        let is_ours = before.ours.contains(&key);
        let found = before.entries.get(&key);
        if found.is_some_and(|found| found.means_the_same(&wanted)) {
            if is_ours {
                self.wanted.insert(key, wanted);
            }
            return Fate::InForce;
        }
        let text = wanted.render();
        let has_turn = (rules.has_turn)(&key, Some(&text));
        if has_turn {
            self.edits.insert(key.clone(), Some(text));
        }
        if has_turn || is_ours {
            self.wanted.insert(key, wanted);
        }
        if has_turn { Fate::Written } else { Fate::Waits }
    }

    /// The entries of globalps that are no longer wanted go.
    fn drop_unwanted(&mut self, before: &Before, rules: &Rules) {
        for key in &before.ours {
            if self.wanted.contains_key(key) {
                continue;
            }
            if (rules.has_turn)(key, None) {
                self.edits.insert(key.clone(), None);
            } else {
                self.left.insert(key.clone());
            }
        }
    }

    fn carry_out(self, mut auths: Auths, before: &Before, applied: &Applied) -> SharedMerge {
        let is_clean = before.ours.is_empty() && self.edits.is_empty();
        // Until the document is written, what its entries of globalps replace must not be forgotten.
        let kept = applied.overridden.iter();
        let kept = kept.filter(|(key, _)| before.ours.contains(*key));
        let mut overridden: BTreeMap<_, _> = kept
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let replaced = self.edits.iter().filter(|(_, edit)| edit.is_some());
        for (key, _) in replaced.filter(|(key, _)| !before.ours.contains(*key)) {
            overridden.extend(auths.value(key).map(|value| (key.clone(), value)));
        }
        let versions = versions(applied, &self.wanted, before);
        let old = auths.render();
        for (key, edit) in &self.edits {
            match edit.as_ref().or_else(|| applied.overridden.get(key)) {
                Some(value) => auths.put(key, value),
                None => auths.remove(key),
            }
        }
        let document = auths.render();
        SharedMerge {
            document: (document != old).then(|| document.into_bytes()),
            applied: Applied {
                versions,
                overridden,
            },
            fates: self.fates,
            edits: self.edits,
            left: self.left,
            is_clean,
        }
    }
}

/// With the new one, and without those that are too old.
fn versions(
    applied: &Applied,
    wanted: &BTreeMap<String, Entry>,
    before: &Before,
) -> Vec<DockerConfig> {
    let next = DockerConfig::new(wanted.values().cloned().collect());
    let newest = applied.versions.first();
    let is_new = !next.is_empty() && newest.is_none_or(|newest| newest.render() != next.render());
    let is_used = |version: &DockerConfig| {
        version.entries().iter().any(|own| {
            let found = before.entries.get(own.key());
            found.is_some_and(|found| own.means_the_same(found))
        })
    };
    let earlier = applied.versions.iter().enumerate();
    let earlier = earlier.filter(|(at, version)| *at < VERSIONS - 1 || is_used(version));
    let earlier = earlier.map(|(_, version)| version.clone());
    is_new.then_some(next).into_iter().chain(earlier).collect()
}

/// The members of `auths`, and the text around them.
struct Auths<'a> {
    head: &'a str,
    members: Vec<Member<'a>>,
    tail: &'a str,
}

struct Member<'a> {
    key: String,
    /// The text before it, unless it is the first one.
    separator: &'a str,
    /// Its name with the colon.
    name: Cow<'a, str>,
    value: Cow<'a, str>,
}

impl<'a> Auths<'a> {
    /// With the entry of each member.
    fn of(document: &'a str) -> Result<(Self, Vec<Entry>), SharedError> {
        parse(document.as_bytes())?;
        let whole = |_| SharedError::NotOneAuths;
        let json = Json::parse(document.as_bytes()).map_err(whole)?;
        let mut found = json.spans().filter(|span| folds_to(&span.name, "auths"));
        let (Some(auths), None) = (found.next(), found.next()) else {
            return Err(SharedError::NotOneAuths);
        };
        if auths.value.kind() != Kind::Object {
            return Err(SharedError::NotOneAuths);
        }
        let start = document.find('{').unwrap_or_default() + auths.at;
        let end = start + auths.value.bytes().len();
        let text = &document[start..end];
        let mut members: Vec<Member> = Vec::new();
        let mut entries = Vec::new();
        let mut known = BTreeSet::new();
        let (mut first, mut last) = (None, 1);
        for Span {
            name,
            start,
            at,
            value,
        } in auths.value.spans()
        {
            if !known.insert(name.clone()) {
                return Err(SharedError::Repeated(shown_key(&name)));
            }
            first.get_or_insert(start);
            let end = at + value.bytes().len();
            entries.push(Entry::new(name.clone(), value));
            members.push(Member {
                key: name,
                separator: &text[last..start],
                name: text[start..at].into(),
                value: text[at..end].into(),
            });
            last = end;
        }
        // Where there is no entry, the first one is written before the space.
        let head = &document[..start + first.unwrap_or(1)];
        let tail = &document[start + last..];
        Ok((
            Self {
                head,
                members,
                tail,
            },
            entries,
        ))
    }

    fn value(&self, key: &str) -> Option<Zeroizing<String>> {
        let member = self.members.iter().find(|member| member.key == key)?;
        Some(Zeroizing::new(member.value.clone().into_owned()))
    }

    fn put(&mut self, key: &str, value: &str) {
        let value = Cow::Owned(value.to_owned());
        match self.members.iter_mut().find(|member| member.key == key) {
            Some(member) => member.value = value,
            None => self.members.push(Member {
                key: key.to_owned(),
                separator: ",",
                name: Cow::Owned(format!("{}:", quote(key))),
                value,
            }),
        }
    }

    fn remove(&mut self, key: &str) {
        self.members.retain(|member| member.key != key);
    }

    fn render(&self) -> String {
        let mut text = self.head.to_owned();
        for (at, member) in self.members.iter().enumerate() {
            text.push_str(if at > 0 { member.separator } else { "" });
            text.push_str(&member.name);
            text.push_str(&member.value);
        }
        text + self.tail
    }
}

#[cfg(test)]
mod tests;
