//! Resolves an image name to its repository, by the grammar of `github.com/distribution/reference`, which kubelet and CRI-O use.

/// Longest path of a repository, in bytes.
const MAX_PATH: usize = 255;
const MAX_TAG: usize = 128;

/// Why an image name is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each says it in its message")]
pub enum ImageError {
    #[error("64 hexadecimal digits are an image ID, not a name")]
    Identifier,
    #[error("the repository name must be lower case")]
    UpperCase,
    #[error("it doesn't have the form `[HOST[:PORT]/]PATH[:TAG][@DIGEST]`")]
    Form,
    #[error("the repository path is longer than {MAX_PATH} characters")]
    TooLong,
}

/// `HOST/PATH` of an image name: adds the defaults `docker.io` and `library`, drops tag and digest.
pub(super) fn repository(image: &str) -> Result<String, ImageError> {
    if image.len() == 64
        && image
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    {
        return Err(ImageError::Identifier);
    }
    let (domain, remainder) = split_domain(image);
    let name = remainder.split(':').next().unwrap_or_default();
    if name.to_lowercase() != name {
        return Err(ImageError::UpperCase);
    }
    let whole = format!("{domain}/{remainder}");
    let (name, rest) = split_name(&whole).ok_or(ImageError::Form)?;
    check_tag_and_digest(rest).ok_or(ImageError::Form)?;
    // The grammar doesn't require a domain, but one was prepended above.
    let path = name
        .split_once('/')
        .filter(|(domain, _)| is_domain(domain))
        .map_or(name, |(_, path)| path);
    if path.len() > MAX_PATH {
        return Err(ImageError::TooLong);
    }
    Ok(name.to_owned())
}

fn split_domain(image: &str) -> (&str, String) {
    const HUB: &str = "docker.io";
    let Some((first, rest)) = image.split_once('/') else {
        return (HUB, format!("library/{image}"));
    };
    let (domain, rest) = match first {
        "index.docker.io" => (HUB, rest),
        "localhost" => (first, rest),
        _ if first.contains(['.', ':']) || first.to_lowercase() != first => (first, rest),
        _ => (HUB, image),
    };
    if domain == HUB && !rest.contains('/') {
        (domain, format!("library/{rest}"))
    } else {
        (domain, rest.to_owned())
    }
}

/// The name and the rest, which is empty or starts with `:` or `@`.
fn split_name(text: &str) -> Option<(&str, &str)> {
    // A colon in the first component precedes a port; later it precedes the tag.
    let slash = text.find('/')?;
    let end = text[slash..]
        .find([':', '@'])
        .map_or(text.len(), |at| slash + at);
    let (name, rest) = text.split_at(end);
    let (domain, path) = name.split_once('/')?;
    let is_path = |text: &str| text.split('/').all(is_path_component);
    ((is_domain(domain) && is_path(path)) || is_path(name)).then_some((name, rest))
}

fn is_domain(text: &str) -> bool {
    let (host, port) = match text.rfind(':') {
        // The last colon may be part of a bracketed address.
        Some(at) if !text[at..].contains(']') => (&text[..at], Some(&text[at + 1..])),
        _ => (text, None),
    };
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    port.is_none_or(is_port) && (is_ipv6(host) || host.split('.').all(is_domain_component))
}

fn is_ipv6(text: &str) -> bool {
    let inner = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    inner.is_some_and(|inner| {
        !inner.is_empty()
            && inner
                .bytes()
                .all(|byte| byte.is_ascii_hexdigit() || byte == b':')
    })
}

fn is_domain_component(text: &str) -> bool {
    let bytes = text.as_bytes();
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    edge(bytes.first())
        && edge(bytes.last())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
}

/// Lower-case letters and digits, separated by one `.`, one or two `_`, or any number of `-`.
fn is_path_component(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        return false;
    };
    if !is_word(*first) || !is_word(*last) {
        return false;
    }
    let separators = text.split(|character: char| u8::try_from(character).is_ok_and(is_word));
    separators
        .filter(|separator| !separator.is_empty())
        .all(|separator| {
            matches!(separator, "." | "_" | "__") || separator.bytes().all(|byte| byte == b'-')
        })
}

fn check_tag_and_digest(rest: &str) -> Option<()> {
    let (tag, digest) = match rest.split_once('@') {
        Some((tag, digest)) => (tag, Some(digest)),
        None => (rest, None),
    };
    if !tag.is_empty() {
        let tag = tag.strip_prefix(':')?;
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let first = tag.bytes().next()?;
        let good = is_word(first)
            && tag.len() <= MAX_TAG
            && tag.bytes().all(|b| is_word(b) || b == b'.' || b == b'-');
        good.then_some(())?;
    }
    digest.map_or(Some(()), check_digest)
}

/// The digest matches the grammar, and its algorithm is known.
fn check_digest(text: &str) -> Option<()> {
    let (algorithm, hex) = text.split_once(':')?;
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return None,
    };
    (hex.len() == length
        && hex
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')))
    .then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_resolve_to_the_same_repository_as_in_the_kubelet() {
        use ImageError::{Form, Identifier, TooLong, UpperCase};
        let sha = format!("sha256:{}", "a".repeat(64));
        let long = "a".repeat(256);
        let id = "0".repeat(64);
        for (image, expected) in [
            ("nginx", Ok("docker.io/library/nginx")),
            ("user/repo", Ok("docker.io/user/repo")),
            ("docker.io/nginx", Ok("docker.io/library/nginx")),
            ("index.docker.io/nginx:1", Ok("docker.io/library/nginx")),
            ("url:5000/repo:tag", Ok("url:5000/repo")),
            ("localhost/a", Ok("localhost/a")),
            ("Host/a", Ok("Host/a")),
            ("[::1]:5000/a", Ok("[::1]:5000/a")),
            ("[::1]/a", Ok("[::1]/a")),
            (&format!("quay.io/org/app:1.0@{sha}"), Ok("quay.io/org/app")),
            (&format!("quay.io/org/app@{sha}"), Ok("quay.io/org/app")),
            ("quay.io/a__b/c--d.e", Ok("quay.io/a__b/c--d.e")),
            ("", Err(Form)),
            ("quay.io/", Err(Form)),
            ("quay.io/a//b", Err(Form)),
            ("quay.io/a___b", Err(Form)),
            ("quay.io/a..b", Err(Form)),
            ("quay.io/A", Err(UpperCase)),
            ("Nginx", Err(UpperCase)),
            ("quay.io/a:", Err(Form)),
            ("quay.io/a:-x", Err(Form)),
            ("quay.io/a@sha256:abc", Err(Form)),
            ("https://quay.io/a", Err(Form)),
            (" nginx", Err(Form)),
            ("-a.io/b", Err(Form)),
            ("a.io:x/b", Err(Form)),
            (&format!("quay.io/{long}"), Err(TooLong)),
            (&id, Err(Identifier)),
        ] {
            assert_eq!(repository(image), expected.map(str::to_owned), "{image:?}");
        }
    }
}
