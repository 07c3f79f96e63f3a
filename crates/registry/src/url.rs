//! URLs of requests. Pure.

use hyper::Uri;

use crate::error::RegistryError;

pub(crate) fn parse(url: &str) -> Result<Uri, RegistryError> {
    let bad = || RegistryError::BadUrl {
        url: url.to_owned(),
    };
    let parsed: Uri = url.parse().map_err(|_| bad())?;
    match (parsed.scheme_str(), parsed.host()) {
        (Some("http" | "https"), Some(host)) if !host.is_empty() => Ok(parsed),
        _ => Err(bad()),
    }
}

/// The target of a redirect, which may be relative.
pub(crate) fn resolve(from: &Uri, location: &str) -> Result<Uri, RegistryError> {
    if !location.starts_with('/') || location.starts_with("//") {
        return parse(location);
    }
    let scheme = from.scheme_str().unwrap_or("https");
    parse(&format!("{scheme}://{}{location}", host_and_port(from)))
}

/// Like [`resolve`], for strings.
pub(crate) fn resolved(from: &str, location: &str) -> Result<String, RegistryError> {
    Ok(resolve(&parse(from)?, location)?.to_string())
}

pub(crate) fn bad_url(url: &Uri) -> RegistryError {
    RegistryError::BadUrl {
        url: url.to_string(),
    }
}

pub(crate) fn path(url: &Uri) -> Result<Uri, RegistryError> {
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    path.parse().map_err(|_| bad_url(url))
}

/// The host without the brackets of an IPv6 address.
pub(crate) fn host(url: &Uri) -> Result<String, RegistryError> {
    let host = url.host().ok_or_else(|| bad_url(url))?;
    Ok(host.trim_matches(['[', ']']).to_owned())
}

/// Host and port as written, without the user.
pub(crate) fn host_and_port(url: &Uri) -> &str {
    let authority = url.authority().map_or("", |a| a.as_str());
    authority.rsplit('@').next().unwrap_or_default()
}

pub(crate) fn port(url: &Uri) -> u16 {
    let default = if url.scheme_str() == Some("http") {
        80
    } else {
        443
    };
    url.port_u16().unwrap_or(default)
}

/// Scheme, host and port, without user and password.
pub(crate) fn shown(proxy: &Uri) -> String {
    let scheme = proxy.scheme_str().unwrap_or("http");
    format!("{scheme}://{}", host_and_port(proxy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_leads_where_it_says() {
        let from: Uri = "https://a.example.com:5000/v2/".parse().expect("a URL");
        for (location, expected) in [
            ("/login", Some("https://a.example.com:5000/login")),
            ("https://b/x?y", Some("https://b/x?y")),
            ("http://b/", Some("http://b/")),
            ("//b/x", None),
            ("login", None),
            ("ftp://b/", None),
            ("", None),
        ] {
            let found = resolve(&from, location).ok().map(|url| url.to_string());
            assert_eq!(found.as_deref(), expected, "{location}");
        }
    }

    #[test]
    fn a_url_has_a_host_and_a_port() {
        for (url, expected) in [
            ("https://quay.io/v2/", Some(("quay.io", 443))),
            ("http://quay.io/v2/", Some(("quay.io", 80))),
            ("https://[::1]:5000/v2/", Some(("::1", 5000))),
            ("quay.io", None),
            ("https://", None),
            ("https:///v2/", None),
            ("https://a b/", None),
        ] {
            let found = parse(url).ok().map(|url| {
                let host = host(&url).expect("a host");
                (host, port(&url))
            });
            let found = found.as_ref().map(|(host, port)| (host.as_str(), *port));
            assert_eq!(found, expected, "{url}");
        }
    }
}
