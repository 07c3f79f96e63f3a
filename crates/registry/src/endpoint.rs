//! The URLs to request for a key. Pure.

/// Docker Hub as images name it.
pub const HUB: &str = "docker.io";
/// Host of Docker Hub's registry, which no image name contains.
const HUB_SERVER: &str = "registry-1.docker.io";

/// Where to try the credentials of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// Host and optional port.
    pub authority: String,
    /// The key's path, if it can be the full name of a repository.
    pub repository: Option<String>,
}

/// `None` if the key is a pattern, which doesn't name a single registry.
pub(crate) fn endpoint(key: &str) -> Option<Endpoint> {
    let (host, path) = key.split_once('/').unwrap_or((key, ""));
    let is_pattern = host.contains(['*', '?']) || (host.contains('[') && !host.starts_with('['));
    if is_pattern {
        return None;
    }
    // A single part is usually an organisation, which a registry can't be queried about.
    let is_repository = path.split('/').filter(|part| !part.is_empty()).count() > 1;
    Some(Endpoint {
        authority: if host == HUB { HUB_SERVER } else { host }.to_owned(),
        repository: is_repository.then(|| path.trim_end_matches('/').to_owned()),
    })
}

/// URL scheme of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
}

impl Scheme {
    fn prefix(self) -> &'static str {
        match self {
            Self::Http => "http://",
            Self::Https => "https://",
        }
    }
}

impl Endpoint {
    /// The URL that shows whether the host is a registry, and which login it requires.
    pub(crate) fn ping(&self, scheme: Scheme) -> String {
        format!("{}{}/v2/", scheme.prefix(), self.authority)
    }

    /// The URL that shows whether this repository may be pulled.
    pub(crate) fn tags(&self, scheme: Scheme, repository: &str) -> String {
        format!("{}{repository}/tags/list?n=1", self.ping(scheme))
    }

    /// The URL of an image's manifest.
    pub(crate) fn manifest(&self, scheme: Scheme, repository: &str, reference: &str) -> String {
        format!("{}{repository}/manifests/{reference}", self.ping(scheme))
    }

    /// The URL of a blob.
    pub(crate) fn blob(&self, scheme: Scheme, repository: &str, digest: &str) -> String {
        format!("{}{repository}/blobs/{digest}", self.ping(scheme))
    }

    /// The URL that starts an upload.
    pub(crate) fn uploads(&self, scheme: Scheme, repository: &str) -> String {
        format!("{}{repository}/blobs/uploads/", self.ping(scheme))
    }

    pub(crate) fn has_port(&self) -> bool {
        let host = self.authority.rfind(']').unwrap_or(0);
        self.authority[host..].contains(':')
    }
}

/// The URL for requesting a token. `realm` can have its own query.
pub(crate) fn token_url(realm: &str, service: Option<&str>, scope: Option<&str>) -> String {
    let mut url = realm.to_owned();
    for (name, value) in [("service", service), ("scope", scope)] {
        if let Some(value) = value {
            url.push(if url.contains('?') { '&' } else { '?' });
            url.push_str(name);
            url.push('=');
            url.push_str(&escape(value));
        }
    }
    url
}

/// Percent-encodes all characters that have a meaning in a query.
fn escape(value: &str) -> String {
    use std::fmt::Write as _;
    let mut escaped = String::new();
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(byte.into());
        } else {
            // Writing to a string can't fail.
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_tried_where_its_images_come_from() {
        for (key, ping, tags) in [
            ("quay.io", "https://quay.io/v2/", None),
            ("quay.io/org", "https://quay.io/v2/", None),
            (
                "quay.io/org/app",
                "https://quay.io/v2/",
                Some("https://quay.io/v2/org/app/tags/list?n=1"),
            ),
            (
                "quay.io/org/app/",
                "https://quay.io/v2/",
                Some("https://quay.io/v2/org/app/tags/list?n=1"),
            ),
            (
                "registry.example.com:5000/team",
                "https://registry.example.com:5000/v2/",
                None,
            ),
            ("[::1]:5000", "https://[::1]:5000/v2/", None),
            ("docker.io", "https://registry-1.docker.io/v2/", None),
            ("docker.io/org", "https://registry-1.docker.io/v2/", None),
            (
                "docker.io/org/app",
                "https://registry-1.docker.io/v2/",
                Some("https://registry-1.docker.io/v2/org/app/tags/list?n=1"),
            ),
        ] {
            let found = endpoint(key).expect(key);
            assert_eq!(found.ping(Scheme::Https), ping, "{key}");
            let repository = found.repository.as_deref();
            let found = repository.map(|repository| found.tags(Scheme::Https, repository));
            assert_eq!(found.as_deref(), tags, "{key}");
        }
        for key in ["*.azurecr.io", "*", "r[12].example.com", "r?.example.com"] {
            assert_eq!(endpoint(key), None, "{key}");
        }
    }

    #[test]
    fn a_port_is_seen_behind_any_host() {
        for (key, expected) in [
            ("quay.io", false),
            ("quay.io:5000", true),
            ("[::1]", false),
            ("[::1]:5000", true),
        ] {
            assert_eq!(endpoint(key).expect(key).has_port(), expected, "{key}");
        }
    }

    #[test]
    fn a_token_is_requested_with_service_and_scope() {
        for (realm, service, scope, expected) in [
            ("https://a/t", None, None, "https://a/t"),
            (
                "https://auth.docker.io/token",
                Some("registry.docker.io"),
                Some("repository:library/nginx:pull"),
                "https://auth.docker.io/token?service=registry.docker.io&scope=repository%3Alibrary%2Fnginx%3Apull",
            ),
            (
                "https://a/t?x=1",
                Some("a b&c"),
                None,
                "https://a/t?x=1&service=a%20b%26c",
            ),
        ] {
            assert_eq!(token_url(realm, service, scope), expected);
        }
    }
}
