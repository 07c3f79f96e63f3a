//! Checks a credentials file for what nodes would do with it.

use std::borrow::Cow;

use serde::Serialize;

use super::canonical::shown_key;
use super::effective::Ability;
use super::entry::{Entry, EntryError};
use super::keys::{MATCHES_NO_IMAGE, key_findings};
use super::parse::{DockerConfig, ParseError, parse};

/// Size limit of a Secret's data, in bytes.
const MAX_BYTES: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A node would reject the file or ignore the entry.
    Error,
    /// It works, but may not do what it seems to do.
    Warning,
}

/// The kind of finding, a word that scripts may rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Code {
    NoData,
    TooLarge,
    NotJson,
    NotObject,
    OldForm,
    NoAuths,
    AuthsNotObject,
    HttpHeaders,
    NoEntries,
    EntryNotObject,
    FieldNotString,
    BadBase64,
    NoColon,
    /// About who may use the credentials, not about the bytes.
    BadScope,
    // The rest are warnings.
    EmptyUser,
    EmptyPassword,
    NotUtf8,
    Unpadded,
    NoAuth,
    NoCredential,
    IdentityTokenOnly,
    CredHelpers,
    CredsStore,
    DuplicateKey,
    EmptyKey,
    KeyNotUrl,
    NotAHost,
    BracketGlob,
    UpperCase,
    SchemeWithPath,
    ApiPath,
    TrailingSlash,
    TagOrDigest,
    GlobInPath,
    GlobMatchesNothing,
    GlobMatchesEverything,
    GlobNotForCrio,
    DefaultPort,
    HubName,
    PathIsPrefix,
}

/// One finding. `message` and `hint` never contain a credential or a part of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub severity: Severity,
    pub code: Code,
    /// The key as written; empty if the finding concerns the whole file.
    pub registry: String,
    pub message: Cow<'static, str>,
    #[serde(skip)]
    pub hint: &'static str,
}

impl Finding {
    fn error(
        code: Code,
        registry: &str,
        message: impl Into<Cow<'static, str>>,
        hint: &'static str,
    ) -> Self {
        Self {
            severity: Severity::Error,
            code,
            registry: shown_key(registry),
            message: message.into(),
            hint,
        }
    }

    pub(super) fn warning(
        code: Code,
        registry: &str,
        message: impl Into<Cow<'static, str>>,
        hint: &'static str,
    ) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(code, registry, message, hint)
        }
    }

    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// Whether nodes don't use the entry, or not all of them do, although the file is valid.
    pub fn limits_use(&self) -> bool {
        use Code::{
            DuplicateKey, EmptyPassword, EmptyUser, IdentityTokenOnly, NoCredential, NotUtf8,
        };
        let of_credential = [
            DuplicateKey,
            EmptyPassword,
            EmptyUser,
            IdentityTokenOnly,
            NoCredential,
            NotUtf8,
        ];
        of_credential.contains(&self.code) || MATCHES_NO_IMAGE.contains(&self.code)
    }
}

/// The finding in one line for humans, with its registry.
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

/// Parses and validates the data of a Secret under its key; `None`: the key is missing.
pub fn validate_data(data: Option<&[u8]>) -> (Option<DockerConfig>, Vec<Finding>) {
    let Some(bytes) = data else {
        let message = format!("the Secret has no key `{}`", crate::names::DATA_KEY);
        return (
            None,
            vec![Finding::error(
                Code::NoData,
                "",
                message,
                "create it with type `kubernetes.io/dockerconfigjson`",
            )],
        );
    };
    validate_bytes(bytes)
}

/// The same for data that replaces `before`. Entries of which none can authenticate are an error if the ones before could: most
/// likely a generator had nothing to write. Where nothing is in force they harm nothing.
pub fn validate_replacement(
    data: Option<&[u8]>,
    before: Option<&[u8]>,
) -> (Option<DockerConfig>, Vec<Finding>) {
    let (config, mut findings) = validate_data(data);
    let has_none = config
        .as_ref()
        .is_some_and(DockerConfig::is_without_credentials);
    let had_some = || {
        let before = before.and_then(|before| validate_bytes(before).0);
        before.is_some_and(|before| !before.is_without_credentials())
    };
    if !has_none || !had_some() {
        return (config, findings);
    }
    let message = "none of its entries can authenticate for any image, so the last valid content stays in force";
    let hint = "delete the Secret to remove its credentials";
    findings.insert(0, Finding::error(Code::NoEntries, "", message, hint));
    (None, findings)
}

