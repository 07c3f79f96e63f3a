//! Which credentials are used for an image: those that the kubelet tries, in order, and the one that CRI-O sends.

use std::borrow::Cow;

use super::canonical::{canonical_key, canonical_of, index_key};
use super::entry::{Credential, Entry};
use super::explanation::{Crio, Explanation, Try};
use super::image::{ImageError, repository};
use super::parse::DockerConfig;
use super::url;

/// The index key of Docker Hub, the fallback for its images if nothing else matches.
const HUB: &[u8] = b"index.docker.io";

/// Explains the effect of the file for an image.
pub fn explain(config: &DockerConfig, image: &str) -> Result<Explanation, ImageError> {
    let repository = repository(image)?;
    let accepted = config.is_kubelet_readable();
    let tries = if accepted {
        let tries = tries(&[config], &repository).into_iter();
        tries.map(|(_, attempt)| attempt).collect()
    } else {
        Vec::new()
    };
    let crio = if is_crio_name(&repository) {
        crio(config, &repository)
    } else {
        vec![Crio::Error {
            key: String::new(),
            why: "CRI-O rejects this image name",
        }]
    };
    Ok(Explanation {
        repository,
        accepted,
        tries,
        crio,
    })
}

/// containers/image has an older grammar of its own: host and path together have at most 255 bytes, and a host without dot or
/// port must be `localhost`, not an upper-case name.
fn is_crio_name(repository: &str) -> bool {
    let host = repository.split('/').next().unwrap_or_default();
    repository.len() <= 255 && (host.contains(['.', ':']) || host == "localhost")
}

/// The credentials that the kubelet tries for an image, in order, with these configs in its keyring in this order; each
/// with the index of its config. Unlike [`explain`], ignores entries that the kubelet can't read.
pub fn attempts(configs: &[&DockerConfig], image: &str) -> Result<Vec<(usize, Try)>, ImageError> {
    Ok(tries(configs, &repository(image)?))
}

/// Whether an entry with a given key, or one with another name of its registry, can be one of [`attempts`] for the image.
pub fn may_serve(image: &str) -> Result<impl Fn(&str) -> bool, ImageError> {
    let repository = repository(image)?;
    let target = url::parse(repository.as_bytes());
    let canonical = url::parse(canonical_of(repository.as_bytes()).as_bytes());
    let is_hub = is_hub(&repository);
    Ok(move |key: &str| {
        let (Some(target), Some(canonical)) = (&target, &canonical) else {
            return is_hub;
        };
        if let Some(host) = plain_host(key)
            && host != target.host
            && canonical_of(host).as_bytes() != canonical.host
            && !(is_hub && host == HUB)
        {
            return false;
        }
        index_key(key).is_some_and(|index| {
            matches(&index, target)
                || (is_hub && index == HUB)
                || matches(canonical_key(key).as_bytes(), canonical)
        })
    })
}

/// Number of labels in the host of an image. The kubelet compares hosts label by label.
pub fn host_labels(image: &str) -> Result<usize, ImageError> {
    let target = url::parse(repository(image)?.as_bytes());
    Ok(target.map_or(1, |target| split_host(&target.host).0.len()))
}

/// Host and port of a key that needs no URL parsing, because only the slash has a meaning in it. A fast path: most keys are like
/// this, and there may be thousands.
fn plain_host(key: &str) -> Option<&[u8]> {
    let is_plain = |text: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._/".contains(&byte);
        text.bytes().all(is_plain)
    };
    let (host, path) = key.split_at(key.find('/').unwrap_or(key.len()));
    let (name, port) = host.split_once(':').unwrap_or((host, "0"));
    let is_port = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    (is_port && is_plain(name) && is_plain(path)).then_some(host.as_bytes())
}

/// The kubelet's keyring. Keys that are the same to it come in file order; the kubelet's own order is random there.
fn tries(configs: &[&DockerConfig], repository: &str) -> Vec<(usize, Try)> {
    let target = url::parse(repository.as_bytes());
    let matching = |key: &[u8]| target.as_ref().is_some_and(|target| matches(key, target));
    let found = indexed(configs, matching);
    if !found.is_empty() || !is_hub(repository) {
        return found;
    }
    indexed(configs, |key| key == HUB)
}

