//! Checks a credentials file for what nodes would do with it.

use super::canonical::shown_key;
use super::effective::Ability;
use super::entry::{Entry, EntryError};
use super::finding::{Code, Finding};
use super::form::Form;
use super::keys::key_findings;
use super::parse::{DockerConfig, ParseError, parse};

/// Size limit of a Secret's data, in bytes.
const MAX_BYTES: usize = 1 << 20;

const AUTH_HINT: &str = "it must be base64 of `user:password`";
const ONCE_HINT: &str = "encode `user:password` only once";
const STRAY_HINT: &str = "encode it again without: `printf %s 'USER:PASSWORD' | base64 -w0`";
const FORM_HINT: &str =
    "the form is {\"auths\": {\"REGISTRY\": {\"auth\": \"BASE64 OF USER:PASSWORD\"}}}";

/// Parses and validates the data of a Secret under its key; `None`: the key is missing.
pub fn validate_data(data: Option<&[u8]>) -> (Option<DockerConfig>, Vec<Finding>) {
    let Some(bytes) = data else {
        let message = format!("the Secret has no key `{}`", crate::DATA_KEY);
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
    let (code, hint) = match error {
        ParseError::NotJson { .. } => (Code::NotJson, FORM_HINT),
        ParseError::NotObject => (Code::NotObject, FORM_HINT),
        ParseError::AuthsNotObject => (Code::AuthsNotObject, FORM_HINT),
        ParseError::AuthsEncodedTwice => (Code::EncodedTwice, FORM_HINT),
        ParseError::Form(form) => {
            let code = match form {
                Form::ByteOrderMark => Code::ByteOrderMark,
                Form::Utf16 => Code::Utf16,
                Form::EncodedTwice => Code::EncodedTwice,
                Form::Manifest => Code::Manifest,
            };
            (code, form.hint())
        }
    };
    Finding::error(code, "", error.to_string(), hint)
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
    } else if config.is_manifest() {
        findings.push(unparsable(&ParseError::Form(Form::Manifest)));
    } else if config.is_nested() {
        findings.push(Finding::error(
            Code::NoAuths,
            "",
            "`auths` is not at the top level",
            "use the object that has `auths` as the whole content",
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
            let (code, hint) = match error {
                EntryError::NotObject => (Code::EntryNotObject, FORM_HINT),
                EntryError::ObjectEncodedTwice => (Code::EncodedTwice, FORM_HINT),
                EntryError::NotString(_) => (Code::FieldNotString, AUTH_HINT),
                EntryError::NotBase64(_) => (Code::BadBase64, AUTH_HINT),
                EntryError::ByteOrderMark => (Code::ByteOrderMark, AUTH_HINT),
                EntryError::NoColon => (Code::NoColon, AUTH_HINT),
                EntryError::EncodedTwice => (Code::EncodedTwice, ONCE_HINT),
            };
            return vec![Finding::error(code, key, error.to_string(), hint)];
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
    if let Some(what) = credential.stray_characters() {
        let message = format!("{what}, and nodes send it as it is");
        findings.push(Finding::warning(
            Code::StrayCharacters,
            key,
            message,
            STRAY_HINT,
        ));
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
    let helpers = config.helpers();
    for (registry, helper) in helpers.of_registries() {
        let message = helpers.crio_error(registry).unwrap_or_default();
        let hint = if helper.is_empty() {
            "remove the registry from `credHelpers`"
        } else {
            HINT
        };
        findings.push(Finding::warning(Code::CredHelpers, registry, message, hint));
    }
    if !helpers.is_crio_readable() {
        let message = "`credHelpers` is not an object of strings, so CRI-O rejects the file";
        let hint = "remove `credHelpers`";
        findings.push(Finding::warning(Code::CredHelpers, "", message, hint));
    }
    if !helpers.store().is_empty() {
        let message = "`credsStore` names a credential helper, and nodes have none";
        findings.push(Finding::warning(Code::CredsStore, "", message, HINT));
    }
    findings
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;

    use super::super::finding::Severity;
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
                r#"{"auths":{"r":{"auth":"dTpw"}},"credsStore":"x","CREDSSTORE":""}"#,
                &[],
            ),
            (
                r#"{"auths":{"r":{"auth":"dTpw"}},"credsStore":"x","credsStore":null}"#,
                &[Code::CredsStore],
            ),
            (
                r#"{"auths":{"r":{"auth":"dTpw"}},"credHelpers":{"x":"y"},"credHelpers":null}"#,
                &[],
            ),
            (
                r#"{"auths":{"r":{"auth":"dTpw"}},"credHelpers":{"r":null}}"#,
                &[Code::CredHelpers],
            ),
            (
                r#"{"auths":{"r":{"auth":"dTpw"}},"credHelpers":[]}"#,
                &[Code::CredHelpers],
            ),
            (
                r#"{"AUTHS":null,"auth\u017f":{"r":{"AUTH":"dTpw","Auth":null,"username":null,"email":null,"identityToken":null}},"HttpHeaders":null}"#,
                &[],
            ),
            (
                r#"{"auths":{"r.example.com":{"auth":"cm9ib3Q6c2VjcmV0Cg=="}}}"#,
                &[Code::StrayCharacters],
            ),
            (
                r#"{"auths":{"r":{"username":"\ufeffu","password":"p"}}}"#,
                &[Code::StrayCharacters, Code::NoAuth],
            ),
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
                r#"{"auths":{"a":{"auth":"Y205aWIzUTZjMlZqY21WMA=="},"b":"{\"auth\":\"dTpw\"}","c":"dTpw"}}"#,
                vec![
                    (
                        Error,
                        EncodedTwice,
                        "`a`: `auth` was encoded twice: decoded, it is base64 of `user:password`",
                    ),
                    (
                        Error,
                        EncodedTwice,
                        "`b`: the entry is a string that contains an object: it was encoded twice",
                    ),
                    (Error, EntryNotObject, "`c`: the entry is not an object"),
                ],
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
    fn content_that_contains_a_file_is_named() {
        use Code::*;
        const FILE: &str = r#"{"auths":{"r":{"auth":"dTpw"}}}"#;
        let utf16 = |to_bytes: fn(u16) -> [u8; 2], text: &str| -> Vec<u8> {
            text.encode_utf16().flat_map(to_bytes).collect()
        };
        let with_mark = format!("\u{feff}{FILE}");
        let encoded = BASE64_STANDARD.encode(FILE);
        let quoted = serde_json::json!(FILE).to_string();
        for (content, code, message) in [
            (with_mark.clone().into(), ByteOrderMark, "it contains a byte order mark (U+FEFF), so nodes reject it"),
            (format!("\r\n {with_mark}").into(), ByteOrderMark, "it contains a byte order mark (U+FEFF), so nodes reject it"),
            (format!("{FILE}\u{feff}").into(), ByteOrderMark, "it contains a byte order mark (U+FEFF), so nodes reject it"),
            (utf16(u16::to_le_bytes, &with_mark), Utf16, "it is UTF-16, and nodes read only UTF-8"),
            (utf16(u16::to_be_bytes, &with_mark), Utf16, "it is UTF-16, and nodes read only UTF-8"),
            (utf16(u16::to_le_bytes, FILE), Utf16, "it is UTF-16, and nodes read only UTF-8"),
            (utf16(u16::to_be_bytes, FILE), Utf16, "it is UTF-16, and nodes read only UTF-8"),
            (encoded.clone().into(), EncodedTwice, "it is base64 or a string instead of a JSON object: it was encoded twice"),
            (format!("{}\n", BASE64_STANDARD.encode(&encoded)).into(), EncodedTwice, "it is base64 or a string instead of a JSON object: it was encoded twice"),
            (quoted.clone().into(), EncodedTwice, "it is base64 or a string instead of a JSON object: it was encoded twice"),
            (format!("{encoded:?}").into(), EncodedTwice, "it is base64 or a string instead of a JSON object: it was encoded twice"),
            (format!(r#"{{"auths":{quoted}}}"#).into(), EncodedTwice, "`auths` is a string that contains an object: it was encoded twice"),
            (format!(r#"{{"auths":{encoded:?}}}"#).into(), EncodedTwice, "`auths` is a string that contains an object: it was encoded twice"),
            (format!("apiVersion: v1\nkind: Secret\ndata:\n  .dockerconfigjson: {encoded}\n").into(), Manifest, "it is a Kubernetes manifest, not the credentials file in it"),
            (format!(r#"{{"apiVersion":"v1","kind":"Secret","data":{{".dockerconfigjson":{encoded:?}}}}}"#).into(), Manifest, "it is a Kubernetes manifest, not the credentials file in it"),
            (format!(r#"{{".dockerconfigjson":{encoded:?}}}"#).into(), NoAuths, "`auths` is not at the top level"),
            (format!(r#"{{".dockerconfigjson":{FILE}}}"#).into(), NoAuths, "`auths` is not at the top level"),
        ] {
            let (config, findings) = validate_bytes(&content);
            assert!(config.is_none(), "{content:?}");
            let found: Vec<_> = findings.iter().map(|it| (it.code, it.to_string())).collect();
            assert_eq!(found, [(code, message.to_owned())], "{content:?}");
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
            r#"{"auths":{"r":{"username":"u","password":"hunter2\n"}}}"#,
            r#"{"auths":{"r":"{\"auth\":\"hunter2\"}"}}"#,
            r#"{"auths":"{\"r\":\"hunter2\"}"}"#,
            r#"{"hunter2":{"auths":{"r":{}}}}"#,
            "\u{feff}hunter2",
            "apiVersion: v1\nkind: Secret\nstringData: {x: hunter2}\n",
        ] {
            let (_, findings) = validate_bytes(text.as_bytes());
            assert!(!findings.is_empty(), "{text}");
            assert!(!format!("{findings:?}").contains("hunter2"), "{text}");
        }
    }
}
