//! A canonical key for each registry, however it is written.

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

/// To a kubelet, keys with the same canonical key are the same registry. A key that no kubelet can parse is its own canonical
/// key.
pub fn canonical_key(key: &str) -> String {
    index_key(key).map_or_else(
        || key.to_owned(),
        |bytes| String::from_utf8_lossy(&bytes).into_owned(),
    )
}

/// The key for display: a user and password before the host are masked.
pub fn shown_key(key: &str) -> String {
    if !key.contains('@') {
        return key.to_owned();
    }
    let scheme = key.find("://").map_or(0, |at| at + 3);
    let (scheme, rest) = key.split_at(scheme);
    let authority = rest.find('/').unwrap_or(rest.len());
    match rest[..authority].rfind('@') {
        Some(at) => format!("{scheme}***{}", &rest[at..]),
        None => key.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{canonical_key, shown_key};

    #[test]
    fn a_password_in_a_key_is_not_shown() {
        for (key, expected) in [
            ("quay.io/a@b", "quay.io/a@b"),
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
            ("quay.io/v1/org", "quay.io/org"),
            ("quay.io/org", "quay.io/org"),
            ("quay.io/org/", "quay.io/org/"),
            ("https://user@quay.io/org?x#y", "quay.io/org"),
            ("https://index.docker.io/v1/", "index.docker.io"),
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
