//! Keys that do not do what they look like.

use super::canonical::shown_key;
use super::entry::Entry;
use super::validate::{Code, Finding};

/// Names of Docker Hub that no kubelet takes for it.
const NOT_THE_HUB: [&str; 5] = [
    "hub.docker.com",
    "registry-1.docker.io",
    "registry.hub.docker.com",
    "docker.com",
    "auth.docker.io",
];

const HOST_HINT: &str =
    "write the registry as images name it, for example `quay.io` or `quay.io/org`";

/// All of them are warnings: a key that matches nothing harms nobody.
pub(super) fn key_findings(entry: &Entry) -> Vec<Finding> {
    let key = entry.key();
    let warning =
        |code, message: &'static str, hint| vec![Finding::warning(code, key, message, hint)];
    if key.trim().is_empty() {
        return warning(Code::EmptyKey, "an entry has no registry name", HOST_HINT);
    }
    let bare = key
        .strip_prefix("https://")
        .or_else(|| key.strip_prefix("http://"));
    let has_scheme = bare.is_some();
    let bare = bare.unwrap_or(key);
    let (host, path) = bare.split_at(bare.find('/').unwrap_or(bare.len()));
    let name = host.rsplit('@').next().unwrap_or_default();
    if name.contains(['[', ']']) && !name.starts_with('[') {
        let message = "brackets in a host work only on kubelets that a Go before 1.26 built";
        return warning(
            Code::BracketGlob,
            message,
            "write one entry for each registry",
        );
    }
    if entry.index().is_none() {
        let message = "no kubelet can parse it, so it is passed over";
        return warning(Code::KeyNotUrl, message, HOST_HINT);
    }
    let mut findings = path_findings(key, path, has_scheme);
    findings.extend(host_findings(key, name));
    findings
}

fn path_findings(key: &str, path: &str, has_scheme: bool) -> Vec<Finding> {
    let warning =
        |code, message: &'static str, hint| vec![Finding::warning(code, key, message, hint)];
    let is_api = matches!(path, "/v1/" | "/v2/" | "/v1" | "/v2");
    if path.is_empty() || (has_scheme && (is_api || path == "/")) {
        return Vec::new();
    }
    if path.contains([':', '@']) {
        let message = "a tag or digest in a key matches no image";
        return warning(Code::TagOrDigest, message, "leave the tag or digest out");
    }
    if path.contains(['*', '?', '[']) {
        let message = "a pattern in the path is taken as it is written and matches no image";
        return warning(
            Code::GlobInPath,
            message,
            "leave the pattern out; a path matches all that begins with it",
        );
    }
    if has_scheme {
        let message = "with a scheme, CRI-O drops the path and uses the entry for the whole host";
        return warning(Code::SchemeWithPath, message, "leave `https://` out");
    }
    if is_api {
        return warning(
            Code::ApiPath,
            "without a scheme, CRI-O takes `/v1/` and `/v2/` for a path and matches nothing",
            HOST_HINT,
        );
    }
    if path.ends_with('/') {
        return warning(
            Code::TrailingSlash,
            "CRI-O matches no key that ends with a slash",
            "leave the slash out",
        );
    }
    let shown = shown_key(key);
    let message =
        format!("a kubelet uses it for everything that begins with it, `{shown}-other` too");
    vec![Finding::warning(
        Code::PathIsPrefix,
        key,
        message,
        "let nobody else own a name that begins so",
    )]
}

fn host_findings(key: &str, host: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut warn = |code, message: &'static str, hint| {
        findings.push(Finding::warning(code, key, message, hint));
    };
    let (name, port) = host.rsplit_once(':').unwrap_or((host, ""));
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        warn(
            Code::UpperCase,
            "upper case is not lower case to a kubelet",
            "write it as images do, mostly in lower case",
        );
    }
    if NOT_THE_HUB.contains(&name) {
        warn(
            Code::HubName,
            "no kubelet takes this for Docker Hub",
            "write `docker.io`",
        );
    }
    if matches!(port, "443" | "80") {
        let message = "it matches only images that name the port too";
        warn(
            Code::DefaultPort,
            message,
            "leave the port out, if images do",
        );
    }
    if name.contains('*') {
        let labels: Vec<&str> = name.split('.').collect();
        match (labels.len(), labels.iter().all(|label| *label == "*")) {
            (1, _) => warn(
                Code::GlobMatchesNothing,
                "a star stands for one label, and a registry has several",
                HOST_HINT,
            ),
            (_, true) => warn(
                Code::GlobMatchesEverything,
                "the credential goes to every registry with that many labels",
                "name the registry",
            ),
            _ => warn(
                Code::GlobNotForCrio,
                "CRI-O knows no patterns",
                "write one entry for each registry",
            ),
        }
    }
    findings
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::json::Json;
    use super::*;

    #[test]
    fn a_key_that_does_not_do_what_it_looks_like_is_told() {
        use Code::*;
        for (key, expected) in [
            ("quay.io", &[][..]),
            ("https://quay.io", &[]),
            ("https://index.docker.io/v1/", &[]),
            ("localhost:5000", &[]),
            ("[::1]:5000", &[]),
            ("", &[EmptyKey]),
            (" ", &[EmptyKey]),
            ("quay io", &[KeyNotUrl]),
            (" quay.io", &[KeyNotUrl]),
            ("quay.io:*", &[KeyNotUrl]),
            ("q[tu]ay.io", &[BracketGlob]),
            ("Quay.io", &[UpperCase]),
            ("https://quay.io/org", &[SchemeWithPath]),
            ("quay.io/v1/", &[ApiPath]),
            ("quay.io/", &[TrailingSlash]),
            ("quay.io/org/", &[TrailingSlash]),
            ("quay.io/org", &[PathIsPrefix]),
            ("quay.io/org/img:1.0", &[TagOrDigest]),
            ("quay.io/org@sha256", &[TagOrDigest]),
            ("quay.io/*/img", &[GlobInPath]),
            ("*", &[GlobMatchesNothing]),
            ("*.*", &[GlobMatchesEverything]),
            ("*.azurecr.io", &[GlobNotForCrio]),
            ("quay.io:443", &[DefaultPort]),
            ("hub.docker.com", &[HubName]),
            ("https://registry-1.docker.io/v2/", &[HubName]),
        ] {
            let entry = Entry::new(key.to_owned(), Json::parse(b"{}").unwrap());
            let findings = key_findings(&entry);
            assert!(!findings.iter().any(Finding::is_error), "{key:?}");
            let found: Vec<Code> = findings.iter().map(|finding| finding.code).collect();
            assert_eq!(found, expected, "{key:?}");
        }
    }
}
