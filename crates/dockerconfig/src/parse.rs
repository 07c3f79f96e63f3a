//! Parses bytes to entries, and renders entries.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use zeroize::Zeroizing;

use super::effective::Ability;
use super::encoded::is_encoded_object;
use super::entry::{Entry, folds_to};
use super::form::FileForm;
use super::helpers::{Helpers, is_object_of_strings};
use super::json::{Json, Kind, object};
use super::keys::matches_no_image;

/// A whole `config.json`: the entries of `auths`, and every other top-level member unchanged.
#[derive(Clone, Debug, Default)]
pub struct DockerConfig {
    entries: Vec<Entry>,
    others: Others,
    has_auths: bool,
    /// Entries that a later one with the same key replaces, but that make a reader reject the file.
    bad_duplicates: Vec<Entry>,
    /// `HttpHeaders` is not an object of strings, so a kubelet rejects the file.
    bad_headers: bool,
    helpers: Helpers,
}

/// Top-level members other than `auths`, each as compact JSON. They may hold credentials too, so `Debug` shows names only.
#[derive(Clone, Default, PartialEq)]
struct Others(BTreeMap<String, Zeroizing<String>>);

impl std::fmt::Debug for Others {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Why a kubelet can't parse the file. The messages describe the form and never contain content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each says it in its message")]
pub enum ParseError {
    #[error("not JSON (line {line}, column {column})")]
    NotJson { line: usize, column: usize },
    #[error("not a JSON object")]
    NotObject,
    #[error("`auths` is not an object")]
    AuthsNotObject,
    #[error("`auths` is a string that contains an object: it was encoded twice")]
    AuthsEncodedTwice,
    /// The content is not a credentials file, but has this form.
    #[error("{0}")]
    Form(FileForm),
}

/// Reads `{"auths": {...}}` like the kubelet's decoder: the case of `auths` is ignored, several `auths` are combined, the last of
/// two equal keys counts, and null means nothing. [`super::validate`] checks the entries.
pub fn parse(bytes: &[u8]) -> Result<DockerConfig, ParseError> {
    parse_with(bytes, |_| true)
}

/// Like [`parse`], with only the entries whose key is wanted: an image needs a few of possibly thousands.
pub fn parse_with(
    bytes: &[u8],
    is_wanted: impl Fn(&str) -> bool,
) -> Result<DockerConfig, ParseError> {
    let json = Json::parse(bytes).map_err(|error| not_json(bytes, error.offset))?;
    match json.kind() {
        Kind::Object | Kind::Null => {}
        _ if is_encoded_object(json) => return Err(ParseError::Form(FileForm::EncodedTwice)),
        _ => return Err(ParseError::NotObject),
    }
    let mut config = DockerConfig::default();
    let mut places = HashMap::new();
    for (name, value) in json.members() {
        if folds_to(&name, "auths") {
            config.has_auths = true;
            match value.kind() {
                Kind::Object => config.add(value, &is_wanted, &mut places),
                Kind::Null => {
                    let overwritten = std::mem::take(&mut config.entries);
                    config
                        .bad_duplicates
                        .extend(overwritten.into_iter().filter(Entry::is_unreadable));
                    places.clear();
                }
                _ if is_encoded_object(value) => return Err(ParseError::AuthsEncodedTwice),
                _ => return Err(ParseError::AuthsNotObject),
            }
            continue;
        }
        if folds_to(&name, "httpheaders") {
            config.bad_headers |= !is_object_of_strings(value);
        }
        config.helpers.read(&name, value);
        config
            .others
            .0
            .insert(name, Zeroizing::new(value.compact()));
    }
    Ok(config)
}

/// Line and column start at 1; the column counts bytes.
fn not_json(bytes: &[u8], offset: usize) -> ParseError {
    if let Some(form) = FileForm::of(bytes, offset) {
        return ParseError::Form(form);
    }
    let before = &bytes[..offset];
    let line = before.split(|byte| *byte == b'\n').count();
    let column = offset
        - before
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1)
        + 1;
    ParseError::NotJson { line, column }
}

