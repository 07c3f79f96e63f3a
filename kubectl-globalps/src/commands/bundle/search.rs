//! The second line of defence: searches the files of a bundle for the credentials of Secrets, and only reports whether
//! one contains any. Pure.

use std::collections::BTreeSet;

use aho_corasick::AhoCorasick;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use k8s_openapi::api::core::v1::Secret;
use serde_json::Value;

use crate::error::{Failure, Result};

/// Shorter texts occur in ordinary words. The search finds them together with their user, in base64.
const SHORTEST: usize = 6;
/// Secret fields of a credentials file.
const FIELDS: [&str; 4] = ["auth", "password", "identitytoken", "registrytoken"];

/// Parts of keys of a Secret's data that mark a secret value.
const KEYS: [&str; 7] = [
    "auth",
    "password",
    "token",
    "secret",
    "docker",
    "last-good",
    "refused",
];

/// Every form in which the credentials could appear. It has no `Debug`.
#[derive(Default)]
pub(super) struct KnownCredentials(BTreeSet<Vec<u8>>);

impl KnownCredentials {
    /// Adds the credentials in each value of the Secret's data.
    pub(super) fn remember(&mut self, secret: &Secret) {
        for (key, value) in secret.data.iter().flatten() {
            match serde_json::from_slice::<Value>(&value.0) {
                Ok(value) if value.is_object() || value.is_array() => self.walk(&value),
                _ => self.remember_text(key, &String::from_utf8_lossy(&value.0)),
            }
        }
    }

    /// Adds an unparsable credentials file, or a text whose key marks it as secret. Other texts, such as a registry's
    /// name, are not secret.
    fn remember_text(&mut self, key: &str, text: &str) {
        let key = key.to_lowercase();
        if KEYS.iter().any(|part| key.contains(part)) {
            self.add(text);
            self.add_decoded(text);
        }
        let quoted: Vec<&str> = text.split('"').collect();
        // The quotation marks split the text into the field, `:`, and its value.
        for field in quoted.windows(3) {
            if FIELDS.contains(&field[0].to_lowercase().as_str()) {
                self.add(field[2]);
                self.add_decoded(field[2]);
            }
        }
    }

    fn walk(&mut self, value: &Value) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.walk(item)),
            Value::Object(fields) => {
                let text =
                    |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
                if !text("password").is_empty() {
                    self.add_login(text("username"), text("password"));
                }
                for (name, value) in fields {
                    match value.as_str() {
                        Some(text) if FIELDS.contains(&name.to_lowercase().as_str()) => {
                            self.add(text);
                            self.add_decoded(text);
                        }
                        Some(_) => {}
                        None => self.walk(value),
                    }
                }
            }
            _ => {}
        }
    }

    /// Adds the user and password in an `auth`, padded or not. Other texts decode to nothing relevant.
    fn add_decoded(&mut self, auth: &str) {
        let auth: String = auth
            .chars()
            .filter(|c| !c.is_whitespace() && *c != '=')
            .collect();
        let decoded = BASE64_STANDARD_NO_PAD.decode(auth).unwrap_or_default();
        let decoded = String::from_utf8_lossy(&decoded);
        if let Some((user, password)) = decoded.trim_end_matches('\0').split_once(':') {
            self.add_login(user, password);
        }
    }

    fn add_login(&mut self, user: &str, password: &str) {
        self.add(password);
        self.add(&format!("{user}:{password}"));
        self.add(&BASE64_STANDARD_NO_PAD.encode(format!("{user}:{password}")));
    }

    fn add(&mut self, text: &str) {
        let text = text.trim();
        let mut forms = inside_base64(text);
        forms.push(text.to_owned());
        // The form inside a JSON string.
        let quoted = Value::from(text).to_string();
        forms.push(quoted.trim_matches('"').to_owned());
        let forms = forms.into_iter().filter(|form| form.len() >= SHORTEST);
        self.0.extend(forms.map(String::into_bytes));
    }

    pub(super) fn search(&self) -> Result<Search> {
        let found = AhoCorasick::new(&self.0).map_err(|_| {
            Failure::new(
                "the Secrets are too large to search the bundle for their credentials",
                "collect the objects with `kubectl`; this command writes nothing that was not searched",
            )
        })?;
        Ok(Search(found))
    }
}

