//! One registry's entry, and credentials that can't be printed.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use zeroize::Zeroizing;

use super::canonical::{canonical_of, index_key, meant};
use super::encoded::{BYTE_ORDER_MARK, decode_base64, is_base64_of_pair, is_encoded_object};
use super::json::{Json, Kind, object, quote};

/// Bytes that must never be printed: `Debug` masks them, there is no `Display`, and their memory is wiped on drop.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes the bytes over; a copy that the caller keeps is not wiped.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(Zeroizing::new(bytes.into()))
    }

    /// The bytes themselves, usually text. The caller is responsible for not disclosing them.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// User and password of a registry. The user is secret as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// From `auth`, before its first colon, or from `username`; may be empty.
    pub username: Secret,
    /// From `auth`, after its first colon, or from `password`; may be empty.
    pub password: Secret,
}

impl Credential {
    /// The credential that a kubelet sends for an entry without credentials.
    pub(super) fn empty() -> Self {
        Self {
            username: Secret::new(""),
            password: Secret::new(""),
        }
    }

    /// Whether there is a user and a password.
    pub fn is_complete(&self) -> bool {
        // CRI-O takes the bytes 0 at both ends of a password for padding.
        let has_password = self.password.expose().iter().any(|byte| *byte != 0);
        !self.username.expose().is_empty() && has_password
    }

    /// User and password; `None` if one of them is not UTF-8, which JSON can't represent.
    pub fn as_text(&self) -> Option<(&str, &str)> {
        let username = str::from_utf8(self.username.expose()).ok()?;
        let password = str::from_utf8(self.password.expose()).ok()?;
        Some((username, password))
    }
}

/// Why a kubelet can't read an entry. One such entry makes it reject the whole file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    #[error("the entry is not an object")]
    NotObject,
    #[error("`{0}` is not a string")]
    NotString(&'static str),
    #[error("`auth` is not base64 (byte {0})")]
    NotBase64(usize),
    #[error("`auth` contains a byte order mark (U+FEFF), which is not base64")]
    ByteOrderMark,
    #[error("`auth` has no colon between user and password once decoded")]
    NoColon,
    #[error("`auth` was encoded twice: decoded, it is base64 of `user:password`")]
    EncodedTwice,
    #[error("the entry is a string that contains an object: it was encoded twice")]
    ObjectEncodedTwice,
}

/// Names that readers look up regardless of case; only containers/image knows the last one.
const KNOWN: [&str; 5] = ["username", "password", "email", "auth", IDENTITY_TOKEN];
const IDENTITY_TOKEN: &str = "identitytoken";

/// The kubelet's interpretation of a key, cached because every query needs it.
#[derive(Clone)]
enum Index {
    /// The kubelet can't parse it and ignores the entry.
    Unusable,
    AsWritten,
    Other(Box<[u8]>),
}

impl Index {
    fn of(key: &str) -> Self {
        match index_key(key) {
            None => Self::Unusable,
            Some(index) if index == key.as_bytes() => Self::AsWritten,
            Some(index) => Self::Other(index.into()),
        }
    }
}

/// One registry's entry in `auths`: the key as written, and its fields. `Debug` shows the key only.
#[derive(Clone)]
pub struct Entry {
    key: String,
    index: Index,
    /// By name, in lower case if readers know the name; each value as compact JSON. Of names that are the same to Go, the last
    /// one counts, unless it is null.
    fields: BTreeMap<String, Zeroizing<String>>,
    /// Whether the value is an object or null; null is an object without fields.
    is_object: bool,
    /// Known fields that must be strings but aren't, even if a later field of the same name replaces them.
    not_strings: Vec<&'static str>,
    /// The credential that the kubelet reads, decoded once.
    credential: Result<Option<Credential>, EntryError>,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entry({:?}: ***)", self.key)
    }
}

