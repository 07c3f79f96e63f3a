//! Content of a revision, read from the Secrets in the cluster.

use globalps_core::dockerconfig::{self, DockerConfig};
use globalps_core::names::{DATA_KEY, GLOBAL_SECRET, REVISION_ANNOTATION, ROLLED_OUT_SECRET};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::Api;
use tokio::time::timeout;

use super::{Cluster, TIMEOUT};

/// Why there is no content.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("`{name}` could not be read: {source}")]
    Api {
        name: &'static str,
        source: kube::Error,
    },
    #[error("`{name}` could not be read within {} s", TIMEOUT.as_secs())]
    Timeout { name: &'static str },
    #[error("neither `{GLOBAL_SECRET}` nor `{ROLLED_OUT_SECRET}` has revision {revision}")]
    Superseded { revision: i64 },
    #[error("`{name}` does not hold registry credentials: {error}")]
    Content { name: &'static str, error: String },
}

impl FetchError {
    /// The Secret does not exist, or the syncer's Role does not name it.
    fn is_absent(&self) -> bool {
        matches!(self, Self::Api { source: kube::Error::Api(status), .. } if [403, 404].contains(&status.code))
    }
}

impl Cluster {
    /// The content of this revision: the newest, or the last one that the whole fleet had.
    pub(crate) async fn fetch(&self, revision: i64) -> Result<DockerConfig, FetchError> {
        let newest = match self.read(GLOBAL_SECRET).await {
            Ok(secret) if has_revision(&secret, revision) => {
                return content(GLOBAL_SECRET, &secret);
            }
            Ok(_) => FetchError::Superseded { revision },
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
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let secret = timeout(TIMEOUT, secrets.get(name))
            .await
            .map_err(|_| FetchError::Timeout { name })?;
        secret.map_err(|source| match source {
            // The error may quote the content.
            kube::Error::SerdeError(_) => FetchError::Content {
                name,
                error: "it could not be read".to_owned(),
            },
            source => FetchError::Api { name, source },
        })
    }
}

fn has_revision(secret: &Secret, revision: i64) -> bool {
    secret.annotations().get(REVISION_ANNOTATION) == Some(&revision.to_string())
}

fn content(name: &'static str, secret: &Secret) -> Result<DockerConfig, FetchError> {
    let data = secret.data.as_ref().and_then(|data| data.get(DATA_KEY));
    let bytes = data.map(|bytes| bytes.0.as_slice());
    dockerconfig::parse(bytes.unwrap_or_default()).map_err(|error| FetchError::Content {
        name,
        error: error.to_string(),
    })
}
