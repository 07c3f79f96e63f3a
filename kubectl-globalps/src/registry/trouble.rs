//! Why a registry could not be asked, or said no: one sentence for each, and what to do. Pure.

use std::io;
use std::time::Duration;

use tokio_rustls::rustls::{self, CertificateError};

use crate::cli::Span;
use crate::error::Failure;

/// What stood in the way. Hosts and URLs may be shown; credentials are in none of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
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
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Peer {
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
pub(super) enum Why {
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

const SKIP: &str = "`--skip-check` goes on without the check";

impl Trouble {
    /// `key`: what was to be checked.
    pub(super) fn failure(&self, key: &str) -> Failure {
        let (why, hint) = match self {
            Self::Way { to, why } => way(to, why),
            Self::ProxyAnswer { proxy, status: 407 } => (
                format!("the proxy `{proxy}` wants user and password"),
                "put them into the variable: `HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT`"
                    .to_owned(),
            ),
            Self::ProxyAnswer { proxy, status } => (
                format!("the proxy `{proxy}` does not let it through ({status})"),
                "if no proxy is needed for it, name the registry in `NO_PROXY`".to_owned(),
            ),
            Self::ProxyKind { proxy } => (
                format!("the proxy `{proxy}` is of a kind that this program does not speak"),
                format!("use an `http://` or `https://` proxy; {SKIP}"),
            ),
            Self::Answer {
                url,
                status,
                retry_after,
            } => answer(url, *status, retry_after.as_deref()),
            Self::Refused { url, status } => return refused(key, url, *status),
            Self::Login {
                url,
                way: Some(way),
            } => (
                format!("`{url}` wants a login of the kind `{way}`, which no node can do"),
                format!("nodes log in with a password or a token for it; {SKIP}"),
            ),
            Self::Login { url, way: None } => (
                format!("`{url}` answers 401 and does not say how to log in"),
                format!("is it a registry, or a proxy before it? {SKIP}"),
            ),
            Self::NoToken { url } => (
                format!("`{url}` gave no token for the password, and no error either"),
                format!("is that the registry's token server? {SKIP}"),
            ),
            Self::Unencrypted { url } => (
                format!("it wants the password at `{url}`, which is not encrypted"),
                "nothing was sent; if that is how it is meant to be, `--insecure`".to_owned(),
            ),
            Self::BadUrl { url } => (
                format!("`{url}` is no URL that can be asked"),
                format!("is the registry's name right? {SKIP}"),
            ),
            Self::Redirects { url } => (
                format!("`{url}` leads from one place to the next"),
                format!("is it a registry? {SKIP}"),
            ),
            Self::NoRoots { why } => (
                format!("this machine has no usable list of certificate authorities: {why}"),
                "name the registry's own with `--ca-file`, or install `ca-certificates`".to_owned(),
            ),
        };
        Failure::new(format!("`{key}` could not be checked: {why}"), hint)
    }
}

fn way(to: &Peer, why: &Why) -> (String, String) {
    let (host, port) = to.address();
    let name = match to {
        Peer::Host { .. } => format!("`{host}:{port}`"),
        Peer::Proxy { url, .. } => format!("the proxy `{url}`"),
    };
    let certificate = match to {
        Peer::Host { .. } => format!("the certificate of `{host}`"),
        Peer::Proxy { url, .. } => format!("the certificate of the proxy `{url}`"),
    };
    let elsewhere = match to {
        Peer::Host { .. } => format!("can only nodes reach it? {SKIP}"),
        Peer::Proxy { .. } => {
            "see `HTTPS_PROXY`; if no proxy is needed for it, name the registry in `NO_PROXY`"
                .to_owned()
        }
    };
    match why {
        Why::Name(error) => (
            match to {
                Peer::Host { .. } => format!("the name `{host}` could not be resolved: {error}"),
                Peer::Proxy { .. } => format!("the name of {name} could not be resolved: {error}"),
            },
            match to {
                Peer::Host { .. } => format!("is the name right? {SKIP}"),
                Peer::Proxy { .. } => elsewhere,
            },
        ),
        Why::Refuses => (
            format!("{name} refuses connections"),
            match to {
                Peer::Host { .. } => format!("is the port right, and does it run? {SKIP}"),
                Peer::Proxy { .. } => elsewhere,
            },
        ),
        Why::Unreachable(error) => (format!("{name} can't be reached: {error}"), elsewhere),
        Why::NoConnection(time) => (
            format!("there was no connection to {name} within {}", Span(*time)),
            match to {
                Peer::Host { .. } => {
                    format!("a firewall, or a proxy that is needed (`HTTPS_PROXY`)? {SKIP}")
                }
                Peer::Proxy { .. } => elsewhere,
            },
        ),
        Why::Silent(time) => (
            format!(
                "{name} took the connection and did not answer within {}",
                Span(*time)
            ),
            format!("more time: `--check-timeout`; {SKIP}"),
        ),
        Why::NotTls => (
            format!("{name} does not speak TLS"),
            "if it is meant to speak plain HTTP, `--insecure`".to_owned(),
        ),
        Why::UnknownAuthority => (
            format!("{certificate} is signed by nobody whom this machine trusts"),
            "name its certificate authority with `--ca-file`; nodes must trust it too".to_owned(),
        ),
        Why::AuthorityAsServer => (
            format!("{certificate} is an authority's own (`CA:TRUE`)"),
            "if it is meant to be, name the very same certificate with `--ca-file`".to_owned(),
        ),
        Why::WrongName(names) if names.is_empty() => (
            format!("{certificate} is for another name"),
            "name the registry as its certificate does".to_owned(),
        ),
        Why::WrongName(names) => (
            format!("{certificate} is for `{}`", names.join("`, `")),
            "name the registry as its certificate does".to_owned(),
        ),
        Why::Expired => (
            format!("{certificate} has expired"),
            "the registry needs a new one; or is this machine's clock wrong?".to_owned(),
        ),
        Why::NotYetValid => (
            format!("{certificate} is not valid yet"),
            "is this machine's clock right?".to_owned(),
        ),
        Why::Certificate(error) => (
            format!("{certificate} is not good: {error}"),
            format!("nodes would refuse it too; {SKIP}"),
        ),
        Why::Tls(error) => (
            format!("no TLS connection with {name} came about: {error}"),
            format!("is it a registry? {SKIP}"),
        ),
        Why::Http(error) => (
            format!("{name} did not answer as a web server does: {error}"),
            format!("is it a registry? {SKIP}"),
        ),
    }
}

/// An answer to a question without credentials, or one that is not about them.
fn answer(url: &str, status: u16, retry_after: Option<&str>) -> (String, String) {
    match status {
        403 => (
            format!("`{url}` is forbidden for this machine (403)"),
            format!("a firewall, or an address that the registry does not allow? {SKIP}"),
        ),
        404 => (
            format!("there is no registry at `{url}` (404)"),
            "name the host that the images name; a path goes behind it: `HOST/PATH`".to_owned(),
        ),
        429 => (
            format!("`{url}` takes no more requests for now (429)"),
            match retry_after.and_then(|text| text.trim().parse::<u64>().ok()) {
                Some(seconds) => format!(
                    "try again in {}; {SKIP}",
                    Span(Duration::from_secs(seconds))
                ),
                None => format!("try again later; {SKIP}"),
            },
        ),
        500.. => (
            format!("`{url}` has trouble of its own ({status})"),
            format!("try again later; {SKIP}"),
        ),
        _ => (
            format!("`{url}` answers {status}, which no registry does"),
            format!("is the name right? {SKIP}"),
        ),
    }
}

/// The answer to the credentials.
fn refused(key: &str, url: &str, status: u16) -> Failure {
    match status {
        403 => Failure::new(
            format!("`{key}` refuses user and password: `{url}` answers 403"),
            "is the password right, the account not locked, and is it allowed to pull? Nothing was changed",
        ),
        _ => Failure::new(
            format!("`{key}` does not accept user and password: `{url}` answers {status}"),
            format!("try them with `podman login {key}`. Nothing was changed"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(why: Why) -> Trouble {
        let to = Peer::Host {
            host: "r.example.com".to_owned(),
            port: 443,
        };
        Trouble::Way { to, why }
    }

    fn proxy(why: Why) -> Trouble {
        let to = Peer::Proxy {
            url: "http://p:3128".to_owned(),
            host: "p".to_owned(),
            port: 3128,
        };
        Trouble::Way { to, why }
    }

    fn answer(status: u16, retry_after: Option<&str>) -> Trouble {
        Trouble::Answer {
            url: "https://r.example.com/v2/".to_owned(),
            status,
            retry_after: retry_after.map(str::to_owned),
        }
    }

    #[test]
    fn each_trouble_has_a_sentence_and_a_way_out_of_its_own() {
        let url = || "https://r.example.com/v2/".to_owned();
        let time = Duration::from_secs(10);
        let text = || "because".to_owned();
        let shown: Vec<String> = [
            host(Why::Name(text())),
            host(Why::Refuses),
            host(Why::Unreachable(text())),
            host(Why::NoConnection(time)),
            host(Why::Silent(time)),
            host(Why::NotTls),
            host(Why::UnknownAuthority),
            host(Why::AuthorityAsServer),
            host(Why::WrongName(Vec::new())),
            host(Why::WrongName(vec!["a".to_owned(), "b".to_owned()])),
            host(Why::Expired),
            host(Why::NotYetValid),
            host(Why::Certificate(text())),
            host(Why::Tls(text())),
            host(Why::Http(text())),
            proxy(Why::Name(text())),
            proxy(Why::Refuses),
            proxy(Why::NoConnection(time)),
            proxy(Why::Silent(time)),
            proxy(Why::UnknownAuthority),
            Trouble::ProxyAnswer {
                proxy: "http://p:3128".to_owned(),
                status: 407,
            },
            Trouble::ProxyAnswer {
                proxy: "http://p:3128".to_owned(),
                status: 502,
            },
            Trouble::ProxyKind {
                proxy: "socks5://p".to_owned(),
            },
            answer(403, None),
            answer(404, None),
            answer(429, None),
            answer(429, Some("90")),
            answer(429, Some("Wed, 21 Oct 2026 07:28:00 GMT")),
            answer(503, None),
            answer(418, None),
            Trouble::Refused {
                url: url(),
                status: 401,
            },
            Trouble::Refused {
                url: url(),
                status: 403,
            },
            Trouble::Login {
                url: url(),
                way: Some("NTLM".to_owned()),
            },
            Trouble::Login {
                url: url(),
                way: None,
            },
            Trouble::NoToken { url: url() },
            Trouble::Unencrypted {
                url: "http://t/".to_owned(),
            },
            Trouble::BadUrl {
                url: "https:// /".to_owned(),
            },
            Trouble::Redirects { url: url() },
            Trouble::NoRoots { why: text() },
        ]
        .iter()
        .map(|trouble| {
            let failure = trouble.failure("r.example.com");
            format!("{}\n  hint: {}\n", failure.message, failure.hint)
        })
        .collect();
        let expected = include_str!("trouble.txt");
        assert_eq!(shown.concat(), expected, "\n{}", shown.concat());
        let mut sentences: Vec<&str> = expected.lines().step_by(2).collect();
        sentences.sort_unstable();
        sentences.dedup();
        assert_eq!(
            sentences.len(),
            shown.len() - 2,
            "only 429 is told once for three"
        );
    }

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