/// The entries whose index key is wanted, in the kubelet's order.
fn indexed(configs: &[&DockerConfig], wanted: impl Fn(&[u8]) -> bool) -> Vec<(usize, Try)> {
    let entries = configs
        .iter()
        .enumerate()
        .flat_map(|(at, config)| config.entries().iter().map(move |entry| (at, entry)));
    let mut found: Vec<(&[u8], usize, &Entry)> = entries
        .filter_map(|(at, entry)| Some((entry.index()?, at, entry)))
        .filter(|(key, ..)| wanted(key))
        .collect();
    // In reverse byte order, not by length. This puts a longer path of the same host first.
    found.sort_by(|(one, ..), (other, ..)| other.cmp(one));
    let tried = |(_, at, entry): (&[u8], usize, &Entry)| {
        let credential = entry.credential().ok()?;
        let credential = credential.cloned().unwrap_or_else(Credential::empty);
        let key = entry.key().to_owned();
        Some((at, Try { key, credential }))
    };
    found.into_iter().filter_map(tried).collect()
}

impl Entry {
    /// The port in the key, as written.
    pub fn port(&self) -> Option<String> {
        let url = url::parse(self.index()?)?;
        let (_, port) = split_host(&url.host);
        let is_number = !port.is_empty() && port.iter().all(u8::is_ascii_digit);
        is_number.then(|| String::from_utf8_lossy(port).into_owned())
    }
}

/// Whether the kubelet treats the repository as Docker Hub's.
fn is_hub(repository: &str) -> bool {
    let first = repository.split('/').next().unwrap_or_default();
    matches!(first, "docker.io" | "index.docker.io")
        || (!first.is_empty() && !first.contains(['.', ':']))
}

/// Hosts match label by label, and each label may be a pattern. Ports must be equal. The key's path must be a prefix of the
/// target's path, even one that ends within a name.
fn matches(key: &[u8], target: &url::Url) -> bool {
    let Some(key) = url::parse(key) else {
        return false;
    };
    let (key_labels, key_port) = split_host(&key.host);
    let (labels, port) = split_host(&target.host);
    key_port == port
        && key_labels.len() == labels.len()
        && target.path.starts_with(&key.path)
        && key_labels
            .iter()
            .zip(&labels)
            .all(|(pattern, label)| glob(pattern, label) == Some(true))
}

/// Labels and port. If Go's `net.SplitHostPort` fails, everything is host.
fn split_host(host: &[u8]) -> (Vec<&[u8]>, &[u8]) {
    let (name, port) = split_port(host).unwrap_or((host, b""));
    (name.split(|byte| *byte == b'.').collect(), port)
}

fn split_port(host: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = host.iter().rposition(|byte| *byte == b':')?;
    let port = &host[colon + 1..];
    if host.first() == Some(&b'[') {
        let end = host.iter().position(|byte| *byte == b']')?;
        let clean = |text: &[u8]| !text.contains(&b'[') && !text.contains(&b']');
        return (end + 1 == colon && clean(&host[1..end]) && clean(port))
            .then(|| (&host[1..end], port));
    }
    let name = &host[..colon];
    let clean = |text: &[u8]| !text.iter().any(|byte| b"[]".contains(byte));
    (!name.contains(&b':') && clean(name) && clean(port)).then_some((name, port))
}

/// Go's `filepath.Match` for text without `/`; `None` if it notices that the pattern is malformed.
fn glob(pattern: &[u8], text: &[u8]) -> Option<bool> {
    let mut pattern = pattern;
    let mut text = text;
    'pattern: while !pattern.is_empty() {
        let stars = pattern.iter().take_while(|byte| **byte == b'*').count();
        let rest = &pattern[stars..];
        let length = chunk_length(rest);
        let (chunk, after) = rest.split_at(length);
        if stars > 0 && chunk.is_empty() {
            return Some(!text.contains(&b'/'));
        }
        let (matched, remaining) = match_chunk(chunk, text)?;
        if matched && (remaining.is_empty() || !after.is_empty()) {
            text = remaining;
            pattern = after;
            continue;
        }
        if stars > 0 {
            for at in 0..text.len() {
                let (matched, remaining) = match_chunk(chunk, &text[at + 1..])?;
                if matched && (remaining.is_empty() || !after.is_empty()) {
                    text = remaining;
                    pattern = after;
                    continue 'pattern;
                }
            }
        }
        // The rest must still be a valid pattern.
        let mut pattern = after;
        while !pattern.is_empty() {
            let stars = pattern.iter().take_while(|byte| **byte == b'*').count();
            let length = chunk_length(&pattern[stars..]);
            match_chunk(&pattern[stars..stars + length], b"")?;
            pattern = &pattern[stars + length..];
        }
        return Some(false);
    }
    Some(text.is_empty())
}

