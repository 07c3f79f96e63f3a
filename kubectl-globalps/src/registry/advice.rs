//! One sentence for each trouble with a registry, and what to do. Pure.

use std::time::Duration;

use super::trouble::{Peer, Trouble, Why};
use crate::cli::Span;
use crate::error::Failure;

/// Why a registry is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The credentials are about to be written.
    Add,
    /// They are there, and nothing will be changed.
    Look,
}

/// What to do.
struct Hint {
    text: String,
    /// To leave out the check is one more way, for who is about to write the credentials.
    or_skip: bool,
}

impl Hint {
    fn text(self, purpose: Purpose) -> String {
        const SKIP: &str = "`--skip-check` goes on without the check";
        let Self { text, or_skip } = self;
        match purpose {
            Purpose::Add if or_skip => and(&text, SKIP),
            Purpose::Add | Purpose::Look => text,
        }
    }
}

fn and(text: &str, more: &str) -> String {
    let between = if text.ends_with('?') { "" } else { ";" };
    format!("{text}{between} {more}")
}

fn only(text: impl Into<String>) -> Hint {
    Hint {
        text: text.into(),
        or_skip: false,
    }
}

fn or_skip(text: impl Into<String>) -> Hint {
    Hint {
        or_skip: true,
        ..only(text)
    }
}

impl Trouble {
    /// The registry took the question and said no to the credentials.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }

    /// `key`: what was to be checked.
    pub(crate) fn failure(&self, key: &str, purpose: Purpose) -> Failure {
        let (why, hint) = match self {
            Self::Way { to, why } => way(to, why),
            Self::ProxyAnswer { proxy, status: 407 } => (
                format!("the proxy `{proxy}` wants user and password"),
                only("put them into the variable: `HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT`"),
            ),
            Self::ProxyAnswer { proxy, status } => (
                format!("the proxy `{proxy}` does not let it through ({status})"),
                only("if no proxy is needed for it, name the registry in `NO_PROXY`"),
            ),
            Self::ProxyKind { proxy } => (
                format!("the proxy `{proxy}` is of a kind that this program does not speak"),
                or_skip("use an `http://` or `https://` proxy"),
            ),
            Self::Answer {
                url,
                status,
                retry_after,
            } => answer(url, *status, retry_after.as_deref()),
            Self::Refused { url, status } => return refused(key, url, *status, purpose),
            Self::Login {
                url,
                way: Some(way),
            } => (
                format!("`{url}` wants a login of the kind `{way}`, which no node can do"),
                or_skip("nodes log in with a password or a token for it"),
            ),
            Self::Login { url, way: None } => (
                format!("`{url}` answers 401 and does not say how to log in"),
                or_skip("is it a registry, or a proxy before it?"),
            ),
            Self::NoToken { url } => (
                format!("`{url}` gave no token for the password, and no error either"),
                or_skip("is that the registry's token server?"),
            ),
            Self::Unencrypted { url } => (
                format!("it wants the password at `{url}`, which is not encrypted"),
                only("nothing was sent; if that is how it is meant to be, `--insecure`"),
            ),
            Self::BadUrl { url } => (
                format!("`{url}` is no URL that can be asked"),
                or_skip("is the registry's name right?"),
            ),
            Self::Redirects { url } => (
                format!("`{url}` leads from one place to the next"),
                or_skip("is it a registry?"),
            ),
            Self::Late { time } => (
                format!("its turn did not come within {}", Span(*time)),
                or_skip("less time for each question: `--check-timeout`"),
            ),
            Self::NoRoots { why } => (
                format!("this machine has no usable list of certificate authorities: {why}"),
                only("name the registry's own with `--ca-file`, or install `ca-certificates`"),
            ),
        };
        Failure::new(
            format!("`{key}` could not be checked: {why}"),
            hint.text(purpose),
        )
    }
}

