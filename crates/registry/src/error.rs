//! Why a registry could not be checked, or rejected the credentials. Pure.

use std::io;
use std::time::Duration;

use tokio_rustls::rustls::{self, CertificateError};

/// The error of a check. It can contain hosts and URLs, but no credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "`url` was asked, `status` is HTTP's, `proxy` is a URL without credentials"
)]
pub enum RegistryError {
    /// The connection to the registry, its token server or a proxy failed.
    Way { to: Peer, why: Why },
    /// The proxy rejected the connection.
    ProxyAnswer { proxy: String, status: u16 },
    /// The scheme of the proxy's URL is not supported.
    ProxyKind { proxy: String },
    /// The registry or its token server responded with an error.
    Answer {
        url: String,
        status: u16,
        retry_after: Option<String>,
    },
    /// The registry rejected the credentials.
    Refused { url: String, status: u16 },
    /// A 401 without a supported login scheme.
    Login { url: String, way: Option<String> },
    /// The successful response of the token server contains no token.
    NoToken { url: String },
    /// The password would be sent without encryption.
    Unencrypted { url: String },
    /// The registry names a URL that can't be parsed.
    BadUrl { url: String },
    /// More redirects than the maximum.
    Redirects { url: String },
    /// The machine's list of certificate authorities can't be used.
    NoRoots { why: String },
    /// The checks of all registries took longer than this.
    Late { time: Duration },
}

impl RegistryError {
    /// Whether another attempt may succeed soon: the connection broke, or the server is busy.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Way { why, .. } => matches!(
                why,
                Why::Unreachable(_) | Why::NoConnection(_) | Why::Silent(_) | Why::Http(_)
            ),
            Self::Answer { status, .. } => *status == 429 || *status >= 500,
            _ => false,
        }
    }

    /// Whether the registry rejected the credentials.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }
}

/// The other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "a host has no brackets, and a URL no credentials"
)]
pub enum Peer {
    Host {
        host: String,
        port: u16,
    },
    Proxy {
        url: String,
        host: String,
        port: u16,
    },
}

impl Peer {
    /// Host, without the brackets of an address, and port.
    pub fn address(&self) -> (&str, u16) {
        match self {
            Self::Host { host, port } | Self::Proxy { host, port, .. } => (host, *port),
        }
    }
}

/// Why a connection failed. A text is the error of the system or of TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The name does not resolve.
    Name(String),
    /// The host has only addresses that [`crate::Connection::allows`] excludes.
    NotAllowed,
    /// Nothing listens on the port.
    Refuses,
    /// No route, or the connection broke off.
    Unreachable(String),
    /// No connection within this time.
    NoConnection(Duration),
    /// Connected, but no response within this time.
    Silent(Duration),
    /// The server does not speak TLS.
    NotTls,
    /// The certificate's issuer is not trusted.
    UnknownAuthority,
    /// The server uses a certificate of a certificate authority.
    AuthorityAsServer,
    /// The certificate is for these names only; empty: unknown.
    WrongName(Vec<String>),
    /// The certificate was valid until a time before now.
    Expired,
    /// The certificate is valid from a time after now.
    NotYetValid,
    /// Another defect of the certificate.
    Certificate(String),
    /// Another error of TLS.
    Tls(String),
    /// The connection was closed, or the response is not valid HTTP.
    Http(String),
}

impl Why {
    pub(crate) fn of_connect(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refuses,
            _ => Self::Unreachable(error.to_string()),
        }
    }

    pub(crate) fn of_tls(error: &io::Error) -> Self {
        let Some(error) = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<rustls::Error>())
        else {
            return Self::Tls(error.to_string());
        };
        match error {
            rustls::Error::InvalidCertificate(error) => Self::of_certificate(error),
            rustls::Error::InvalidMessage(_) => Self::NotTls,
            other => Self::Tls(other.to_string()),
        }
    }

    fn of_certificate(error: &CertificateError) -> Self {
        match error {
            // `BadSignature`: signed by another authority with the same name.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                Self::UnknownAuthority
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                Self::NotYetValid
            }
            CertificateError::NotValidForName => Self::WrongName(Vec::new()),
            CertificateError::NotValidForNameContext { presented, .. } => {
                Self::WrongName(presented.iter().map(|name| bare_name(name)).collect())
            }
            // An error type of a crate that rustls uses but does not export.
            CertificateError::Other(inner) if inner.to_string() == "CaUsedAsEndEntity" => {
                Self::AuthorityAsServer
            }
            other => Self::Certificate(other.to_string()),
        }
    }
}

/// `DnsName("a.example.com")` as `a.example.com`.
fn bare_name(name: &str) -> String {
    let inner = name.split_once('(').map_or(name, |(_, inner)| inner);
    inner.trim_end_matches(')').trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tls_error_names_the_problem_of_the_certificate() {
        use CertificateError as C;
        let of =
            |error: rustls::Error| Why::of_tls(&io::Error::new(io::ErrorKind::InvalidData, error));
        for (error, expected) in [
            (C::UnknownIssuer, Why::UnknownAuthority),
            (C::BadSignature, Why::UnknownAuthority),
            (C::Expired, Why::Expired),
            (C::NotValidYet, Why::NotYetValid),
            (C::NotValidForName, Why::WrongName(Vec::new())),
            (
                C::Revoked,
                Why::Certificate("certificate revoked".to_owned()),
            ),
        ] {
            let found = of(rustls::Error::InvalidCertificate(error.clone()));
            if let (Why::Certificate(_), Why::Certificate(_)) = (&found, &expected) {
                continue;
            }
            assert_eq!(found, expected, "{error:?}");
        }
        let plain = rustls::InvalidMessage::InvalidContentType;
        assert_eq!(of(rustls::Error::InvalidMessage(plain)), Why::NotTls);
        assert!(matches!(of(rustls::Error::DecryptError), Why::Tls(_)));
        let broken = io::Error::from(io::ErrorKind::UnexpectedEof);
        assert!(matches!(Why::of_tls(&broken), Why::Tls(_)));
    }

    #[test]
    fn names_of_a_certificate_are_shown_as_people_write_them() {
        for (name, expected) in [
            (r#"DnsName("a.example.com")"#, "a.example.com"),
            ("IpAddress(10.0.0.1)", "10.0.0.1"),
            ("a.example.com", "a.example.com"),
        ] {
            assert_eq!(bare_name(name), expected);
        }
    }
}
