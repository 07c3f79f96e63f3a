//! What a node would make of a credentials file, before it gets there.

use serde::Serialize;

use super::canonical::canonical_key;
use super::entry::EntryError;
use super::parse::{DockerConfig, ParseError, parse};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A node would drop the file or the entry.
    Error,
    /// It works, but not as it looks.
    Warning,
}

/// What is wrong, in one word that scripts may rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Code {
    NoData,
    NotJson,
    NotObject,
    NoAuths,
    AuthsNotObject,
    NoEntries,
    EntryNotObject,
    FieldNotString,
    BadBase64,
    NoColon,
    EmptyKey,
    NoCredential,
    DuplicateKey,
}

/// One finding. `message` and `hint` never hold a credential or a part of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub severity: Severity,
    pub code: Code,
    /// The key as written; empty where the finding is about the whole file.
    pub registry: String,
    pub message: String,
    #[serde(skip)]
    pub hint: &'static str,
}

impl Finding {
    fn error(code: Code, registry: &str, message: String, hint: &'static str) -> Self {
        Self {
            severity: Severity::Error,
            code,
            registry: registry.to_owned(),
            message,
            hint,
        }
    }

    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

/// The finding in one line for people, with the registry that it is about.
impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.registry.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "`{}`: {}", self.registry, self.message)
        }
    }
}

const AUTH_HINT: &str = "it must be base64 of `user:password`";
const FORM_HINT: &str =
    "the form is {\"auths\": {\"REGISTRY\": {\"auth\": \"BASE64 OF USER:PASSWORD\"}}}";

/// Parses and validates what a Secret has under its key; `None`: there is no such key.
pub fn validate_data(data: Option<&[u8]>) -> (Option<DockerConfig>, Vec<Finding>) {
    let Some(bytes) = data else {
        let message = format!("the Secret has no key `{}`", crate::names::DATA_KEY);
        return (
            None,
            vec![Finding::error(
                Code::NoData,
                "",
                message,
                "make it of type `kubernetes.io/dockerconfigjson`",
            )],
        );
    };
    validate_bytes(bytes)
}

/// Parses and validates: the file, where a node can use it, and all findings. No config: at least one is an error.
pub fn validate_bytes(bytes: &[u8]) -> (Option<DockerConfig>, Vec<Finding>) {
    match parse(bytes) {
        Ok(config) => {
            let findings = validate(&config);
            let valid = !findings.iter().any(Finding::is_error);
            (valid.then_some(config), findings)
        }
        Err(error) => (None, vec![unparsable(&error)]),
    }
}

fn unparsable(error: &ParseError) -> Finding {
    let (code, registry) = match error {
        ParseError::NotJson { .. } => (Code::NotJson, ""),
        ParseError::NotObject => (Code::NotObject, ""),
        ParseError::NoAuths => (Code::NoAuths, ""),
        ParseError::AuthsNotObject => (Code::AuthsNotObject, ""),
        ParseError::EntryNotObject { registry } => {
            return Finding::error(
                Code::EntryNotObject,
                registry,
                "the entry is not an object".to_owned(),
                FORM_HINT,
            );
        }
    };
    Finding::error(code, registry, error.to_string(), FORM_HINT)
}