impl DockerConfig {
    /// Adds the members of one `auths` to those of an earlier one.
    fn add(
        &mut self,
        auths: Json,
        is_wanted: impl Fn(&str) -> bool,
        places: &mut HashMap<String, usize>,
    ) {
        for (key, value) in auths.members().filter(|(key, _)| is_wanted(key)) {
            let entry = Entry::new(key.clone(), value);
            if let Some(place) = places.get(&key) {
                let overwritten = std::mem::replace(&mut self.entries[*place], entry);
                self.bad_duplicates
                    .extend(Some(overwritten).filter(Entry::is_unreadable));
            } else {
                places.insert(key, self.entries.len());
                self.entries.push(entry);
            }
        }
    }

    /// A file of these entries alone; a later one with the same key does not replace an earlier one.
    pub fn new(entries: Vec<Entry>) -> Self {
        Self {
            entries,
            has_auths: true,
            ..Self::default()
        }
    }

    /// In the order of the file. If a key is repeated, the last value counts, at the position of the first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Whether the file contains nothing that a reader could use.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.others.0.is_empty()
    }

    /// The old `.dockercfg` format: registries at the top level, without `auths`.
    pub(super) fn is_old_form(&self) -> bool {
        let is_entry = |value: &Zeroizing<String>| {
            Json::parse(value.as_bytes()).is_ok_and(|value| {
                value
                    .members()
                    .any(|(name, _)| folds_to(&name, "auth") || folds_to(&name, "username"))
            })
        };
        !self.has_auths && !self.others.0.is_empty() && self.others.0.values().all(is_entry)
    }

    /// A Kubernetes manifest: it has a `kind`, and no registries.
    pub fn is_manifest(&self) -> bool {
        let others = &self.others.0;
        let is_string = |value: &Zeroizing<String>| value.starts_with('"');
        !self.has_auths
            && others.get("kind").is_some_and(is_string)
            && ["apiVersion", "metadata", "data", "items"]
                .iter()
                .any(|name| others.contains_key(*name))
    }

    /// A credentials file is the value of a member, as text, in base64 or as it is.
    pub(super) fn is_nested(&self) -> bool {
        let holds_auths = |value: &Zeroizing<String>| {
            Json::parse(value.as_bytes()).is_ok_and(|value| {
                is_encoded_object(value)
                    || value.members().any(|(name, _)| folds_to(&name, "auths"))
            })
        };
        !self.has_auths && self.others.0.values().any(holds_auths)
    }

    /// Whether there is an `auths` at all.
    pub(super) fn has_auths(&self) -> bool {
        self.has_auths
    }

    /// The same top-level members, with other entries.
    #[must_use]
    pub fn with_entries(&self, entries: Vec<Entry>) -> Self {
        Self {
            entries,
            has_auths: true,
            bad_duplicates: Vec::new(),
            ..self.clone()
        }
    }

    /// Without the entries that make a kubelet reject the whole file.
    #[must_use]
    pub fn without_unreadable(&self) -> Self {
        let entries = self.entries.iter();
        let entries = entries.filter(|entry| entry.credential().is_ok());
        let mut readable = self.with_entries(entries.cloned().collect());
        if std::mem::take(&mut readable.bad_headers) {
            let others = &mut readable.others.0;
            others.retain(|name, _| !folds_to(name, "httpheaders"));
        }
        readable
    }

    /// Programs that docker would ask instead; nodes don't run them.
    pub fn helpers(&self) -> &Helpers {
        &self.helpers
    }

    /// Entries that a later one with the same key replaces, but that some reader can't read.
    pub(super) fn bad_duplicates(&self) -> &[Entry] {
        &self.bad_duplicates
    }

    pub(super) fn has_bad_headers(&self) -> bool {
        self.bad_headers
    }

    /// Why containers/image can't read the file at all, with the key of the entry that causes it, if any.
    pub(super) fn crio_error(&self) -> Option<(&str, &'static str)> {
        let mut entries = self.entries.iter().chain(&self.bad_duplicates);
        if let Some(entry) = entries.find(|entry| !entry.is_crio_readable()) {
            return Some((
                entry.key(),
                "CRI-O can't read the file because of this entry",
            ));
        }
        let is_readable = self.helpers.is_crio_readable();
        (!is_readable).then_some(("", "`credHelpers` is not an object of strings"))
    }

    /// Whether a kubelet accepts the file: one entry that it can't read makes it reject all of it.
    pub fn is_kubelet_readable(&self) -> bool {
        !self.bad_headers
            && self
                .entries
                .iter()
                .chain(&self.bad_duplicates)
                .all(|entry| entry.credential().is_ok())
    }

    /// The effective entry of each registry, by canonical key. Entries that can't authenticate are skipped.
    pub fn by_canonical_key(&self) -> BTreeMap<Cow<'_, str>, &Entry> {
        let mut effective: BTreeMap<_, &Entry> = BTreeMap::new();
        for entry in self.usable() {
            let known = effective.entry(entry.canonical_key()).or_insert(entry);
            if entry.rank() < known.rank() {
                *known = entry;
            }
        }
        effective
    }

    /// The entries with which some reader can authenticate.
    pub(super) fn usable(&self) -> impl Iterator<Item = &Entry> {
        let entries = self.entries.iter();
        entries.filter(|entry| entry.ability() > Ability::Nothing)
    }

    /// Whether nothing can authenticate with any of its entries, for any image.
    pub fn is_without_credentials(&self) -> bool {
        self.usable().all(matches_no_image)
    }

    /// Whether both have the same effect on a node, regardless of order, format and spelling.
    pub fn means_the_same(&self, other: &Self) -> bool {
        let (one, two) = (self.spellings(), other.spellings());
        let same = |one: &Vec<&Entry>, other: &Vec<&Entry>| {
            one.len() == other.len()
                && one
                    .iter()
                    .zip(other)
                    .all(|(one, other)| one.means_the_same(other))
        };
        self.others == other.others
            && one.len() == two.len()
            && one
                .iter()
                .all(|(key, entries)| two.get(key).is_some_and(|others| same(entries, others)))
    }

    /// All entries by canonical key; those of one key are sorted by spelling.
    fn spellings(&self) -> BTreeMap<Cow<'_, str>, Vec<&Entry>> {
        let mut spellings: BTreeMap<_, Vec<&Entry>> = BTreeMap::new();
        for entry in &self.entries {
            spellings
                .entry(entry.canonical_key())
                .or_default()
                .push(entry);
        }
        for entries in spellings.values_mut() {
            entries.sort_by_key(|entry| entry.key());
        }
        spellings
    }

    /// Compact JSON sorted by name: equal content renders to equal bytes.
    pub fn render(&self) -> Vec<u8> {
        let entries: BTreeMap<&str, &Entry> = self
            .entries
            .iter()
            .map(|entry| (entry.key(), entry))
            .collect();
        let auths = object(entries.iter().map(|(key, entry)| (key, entry.render())));
        let others = self.others.0.iter();
        let others = others.map(|(name, value)| (name.as_str(), value.as_str()));
        let mut members: BTreeMap<&str, &str> = others.collect();
        members.insert("auths", &auths);
        std::mem::take(&mut *object(members)).into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_files_are_rejected_with_the_reason() {
        for (text, expected) in [
            ("", ParseError::NotJson { line: 1, column: 1 }),
            ("   ", ParseError::NotJson { line: 1, column: 4 }),
            ("invalid json", ParseError::NotJson { line: 1, column: 1 }),
            (
                r#"{"auths":{}"#,
                ParseError::NotJson {
                    line: 1,
                    column: 12,
                },
            ),
            (
                "{\n\"auths\":{},}",
                ParseError::NotJson {
                    line: 2,
                    column: 12,
                },
            ),
            ("{auths:{}}", ParseError::NotJson { line: 1, column: 2 }),
            ("{} {}", ParseError::NotJson { line: 1, column: 4 }),
            ("\"text\"", ParseError::NotObject),
            ("[]", ParseError::NotObject),
            ("123", ParseError::NotObject),
            ("true", ParseError::NotObject),
            (r#"{"auths":"not an object"}"#, ParseError::AuthsNotObject),
            (r#"{"auths":[]}"#, ParseError::AuthsNotObject),
            (r#"{"auths":{},"Auths":1}"#, ParseError::AuthsNotObject),
            (r#"{"auths":"{{ .auths }}"}"#, ParseError::AuthsNotObject),
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap_err(), expected, "{text}");
        }
    }

    #[test]
    fn files_that_a_kubelet_accepts_are_accepted() {
        for (text, keys) in [
            ("null", ""),
            ("{}", ""),
            (r#"{"auths":null}"#, ""),
            (r#"{"config":{"auths":{"a":{}}}}"#, ""),
            (r#"{"auths":{"a":{},"b":null}}"#, "a b"),
            (r#"{"AUTHS":{"a":{}},"auth\u017f":{"b":{}}}"#, "a b"),
            (r#"{"auths":{"a":{}},"auths":null,"auths":{"b":{}}}"#, "b"),
            (
                r#"{"auths":{"a":{"x":1},"a":{}},"HttpHeaders":{"x":null}}"#,
                "a",
            ),
        ] {
            let config = parse(text.as_bytes()).unwrap();
            let found: Vec<_> = config.entries().iter().map(Entry::key).collect();
            assert_eq!(found.join(" "), keys, "{text}");
        }
    }

    #[test]
    fn a_bad_entry_spoils_the_file_even_if_replaced_later() {
        for (text, readable) in [
            (
                r#"{"auths":{"a":{"auth":"dTpw"}},"HttpHeaders":{"x":null}}"#,
                true,
            ),
            (
                r#"{"auths":{"a":{"auth":"dTpw"}},"HTTPheaders":{"x":1}}"#,
                false,
            ),
            (r#"{"auths":{"a":{"auth":"dTpw"}},"HttpHeaders":[]}"#, false),
            (
                r#"{"auths":{"a":{"auth":"pants"},"a":{"auth":"dTpw"}}}"#,
                false,
            ),
            (r#"{"auths":{"a":1},"auths":null}"#, false),
            (r#"{"auths":{"a":{"auth":1,"auth":"dTpw"}}}"#, false),
            (
                r#"{"auths":{"a":{"identitytoken":1,"auth":"dTpw"}},"credHelpers":1}"#,
                true,
            ),
        ] {
            assert_eq!(
                parse(text.as_bytes()).unwrap().is_kubelet_readable(),
                readable,
                "{text}"
            );
        }
    }

    #[test]
    fn the_last_of_equal_fields_counts_unless_null() {
        for (text, expected) in [
            (r#"{"auth":"dTpw","Auth":"dTpx"}"#, r#"{"auth":"dTpx"}"#),
            (r#"{"Auth":"dTpx","auth":"dTpw"}"#, r#"{"auth":"dTpw"}"#),
            (r#"{"auth":"dTpw","AUTH":null}"#, r#"{"auth":"dTpw"}"#),
            (
                r#"{"paſſword":"p","x":[1, {"y": " z "}]}"#,
                r#"{"password":"p","x":[1,{"y":" z "}]}"#,
            ),
        ] {
            let config = parse(format!(r#"{{"auths":{{"r":{text}}}}}"#).as_bytes()).unwrap();
            let rendered = String::from_utf8(config.render()).unwrap();
            assert_eq!(
                rendered,
                format!(r#"{{"auths":{{"r":{expected}}}}}"#),
                "{text}"
            );
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
