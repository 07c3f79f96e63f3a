//! One name for each registry, whatever way it was written.

/// The key as the kubelet indexes it: no `http://` or `https://`, no user, query or fragment, no leading
/// `/v1/` or `/v2/` of the path, no path that is only `/`. Upper and lower case stay what they are.
/// Two keys of one canonical key are one registry to a kubelet.
pub fn canonical_key(key: &str) -> String {
    let rest = key
        .strip_prefix("https://")
        .or_else(|| key.strip_prefix("http://"))
        .unwrap_or(key);
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (authority, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    let host = authority.rsplit('@').next().unwrap_or_default();
    let path = if path.starts_with("/v1/") || path.starts_with("/v2/") {
        &path[3..]
    } else {
        path
    };
    if path == "/" {
        host.to_owned()
    } else {
        format!("{host}{path}")
    }
}

#[cfg(test)]
mod tests {
    use super::canonical_key;

    #[test]
    fn keys_that_a_kubelet_takes_for_one_registry_have_one_canonical_key() {
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
            ("", ""),
        ] {
            assert_eq!(canonical_key(key), expected, "key {key:?}");
        }
    }
}
