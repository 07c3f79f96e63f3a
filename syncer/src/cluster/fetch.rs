//! Fetches the content of a revision from the Secrets in the cluster.

use globalps_core::checksum::has_checksum;
use globalps_core::decode::Item;
use globalps_core::names::{
    DATA_KEY, DELIVERY_ANNOTATION, GLOBAL_SECRET, REVISION_ANNOTATION, REVISION_ID_ANNOTATION,
    ROLLED_OUT_SECRET, SCOPED_KEY,
};
use globalps_core::rollout::Revision;
use globalps_provider::{Content, ContentError, Delivery, parse_scoped};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::Api;
use tokio::time::timeout;

use super::{Cluster, TIMEOUT};

/// Why there is no content.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("could not read Secret `{name}`: {source}")]
    Api {
        name: &'static str,
        source: kube::Error,
    },
    #[error("could not read Secret `{name}` within {} s", TIMEOUT.as_secs())]
    Timeout { name: &'static str },
    #[error("neither `{GLOBAL_SECRET}` nor `{ROLLED_OUT_SECRET}` has revision {revision}")]
    Superseded { revision: i64 },
    #[error("Secret `{name}` has no valid registry credentials: {error}")]
    Content { name: &'static str, error: String },
    #[error("Secret `{name}` has invalid scoped credentials: {error}")]
    Scoped {
        name: &'static str,
        error: ContentError,
    },
    #[error("Secret `{name}` has an unknown delivery: use a newer syncer")]
    Delivery { name: &'static str },
}

impl FetchError {
    /// The Secret does not exist, or the syncer's Role does not allow reading it.
    fn is_absent(&self) -> bool {
        matches!(self, Self::Api { source: kube::Error::Api(status), .. } if [403, 404].contains(&status.code))
    }
}

impl Cluster {
    /// The content of this revision: the newest one, or the last one that was rolled out to all nodes.
    pub(crate) async fn fetch(&self, revision: Revision) -> Result<Content, FetchError> {
        let newest = match self.read(GLOBAL_SECRET).await {
            Ok(secret) if has_revision(&secret, revision) => {
                return content(GLOBAL_SECRET, &secret);
            }
            Ok(_) => FetchError::Superseded {
                revision: revision.number,
            },
            Err(error) if error.is_absent() => error,
            Err(error) => return Err(error),
        };
        match self.read(ROLLED_OUT_SECRET).await {
            Ok(secret) if has_revision(&secret, revision) => content(ROLLED_OUT_SECRET, &secret),
            Err(error) if !error.is_absent() => Err(error),
            _ => Err(newest),
        }
    }

    async fn read(&self, name: &'static str) -> Result<Secret, FetchError> {
        let secrets: Api<Item<Secret>> = Api::namespaced(self.client.clone(), &self.namespace);
        let secret = timeout(TIMEOUT, secrets.get(name))
            .await
            .map_err(|_| FetchError::Timeout { name })?;
        let undecoded = |error| FetchError::Content { name, error };
        let secret = secret.map_err(|source| match source {
            // The error may quote the content.
            kube::Error::SerdeError(_) => undecoded("it could not be decoded".to_owned()),
            source => FetchError::Api { name, source },
        })?;
        secret
            .into_result()
            .map_err(|unreadable| undecoded(unreadable.to_string()))
    }
}

/// Number and id: a Secret with the same number may have other content. One that another client changed has no revision.
fn has_revision(secret: &Secret, revision: Revision) -> bool {
    let has = |key, value: String| secret.annotations().get(key) == Some(&value);
    revision.is_identified()
        && has(REVISION_ANNOTATION, revision.number.to_string())
        && has(REVISION_ID_ANNOTATION, revision.id.to_string())
        && has_checksum(secret, &[])
}

/// The revision that globalps gave it; `None`: another client wrote it.
pub(super) fn own_revision(secret: &Secret) -> Option<Revision> {
    let value = |key| secret.annotations().get(key);
    let number = value(REVISION_ANNOTATION)?.parse().ok()?;
    let revision = Revision::new(number, value(REVISION_ID_ANNOTATION)?.as_str().into());
    has_revision(secret, revision).then_some(revision)
}

/// Delivery and scopes are never guessed: an unreadable field is an error.
fn content(name: &'static str, secret: &Secret) -> Result<Content, FetchError> {
    let value = |key| {
        let data = secret.data.as_ref().and_then(|data| data.get(key));
        data.map(|bytes| bytes.0.as_slice())
    };
    let config =
        globalps_dockerconfig::parse(value(DATA_KEY).unwrap_or_default()).map_err(|error| {
            FetchError::Content {
                name,
                error: error.to_string(),
            }
        })?;
    let scoped = value(SCOPED_KEY).map_or(Ok(Vec::new()), parse_scoped);
    let delivery = secret.annotations().get(DELIVERY_ANNOTATION);
    let delivery = delivery.map_or(Ok(Delivery::default()), |text| serde_json::from_str(text));
    Ok(Content {
        config,
        scoped: scoped.map_err(|error| FetchError::Scoped { name, error })?,
        delivery: delivery.map_err(|_| FetchError::Delivery { name })?,
    })
}

#[cfg(test)]
mod tests {
    use globalps_core::checksum::add_checksum;
    use globalps_core::rollout::RevisionId;
    use globalps_provider::ProviderConfig;
    use k8s_openapi::ByteString;

    use super::*;

    #[test]
    fn a_revision_is_found_by_number_and_id() {
        let id = RevisionId::from_random;
        let secret = |number: &str, id: RevisionId| {
            let mut secret = Secret::default();
            let annotations = secret.annotations_mut();
            annotations.insert(REVISION_ANNOTATION.to_owned(), number.to_owned());
            annotations.insert(REVISION_ID_ANNOTATION.to_owned(), id.to_string());
            add_checksum(&mut secret, &[]);
            secret
        };
        for (case, number, of_secret, of_task, expected) in [
            ("the same", "1", id(1), id(1), true),
            ("another number", "2", id(1), id(1), false),
            ("another installation", "1", id(2), id(1), false),
            (
                "no id",
                "1",
                RevisionId::UNKNOWN,
                RevisionId::UNKNOWN,
                false,
            ),
        ] {
            let found = has_revision(&secret(number, of_secret), Revision::new(1, of_task));
            assert_eq!(found, expected, "{case}");
        }
        let mut edited = secret("1", id(1));
        let empty = (DATA_KEY.to_owned(), ByteString(br#"{"auths":{}}"#.to_vec()));
        edited.data.get_or_insert_default().extend([empty]);
        let is_it = has_revision(&edited, Revision::new(1, id(1)));
        assert!(!is_it, "another client replaced its content");
    }

    #[test]
    fn unreadable_delivery_or_scopes_are_an_error() {
        const CONFIG: &str = r#"{"auths":{"r":{"auth":"dTpw"}}}"#;
        const SCOPED: &str = r#"[{"source":"s","scope":{"namespaces":["a"]},"config":{"auths":{"r":{"auth":"dTpw"}}}}]"#;
        let provider = Delivery::CredentialProvider(ProviderConfig {
            ports: ["5050".to_owned()].into(),
            ..ProviderConfig::default()
        });
        for (config, scoped, annotation, expected) in [
            (CONFIG, None, None, Some((0, Delivery::ConfigFile))),
            (CONFIG, Some(SCOPED), None, Some((1, Delivery::ConfigFile))),
            (
                CONFIG,
                Some("[]"),
                Some(serde_json::to_string(&provider).unwrap()),
                Some((0, provider.clone())),
            ),
            ("{", None, None, None),
            (CONFIG, Some(""), None, None),
            (CONFIG, Some(r#"[{"source":"s"}]"#), None, None),
            (CONFIG, None, Some(String::new()), None),
            (CONFIG, None, Some(r#"{"type":"Pigeon"}"#.to_owned()), None),
        ] {
            let mut secret = Secret::default();
            let mut data = std::collections::BTreeMap::new();
            data.insert(DATA_KEY.to_owned(), ByteString(config.into()));
            if let Some(scoped) = scoped {
                data.insert(SCOPED_KEY.to_owned(), ByteString(scoped.into()));
            }
            secret.data = Some(data);
            if let Some(annotation) = annotation {
                let annotations = secret.annotations_mut();
                annotations.insert(DELIVERY_ANNOTATION.to_owned(), annotation);
            }
            let found = content(GLOBAL_SECRET, &secret).ok();
            let found = found.map(|content| (content.scoped.len(), content.delivery));
            assert_eq!(found, expected, "{config} {scoped:?}");
        }
    }
}
