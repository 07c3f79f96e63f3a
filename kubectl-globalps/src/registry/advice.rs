//! The message and the hint for each error of a registry. Pure.

use std::time::Duration;

use globalps_dockerconfig::Credential;
use globalps_registry::{HUB, Peer, RegistryError, Why};

use crate::cli::Span;
use crate::error::Failure;

/// Why the command contacts the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The credentials are about to be written.
    Add,
    /// The credentials exist already; the command only reports on them.
    Look,
    /// Images are about to be pushed with them.
    Push,
}

/// The next step for the user.
struct NextStep {
    text: String,
    /// Also suggests `--skip-check` before credentials are written.
    or_skip: bool,
}

impl NextStep {
    fn text(self, purpose: Purpose) -> String {
        const SKIP: &str = "`--skip-check` skips the check";
        let Self { text, or_skip } = self;
        match purpose {
            Purpose::Add if or_skip => and(&text, SKIP),
            Purpose::Add | Purpose::Look | Purpose::Push => text,
        }
    }
}

fn and(text: &str, more: &str) -> String {
    let between = if text.ends_with('?') { "" } else { ";" };
    format!("{text}{between} {more}")
}

fn only(text: impl Into<String>) -> NextStep {
    NextStep {
        text: text.into(),
        or_skip: false,
    }
}

fn or_skip(text: impl Into<String>) -> NextStep {
    NextStep {
        or_skip: true,
        ..only(text)
    }
}

/// The flag that this registry needs to be checked from here; `None` if no flag would help.
pub(crate) fn missing_flag(error: &RegistryError) -> Option<&'static str> {
    let RegistryError::Way { to, why } = error else {
        return None;
    };
    match (to, why) {
        (Peer::Host { .. }, Why::NotTls) => Some("--insecure"),
        (Peer::Host { .. }, Why::UnknownAuthority) => Some("--ca-file FILE"),
        _ => None,
    }
}

/// `key`: the registry that was contacted.
pub(crate) fn failure(error: &RegistryError, key: &str, purpose: Purpose) -> Failure {
    let (why, hint) = match error {
        RegistryError::Way { to, why } => way(to, why),
        RegistryError::ProxyAnswer { proxy, status: 407 } => (
            format!("the proxy `{proxy}` requires a user and a password"),
            only("set them in the variable: `HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT`"),
        ),
        RegistryError::ProxyAnswer { proxy, status } => (
            format!("the proxy `{proxy}` rejects the connection ({status})"),
            only("to bypass the proxy, add the registry to `NO_PROXY`"),
        ),
        RegistryError::ProxyKind { proxy } => (
            format!("the proxy `{proxy}` has an unsupported scheme"),
            or_skip("use an `http://` or `https://` proxy"),
        ),
        RegistryError::Answer {
            url,
            status,
            retry_after,
        } => answer(url, *status, retry_after.as_deref()),
        RegistryError::Refused { url, status } => return refused(key, url, *status, purpose),
        RegistryError::Login {
            url,
            way: Some(way),
        } => (
            format!("`{url}` requires the login scheme `{way}`, which nodes don't support"),
            or_skip("nodes log in with a password, or with a token for it"),
        ),
        RegistryError::Login { url, way: None } => (
            format!("`{url}` responds with 401 and names no login scheme"),
            or_skip("is it a registry, or a proxy in front of it?"),
        ),
        RegistryError::NoToken { url } => (
            format!("`{url}` returned neither a token nor an error"),
            or_skip("is that the registry's token server?"),
        ),
        RegistryError::Unencrypted { url } => (
            format!("it requests the password at `{url}`, which is not encrypted"),
            only("nothing was sent; if this is intended, add `--insecure`"),
        ),
        RegistryError::BadUrl { url } => (
            format!("`{url}` is not a valid URL"),
            or_skip("is the registry's name correct?"),
        ),
        RegistryError::Redirects { url } => (
            format!("`{url}` redirects too many times"),
            or_skip("is it a registry?"),
        ),
        RegistryError::Late { time } => (
            format!("the time limit for all checks was reached: {}", Span(*time)),
            or_skip("reduce the timeout of each request with `--check-timeout`"),
        ),
        RegistryError::NoRoots { why } => (
            format!("this machine has no usable list of certificate authorities: {why}"),
            only(
                "pass the registry's certificate authority with `--ca-file`, or install `ca-certificates`",
            ),
        ),
    };
    Failure::new(
        format!("`{key}` could not be checked: {why}"),
        hint.text(purpose),
    )
}

/// Like [`failure`], with the most likely defect of these credentials.
pub(crate) fn failure_with(
    error: &RegistryError,
    (key, credential): (&str, &Credential),
    purpose: Purpose,
) -> Failure {
    let mut failure = failure(error, key, purpose);
    if let Some(suspicion) = suspicion(key, credential).filter(|_| error.is_refusal()) {
        failure.hint = format!("{suspicion}; else {}", failure.hint);
    }
    failure
}

