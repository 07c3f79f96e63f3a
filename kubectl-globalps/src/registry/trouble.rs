//! Why a registry could not be asked, or said no. Pure.

use std::io;
use std::time::Duration;

use tokio_rustls::rustls::{self, CertificateError};

/// What stood in the way. Hosts and URLs may be shown; credentials are in none of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// On the way to a host, which is the registry, its token server or a proxy.
    Way {
        to: Peer,
        why: Why,
    },
    /// The proxy answered for the registry.
    ProxyAnswer {
        proxy: String,
        status: u16,
    },
    /// It is a proxy of a kind that is not known here.
    ProxyKind {
        proxy: String,
    },
    /// The registry or its token server answered, but not with yes.
    Answer {
        url: String,
        status: u16,
        retry_after: Option<String>,
    },
    /// The credentials were sent, and this is the answer.
    Refused {
        url: String,
        status: u16,
    },
    /// A 401 that names no way of login, or none that is known.
    Login {
        url: String,
        way: Option<String>,
    },
    /// The token server said yes, but there is no token in what it sent.
    NoToken {
        url: String,
    },
    /// The password would go over a line that anybody reads.
    Unencrypted {
        url: String,
    },
    BadUrl {
        url: String,
    },
    Redirects {
        url: String,
    },
    /// The machine's own list of certificate authorities.
    NoRoots {
        why: String,
    },
    /// All registries together took longer than this.
    Late {
        time: Duration,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
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
    pub(super) fn address(&self) -> (&str, u16) {
        match self {
            Self::Host { host, port } | Self::Proxy { host, port, .. } => (host, *port),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    Name(String),
    Refuses,
    Unreachable(String),
    NoConnection(Duration),
    Silent(Duration),
    /// It does not speak TLS.
    NotTls,
    /// Nobody whom this machine trusts signed the certificate.
    UnknownAuthority,
    /// The certificate is an authority's own.
    AuthorityAsServer,
    WrongName(Vec<String>),
    Expired,
    NotYetValid,
    Certificate(String),
    Tls(String),
    /// It broke off, or what it sent is no HTTP.
    Http(String),
}

impl Why {
    pub(super) fn of_connect(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refuses,
            _ => Self::Unreachable(error.to_string()),
        }
    }

    pub(super) fn of_tls(error: &io::Error) -> Self {
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
            // The latter: by another one of the same name.
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
            // Of a crate that rustls uses and does not show.
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
    fn an_error_of_tls_is_told_by_what_is_wrong_with_the_certificate() {
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
