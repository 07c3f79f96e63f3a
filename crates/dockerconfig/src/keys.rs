//! Warnings about keys that don't have the effect that they seem to have.

use super::canonical::shown_key;
use super::entry::Entry;
use super::finding::{Code, Finding, MATCHES_NO_IMAGE};

/// Host names of Docker Hub that kubelets don't recognize as Docker Hub.
const NOT_THE_HUB: [&str; 5] = [
    "hub.docker.com",
    "registry-1.docker.io",
    "registry.hub.docker.com",
    "docker.com",
    "auth.docker.io",
];

const HOST_HINT: &str =
    "write the registry as images name it, for example `quay.io` or `quay.io/org`";

/// Characters that a URL's host may contain, but no image name: they come from variables and placeholders that were not replaced.
const NOT_IN_HOSTS: [char; 14] = [
    '$', '<', '>', '(', ')', '&', '\'', '"', '!', '+', ',', ';', '=', '~',
];

/// A host with brackets that are not those of an IPv6 address.
pub(super) fn is_for_older_kubelets(key: &str) -> bool {
    let bare = key
        .strip_prefix("https://")
        .or_else(|| key.strip_prefix("http://"))
        .unwrap_or(key);
    let host = bare.split('/').next().unwrap_or_default();
    let name = host.rsplit('@').next().unwrap_or_default();
    name.contains(['[', ']']) && !name.starts_with('[')
}

/// Whether no reader finds the entry for any image.
pub(super) fn matches_no_image(entry: &Entry) -> bool {
    key_findings(entry)
        .iter()
        .any(|finding| MATCHES_NO_IMAGE.contains(&finding.code))
}

/// All of these are warnings: a key that matches nothing does no harm.
pub(super) fn key_findings(entry: &Entry) -> Vec<Finding> {
    let key = entry.key();
    let warning =
        |code, message: &'static str, hint| vec![Finding::warning(code, key, message, hint)];
    if key.trim().is_empty() {
        return warning(Code::EmptyKey, "the registry name is empty", HOST_HINT);
    }
    let bare = key
        .strip_prefix("https://")
        .or_else(|| key.strip_prefix("http://"));
    let has_scheme = bare.is_some();
    let bare = bare.unwrap_or(key);
    let (host, path) = bare.split_at(bare.find('/').unwrap_or(bare.len()));
    let name = host.rsplit('@').next().unwrap_or_default();
    if is_for_older_kubelets(key) {
        let message = "brackets in a host work only with kubelets built with Go before 1.26";
        return warning(Code::BracketGlob, message, "write one entry per registry");
    }
    if entry.index().is_none() {
        let message = "kubelets can't parse it and ignore the entry";
        return warning(Code::KeyNotUrl, message, HOST_HINT);
    }
    if name.is_empty() || name.starts_with(':') {
        return warning(Code::EmptyKey, "the registry name is empty", HOST_HINT);
    }
    if name.contains(NOT_IN_HOSTS) || !name.is_ascii() {
        let message = "no image's name has such a host, so it matches no image";
        return warning(Code::NotAHost, message, HOST_HINT);
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
        let message = "a key with a tag or digest matches no image";
        return warning(Code::TagOrDigest, message, "remove the tag or digest");
    }
    if path.contains(['*', '?', '[']) {
        let message = "patterns in the path aren't expanded, so it matches no image";
        return warning(
            Code::GlobInPath,
            message,
            "remove the pattern; a path matches every path that starts with it",
        );
    }
    if has_scheme {
        let message =
            "CRI-O ignores the path of a key with a scheme and uses the entry for the whole host";
        return warning(Code::SchemeWithPath, message, "remove `https://`");
    }
    if is_api {
        return warning(
            Code::ApiPath,
            "without a scheme, CRI-O treats `/v1/` and `/v2/` as a path, which matches no image",
            HOST_HINT,
        );
    }
    if path.ends_with('/') {
        return warning(
            Code::TrailingSlash,
            "in CRI-O, a key that ends with a slash matches no image",
            "remove the slash",
        );
    }
    let shown = shown_key(key);
    let message =
        format!("kubelets use it for everything that starts with it, including `{shown}-other`");
    vec![Finding::warning(
        Code::PathIsPrefix,
        key,
        message,
        "make sure that nobody else owns a name that starts with it",
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
            "kubelets compare host names case-sensitively",
            "write it as image names do, usually in lower case",
        );
    }
    if NOT_THE_HUB.contains(&name) {
        warn(
            Code::HubName,
            "kubelets don't recognize this host as Docker Hub",
            "use `docker.io`",
        );
    }
    if matches!(port, "443" | "80") {
        let message = "it matches only images whose name includes the port";
        warn(
            Code::DefaultPort,
            message,
            "remove the port if image names don't include it",
        );
    }
    if name.contains('*') {
        let labels: Vec<&str> = name.split('.').collect();
        match (labels.len(), labels.iter().all(|label| *label == "*")) {
            (1, _) => warn(
                Code::GlobMatchesNothing,
                "`*` matches one label of a host name, and registries have several",
                HOST_HINT,
            ),
            (_, true) => warn(
                Code::GlobMatchesEverything,
                "the credential is sent to every registry whose host has this many labels",
                "name the registry",
            ),
            _ => warn(
                Code::GlobNotForCrio,
                "CRI-O doesn't support patterns",
                "write one entry per registry",
            ),
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::json::Json;
    use super::*;

    #[test]
    fn misleading_keys_are_reported() {
        use Code::*;
        for (key, expected) in [
            ("quay.io", &[][..]),
            ("https://quay.io", &[]),
            ("https://index.docker.io/v1/", &[]),
            ("localhost:5000", &[]),
            ("[::1]:5000", &[]),
            ("", &[EmptyKey]),
            (" ", &[EmptyKey]),
            ("https://", &[EmptyKey]),
            ("/org", &[EmptyKey]),
            (":5000", &[EmptyKey]),
            ("<no value>", &[KeyNotUrl]),
            ("${REGISTRY}", &[KeyNotUrl]),
            ("$REGISTRY/org", &[NotAHost]),
            ("<registry>", &[NotAHost]),
            ("$(REGISTRY)", &[NotAHost]),
            ("\u{feff}quay.io", &[NotAHost]),
            ("r\u{e9}g.io", &[NotAHost]),
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