/// Up to the next `*` outside brackets.
fn chunk_length(pattern: &[u8]) -> usize {
    let (mut at, mut in_range) = (0, false);
    while at < pattern.len() {
        match pattern[at] {
            b'\\' if at + 1 < pattern.len() => at += 1,
            b'[' => in_range = true,
            b']' => in_range = false,
            b'*' if !in_range => break,
            _ => {}
        }
        at += 1;
    }
    at
}

/// Whether the text starts with a match of the chunk, and the rest of the text; `None`: the chunk is malformed. As in Go, the
/// rest of a chunk is checked even if it does not match.
fn match_chunk<'a>(mut chunk: &[u8], text: &'a [u8]) -> Option<(bool, &'a [u8])> {
    let mut rest = text;
    let mut failed = false;
    while let Some((first, after)) = chunk.split_first() {
        failed |= rest.is_empty();
        let next = rest.first().copied().unwrap_or_default();
        match first {
            b'[' => {
                let (matched, after) = match_class(after, next)?;
                failed |= !matched;
                chunk = after;
            }
            b'?' => chunk = after,
            b'\\' => {
                let (escaped, after) = after.split_first()?;
                failed |= *escaped != next;
                chunk = after;
            }
            plain => {
                failed |= *plain != next;
                chunk = after;
            }
        }
        rest = rest.get(1..).unwrap_or_default();
    }
    Some((!failed, if failed { text } else { rest }))
}

/// A class after its `[`: whether it contains the byte, and what follows its `]`.
fn match_class(class: &[u8], byte: u8) -> Option<(bool, &[u8])> {
    let negated = class.first() == Some(&b'^');
    let mut class = if negated { &class[1..] } else { class };
    let mut matched = false;
    let mut ranges = 0;
    loop {
        if ranges > 0 && class.first() == Some(&b']') {
            return Some((matched != negated, &class[1..]));
        }
        let (low, after) = class_member(class)?;
        let (high, after) = if after[0] == b'-' {
            class_member(&after[1..])?
        } else {
            (low, after)
        };
        matched |= (low..=high).contains(&byte);
        class = after;
        ranges += 1;
    }
}

/// Reads one byte of a class. The class must continue after it.
fn class_member(class: &[u8]) -> Option<(u8, &[u8])> {
    let (first, after) = class.split_first()?;
    let (member, after) = match first {
        b'-' | b']' => return None,
        b'\\' => after.split_first()?,
        _ => (first, after),
    };
    (!after.is_empty()).then_some((*member, after))
}

/// containers/image: credential helpers first, then keys from the whole repository down to its host, then keys with a scheme by
/// host.
fn crio(config: &DockerConfig, repository: &str) -> Vec<Crio> {
    let error = |key: &str, why| {
        vec![Crio::Error {
            key: key.to_owned(),
            why,
        }]
    };
    if repository.starts_with('[') {
        return error("", "CRI-O doesn't support an IPv6 address as registry");
    }
    if let Some((key, why)) = config.crio_error() {
        return error(key, why);
    }
    let registry = repository.split('/').next().unwrap_or_default();
    if let Some(why) = config.helpers().crio_error(registry) {
        return error(registry, why);
    }
    let mut key = repository;
    loop {
        if let Some(entry) = config.entries().iter().find(|entry| entry.key() == key) {
            return vec![crio_entry(entry)];
        }
        let Some(slash) = key.rfind('/') else { break };
        key = &key[..slash];
    }
    let registry = canonical_of(registry.as_bytes());
    let same = config
        .entries()
        .iter()
        .filter(|entry| legacy_host(entry.key()) == registry);
    let found: Vec<Crio> = same.map(crio_entry).collect();
    if found.is_empty() {
        vec![Crio::None]
    } else {
        found
    }
}

fn crio_entry(entry: &Entry) -> Crio {
    let key = entry.key().to_owned();
    match entry.crio_credential() {
        Ok(Some(credential)) => Crio::Credential(Try { key, credential }),
        Ok(None) => Crio::None,
        Err(_) => Crio::Error {
            key,
            why: "`auth` is not padded base64",
        },
    }
}

/// A key with a scheme, reduced to its host; any other key unchanged.
fn legacy_host(key: &str) -> Cow<'_, str> {
    let stripped = key.strip_prefix("http://").unwrap_or(key);
    let stripped = stripped.strip_prefix("https://").unwrap_or(stripped);
    let host = if stripped.len() == key.len() {
        key
    } else {
        stripped.split('/').next().unwrap_or_default()
    };
    canonical_of(host.as_bytes())
}

#[cfg(test)]
mod tests;