impl Entry {
    pub(super) fn new(key: String, value: Json) -> Self {
        let mut fields = BTreeMap::new();
        let mut not_strings = Vec::new();
        for (name, value) in value.members() {
            let known = KNOWN.into_iter().find(|known| folds_to(&name, known));
            match (known, value.kind()) {
                (Some(_), Kind::Null) => continue,
                (Some(known), kind) if kind != Kind::String => not_strings.push(known),
                _ => {}
            }
            fields.insert(
                known.map_or(name, str::to_owned),
                Zeroizing::new(value.compact()),
            );
        }
        let is_object = matches!(value.kind(), Kind::Object | Kind::Null);
        let not_string = not_strings.iter().find(|name| **name != IDENTITY_TOKEN);
        let credential = match not_string {
            _ if is_encoded_object(value) => Err(EntryError::ObjectEncodedTwice),
            _ if !is_object => Err(EntryError::NotObject),
            Some(name) => Err(EntryError::NotString(name)),
            None => read(&fields),
        };
        Self {
            index: Index::of(&key),
            key,
            fields,
            is_object,
            not_strings,
            credential,
        }
    }

    /// An entry with a user and a password, in the only form that every reader understands.
    pub fn from_credential(key: &str, credential: &Credential) -> Self {
        Self {
            key: key.to_owned(),
            index: Index::of(key),
            fields: BTreeMap::from([("auth".to_owned(), encode(credential))]),
            is_object: true,
            not_strings: Vec::new(),
            credential: Ok(Some(credential.clone())),
        }
    }

    /// The key as written.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The key as the kubelet indexes it; `None`: it ignores the entry.
    pub(super) fn index(&self) -> Option<&[u8]> {
        match &self.index {
            Index::Unusable => None,
            Index::AsWritten => Some(self.key.as_bytes()),
            Index::Other(index) => Some(index),
        }
    }

    /// The same text for all keys of the same registry. See [`super::canonical_key`].
    pub fn canonical_key(&self) -> Cow<'_, str> {
        self.index()
            .map_or(Cow::Borrowed(self.key.as_str()), |index| {
                canonical_of(meant(&self.key, index))
            })
    }

    /// The credential that a kubelet reads from the entry. `None` if there is no `auth`, user or password; the kubelet
    /// would send two empty strings. A non-empty `auth` takes precedence over `username` and `password`.
    pub fn credential(&self) -> Result<Option<&Credential>, EntryError> {
        match &self.credential {
            Ok(credential) => Ok(credential.as_ref()),
            Err(error) => Err(*error),
        }
    }

    /// The credential that containers/image reads: only from `auth`, which must be padded, and `identitytoken`.
    /// `Ok(None)` if there is none.
    pub(super) fn crio_credential(&self) -> Result<Option<Credential>, EntryError> {
        let auth = text(&self.fields, "auth").unwrap_or_default();
        let decoded = decode_base64(&auth, true).map_err(EntryError::NotBase64)?;
        let Some(at) = decoded.iter().position(|byte| *byte == b':') else {
            return Ok(None);
        };
        let password = &decoded[at + 1..];
        let start = password
            .iter()
            .position(|byte| *byte != 0)
            .unwrap_or(password.len());
        let end = password
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(start, |last| last + 1);
        let token = text(&self.fields, IDENTITY_TOKEN).filter(|token| !token.is_empty());
        let has_token = token.is_some();
        let credential = Credential {
            username: Secret::new(&decoded[..at]),
            password: Secret::new(&password[start..end]),
        };
        let is_empty = at == 0 && start == end && !has_token;
        Ok((!is_empty).then_some(credential))
    }

    /// Whether this entry lets containers/image read the file.
    pub(super) fn is_crio_readable(&self) -> bool {
        self.is_object
            && !self
                .not_strings
                .iter()
                .any(|name| ["auth", IDENTITY_TOKEN].contains(name))
    }

    /// Whether some reader rejects the whole file because of it.
    pub(super) fn is_unreadable(&self) -> bool {
        self.credential.is_err() || !self.is_crio_readable()
    }

    /// Whether there is a token that the kubelet does not read.
    pub fn has_identity_token(&self) -> bool {
        text(&self.fields, IDENTITY_TOKEN).is_some_and(|token| !token.is_empty())
    }

    pub(super) fn has_auth(&self) -> bool {
        text(&self.fields, "auth").is_some_and(|auth| !auth.is_empty())
    }

    /// The entry under this key, with a padded `auth` that every reader understands, and with its other fields except
    /// those that would prevent CRI-O from reading the file.
    pub(super) fn normalised_as(&self, key: String) -> Self {
        let mut entry = self.clone();
        entry.index = Index::of(&key);
        entry.key = key;
        if let Ok(Some(credential)) = self.credential() {
            entry.fields.insert("auth".to_owned(), encode(credential));
        }
        if !self.has_identity_token() {
            entry.fields.remove(IDENTITY_TOKEN);
        }
        entry.not_strings.retain(|name| *name != IDENTITY_TOKEN);
        entry
    }

    /// The value as compact JSON with sorted fields.
    pub(super) fn render(&self) -> Zeroizing<String> {
        object(&self.fields)
    }

    /// Whether both have the same effect on a node, however key and fields are written.
    pub fn means_the_same(&self, other: &Self) -> bool {
        self.credential == other.credential && self.other_fields().eq(other.other_fields())
    }

    /// The fields that are not part of the credential.
    fn other_fields(&self) -> impl Iterator<Item = (&String, &Zeroizing<String>)> {
        let is_in_credential = |name: &str| ["auth", "username", "password"].contains(&name);
        self.fields
            .iter()
            .filter(move |(name, _)| self.credential.is_err() || !is_in_credential(name))
    }
}

