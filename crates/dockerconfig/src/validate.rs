//! Checks a credentials file for what nodes would do with it.

use super::canonical::shown_key;
use super::effective::Ability;
use super::entry::{Entry, EntryError};
use super::finding::{Code, Finding};
use super::form::FileForm;
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

/// Like [`validate`], for data that replaces `before`. If no entry can authenticate but one could before, this is an
/// error: most likely a generator had nothing to write. If nothing is in force, such entries are harmless.
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
                FileForm::ByteOrderMark => Code::ByteOrderMark,
                FileForm::Utf16 => Code::Utf16,
                FileForm::EncodedTwice => Code::EncodedTwice,
                FileForm::Manifest => Code::Manifest,
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
        findings.push(unparsable(&ParseError::Form(FileForm::Manifest)));
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
mod tests;