/// Every finding of a file that parsed, in the order of its entries. Not one entry is the kubelet's to skip:
/// a single bad one makes it drop the whole file.
pub fn validate(config: &DockerConfig) -> Vec<Finding> {
    let mut findings = Vec::new();
    if config.entries().is_empty() {
        findings.push(Finding::error(
            Code::NoEntries,
            "",
            "`auths` has no entries".to_owned(),
            FORM_HINT,
        ));
    }
    let mut seen = std::collections::BTreeMap::new();
    for entry in config.entries() {
        let key = entry.key();
        if key.trim().is_empty() {
            findings.push(Finding::error(
                Code::EmptyKey,
                key,
                "an entry has no registry name".to_owned(),
                "name the registry, for example `quay.io`",
            ));
        }
        if let Some(first) = seen.insert(canonical_key(key), key) {
            findings.push(Finding {
                severity: Severity::Warning,
                code: Code::DuplicateKey,
                registry: key.to_owned(),
                message: format!("the same registry as `{first}`; only one of the two is used"),
                hint: "keep one of them",
            });
        }
        match entry.credential() {
            Ok(Some(_)) => {}
            Ok(None) => findings.push(Finding {
                severity: Severity::Warning,
                code: Code::NoCredential,
                registry: key.to_owned(),
                message: "no `auth` and no user with password; the kubelet has nothing to send"
                    .to_owned(),
                hint: AUTH_HINT,
            }),
            Err(error) => {
                let code = match error {
                    EntryError::NotString(_) => Code::FieldNotString,
                    EntryError::NotBase64(_) | EntryError::NotText => Code::BadBase64,
                    EntryError::NoColon => Code::NoColon,
                };
                findings.push(Finding::error(code, key, error.to_string(), AUTH_HINT));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(Severity, Code, String)> {
        validate_bytes(text.as_bytes())
            .1
            .into_iter()
            .map(|f| (f.severity, f.code, f.to_string()))
            .collect()
    }

    #[test]
    fn a_good_file_has_no_findings() {
        for text in [
            r#"{"auths":{"quay.io":{"auth":"dXNlcjpwYXNz"}}}"#,
            r#"{"auths":{"quay.io":{"auth":"dXNlcjpwYXNz"},"r2":{"username":"u","password":"p"}},"credsStore":"x"}"#,
        ] {
            assert_eq!(found(text), [], "{text}");
        }
    }

    #[test]
    fn every_bad_entry_is_named_with_its_reason() {
        use Code::*;
        use Severity::*;
        for (text, expected) in [
            (
                "invalid json",
                vec![(Error, NotJson, "not JSON (line 1, column 1)")],
            ),
            ("[]", vec![(Error, NotObject, "not a JSON object")]),
            ("{}", vec![(Error, NoAuths, "there is no `auths`")]),
            (
                r#"{"auths":[]}"#,
                vec![(Error, AuthsNotObject, "`auths` is not an object")],
            ),
            (
                r#"{"auths":{}}"#,
                vec![(Error, NoEntries, "`auths` has no entries")],
            ),
            (
                r#"{"auths":{"r":false}}"#,
                vec![(Error, EntryNotObject, "`r`: the entry is not an object")],
            ),
            (
                r#"{"auths":{"r":{"email":false}}}"#,
                vec![(Error, FieldNotString, "`r`: `email` is not a string")],
            ),
            (
                r#"{"auths":{"a":{"auth":"pan ts"},"b":{"auth":"cGFudHM="},"c":{"auth":"dTpw"}}}"#,
                vec![
                    (Error, BadBase64, "`a`: `auth` is not base64 (byte 3)"),
                    (
                        Error,
                        NoColon,
                        "`b`: `auth` has no colon between user and password once decoded",
                    ),
                ],
            ),
            (
                r#"{"auths":{" ":{"auth":"dTpw"}}}"#,
                vec![(Error, EmptyKey, "` `: an entry has no registry name")],
            ),
            (
                r#"{"auths":{"https://r":{"auth":"dTpw"},"r":{"auth":"dTpw"}}}"#,
                vec![(
                    Warning,
                    DuplicateKey,
                    "`r`: the same registry as `https://r`; only one of the two is used",
                )],
            ),
            (
                r#"{"auths":{"r":{"identitytoken":"t"}}}"#,
                vec![(
                    Warning,
                    NoCredential,
                    "`r`: no `auth` and no user with password; the kubelet has nothing to send",
                )],
            ),
        ] {
            let expected: Vec<_> = expected
                .into_iter()
                .map(|(s, c, m)| (s, c, m.to_owned()))
                .collect();
            assert_eq!(found(text), expected, "{text}");
        }
    }

    #[test]
    fn no_finding_holds_a_credential() {
        for text in [
            r#"{"auths":{"r":{"auth":"hunter2"}}}"#,
            r#"{"auths":{"r":{"auth":["hunter2"]}}}"#,
            r#"{"auths":{"r":"hunter2"}}"#,
            r#"{"auths":"hunter2"}"#,
            r#"{"auths":{"r":{"auth":"hunter2"}"#,
            "hunter2",
        ] {
            let (_, findings) = validate_bytes(text.as_bytes());
            assert!(!findings.is_empty(), "{text}");
            assert!(!format!("{findings:?}").contains("hunter2"), "{text}");
        }
    }
}