/// The value of a field, if it exists and is a string.
fn text(fields: &BTreeMap<String, Zeroizing<String>>, name: &str) -> Option<Zeroizing<String>> {
    let json = Json::parse(fields.get(name)?.as_bytes()).ok()?;
    json.text().map(Zeroizing::new)
}

/// See [`Entry::credential`].
fn read(fields: &BTreeMap<String, Zeroizing<String>>) -> Result<Option<Credential>, EntryError> {
    if let Some(auth) = text(fields, "auth").filter(|auth| !auth.is_empty()) {
        return decode(&auth).map(Some);
    }
    let (username, password) = (text(fields, "username"), text(fields, "password"));
    let secret =
        |text: &Option<Zeroizing<String>>| Secret::new(text.as_ref().map_or("", |text| text));
    Ok(
        (username.is_some() || password.is_some()).then(|| Credential {
            username: secret(&username),
            password: secret(&password),
        }),
    )
}

/// Whether Go treats the name as this one: it ignores case, including two non-ASCII letters that fold to ASCII.
pub(super) fn folds_to(name: &str, known: &str) -> bool {
    let fold = |character: char| match character {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    };
    name.chars().map(fold).eq(known.chars().map(fold))
}

/// `auth` as a JSON string.
fn encode(credential: &Credential) -> Zeroizing<String> {
    let mut pair = Zeroizing::new(credential.username.expose().to_vec());
    pair.push(b':');
    pair.extend_from_slice(credential.password.expose());
    let encoded = Zeroizing::new(BASE64_STANDARD.encode(&*pair));
    Zeroizing::new(quote(&encoded))
}

