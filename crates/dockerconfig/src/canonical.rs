//! A canonical key for each registry, however it is written.

use std::borrow::Cow;

use super::url;

/// The key as the kubelet indexes it: host, port and path of the URL, without scheme, user, query and fragment, without a leading
/// `/v1` or `/v2`, and without a path that is only `/`. Case is preserved. `None`: Go can't parse the key, so the kubelet ignores
/// the entry.
pub(super) fn index_key(key: &str) -> Option<Vec<u8>> {
    let rest = key
        .strip_prefix("https://")
        .or_else(|| key.strip_prefix("http://"))
        .unwrap_or(key);
    let url::Url { host, path } = url::parse(rest.as_bytes())?;
    let path = if path.starts_with(b"/v2/") || path.starts_with(b"/v1/") {
        &path[3..]
    } else {
        &path
    };
    Some(if path == b"/" {
        host
    } else {
        [host.as_slice(), path].concat()
    })
}

/// Docker Hub as images name it.
const HUB: &str = "docker.io";
/// Docker Hub to kubelets only if no other key matches, and to CRI-O.
const HUB_INDEX: &[u8] = b"index.docker.io";
/// Docker Hub to CRI-O; to kubelets only for images whose names have this host.
const HUB_SERVER: &[u8] = b"registry-1.docker.io";

/// The path of an index key whose host is another name of this one.
fn path_at<'a>(index: &'a [u8], host: &[u8]) -> Option<&'a [u8]> {
    let path = index.strip_prefix(host)?;
    (path.is_empty() || path.starts_with(b"/")).then_some(path)
}

/// Whether kubelets use it for images that are named by this host, and for no other image of Docker Hub.
pub(super) fn is_hub_server(index: &[u8]) -> bool {
    path_at(index, HUB_SERVER).is_some()
}

/// Whether kubelets use it only if no other key matches.
pub(super) fn is_hub_index(index: &[u8]) -> bool {
    path_at(index, HUB_INDEX).is_some()
}

/// The index key of the registry that a key is meant for. Only a kubelet takes `/v1` and `/v2` without a slash at the end for a
/// path, so that `https://quay.io/v1` gives it no credential for any image.
pub(super) fn meant<'a>(key: &str, index: &'a [u8]) -> &'a [u8] {
    let has_scheme = key.starts_with("https://") || key.starts_with("http://");
    let host = index
        .strip_suffix(b"/v1")
        .or_else(|| index.strip_suffix(b"/v2"));
    host.filter(|host| has_scheme && !host.contains(&b'/'))
        .unwrap_or(index)
}

/// See [`canonical_key`].
pub(super) fn canonical_of(index: &[u8]) -> Cow<'_, str> {
    match path_at(index, HUB_INDEX).or_else(|| path_at(index, HUB_SERVER)) {
        Some(path) => Cow::Owned(format!("{HUB}{}", String::from_utf8_lossy(path))),
        None => String::from_utf8_lossy(index),
    }
}

/// Keys with the same canonical key are the same registry: the same to a kubelet, names of Docker Hub, or the address of a
/// registry's API. A key that no kubelet can parse is its own canonical key.
pub fn canonical_key(key: &str) -> String {
    index_key(key).map_or_else(
        || key.to_owned(),
        |index| canonical_of(meant(key, &index)).into_owned(),
    )
}

/// The key for display: a user and password before the host are masked. A password may have any character, `/` and `@` too, so
/// rather a part of the path is masked than any of it is shown.
pub fn shown_key(key: &str) -> String {
    let is_scheme = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let scheme = key.find("://").filter(|at| is_scheme(&key[..*at]));
    let (scheme, rest) = key.split_at(scheme.map_or(0, |at| at + 3));
    let at = match rest.rfind('@') {
        Some(at) if is_digest(&rest[at + 1..]) => rest[..at].rfind('@'),
        at => at,
    };
    match at {
        Some(at) if rest[..at].contains(':') || !rest[..at].contains('/') => {
            format!("{scheme}***{}", &rest[at..])
        }
        _ => key.to_owned(),
    }
}

/// Whether the text is the digest of an image.
fn is_digest(text: &str) -> bool {
    let lengths = [("sha256:", 64), ("sha384:", 96), ("sha512:", 128)];
    lengths.iter().any(|(name, length)| {
        let digits = text.strip_prefix(name);
        digits.is_some_and(|digits| {
            digits.len() == *length && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::{canonical_key, shown_key};

    #[test]
    fn a_password_in_a_key_is_not_shown() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        let image = format!("quay.io:443/a:1@{digest}");
        let of_user = format!("robot:hun/ter2@{image}");
        let masked = format!("***@{image}");
        for (key, expected) in [
            ("quay.io/a@b", "quay.io/a@b"),
            (image.as_str(), image.as_str()),
            (&of_user, &masked),
            ("https://robot:hun/ter2@quay.io", "https://***@quay.io"),
            ("https://robot:123/45@quay.io", "https://***@quay.io"),
            ("robot:h@un/t@er2@quay.io/org", "***@quay.io/org"),
            ("ro/bot:hunter2@quay.io", "***@quay.io"),
            ("robot:hun://ter2@quay.io", "***@quay.io"),
            ("robot:hun?t#er2@quay.io", "***@quay.io"),
            ("token@quay.io/org", "***@quay.io/org"),
            (
                "https://robot:hunter2@quay.io/org",
                "https://***@quay.io/org",
            ),
            ("robot:hun@ter2@quay io", "***@quay io"),
        ] {
            assert_eq!(shown_key(key), expected, "{key}");
        }
    }

    #[test]
    fn equivalent_keys_have_one_canonical_key() {
        for (key, expected) in [
            ("quay.io", "quay.io"),
            ("quay.io/", "quay.io"),
            ("https://quay.io", "quay.io"),
            ("http://quay.io/", "quay.io"),
            ("https://quay.io/v1/", "quay.io"),
            ("quay.io/v2/", "quay.io"),
            ("quay.io/v2", "quay.io/v2"),
            ("https://quay.io/v2", "quay.io"),
            ("https://index.docker.io/v1", "docker.io"),
            ("https://quay.io/org/v1", "quay.io/org/v1"),
            ("quay.io/v1/org", "quay.io/org"),
            ("quay.io/org", "quay.io/org"),
            ("quay.io/org/", "quay.io/org/"),
            ("https://user@quay.io/org?x#y", "quay.io/org"),
            ("docker.io", "docker.io"),
            ("http://docker.io/", "docker.io"),
            ("https://index.docker.io/v1/", "docker.io"),
            ("index.docker.io", "docker.io"),
            ("registry-1.docker.io", "docker.io"),
            ("https://registry-1.docker.io/v2/", "docker.io"),
            ("docker.io/org", "docker.io/org"),
            ("index.docker.io/org", "docker.io/org"),
            ("index.docker.io:443", "index.docker.io:443"),
            ("index.docker.io.example.com", "index.docker.io.example.com"),
            ("hub.docker.com", "hub.docker.com"),
            ("localhost:5000", "localhost:5000"),
            ("Quay.io", "Quay.io"),
            ("*.azurecr.io", "*.azurecr.io"),
            ("quay.io:*", "quay.io:*"),
            ("", ""),
        ] {
            assert_eq!(canonical_key(key), expected, "key {key:?}");
        }
    }
}
