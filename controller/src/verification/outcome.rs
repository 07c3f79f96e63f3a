//! The meaning of a registry's response for the credentials. Pure.

use globalps_registry::{CheckOutcome, RegistryError, Why};

/// The result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The registry accepts the credentials, or needs none.
    Accepted,
    /// The registry rejected them with this HTTP status.
    Rejected(u16),
    /// The registry could not be asked, for this reason.
    Unknown(&'static str),
}

/// The reasons are few and fixed: they go into the status, which must not change with each check.
impl From<Result<CheckOutcome, RegistryError>> for Outcome {
    fn from(answer: Result<CheckOutcome, RegistryError>) -> Self {
        let error = match answer {
            Ok(
                CheckOutcome::Accepted
                | CheckOutcome::AcceptedInside
                | CheckOutcome::Open
                | CheckOutcome::Pattern
                | CheckOutcome::MayNotPull(_),
            ) => return Self::Accepted,
            Err(error) => error,
        };
        Self::Unknown(match error {
            RegistryError::Refused { status, .. } => return Self::Rejected(status),
            RegistryError::Way { why, .. } => connection(&why),
            RegistryError::ProxyAnswer { .. } | RegistryError::ProxyKind { .. } => {
                "the proxy rejects the connection"
            }
            RegistryError::Answer { status: 429, .. } => "it limits the rate of requests",
            RegistryError::Answer { .. } => "it responds with an error",
            RegistryError::Login { .. } => "it requires an unsupported login scheme",
            RegistryError::Unencrypted { .. } => "it requests the password without encryption",
            RegistryError::NoToken { .. }
            | RegistryError::BadUrl { .. }
            | RegistryError::Redirects { .. } => "it does not respond as a registry",
            RegistryError::NoRoots { .. } => "the controller has no usable certificate authorities",
            RegistryError::Late { .. } => "no response",
        })
    }
}

fn connection(why: &Why) -> &'static str {
    match why {
        Why::Name(_) => "its name can't be resolved",
        Why::NotAllowed => "its address is loopback or link-local",
        Why::Refuses | Why::Unreachable(_) | Why::NoConnection(_) => "no connection",
        Why::Silent(_) | Why::Http(_) => "no response",
        Why::NotTls => "it does not speak TLS",
        Why::UnknownAuthority
        | Why::AuthorityAsServer
        | Why::WrongName(_)
        | Why::Expired
        | Why::NotYetValid
        | Why::Certificate(_)
        | Why::Tls(_) => "its certificate is not trusted",
    }
}
