//! Secrets in namespaces, reduced to what the plan needs: there are thousands.

use globalps_core::namespaces::applied;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;

use super::digest::of_credentials;
use crate::content::digest::Digest;
use crate::targets::proof::Proof;
use crate::targets::version;

/// A Secret with the delivered name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullSecretView {
    /// Where it is.
    pub namespace: String,
    /// Its `resourceVersion`.
    pub version: u64,
    /// Of its uid, to save memory.
    pub uid: Digest,
    /// What it has in place of the proof that the controller wrote it.
    pub proof: Option<Proof>,
    /// Of its credentials; `None`: it has none.
    pub content: Option<Digest>,
    /// A client that names itself like the controller has written it.
    pub is_applied: bool,
    /// When that was, as the API server or another client says.
    pub written: Option<Timestamp>,
    /// A finalizer may keep it for long.
    pub is_being_deleted: bool,
    /// Those that keep it meanwhile, for a message.
    pub finalizers: Box<str>,
}

/// Maximum length of [`PullSecretView::finalizers`] in characters.
const FINALIZERS: usize = 256;

impl From<Secret> for PullSecretView {
    fn from(secret: Secret) -> Self {
        let own = applied(&secret);
        Self {
            namespace: secret.namespace().unwrap_or_default(),
            version: version(&secret),
            uid: Digest::of(&secret.metadata.uid),
            proof: Proof::of(&secret),
            content: of_credentials(&secret),
            is_applied: own.is_some(),
            written: own.and_then(|own| own.time.as_ref()).map(|time| time.0),
            is_being_deleted: secret.metadata.deletion_timestamp.is_some(),
            finalizers: finalizers(secret.finalizers()),
        }
    }
}

fn finalizers(all: &[String]) -> Box<str> {
    let text: String = all.join(", ").chars().take(FINALIZERS).collect();
    text.into_boxed_str()
}

#[cfg(any(test, feature = "testing"))]
impl PullSecretView {
    /// Another client's Secret in this namespace.
    pub fn of_test(namespace: &str) -> Self {
        let metadata = kube::core::ObjectMeta {
            namespace: Some(namespace.to_owned()),
            resource_version: Some("1".to_owned()),
            ..kube::core::ObjectMeta::default()
        };
        Self::from(Secret {
            metadata,
            ..Secret::default()
        })
    }
}