/// Why the registry most likely rejects these credentials.
pub(crate) fn suspicion(key: &str, credential: &Credential) -> Option<String> {
    if let Some(what) = credential.stray_characters() {
        return Some(format!("{what}: add the credentials again without it"));
    }
    let user = str::from_utf8(credential.username.expose()).ok()?;
    let rest = user.strip_prefix("robot")?;
    let is_elsewhere = NOT_HARBOR.contains(&key.split('/').next().unwrap_or_default());
    // A shell replaces an unset `$NAME` by nothing.
    let is_lost = !rest.contains('$') && !rest.starts_with(|first: char| first.is_alphanumeric());
    let is_escaped = rest.contains("\\$") || rest.contains("$$");
    (!is_elsewhere && (is_lost || is_escaped)).then(|| {
        "the user of a Harbor robot has one `$`: put it in single quotes, as in `-u 'robot$NAME'`"
            .to_owned()
    })
}

/// Registries whose user names have another format.
const NOT_HARBOR: [&str; 3] = [HUB, "quay.io", "ghcr.io"];

fn way(to: &Peer, why: &Why) -> (String, NextStep) {
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
            only("check `HTTPS_PROXY`; to bypass the proxy, add the registry to `NO_PROXY`")
        }
    };
    match why {
        Why::Name(error) => (
            match to {
                Peer::Host { .. } => format!("the name `{host}` could not be resolved: {error}"),
                Peer::Proxy { .. } => format!("the name of {name} could not be resolved: {error}"),
            },
            match to {
                Peer::Host { .. } => or_skip("check the host name"),
                Peer::Proxy { .. } => elsewhere,
            },
        ),
        Why::NotAllowed => (
            format!("{name} has an address that may not be used"),
            only("check the host name"),
        ),
        Why::Refuses => (
            format!("{name} refuses connections"),
            match to {
                Peer::Host { .. } => or_skip("check the port and whether the registry runs"),
                Peer::Proxy { .. } => elsewhere,
            },
        ),
        Why::Unreachable(error) => (format!("{name} can't be reached: {error}"), elsewhere),
        Why::NoConnection(time) => (
            format!("could not connect to {name} within {}", Span(*time)),
            match to {
                Peer::Host { .. } => {
                    or_skip("is there a firewall, or a required proxy (`HTTPS_PROXY`)?")
                }
                Peer::Proxy { .. } => elsewhere,
            },
        ),
        Why::Silent(time) => (
            format!(
                "{name} accepted the connection but did not respond within {}",
                Span(*time)
            ),
            or_skip("allow more time with `--check-timeout`"),
        ),
        Why::NotTls => (
            format!("{name} does not speak TLS"),
            only("if the registry uses plain HTTP on purpose, add `--insecure`"),
        ),
        Why::UnknownAuthority => (
            format!("{certificate} is signed by an authority that this machine does not trust"),
            only("pass its certificate authority with `--ca-file`; nodes must trust it too"),
        ),
        Why::AuthorityAsServer => (
            format!(
                "{certificate} is a certificate authority, not a server certificate (`CA:TRUE`)"
            ),
            only("if this is intended, pass this certificate with `--ca-file`"),
        ),
        Why::WrongName(names) if names.is_empty() => (
            format!("{certificate} is for another name"),
            only("use the registry name in the certificate"),
        ),
        Why::WrongName(names) => (
            format!("{certificate} is for `{}`", names.join("`, `")),
            only("use the registry name in the certificate"),
        ),
        Why::Expired => (
            format!("{certificate} has expired"),
            only("renew the registry's certificate, or check this machine's clock"),
        ),
        Why::NotYetValid => (
            format!("{certificate} is not valid yet"),
            only("check this machine's clock"),
        ),
        Why::Certificate(error) => (
            format!("{certificate} is invalid: {error}"),
            or_skip("nodes would reject it too"),
        ),
        Why::Tls(error) => (
            format!("the TLS handshake with {name} failed: {error}"),
            or_skip("is it a registry?"),
        ),
        Why::Http(error) => (
            format!("{name} sent no valid HTTP response: {error}"),
            or_skip("is it a registry?"),
        ),
    }
}

/// The error for a response to a request without credentials, or one unrelated to them.
fn answer(url: &str, status: u16, retry_after: Option<&str>) -> (String, NextStep) {
    match status {
        403 => (
            format!("`{url}` rejects requests from this machine (403)"),
            or_skip("does a firewall or the registry block this machine's address?"),
        ),
        404 => (
            format!("there is no registry at `{url}` (404)"),
            only("use the host of the image names, optionally with a path: `HOST/PATH`"),
        ),
        429 => (
            format!("`{url}` limits the rate of requests (429)"),
            match retry_after.and_then(|text| text.trim().parse::<u64>().ok()) {
                Some(seconds) => or_skip(format!(
                    "try again in {}",
                    Span(Duration::from_secs(seconds))
                )),
                None => or_skip("try again later"),
            },
        ),
        500.. => (
            format!("`{url}` has an internal error ({status})"),
            or_skip("try again later"),
        ),
        _ => (
            format!("`{url}` responds with unexpected status {status}"),
            or_skip("check the host name"),
        ),
    }
}

