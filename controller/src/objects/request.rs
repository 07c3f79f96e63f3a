//! One request, with a deadline, and its error.

use std::time::Duration;

use globalps_core::decode::{Item, Unreadable};
use globalps_core::reasons::Reason;
use globalps_planner::refused::Response;

use globalps_runtime::request::without_content;
use kube::core::Status;

const TIMEOUT: Duration = Duration::from_secs(10);

/// The failed action, the object and the error. Never the content of the object.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApplyError {
    #[error("{action} {object}: {}", without_content(.source))]
    Api {
        action: &'static str,
        object: String,
        source: kube::Error,
    },
    #[error("{action} {object}: the response can't be read: {reason}")]
    Unreadable {
        action: &'static str,
        object: String,
        reason: Box<Unreadable>,
    },
    /// Accepted, but other programs prevent what it was for.
    #[error("{action} {object}: {message}")]
    Prevented {
        action: &'static str,
        object: String,
        reason: Reason,
        message: String,
    },
    #[error("{action} {object}: no response from the API server in time")]
    Timeout {
        action: &'static str,
        object: String,
    },
}

impl ApplyError {
    /// Whether the API server rejected the write.
    pub(crate) fn response(&self) -> Response {
        match self {
            Self::Api { source, .. } => match source {
                kube::Error::Api(status) if status.code < 500 => Response::Rejected,
                // The API server did not store it.
                kube::Error::Api(status) if status.message.contains("failed calling webhook") => {
                    Response::Rejected
                }
                kube::Error::Api(_) | kube::Error::SerdeError(_) => Response::Missing,
                _ => Response::Outage,
            },
            Self::Prevented { .. } => Response::Rejected,
            Self::Unreadable { .. } | Self::Timeout { .. } => Response::Missing,
        }
    }

    /// The object has immutable fields with other values.
    pub(super) fn is_immutable(&self) -> bool {
        self.status().is_some_and(|status| {
            let says = |text| status.message.contains(text);
            status.code == 422 && (says("immutable") || says("cannot change roleRef"))
        })
    }

    /// See [`is_absent`].
    pub(crate) fn is_absent(&self) -> bool {
        self.status().is_some_and(is_absent)
    }

    pub(crate) fn is_forbidden(&self) -> bool {
        self.is_code(403)
    }

    /// The API server's response has this HTTP status.
    pub(crate) fn is_code(&self, code: u16) -> bool {
        self.status().is_some_and(|status| status.code == code)
    }

    /// The object to create exists.
    pub(crate) fn is_taken(&self) -> bool {
        self.status()
            .is_some_and(|status| status.code == 409 && status.reason == "AlreadyExists")
    }

    /// The API server's response; `None`: it did not respond.
    pub(super) fn status(&self) -> Option<&Status> {
        match self {
            Self::Api {
                source: kube::Error::Api(status),
                ..
            } => Some(status),
            _ => None,
        }
    }
}

/// There is no such object. A webhook that denies a request chooses any code and reason.
pub(crate) fn is_absent(status: &Status) -> bool {
    status.code == 404 && !is_denied(status)
}

/// A webhook or a policy has denied the request.
pub(crate) fn is_denied(status: &Status) -> bool {
    let says = |text| status.message.contains(text);
    says("admission webhook") || says("ValidatingAdmissionPolicy")
}

/// [`within`] for a response with an object.
pub(crate) async fn readable<K, const OWNERS: bool>(
    action: &'static str,
    kind: &str,
    name: &str,
    call: impl Future<Output = Result<Item<K, OWNERS>, kube::Error>>,
) -> Result<K, ApplyError> {
    let item = within(action, kind, name, call).await?;
    item.into_result().map_err(|reason| ApplyError::Unreadable {
        action,
        object: format!("{kind} `{name}`"),
        reason,
    })
}

pub(crate) async fn within<T>(
    action: &'static str,
    kind: &str,
    name: &str,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, ApplyError> {
    let object = || format!("{kind} `{name}`");
    match tokio::time::timeout(TIMEOUT, call).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(source)) => Err(ApplyError::Api {
            action,
            object: object(),
            source,
        }),
        Err(_) => Err(ApplyError::Timeout {
            action,
            object: object(),
        }),
    }
}