/// `auth` as the kubelet decodes it: padded base64 if it ends in `=`, otherwise unpadded. The first colon separates user and
/// password; they need not be UTF-8.
fn decode(auth: &str) -> Result<Credential, EntryError> {
    // Like Go's `TrimSpace`, `trim` removes non-ASCII white space.
    let padded = auth.trim().ends_with('=');
    let decoded = decode_base64(auth, padded).map_err(|at| {
        let has_mark = auth
            .get(at..)
            .is_some_and(|rest| rest.starts_with(BYTE_ORDER_MARK));
        if has_mark {
            EntryError::ByteOrderMark
        } else {
            EntryError::NotBase64(at)
        }
    })?;
    let at = decoded.iter().position(|byte| *byte == b':');
    let at = at.ok_or_else(|| {
        if is_base64_of_pair(&decoded) {
            EntryError::EncodedTwice
        } else {
            EntryError::NoColon
        }
    })?;
    Ok(Credential {
        username: Secret::new(&decoded[..at]),
        password: Secret::new(&decoded[at + 1..]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(auth: &str) -> Result<(String, String), EntryError> {
        let text = |secret: &Secret| String::from_utf8_lossy(secret.expose()).into_owned();
        decode(auth).map(|c| (text(&c.username), text(&c.password)))
    }

    #[test]
    fn auth_decodes_as_in_the_kubelet() {
        let both = |user: &str, password: &str| Ok((user.to_owned(), password.to_owned()));
        for (auth, expected) in [
            ("dXNlcjpwYXNzd29yZA==", both("user", "password")),
            ("dXNlcjpwYXNzd29yZA", both("user", "password")),
            ("dXNlcjpwYXNzd29yZA=", Err(EntryError::NotBase64(19))),
            ("dXNlcjpw\nYXNzd29yZA==\n", both("user", "password")),
            (" dXNlcjpwYXNzd29yZA==", Err(EntryError::NotBase64(0))),
            ("dXNlcjpwYXNzd29yZA== ", Err(EntryError::NotBase64(20))),
            ("dXNlcjpwYXNzd29yZB==", both("user", "password")),
            ("_-8=", Err(EntryError::NotBase64(0))),
            ("dXNlcjpwOmE6Yg==", both("user", "p:a:b")),
            ("OnBhc3M=", both("", "pass")),
            ("dXNlcjo=", both("user", "")),
            ("Og==", both("", "")),
            ("dXNlcg==", Err(EntryError::NoColon)),
            ("Zm9vOmJhcg", both("foo", "bar")),
            ("cGFudHM=", Err(EntryError::NoColon)),
            ("Y205aWIzUTZjMlZqY21WMA==", Err(EntryError::EncodedTwice)),
            ("\u{feff}dXNlcjpwYXNz", Err(EntryError::ByteOrderMark)),
            ("dXNlcjpwYXNz\n\u{feff}", Err(EntryError::ByteOrderMark)),
            ("\u{200b}dXNlcjpwYXNz", Err(EntryError::NotBase64(0))),
        ] {
            assert_eq!(decoded(auth), expected, "auth {auth:?}");
        }
    }

    #[test]
    fn debug_shows_no_credentials() {
        let credential = Credential {
            username: Secret::new("robot"),
            password: Secret::new("hunter2"),
        };
        let entry = Entry::from_credential("quay.io", &credential);
        let shown = format!("{credential:?} {entry:?}");
        assert!(
            !shown.contains("robot") && !shown.contains("hunter2"),
            "{shown}"
        );
        assert!(
            !shown.contains(encode(&credential).trim_matches('"')),
            "{shown}"
        );
    }

    #[test]
    fn auth_and_username_with_password_mean_the_same() {
        let parse = |text: &str| Entry::new("r".to_owned(), Json::parse(text.as_bytes()).unwrap());
        let auth = parse(r#"{"auth":"dXNlcjpwYXNz"}"#);
        assert!(auth.means_the_same(&parse(r#"{"username":"user","password":"pass"}"#)));
        assert!(auth.means_the_same(&parse(r#"{"Auth":"dXNlcjpwYXNz"}"#)));
        assert!(!auth.means_the_same(&parse(r#"{"username":"user","password":"other"}"#)));
        assert!(!auth.means_the_same(&parse(r#"{"auth":"dXNlcjpwYXNz","email":"e"}"#)));
    }
}
