//! What there is to say about a credentials file.

use std::borrow::Cow;

use serde::Serialize;

use super::canonical::shown_key;

/// Of a key for which no reader has an image.
pub(super) const MATCHES_NO_IMAGE: [Code; 6] = [
    Code::EmptyKey,
    Code::KeyNotUrl,
    Code::NotAHost,
    Code::TagOrDigest,
    Code::GlobInPath,
    Code::GlobMatchesNothing,
];

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
    ByteOrderMark,
    Utf16,
    EncodedTwice,
    Manifest,
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
    StrayCharacters,
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
    pub(super) fn error(
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

    /// Whether nodes don't use the entry, not all of them do, or its registry most likely rejects it, although the file is valid.
    pub fn limits_use(&self) -> bool {
        use Code::{
            DuplicateKey, EmptyPassword, EmptyUser, IdentityTokenOnly, NoCredential, NotUtf8,
            StrayCharacters,
        };
        let of_credential = [
            DuplicateKey,
            EmptyPassword,
            EmptyUser,
            IdentityTokenOnly,
            NoCredential,
            NotUtf8,
            StrayCharacters,
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
