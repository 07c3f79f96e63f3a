//! The proxy for a server, from `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` as Go's `net/http`, and thus kubectl, reads
//! them. kube's own reader doesn't support a trailing comma, a port, or an address without a scheme.

use hyper::Uri;
use hyper::http::uri::Authority;
use hyper_util::client::proxy::matcher::Matcher;

use crate::error::{Failure, Result};

/// Addresses that are always reached directly.
const HERE: &str = "127.0.0.0/8,::1";

const EVERYTHING: &str = "*,0.0.0.0/0,::/0";

/// The values of the variables; empty if unset.
#[derive(Default)]
pub(crate) struct Proxies {
    pub https: String,
    pub http: String,
    /// Hosts without a proxy.
    pub none: String,
}

impl Proxies {
    pub(crate) fn from_env() -> Self {
        let set = |name: &str| {
            let names = [name.to_owned(), name.to_ascii_lowercase()];
            let mut values = names.iter().filter_map(|name| std::env::var(name).ok());
            values.find(|value| !value.is_empty()).unwrap_or_default()
        };
        Self {
            https: set("HTTPS_PROXY"),
            http: set("HTTP_PROXY"),
            none: set("NO_PROXY"),
        }
    }

    /// The proxy for this server; `None` if the connection is direct.
    pub(crate) fn of(&self, server: &Uri) -> Result<Option<Uri>> {
        let (name, proxy) = match server.scheme_str() {
            Some("http") => ("HTTP_PROXY", &self.http),
            _ => ("HTTPS_PROXY", &self.https),
        };
        if proxy.is_empty() || is_direct(server, &self.none) {
            return Ok(None);
        }
        named(name, proxy).map(Some)
    }
}

/// The address of the proxy in a variable or a field. The error does not quote it, because it may contain a password.
pub(crate) fn named(name: &str, proxy: &str) -> Result<Uri> {
    address(proxy).ok_or_else(|| {
        Failure::new(
            format!("`{name}` is not the address of a proxy"),
            "the form is `http://HOST:PORT`, `https://HOST:PORT` or `socks5://HOST:PORT`",
        )
    })
}

/// The address of a proxy, whose scheme is optional; `None` if it is invalid.
fn address(proxy: &str) -> Option<Uri> {
    let proxy = match proxy.split_once("://") {
        Some(("http" | "https" | "socks5", _)) => proxy.to_owned(),
        // With both schemes, the proxy resolves host names.
        Some(("socks5h", rest)) => format!("socks5://{rest}"),
        Some(_) => return None,
        None => format!("http://{proxy}"),
    };
    proxy.parse().ok().filter(|uri: &Uri| uri.host().is_some())
}

/// Whether Go's rules exempt the server. Those of the matcher are curl's: it knows no ports and no `*.example.com`, has
/// `.example.com` cover `example.com` but `*` no IP address, and uses the proxy for this machine too.
fn is_direct(server: &Uri, none: &str) -> bool {
    let host = server.host().unwrap_or_default();
    // The matcher would take `localhost` for all its subdomains, too.
    if host.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let port = server.port_u16().unwrap_or(match server.scheme_str() {
        Some("http") => 80,
        _ => 443,
    });
    let entry = |entry: &str| {
        // A network, and an IPv6 address without brackets, has no port.
        let parts = entry.parse::<Authority>().ok();
        let name = parts.as_ref().map_or(entry, Authority::host);
        let of_port = entry
            .strip_prefix(name)
            .and_then(|rest| rest.strip_prefix(':'));
        let of_port = of_port.filter(|port| !port.is_empty());
        let name = match name.trim_matches(['[', ']']) {
            "*" if of_port.is_some() => return None,
            "*" => EVERYTHING,
            name if name.starts_with("*.") => &name[1..],
            name => name,
        };
        let below = name.strip_prefix('.');
        let is_it = below.is_none_or(|name| !name.eq_ignore_ascii_case(host));
        (is_it && of_port.is_none_or(|it| it.parse() == Ok(port))).then(|| name.to_owned())
    };
    let entries = none.split(',').filter_map(|text| entry(text.trim()));
    let entries: Vec<String> = entries.chain([HERE.to_owned()]).collect();
    let matcher = Matcher::builder().all("http://proxy").no(entries.join(","));
    matcher.build().intercept(server).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_reached_through_a_proxy_as_by_kubectl() {
        const API: &str = "https://api.example.com:6443";
        for (server, none, expected) in [
            (API, "", true),
            (API, "example.com", false),
            (API, ".example.com", false),
            (API, "*.example.com", false),
            (API, "API.Example.com", false),
            (API, "ample.com", true),
            (API, "*", false),
            ("https://10.0.0.1:6443", "*", false),
            ("https://[fd00::1]:6443", "*", false),
            (API, " , other.org , example.com,", false),
            (API, "example.com:6443", false),
            (API, "example.com:443", true),
            (API, ":6443", true),
            (API, "example.com:", false),
            (API, "example.com:https", true),
            (API, "*:6443", true),
            ("https://a.localhost:6443", "", true),
            (API, ".", true),
            ("https://example.com", ".example.com", true),
            ("https://example.com", "example.com:443", false),
            ("https://10.0.0.1:6443", "10.0.0.0/8", false),
            ("https://10.0.0.1:6443", "10.0.0.0/33", true),
            ("https://11.0.0.1:6443", "10.0.0.0/8", true),
            ("https://11.0.0.1:6443", "0.0.0.0/0", false),
            ("https://10.0.0.1:6443", "10.0.0.1:6443", false),
            ("https://10.0.0.1:6443", "10.0.0.1:443", true),
            ("https://[fd00::1]:6443", "fd00::/8", false),
            ("https://[fd00::1]:6443", "fd00::1", false),
            ("https://[fd00::1]:6443", "[fd00::1]:6443", false),
            ("https://[fd00::1]:6443", "fd00::2", true),
            ("http://api.example.com", "", false),
            ("https://127.0.0.1:6443", "", false),
            ("https://[::1]:6443", "", false),
            ("https://localhost:6443", "", false),
        ] {
            let proxies = Proxies {
                https: "proxy.example.org:3128".to_owned(),
                none: none.to_owned(),
                ..Proxies::default()
            };
            let proxy = proxies.of(&server.parse().expect("a URL"));
            let proxy = proxy.expect("a proxy").map(|it| it.to_string());
            let wanted = expected.then(|| "http://proxy.example.org:3128/".to_owned());
            assert_eq!(proxy, wanted, "{server} {none:?}");
        }
    }

    #[test]
    fn the_address_of_a_proxy_needs_no_scheme_and_is_not_quoted() {
        for (text, expected) in [
            ("p:3128", Some("http://p:3128/")),
            ("https://p", Some("https://p/")),
            ("socks5://u:w@p:1080", Some("socks5://u:w@p:1080/")),
            ("socks5h://p:1080", Some("socks5://p:1080/")),
            ("ftp://p", None),
            ("u:hunter2@p q", None),
        ] {
            let found = address(text).map(|it| it.to_string());
            assert_eq!(found.as_deref(), expected, "{text}");
        }
        let proxies = Proxies {
            https: "u:hunter2@p q".to_owned(),
            ..Proxies::default()
        };
        let failure = proxies
            .of(&Uri::from_static("https://h"))
            .expect_err("none");
        assert!(failure.message.contains("`HTTPS_PROXY`"), "{failure:?}");
        assert!(!failure.message.contains("hunter2"), "{failure:?}");
    }
}