/// Parses and validates. Returns the file if a node can use it, and all findings. Without a file at least one finding is an
/// error.
pub fn validate_bytes(bytes: &[u8]) -> (Option<DockerConfig>, Vec<Finding>) {
    if bytes.len() > MAX_BYTES {
        let message = format!(
            "{} bytes exceed a Secret's limit of {MAX_BYTES}",
            bytes.len()
        );
        return (
            None,
            vec![Finding::error(
                Code::TooLarge,
                "",
                message,
                "remove registries",
            )],
        );
    }
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
    let code = match error {
        ParseError::NotJson { .. } => Code::NotJson,
        ParseError::NotObject => Code::NotObject,
        ParseError::AuthsNotObject => Code::AuthsNotObject,
    };
    Finding::error(code, "", error.to_string(), FORM_HINT)
}

/// All findings of a parsed file, in the order of its entries. The kubelet doesn't skip bad entries: a single one makes it reject
/// the whole file. What works on some nodes is at most a warning.
pub fn validate(config: &DockerConfig) -> Vec<Finding> {
    let mut findings = Vec::new();
    if config.is_old_form() {
        let message = "this is the old `.dockercfg` format, without `auths`";
        findings.push(Finding::error(
            Code::OldForm,
            "",
            message,
            "move the registries below `auths`",
        ));
    } else if !config.has_auths() {
        findings.push(Finding::error(
            Code::NoAuths,
            "",
            "there is no `auths`",
            FORM_HINT,
        ));
    } else if config.entries().is_empty() {
        findings.push(Finding::error(
            Code::NoEntries,
            "",
            "`auths` has no entries",
            FORM_HINT,
        ));
    }
    if config.has_bad_headers() {
        let message = "`HttpHeaders` is not an object of strings";
        findings.push(Finding::error(
            Code::HttpHeaders,
            "",
            message,
            "remove `HttpHeaders`; nodes don't send them",
        ));
    }
    findings.extend(
        config
            .bad_duplicates()
            .iter()
            .flat_map(entry_findings)
            .filter(Finding::is_error),
    );
    let effective = config.by_canonical_key();
    for entry in config.entries() {
        findings.extend(entry_findings(entry));
        findings.extend(key_findings(entry));
        let other = effective.get(&entry.canonical_key());
        let is_shadowed = |other: &&&Entry| {
            // A merged file has the same credentials under both keys.
            let is_further = entry.further_keys().next().is_some() && entry.means_the_same(other);
            entry.ability() > Ability::Nothing && other.key() != entry.key() && !is_further
        };
        if let Some(other) = other.filter(is_shadowed) {
            let other = shown_key(other.key());
            findings.push(Finding::warning(
                Code::DuplicateKey,
                entry.key(),
                format!("it is the same registry as `{other}`, whose credentials are used"),
                "keep one of them",
            ));
        }
    }
    findings.extend(helper_findings(config));
    findings
}

