//! One registry's entry, and credentials that can't be printed.

use std::fmt;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value};
use zeroize::Zeroizing;

/// Text that must not be shown: `Debug` masks it, there is no `Display`, and its memory is wiped on drop.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    /// The text itself. Whoever calls this answers for where it goes.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// User and password of a registry. The user counts as a part of the secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    pub username: Secret,
    pub password: Secret,
}

/// Why an entry has no credential that a node can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    #[error("`{0}` is not a string")]
    NotString(&'static str),
    #[error("`auth` is not base64 (byte {0})")]
    NotBase64(usize),
    #[error("`auth` is not UTF-8 once decoded")]
    NotText,
    #[error("`auth` has no colon between user and password once decoded")]
    NoColon,
}

/// One registry's entry of `auths`: the key as written, and its fields. `Debug` shows the key only.
#[derive(Clone)]
pub struct Entry {
    key: String,
    fields: Map<String, Value>,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entry({:?}: ***)", self.key)
    }
}

impl Entry {
    pub(super) fn new(key: String, fields: Map<String, Value>) -> Self {
        Self { key, fields }
    }

    /// An entry from a user and a password, in the one form that every reader understands.
    pub fn from_credential(key: &str, credential: &Credential) -> Self {
        let mut fields = Map::new();
        fields.insert("auth".to_owned(), Value::String(encode(credential)));
        Self {
            key: key.to_owned(),
            fields,
        }
    }

    /// The key as it was written.
    pub fn key(&self) -> &str {
        &self.key
    }

    pub(super) fn fields(&self) -> &Map<String, Value> {
        &self.fields
    }

    /// The field of that name; upper and lower case are one, as in Go.
    fn field(&self, name: &'static str) -> Result<Option<&str>, EntryError> {
        match self
            .fields
            .iter()
            .rfind(|(k, _)| k.eq_ignore_ascii_case(name))
        {
            None | Some((_, Value::Null)) => Ok(None),
            Some((_, Value::String(text))) => Ok(Some(text)),
            Some(_) => Err(EntryError::NotString(name)),
        }
    }

    /// What a kubelet reads from the entry; `None` where there is neither `auth` nor a user or password.
    /// A non-empty `auth` wins over `username` and `password`.
    pub fn credential(&self) -> Result<Option<Credential>, EntryError> {
        let username = self.field("username")?;
        let password = self.field("password")?;
        self.field("email")?;
        if let Some(auth) = self.field("auth")?.filter(|auth| !auth.is_empty()) {
            return decode(auth).map(Some);
        }
        Ok(
            (username.is_some() || password.is_some()).then(|| Credential {
                username: Secret::new(username.unwrap_or_default()),
                password: Secret::new(password.unwrap_or_default()),
            }),
        )
    }

    /// The entry with a padded `auth`, which every reader understands; the other fields stay.
    pub(super) fn normalised(&self) -> Self {
        let mut fields = self.fields.clone();
        if let Ok(Some(credential)) = self.credential() {
            fields.retain(|name, _| !name.eq_ignore_ascii_case("auth"));
            fields.insert("auth".to_owned(), Value::String(encode(&credential)));
        }
        Self {
            key: self.key.clone(),
            fields,
        }
    }

    /// Whether a node does the same with both, whatever the spelling of key and fields.
    pub fn means_the_same(&self, other: &Self) -> bool {
        let rest = |entry: &Self| {
            let mut fields = entry.fields.clone();
            if entry.credential().is_ok() {
                fields.retain(|name, _| {
                    !["auth", "username", "password"]
                        .iter()
                        .any(|f| name.eq_ignore_ascii_case(f))
                });
            }
            fields
        };
        self.credential() == other.credential() && rest(self) == rest(other)
    }
}

fn encode(credential: &Credential) -> String {
    let text = Zeroizing::new(format!(
        "{}:{}",
        credential.username.expose(),
        credential.password.expose()
    ));
    BASE64_STANDARD.encode(text.as_bytes())
}

/// `auth` as the kubelet decodes it: padded base64 where it ends with `=`, else unpadded; line breaks are skipped,
/// and bits left over at the end may be anything. The text is cut at its first colon.
fn decode(auth: &str) -> Result<Credential, EntryError> {
    let padding = if auth.trim().ends_with('=') {
        DecodePaddingMode::RequireCanonical
    } else {
        DecodePaddingMode::RequireNone
    };
    let engine = GeneralPurpose::new(
        &alphabet::STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_allow_trailing_bits(true)
            .with_decode_padding_mode(padding),
    );
    let joined = Zeroizing::new(auth.replace(['\r', '\n'], ""));
    let bytes = Zeroizing::new(engine.decode(joined.as_bytes()).map_err(|_| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=\r\n".contains(&byte);
        EntryError::NotBase64(
            auth.bytes()
                .position(|byte| !allowed(byte))
                .unwrap_or(auth.len()),
        )
    })?);
    let text = std::str::from_utf8(&bytes).map_err(|_| EntryError::NotText)?;
    let (username, password) = text.split_once(':').ok_or(EntryError::NoColon)?;
    Ok(Credential {
        username: Secret::new(username),
        password: Secret::new(password),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn decoded(auth: &str) -> Result<(String, String), EntryError> {
        decode(auth).map(|c| {
            (
                c.username.expose().to_owned(),
                c.password.expose().to_owned(),
            )
        })
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
        ] {
            assert_eq!(decoded(auth), expected, "auth {auth:?}");
        }
    }

    #[test]
    fn nothing_that_holds_a_credential_shows_it_in_debug() {
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
        assert!(!shown.contains(encode(&credential).as_str()), "{shown}");
    }

    #[test]
    fn auth_and_username_with_password_mean_the_same() {
        let parse = |text: &str| Entry::new("r".to_owned(), serde_json::from_str(text).unwrap());
        let auth = parse(r#"{"auth":"dXNlcjpwYXNz"}"#);
        assert!(auth.means_the_same(&parse(r#"{"username":"user","password":"pass"}"#)));
        assert!(auth.means_the_same(&parse(r#"{"Auth":"dXNlcjpwYXNz"}"#)));
        assert!(!auth.means_the_same(&parse(r#"{"username":"user","password":"other"}"#)));
        assert!(!auth.means_the_same(&parse(r#"{"auth":"dXNlcjpwYXNz","email":"e"}"#)));
    }
}