fn way(to: &Peer, why: &Why) -> (String, Hint) {
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
        Peer::Host { .. } => or_skip("can only nodes reach it?"),
        Peer::Proxy { .. } => {
            only("see `HTTPS_PROXY`; if no proxy is needed for it, name the registry in `NO_PROXY`")
        }
    };
    match why {
        Why::Name(error) => (
            match to {
                Peer::Host { .. } => format!("the name `{host}` could not be resolved: {error}"),
                Peer::Proxy { .. } => format!("the name of {name} could not be resolved: {error}"),
            },
            match to {
                Peer::Host { .. } => or_skip("is the name right?"),
                Peer::Proxy { .. } => elsewhere,
            },
        ),
        Why::Refuses => (
            format!("{name} refuses connections"),
            match to {
                Peer::Host { .. } => or_skip("is the port right, and does it run?"),
                Peer::Proxy { .. } => elsewhere,
            },
        ),
        Why::Unreachable(error) => (format!("{name} can't be reached: {error}"), elsewhere),
        Why::NoConnection(time) => (
            format!("there was no connection to {name} within {}", Span(*time)),
            match to {
                Peer::Host { .. } => {
                    or_skip("a firewall, or a proxy that is needed (`HTTPS_PROXY`)?")
                }
                Peer::Proxy { .. } => elsewhere,
            },
        ),
        Why::Silent(time) => (
            format!(
                "{name} took the connection and did not answer within {}",
                Span(*time)
            ),
            or_skip("more time: `--check-timeout`"),
        ),
        Why::NotTls => (
            format!("{name} does not speak TLS"),
            only("if it is meant to speak plain HTTP, `--insecure`"),
        ),
        Why::UnknownAuthority => (
            format!("{certificate} is signed by nobody whom this machine trusts"),
            only("name its certificate authority with `--ca-file`; nodes must trust it too"),
        ),
        Why::AuthorityAsServer => (
            format!("{certificate} is an authority's own (`CA:TRUE`)"),
            only("if it is meant to be, name the very same certificate with `--ca-file`"),
        ),
        Why::WrongName(names) if names.is_empty() => (
            format!("{certificate} is for another name"),
            only("name the registry as its certificate does"),
        ),
        Why::WrongName(names) => (
            format!("{certificate} is for `{}`", names.join("`, `")),
            only("name the registry as its certificate does"),
        ),
        Why::Expired => (
            format!("{certificate} has expired"),
            only("the registry needs a new one; or is this machine's clock wrong?"),
        ),
        Why::NotYetValid => (
            format!("{certificate} is not valid yet"),
            only("is this machine's clock right?"),
        ),
        Why::Certificate(error) => (
            format!("{certificate} is not good: {error}"),
            or_skip("nodes would refuse it too"),
        ),
        Why::Tls(error) => (
            format!("no TLS connection with {name} came about: {error}"),
            or_skip("is it a registry?"),
        ),
        Why::Http(error) => (
            format!("{name} did not answer as a web server does: {error}"),
            or_skip("is it a registry?"),
        ),
    }
}

/// An answer to a question without credentials, or one that is not about them.
fn answer(url: &str, status: u16, retry_after: Option<&str>) -> (String, Hint) {
    match status {
        403 => (
            format!("`{url}` is forbidden for this machine (403)"),
            or_skip("a firewall, or an address that the registry does not allow?"),
        ),
        404 => (
            format!("there is no registry at `{url}` (404)"),
            only("name the host that the images name; a path goes behind it: `HOST/PATH`"),
        ),
        429 => (
            format!("`{url}` takes no more requests for now (429)"),
            match retry_after.and_then(|text| text.trim().parse::<u64>().ok()) {
                Some(seconds) => or_skip(format!(
                    "try again in {}",
                    Span(Duration::from_secs(seconds))
                )),
                None => or_skip("try again later"),
            },
        ),
        500.. => (
            format!("`{url}` has trouble of its own ({status})"),
            or_skip("try again later"),
        ),
        _ => (
            format!("`{url}` answers {status}, which no registry does"),
            or_skip("is the name right?"),
        ),
    }
}

/// The answer to the credentials.
fn refused(key: &str, url: &str, status: u16, purpose: Purpose) -> Failure {
    let (message, hint) = match status {
        403 => (
            format!("`{key}` refuses user and password: `{url}` answers 403"),
            "is the password right, the account not locked, and is it allowed to pull?".to_owned(),
        ),
        _ => (
            format!("`{key}` does not accept user and password: `{url}` answers {status}"),
            format!("try them with `podman login {key}`"),
        ),
    };
    let hint = match purpose {
        Purpose::Add if status == 403 => format!("{hint} Nothing was changed"),
        Purpose::Add => format!("{hint}. Nothing was changed"),
        Purpose::Look => and(
            &hint,
            &format!("`kubectl globalps add --registry {key} -u USER` takes new ones"),
        ),
    };
    Failure::new(message, hint)
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
            Trouble::Late { time },
        ]
        .iter()
        .map(|trouble| {
            let failure = trouble.failure("r.example.com", Purpose::Add);
            format!("{}\n  hint: {}\n", failure.message, failure.hint)
        })
        .collect();
        let expected = include_str!("advice.txt");
        assert_eq!(shown.concat(), expected, "\n{}", shown.concat());
        let refusal = Trouble::Refused {
            url: url(),
            status: 401,
        };
        for (trouble, hint) in [
            (
                refusal,
                "try them with `podman login r`; `kubectl globalps add --registry r -u USER` takes new ones",
            ),
            (host(Why::Refuses), "is the port right, and does it run?"),
        ] {
            let found = trouble.failure("r", Purpose::Look).hint;
            assert_eq!(found, hint, "who only looks has nothing to skip");
        }
        let mut sentences: Vec<&str> = expected.lines().step_by(2).collect();
        sentences.sort_unstable();
        sentences.dedup();
        assert_eq!(
            sentences.len(),
            shown.len() - 2,
            "only 429 is told once for three"
        );
    }
}
