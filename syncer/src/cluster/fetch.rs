//! Content of a revision, read from the Secrets in the cluster.

use globalps_core::dockerconfig::{self, DockerConfig};
use globalps_core::names::{DATA_KEY, GLOBAL_SECRET, PROVEN_ANNOTATION, REVISION_ANNOTATION};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::Api;
use tokio::time::timeout;

use super::{Cluster, TIMEOUT};

/// Why there is no content.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("`{GLOBAL_SECRET}` could not be read: {0}")]
    Api(kube::Error),
    #[error("`{GLOBAL_SECRET}` could not be read within {} s", TIMEOUT.as_secs())]
    Timeout,
    #[error("`{GLOBAL_SECRET}` is at revision {found}, not at the assigned one")]
    OtherRevision { found: String },
    #[error("`{GLOBAL_SECRET}` does not hold registry credentials: {0}")]
    Content(String),
}

impl Cluster {
    /// The content of this revision.
    pub(crate) async fn fetch(&self, revision: i64) -> Result<DockerConfig, FetchError> {
        let secret = self.read().await?;
        let found = secret
            .annotations()
            .get(REVISION_ANNOTATION)
            .cloned()
            .unwrap_or_default();
        if found != revision.to_string() {
            return Err(FetchError::OtherRevision { found });
        }
        content(&secret)
    }

    /// The newest revision and its content, if some node runs with it already.
    pub(crate) async fn fetch_proven(&self) -> Result<Option<(i64, DockerConfig)>, FetchError> {
        let secret = match self.read().await {
            Ok(secret) => secret,
            Err(FetchError::Api(kube::Error::Api(status))) if status.code == 404 => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let annotation = |name: &str| secret.annotations().get(name);
        let revision = annotation(REVISION_ANNOTATION)
            .filter(|revision| annotation(PROVEN_ANNOTATION) == Some(*revision));
        match revision.and_then(|revision| revision.parse().ok()) {
            Some(revision) => Ok(Some((revision, content(&secret)?))),
            None => Ok(None),
        }
    }

    async fn read(&self) -> Result<Secret, FetchError> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let secret = timeout(TIMEOUT, secrets.get(GLOBAL_SECRET))
            .await
            .map_err(|_| FetchError::Timeout)?;
        secret.map_err(|error| match error {
            // The error may quote the content.
            kube::Error::SerdeError(_) => FetchError::Content("it could not be read".to_owned()),
            other => FetchError::Api(other),
        })
    }
}

fn content(secret: &Secret) -> Result<DockerConfig, FetchError> {
    let data = secret.data.as_ref().and_then(|data| data.get(DATA_KEY));
    let bytes = data.map(|bytes| bytes.0.as_slice());
    dockerconfig::parse(bytes.unwrap_or_default())
        .map_err(|error| FetchError::Content(error.to_string()))
}