fn entry_findings(entry: &Entry) -> Vec<Finding> {
    let key = entry.key();
    let warning =
        |code, message: &'static str, hint| vec![Finding::warning(code, key, message, hint)];
    let credential = match entry.credential() {
        Ok(Some(credential)) => credential,
        Ok(None) if entry.has_identity_token() => {
            let message = "only `identitytoken`, which kubelets don't read, and CRI-O only beside `auth`: the entry is skipped";
            return warning(Code::IdentityTokenOnly, message, AUTH_HINT);
        }
        Ok(None) => {
            let message = "no `auth`, and no `username` with `password`: there is nothing to send, so the entry is skipped";
            return warning(Code::NoCredential, message, AUTH_HINT);
        }
        Err(error) => {
            let code = match error {
                EntryError::NotObject => Code::EntryNotObject,
                EntryError::NotString(_) => Code::FieldNotString,
                EntryError::NotBase64(_) => Code::BadBase64,
                EntryError::NoColon => Code::NoColon,
            };
            return vec![Finding::error(code, key, error.to_string(), AUTH_HINT)];
        }
    };
    let mut findings = Vec::new();
    let is_skipped = entry.ability() == Ability::Nothing;
    let mut empty = |code, skipped, kept| {
        findings.extend(warning(
            code,
            if is_skipped { skipped } else { kept },
            AUTH_HINT,
        ));
    };
    if credential.username.expose().is_empty() {
        empty(
            Code::EmptyUser,
            "the user is empty, so nothing can authenticate with the entry, and it is skipped",
            "the user is empty, so only CRI-O can authenticate, by `identitytoken`",
        );
    }
    if credential.password.expose().is_empty() {
        empty(
            Code::EmptyPassword,
            "the password is empty, so nothing can authenticate with the entry, and it is skipped",
            "the password is empty, so only CRI-O can authenticate, by `identitytoken`",
        );
    }
    if credential.as_text().is_none() {
        let message = "the user or the password is not UTF-8: the credential provider can't deliver the entry, and another one for the registry is preferred";
        findings.extend(warning(Code::NotUtf8, message, "encode both in UTF-8"));
    }
    if !entry.has_auth() {
        let message = "`username` and `password` without `auth`: CRI-O reads only `auth`";
        findings.extend(warning(
            Code::NoAuth,
            message,
            "add `auth`; globalps also adds it automatically",
        ));
    } else if entry.crio_credential().is_err() {
        let message = "`auth` lacks base64 padding, so pulls from this registry fail with CRI-O";
        findings.extend(warning(
            Code::Unpadded,
            message,
            "add `=` at the end; globalps also adds it automatically",
        ));
    }
    findings
}

