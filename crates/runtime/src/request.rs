//! What requests to an API server have in common: a deadline, and errors that are safe to show.

use std::time::Duration;

use tokio::time::timeout;

#[derive(Debug, thiserror::Error)]
#[error("the API server does not respond")]
struct NoResponse;

/// The response, unless it does not come in time.
pub async fn within<T>(
    deadline: Duration,
    call: impl Future<Output = kube::Result<T>>,
) -> kube::Result<T> {
    let response = timeout(deadline, call).await;
    response.unwrap_or_else(|_| Err(kube::Error::Service(NoResponse.into())))
}

/// The error without the content of an unparsable response, which may contain credentials. Of an API error only its message.
pub fn without_content(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        kube::Error::SerdeError(_) => "could not decode the API server's response".to_owned(),
        kube::Error::Service(error) if error.is::<NoResponse>() => error.to_string(),
        other => other.to_string(),
    }
}