/// The error for a response that rejects the credentials.
fn refused(key: &str, url: &str, status: u16, purpose: Purpose) -> Failure {
    let (message, hint) = match status {
        403 => (
            format!("`{key}` denies access to this user: `{url}` responds with 403"),
            "is the password correct, is the account locked, and may it pull?".to_owned(),
        ),
        _ => (
            format!("`{key}` rejects the user or password: `{url}` responds with {status}"),
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
        Purpose::Push => hint,
    };
    Failure::new(message, hint)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn host(why: Why) -> RegistryError {
        let to = Peer::Host {
            host: "r.example.com".to_owned(),
            port: 443,
        };
        RegistryError::Way { to, why }
    }

    fn proxy(why: Why) -> RegistryError {
        let to = Peer::Proxy {
            url: "http://p:3128".to_owned(),
            host: "p".to_owned(),
            port: 3128,
        };
        RegistryError::Way { to, why }
    }

    fn answer(status: u16, retry_after: Option<&str>) -> RegistryError {
        RegistryError::Answer {
            url: "https://r.example.com/v2/".to_owned(),
            status,
            retry_after: retry_after.map(str::to_owned),
        }
    }

    #[test]
    fn each_error_has_its_own_message_and_hint() {
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
            RegistryError::ProxyAnswer {
                proxy: "http://p:3128".to_owned(),
                status: 407,
            },
            RegistryError::ProxyAnswer {
                proxy: "http://p:3128".to_owned(),
                status: 502,
            },
            RegistryError::ProxyKind {
                proxy: "socks5://p".to_owned(),
            },
            answer(403, None),
            answer(404, None),
            answer(429, None),
            answer(429, Some("90")),
            answer(429, Some("Wed, 21 Oct 2026 07:28:00 GMT")),
            answer(503, None),
            answer(418, None),
            RegistryError::Refused {
                url: url(),
                status: 401,
            },
            RegistryError::Refused {
                url: url(),
                status: 403,
            },
            RegistryError::Login {
                url: url(),
                way: Some("NTLM".to_owned()),
            },
            RegistryError::Login {
                url: url(),
                way: None,
            },
            RegistryError::NoToken { url: url() },
            RegistryError::Unencrypted {
                url: "http://t/".to_owned(),
            },
            RegistryError::BadUrl {
                url: "https:// /".to_owned(),
            },
            RegistryError::Redirects { url: url() },
            RegistryError::NoRoots { why: text() },
            RegistryError::Late { time },
        ]
        .iter()
        .map(|error| {
            let failure = failure(error, "r.example.com", Purpose::Add);
            format!("{}\n  hint: {}\n", failure.message, failure.hint)
        })
        .collect();
        let expected = include_str!("advice.txt");
        assert_eq!(shown.concat(), expected, "\n{}", shown.concat());
        let refusal = RegistryError::Refused {
            url: url(),
            status: 401,
        };
        for (error, hint) in [
            (
                refusal,
                "try them with `podman login r`; `kubectl globalps add --registry r -u USER` takes new ones",
            ),
            (
                host(Why::Refuses),
                "check the port and whether the registry runs",
            ),
        ] {
            let found = failure(&error, "r", Purpose::Look).hint;
            assert_eq!(found, hint, "who only looks has nothing to skip");
        }
        let messages: BTreeSet<&str> = expected.lines().step_by(2).collect();
        let count = shown.len() - 2;
        assert_eq!(messages.len(), count, "429 has one message for three cases");
    }

    #[test]
    fn what_is_likely_wrong_with_rejected_credentials_is_named() {
        use globalps_dockerconfig::Secret;
        let robot = Some(
            "the user of a Harbor robot has one `$`: put it in single quotes, as in `-u 'robot$NAME'`",
        );
        for (key, user, password, expected) in [
            ("r.io", "robot", "p", robot),
            ("r.io/team", "robot+name", "p", robot),
            ("r.io", "robot-ci", "p", robot),
            ("r.io", r"robot\$ci", "p", robot),
            ("r.io", "robot$$ci", "p", robot),
            ("r.io", "robot$ci", "p", None),
            ("r.io", "robot$team+ci", "p", None),
            ("r.io", "robotics", "p", None),
            ("r.io", "team+robot", "p", None),
            ("quay.io/org", "robot", "p", None),
            ("docker.io", "robot", "p", None),
            (
                "r.io",
                "robot",
                "p\n",
                Some("the password ends with a line break: add the credentials again without it"),
            ),
        ] {
            let credential = Credential {
                username: Secret::new(user),
                password: Secret::new(password),
            };
            assert_eq!(
                suspicion(key, &credential).as_deref(),
                expected,
                "{key} {user}"
            );
            let refusal = RegistryError::Refused {
                url: "https://r/v2/".to_owned(),
                status: 401,
            };
            for (error, is_named) in [(refusal, expected.is_some()), (host(Why::Refuses), false)] {
                let hint = failure_with(&error, (key, &credential), Purpose::Add).hint;
                let named = expected.is_some_and(|text| hint.starts_with(text));
                assert_eq!(named, is_named, "{hint}");
            }
        }
    }
}