fn helper_findings(config: &DockerConfig) -> Vec<Finding> {
    const HINT: &str = "put user and password below `auths`";
    let mut findings = Vec::new();
    for registry in config.helpers() {
        let message = "a credential helper is configured for it, and nodes have none";
        findings.push(Finding::warning(Code::CredHelpers, registry, message, HINT));
    }
    if config.has_creds_store() {
        let message = "`credsStore` names a credential helper, and nodes have none";
        findings.push(Finding::warning(Code::CredsStore, "", message, HINT));
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
    fn entries_without_credentials_replace_none_that_have_some() {
        let works = r#"{"auths":{"r":{"auth":"dTpw"},"s":{}}}"#;
        let empty = r#"{"auths":{"r":{"auth":""},"s":{"username":"u"}},"credsStore":"desktop"}"#;
        let keys = [
            "<no value>",
            "",
            "https://",
            "${REGISTRY}",
            "$REGISTRY",
            "quay.io/org/app:1",
            "quay.io/*",
            "*",
        ];
        for key in keys {
            let none = format!(r#"{{"auths":{{"{key}":{{"auth":"dTpw"}},"s":{{}}}}}}"#);
            let some =
                format!(r#"{{"auths":{{"{key}":{{"auth":"dTpw"}},"s":{{"auth":"dTpw"}}}}}}"#);
            for (after, expected) in [(none, false), (some, true)] {
                let before = Some(works.as_bytes());
                let (config, findings) = validate_replacement(Some(after.as_bytes()), before);
                assert_eq!(config.is_some(), expected, "{after}");
                assert!(findings.iter().any(Finding::limits_use), "{findings:?}");
            }
        }
        for (before, after, expected) in [
            (Some(works), empty, false),
            (Some(works), works, true),
            (Some(empty), empty, true),
            (Some(empty), works, true),
            (Some("{"), empty, true),
            (None, empty, true),
        ] {
            let before = before.map(str::as_bytes);
            let (config, findings) = validate_replacement(Some(after.as_bytes()), before);
            assert_eq!(config.is_some(), expected, "{before:?}: {after}");
            let is_error = findings.iter().any(Finding::is_error);
            assert_ne!(is_error, expected, "{findings:?}");
        }
    }

    #[test]
    fn a_good_file_has_no_findings() {
        for text in [
            r#"{"auths":{"quay.io":{"auth":"dXNlcjpwYXNz"}}}"#,
            r#"{"auths":{"quay.io":{"auth":"dXNlcjpwYXNz"},"r2":{"auth":"dTpw","x":1}},"HttpHeaders":{"a":"b"}}"#,
        ] {
            assert_eq!(found(text), [], "{text}");
        }
    }

    #[test]
    fn what_works_on_some_nodes_is_a_warning() {
        for (text, expected) in [
            (
                r#"{"auths":{"r":{"auth":"OnBhc3M="}}}"#,
                &[Code::EmptyUser][..],
            ),
            (
                r#"{"auths":{"r":{"auth":"dXNlcjo="}}}"#,
                &[Code::EmptyPassword],
            ),
            (
                r#"{"auths":{"r":{"auth":"dXNlcjpwYXNzd29yZA"}}}"#,
                &[Code::Unpadded],
            ),
            (
                r#"{"auths":{"r":{"username":"u","password":"p"}}}"#,
                &[Code::NoAuth],
            ),
            (r#"{"auths":{"r":{}}}"#, &[Code::NoCredential]),
            (r#"{"auths":{"r":null}}"#, &[Code::NoCredential]),
            (
                r#"{"auths":{"r":{"identitytoken":"t"}}}"#,
                &[Code::IdentityTokenOnly],
            ),
            (
                r#"{"auths":{"r":{"auth":"dTpw"}},"credHelpers":{"x":"y"}}"#,
                &[Code::CredHelpers],
            ),
            (
                r#"{"auths":{"r":{"auth":"dTpw"}},"credsStore":"x"}"#,
                &[Code::CredsStore],
            ),
            (
                r#"{"auths":{"r":{"auth":"dTpw"}},"CREDSSTORE":"x"}"#,
                &[Code::CredsStore],
            ),
            (
                r#"{"auths":{"r":{"auth":"dTpw"}},"credsStore":null,"credHelpers":null}"#,
                &[],
            ),
            (r#"{"auths":{"r":{"auth":"dTpw"}},"credsStore":""}"#, &[]),
            (
                r#"{"auths":{"r":{"auth":"cm9ib3Q6cORzcw=="}}}"#,
                &[Code::NotUtf8],
            ),
            (
                r#"{"auths":{"r":{"auth":"dTpw"},"https://r":{"auth":"dTpw"}}}"#,
                &[Code::DuplicateKey],
            ),
            (
                r#"{"auths":{"docker.io":{"auth":"dTpw"},"https://index.docker.io/v1/":{"auth":"dTpx"}}}"#,
                &[Code::DuplicateKey],
            ),
            (
                r#"{"auths":{"r":{"auth":"dTpw"},"https://r":{}}}"#,
                &[Code::NoCredential],
            ),
            (r#"{"auths":{" ":{"auth":"dTpw"}}}"#, &[Code::EmptyKey]),
            (
                r#"{"auths":{"*.*":{"auth":"dTpw"}}}"#,
                &[Code::GlobMatchesEverything],
            ),
        ] {
            let (config, findings) = validate_bytes(text.as_bytes());
            assert!(config.is_some(), "{text}: {findings:?}");
            let codes: Vec<Code> = findings.iter().map(|finding| finding.code).collect();
            assert_eq!(codes, expected, "{text}");
        }
    }

    #[test]
    fn entries_that_are_not_used_are_named() {
        let text = r#"{"auths":{"quay.io":{},"https://index.docker.io/v1/":{"auth":"dTpw"},"docker.io":{"auth":"dTpx"}}}"#;
        let findings = validate_bytes(text.as_bytes()).1;
        let named: Vec<String> = findings
            .iter()
            .filter(|finding| finding.limits_use())
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            named,
            [
                "`quay.io`: no `auth`, and no `username` with `password`: there is nothing to send, so the entry is skipped",
                "`https://index.docker.io/v1/`: it is the same registry as `docker.io`, whose credentials are used",
            ]
        );
    }

    #[test]
    fn what_is_too_large_for_a_secret_is_rejected() {
        let text = format!(
            r#"{{"auths":{{"r":{{"auth":"dTpw","x":"{}"}}}}}}"#,
            "x".repeat(MAX_BYTES)
        );
        assert_eq!(validate_bytes(text.as_bytes()).1[0].code, Code::TooLarge);
    }

    #[test]
    fn every_bad_entry_is_reported_with_its_reason() {
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
                r#"{"quay.io":{"auth":"dTpw"}}"#,
                vec![(
                    Error,
                    OldForm,
                    "this is the old `.dockercfg` format, without `auths`",
                )],
            ),
            (
                r#"{"auths":{"r":{"auth":"dTpw"}},"HttpHeaders":[]}"#,
                vec![(
                    Error,
                    HttpHeaders,
                    "`HttpHeaders` is not an object of strings",
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
