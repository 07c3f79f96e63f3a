//! Names of registries: as users write them, as files contain them, and as the Secret stores them. Pure.

use globalps_dockerconfig::shown_key;
use globalps_registry::registry_name;

use crate::error::{Failure, Result};

/// Hosts that users confuse with Docker Hub's registry, but that no image name contains.
const NOT_THE_HUB: [&str; 4] = [
    "hub.docker.com",
    "registry-1.docker.io",
    "registry.hub.docker.com",
    "docker.com",
];

/// The canonical name of a registry, or why the text isn't one.
pub(crate) fn registry_key(text: &str) -> Result<String> {
    const FORM: &str = "write the registry as in image names, optionally with a path: `quay.io`, `quay.io/org`, `registry.example.com:5000`";
    let refuse = |why: &str, hint: &str| {
        Err(Failure::new(
            format!("`{}` is not a registry: {why}", shown_key(text)),
            hint,
        ))
    };
    if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return refuse("it contains white space", FORM);
    }
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (Some(scheme), rest),
        None => (None, text),
    };
    if scheme.is_some_and(|scheme| !matches!(scheme, "http" | "https")) {
        return refuse("it is a URL with another scheme", FORM);
    }
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    if host.contains('@') {
        return refuse(
            "it contains a user",
            "pass the user with `-u` and the password with `--password-stdin`",
        );
    }
    let path = path.trim_end_matches('/');
    if path.contains('@') {
        return refuse("it is an image with a digest", &without(host, path, '@'));
    }
    if path.contains(':') {
        return refuse("it is an image with a tag", &without(host, path, ':'));
    }
    if path.contains(['?', '#']) {
        return refuse("it is a URL with a query", FORM);
    }
    if scheme.is_some() && !matches!(path, "" | "v1" | "v2") {
        return refuse(
            "it is a URL with a path",
            &format!(
                "use `{host}` for the whole registry, or `{host}/{path}` for images below that path"
            ),
        );
    }
    if host.is_empty() || host.starts_with(':') {
        return refuse("it has no host name", FORM);
    }
    if NOT_THE_HUB.contains(&host) {
        return refuse(
            "image names don't use this host",
            "use `docker.io` for Docker Hub",
        );
    }
    if !host.contains(['.', ':', '*']) && host != "localhost" {
        return refuse(
            "the host in an image name has a dot or a port",
            &format!(
                "for an image of Docker Hub use `docker.io/{text}`, for the whole Docker Hub `docker.io`"
            ),
        );
    }
    Ok(registry_name(text))
}

/// A hint that names the image's repository.
fn without(host: &str, path: &str, mark: char) -> String {
    let path = path.split(mark).next().unwrap_or_default();
    format!("leave that out: `{host}/{path}`; `{host}` is the whole registry")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_is_written_the_one_way_that_nodes_look_it_up() {
        for (text, expected) in [
            ("quay.io", "quay.io"),
            ("https://quay.io/", "quay.io"),
            ("https://quay.io/v2/", "quay.io"),
            ("quay.io/org/", "quay.io/org"),
            ("localhost:5000", "localhost:5000"),
            ("localhost", "localhost"),
            ("*.azurecr.io", "*.azurecr.io"),
            ("docker.io", "docker.io"),
            ("index.docker.io", "docker.io"),
            ("https://index.docker.io/v1/", "docker.io"),
            ("index.docker.io/org", "docker.io/org"),
            ("docker.io/org", "docker.io/org"),
            ("index.docker.io.example.com", "index.docker.io.example.com"),
            ("[::1]:5000", "[::1]:5000"),
        ] {
            let found = registry_key(text);
            assert_eq!(found.as_deref(), Ok(expected), "{text:?}");
        }
    }

    #[test]
    fn no_registry_is_refused_with_what_it_is_and_what_was_meant() {
        let shown: Vec<String> = [
            "",
            "https://",
            ":5000",
            "quay .io",
            "oci://quay.io",
            "https://robot:hunter2@quay.io",
            "robot@quay.io",
            "https://quay.io/org",
            "https://quay.io/repository/org/app?tab=tags",
            "quay.io/org?tab=tags",
            "quay.io/org/app:1",
            "quay.io/org/app@sha256:0",
            "registry.example.com:5000/app:1",
            "nginx",
            "org/app",
            "hub.docker.com",
            "https://registry-1.docker.io",
        ]
        .iter()
        .map(|text| {
            let failure = registry_key(text).expect_err(text);
            format!("{}\n  hint: {}\n", failure.message, failure.hint)
        })
        .collect();
        let shown = shown.concat();
        assert_eq!(shown, include_str!("name.txt"), "\n{shown}");
        assert!(!shown.contains("hunter2"));
    }
}
