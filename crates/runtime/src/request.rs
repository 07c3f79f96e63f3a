//! What all requests to an API server share: a deadline, and errors that are safe to show.

use std::time::Duration;

use tokio::time::timeout;

/// Deadline of a request.
pub const RESPONSE: Duration = Duration::from_secs(15);

#[derive(Debug, thiserror::Error)]
#[error("the API server does not respond")]
struct NoResponse;

/// The response, or an error at the deadline.
pub async fn within<T>(call: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    within_limit(RESPONSE, call).await
}

/// Like [`within`], with another deadline.
pub async fn within_limit<T>(
    limit: Duration,
    call: impl Future<Output = kube::Result<T>>,
) -> kube::Result<T> {
    let response = timeout(limit, call).await;
    response.unwrap_or_else(|_| Err(kube::Error::Service(NoResponse.into())))
}

/// Whether there was no response at the deadline.
pub fn is_timeout(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Service(error) if error.is::<NoResponse>())
}

/// The error without the content of an unparsable response, which may contain credentials. Of an API error only its message.
pub fn without_content(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        kube::Error::SerdeError(_) => "could not decode the API server's response".to_owned(),
        error if is_timeout(error) => NoResponse.to_string(),
        other => other.to_string(),
    }
}
