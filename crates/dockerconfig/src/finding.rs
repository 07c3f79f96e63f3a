//! Findings about a credentials file.

use std::borrow::Cow;

use serde::Serialize;

use super::canonical::shown_key;

/// Codes of a key under which no reader looks up an image.
pub(super) const MATCHES_NO_IMAGE: [Code; 6] = [
    Code::EmptyKey,
    Code::KeyNotUrl,
    Code::NotAHost,
    Code::TagOrDigest,
    Code::GlobInPath,
    Code::GlobMatchesNothing,
];

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A node would reject the file or ignore the entry.
    Error,
    /// The entry works, but may not have the intended effect.
    Warning,
}

/// The kind of finding, a word that scripts may rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Code {
    /// The Secret has no [`crate::DATA_KEY`].
    NoData,
    /// The file is larger than a Secret may be, or would make one that large.
    TooLarge,
    /// The file is not JSON.
    NotJson,
    /// The file, or a user in it, begins with a byte order mark.
    ByteOrderMark,
    /// The file is UTF-16.
    Utf16,
    /// The file, an entry or an `auth` was encoded twice.
    EncodedTwice,
    /// The file is a Kubernetes manifest.
    Manifest,
    /// The file is JSON, but not an object.
    NotObject,
    /// The registries are at the top level, as in `.dockercfg`.
    OldForm,
    /// `auths` is missing, or not at the top level.
    NoAuths,
    /// `auths` is written in another way, or repeated: some readers don't have its entries.
    AuthsName,
    /// `auths` is not an object.
    AuthsNotObject,
    /// `HttpHeaders` is not an object of strings.
    HttpHeaders,
    /// `auths` is empty, or nothing can authenticate with any of its entries.
    NoEntries,
    /// An entry is not an object.
    EntryNotObject,
    /// A field that readers need is not a string.
    FieldNotString,
    /// `auth` is not base64.
    BadBase64,
    /// `auth` has no colon between user and password.
    NoColon,
    /// About who may use the credentials, not about the bytes.
    BadScope,
    // The rest are warnings.
    /// Nothing is before the colon of `auth`.
    EmptyUser,
    /// `auth` has nothing after the colon.
    EmptyPassword,
    /// User or password is not UTF-8.
    NotUtf8,
    /// User or password contains a line break, a space at an end, or the like.
    StrayCharacters,
    /// `auth` lacks `=` at its end, without which CRI-O does not read it.
    Unpadded,
    /// User and password are there, but `auth` is not, which is all that CRI-O reads.
    NoAuth,
    /// No field of the entry can be sent as a credential.
    NoCredential,
    /// The entry only has `identitytoken`, which kubelets don't read.
    IdentityTokenOnly,
    /// `credHelpers` names programs that nodes don't have, or is not an object of strings.
    CredHelpers,
    /// `credsStore` names a program that nodes don't have.
    CredsStore,
    /// Another entry is for the same registry and is used instead.
    DuplicateKey,
    /// The key names no registry.
    EmptyKey,
    /// Kubelets can't parse the key.
    KeyNotUrl,
    /// No image's name has this host.
    NotAHost,
    /// The key has a pattern with brackets.
    BracketGlob,
    /// The host has upper-case letters, and kubelets compare them case-sensitively.
    UpperCase,
    /// CRI-O doesn't find a key with a scheme and a path.
    SchemeWithPath,
    /// CRI-O treats `/v1/` and `/v2/` as a path.
    ApiPath,
    /// CRI-O doesn't find a key that ends with a slash.
    TrailingSlash,
    /// The key has a tag or a digest, and names of repositories have none.
    TagOrDigest,
    /// The path has a pattern, which nothing expands.
    GlobInPath,
    /// The pattern has fewer labels than the hosts of registries.
    GlobMatchesNothing,
    /// The pattern matches every host with as many labels.
    GlobMatchesEverything,
    /// The key is a pattern, and CRI-O has none.
    GlobNotForCrio,
    /// The key has the default port, and kubelets match it only if image names have it.
    DefaultPort,
    /// The host is a name of Docker Hub that kubelets don't know.
    HubName,
    /// Kubelets send the credentials to every repository whose name begins with the path.
    PathIsPrefix,
}

/// One finding. `message` and `hint` never contain a credential or a part of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Errors come before the use of the file, warnings beside it.
    pub severity: Severity,
    /// Part of what `check -o json` prints, so it is never renamed.
    pub code: Code,
    /// The key as written; empty if the finding concerns the whole file.
    pub registry: String,
    /// A clause in lower case without a full stop.
    pub message: Cow<'static, str>,
    /// What to do, in the imperative; shown to users, but not part of JSON.
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

    /// Whether a node would reject the file or ignore the entry.
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