pub(super) struct Search(AhoCorasick);

impl Search {
    pub(super) fn finds(&self, bytes: &[u8]) -> bool {
        self.0.is_match(bytes)
    }
}

/// The base64 characters that don't depend on the surrounding text, for each of the three possible offsets, in both alphabets.
fn inside_base64(text: &str) -> Vec<String> {
    let at = |before: usize| {
        let bytes = [&vec![0; before][..], text.as_bytes()].concat();
        let encoded = BASE64_STANDARD_NO_PAD.encode(&bytes);
        let (start, end) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
        encoded.get(start..end).unwrap_or_default().to_owned()
    };
    let mut forms: Vec<String> = (0..3).map(at).collect();
    forms.extend((0..3).map(|before| at(before).replace('+', "-").replace('/', "_")));
    forms
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::prelude::BASE64_STANDARD;
    use k8s_openapi::ByteString;

    fn known(key: &str, content: &str) -> KnownCredentials {
        let data = [(key.to_owned(), ByteString(content.as_bytes().to_vec()))];
        let mut known = KnownCredentials::default();
        known.remember(&Secret {
            data: Some(data.into()),
            ..Secret::default()
        });
        known
    }

    fn finds(content: &str, text: &str) -> bool {
        let search = known(".dockerconfigjson", content).search();
        search.is_ok_and(|search| search.finds(text.as_bytes()))
    }

    #[test]
    fn a_credential_is_found_in_every_form() {
        let auth = BASE64_STANDARD.encode("robot:hunter2-s3cret");
        let in_auth = format!(r#"{{"auths":{{"quay.io":{{"auth":"{auth}"}}}}}}"#);
        let in_fields = r#"{"quay.io":{"username":"robot","password":"hunter2-s3cret"}}"#;
        let scoped = format!(r#"[{{"source":"a","config":{in_auth}}}]"#);
        for content in [&in_auth, in_fields, &scoped] {
            for shown in [
                "error: hunter2-s3cret is wrong".to_owned(),
                auth.clone(),
                auth.trim_end_matches('=').to_owned(),
                BASE64_STANDARD.encode(&in_auth),
                BASE64_STANDARD.encode("x hunter2-s3cret"),
                BASE64_STANDARD.encode("xy hunter2-s3cret"),
            ] {
                assert!(finds(content, &shown), "{content}: {shown}");
            }
            for shown in ["", "robot", "quay.io", "hunter2", "***"] {
                assert!(!finds(content, shown), "{content}: {shown}");
            }
        }
    }

    #[test]
    fn tokens_and_texts_that_are_no_credentials_file_are_found() {
        for (content, shown) in [
            (
                r#"{"auths":{"r":{"identitytoken":"t0ken-s3cret"}}}"#,
                "Bearer t0ken-s3cret",
            ),
            (
                r#"{"auths":{"r":{"auth":"no base64 s3cret"}}}"#,
                "no base64 s3cret",
            ),
            ("damaged s3cret\n", "content damaged s3cret"),
            (
                r#"{"r":{"password":"quo\"te-s3cret"}}"#,
                r#"{"message":"quo\"te-s3cret"}"#,
            ),
        ] {
            assert!(finds(content, shown), "{content}");
        }
        assert!(!finds("", "anything"));
        let damaged = r#"{"auths":{"r":{"password":"hunter2-s3cret"}"#;
        assert!(finds(damaged, "wrong password hunter2-s3cret"));
        for (key, expected) in [("registry-password", true), ("server", false)] {
            let search = known(key, "registry.example.com").search();
            let found =
                search.is_ok_and(|search| search.finds(b"https://registry.example.com/v2/"));
            assert_eq!(found, expected, "{key}");
        }
        // A short password is only found together with its user.
        let short = r#"{"r":{"username":"robot","password":"pw"}}"#;
        assert!(!finds(short, "pw"));
        assert!(finds(short, "robot:pw"));
    }
}
