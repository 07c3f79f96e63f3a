//! One credential that a pull tries, and its origin. Pure.

use globalps_dockerconfig::{Credential, Crio, Secret, shown_key};

/// One credential that is tried, and its origin.
#[derive(Clone)]
pub(crate) struct Tried {
    pub source: String,
    pub key: String,
    pub username: String,
    pub origin: Origin,
    pub credential: Credential,
}

/// Who has to change a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The owner of the pod, in a Secret of its namespace.
    Pod,
    /// Like `Pod`, with the reason why an edit of the Secret fails or is reverted.
    Kept(String),
    /// globalps, in the Secrets for every pod.
    Globalps,
    /// The source of this name, which has a scope.
    Scoped(String),
    /// The owner of the catalog: globalps copies this Secret, given by namespace and name.
    Catalog(String, String),
}

impl Origin {
    /// Whether a rollout of globalps delivers it.
    pub(crate) fn is_delivered(&self) -> bool {
        matches!(self, Self::Globalps | Self::Scoped(_))
    }
}

/// The Secret of the pod's namespace has a credential for the image, but the pod doesn't refer to the Secret.
pub(crate) struct NoReference {
    pub namespace: String,
    pub secret: String,
    pub obstacle: Option<Obstacle>,
}

/// Why a new pod would have no reference either.
pub(crate) enum Obstacle {
    /// The admission policy is missing.
    Policy,
    /// The configuration doesn't name the pod's service account.
    ServiceAccount,
}

pub(super) fn lines_of(label: &str, tries: &[Tried]) -> Vec<String> {
    if tries.is_empty() {
        return vec![format!("{label} has no credential for it")];
    }
    let lines = tries.iter().enumerate().map(|(at, found)| {
        let label = if at == 0 { label } else { "  then:    " };
        let source = match found.source.as_str() {
            "" => String::new(),
            source => format!(", from {source}"),
        };
        format!("{label} `{}`, as {}{source}", found.key, found.username)
    });
    lines.collect()
}

pub(super) fn line_of_crio(crio: &Crio) -> String {
    match crio {
        Crio::Credential(found) => format!(
            "CRI-O:      `{}`, as {}",
            shown_key(&found.key),
            shown(&found.credential.username)
        ),
        Crio::None => "CRI-O:      has no credential for it".to_owned(),
        Crio::Error { key, why } if key.is_empty() => format!("CRI-O:      fails: {why}"),
        Crio::Error { key, why } => {
            format!("CRI-O:      fails because of `{}`: {why}", shown_key(key))
        }
    }
}

/// A user name is not secret here: it distinguishes two credentials.
pub(super) fn shown(username: &Secret) -> String {
    String::from_utf8_lossy(username.expose()).into_owned()
}
