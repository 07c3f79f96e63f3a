//! Host and path of a key as Go 1.26's `net/url` parses them, since kubelets are built with it. Bytes, not text: an escape can
//! stand for any byte.

use std::net::IpAddr;

/// The parts of a URL that a kubelet uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Url {
    /// Including the port, if any.
    pub(super) host: Vec<u8>,
    /// Unescaped.
    pub(super) path: Vec<u8>,
}

/// The part of a URL decides which bytes may be unescaped and which escapes are allowed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Host,
    Zone,
    Other,
}

/// An `http` or `https` URL without scheme and `//`; `None`: Go rejects it.
pub(super) fn parse(rest: &[u8]) -> Option<Url> {
    let (rest, fragment) = cut(rest, b'#');
    if rest.iter().any(|byte| *byte < b' ' || *byte == 0x7f) {
        return None;
    }
    let (rest, _query) = cut(rest, b'?');
    let at = rest
        .iter()
        .position(|byte| *byte == b'/')
        .unwrap_or(rest.len());
    let (authority, path) = rest.split_at(at);
    let host = match authority.iter().rposition(|byte| *byte == b'@') {
        None => parse_host(authority)?,
        Some(at) => {
            let host = parse_host(&authority[at + 1..])?;
            check_userinfo(&authority[..at])?;
            host
        }
    };
    let path = unescape(path, Part::Other)?;
    unescape(fragment, Part::Other)?;
    Some(Url { host, path })
}

fn cut(text: &[u8], at: u8) -> (&[u8], &[u8]) {
    match text.iter().position(|byte| *byte == at) {
        Some(place) => (&text[..place], &text[place + 1..]),
        None => (text, b""),
    }
}

fn check_userinfo(text: &[u8]) -> Option<()> {
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(byte);
    if !text.iter().all(allowed) {
        return None;
    }
    let (user, password) = cut(text, b':');
    unescape(user, Part::Other)?;
    unescape(password, Part::Other)?;
    Some(())
}

fn parse_host(host: &[u8]) -> Option<Vec<u8>> {
    match host.iter().rposition(|byte| *byte == b'[') {
        Some(0) => parse_ip_literal(host),
        Some(_) => None,
        None => {
            if let Some(colon) = host.iter().position(|byte| *byte == b':') {
                check_port(&host[colon..])?;
            }
            unescape(host, Part::Host)
        }
    }
}

/// `[fe80::1%25en0]:80`.
fn parse_ip_literal(host: &[u8]) -> Option<Vec<u8>> {
    let end = host.iter().rposition(|byte| *byte == b']')?;
    let port = &host[end + 1..];
    check_port(port)?;
    let port = unescape(port, Part::Host)?;
    let name = &host[1..end];
    let name = match name.windows(3).position(|window| window == b"%25") {
        None => unescape(name, Part::Host)?,
        Some(at) => [
            unescape(&name[..at], Part::Host)?,
            unescape(&name[at..], Part::Zone)?,
        ]
        .concat(),
    };
    check_ipv6(&name)?;
    Some([b"[", name.as_slice(), b"]", &port].concat())
}

/// An IPv6 address, optionally with a non-empty zone.
fn check_ipv6(name: &[u8]) -> Option<()> {
    let (address, zone) = cut(name, b'%');
    let is_six = matches!(
        std::str::from_utf8(address).ok()?.parse(),
        Ok(IpAddr::V6(_))
    );
    (is_six && (address.len() == name.len() || !zone.is_empty())).then_some(())
}

/// Empty, or a colon and any number of digits.
fn check_port(text: &[u8]) -> Option<()> {
    match text.split_first() {
        None => Some(()),
        Some((b':', digits)) => digits.iter().all(u8::is_ascii_digit).then_some(()),
        Some(_) => None,
    }
}

fn unescape(text: &[u8], part: Part) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let byte = text[at];
        if byte != b'%' {
            if part != Part::Other && byte < 0x80 && !may_stand_in_host(byte) {
                return None;
            }
            bytes.push(byte);
            at += 1;
            continue;
        }
        let (high, low) = (hex(*text.get(at + 1)?)?, hex(*text.get(at + 2)?)?);
        let byte = high << 4 | low;
        let allowed = match part {
            Part::Other => true,
            _ if byte == b'%' => true,
            Part::Host => high >= 8,
            Part::Zone => byte == b' ' || may_stand_in_host(byte),
        };
        if !allowed {
            return None;
        }
        bytes.push(byte);
        at += 3;
    }
    Some(bytes)
}

fn may_stand_in_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"".contains(&byte)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_path_match_go() {
        for (text, expected) in [
            ("quay.io", Some(("quay.io", ""))),
            ("quay.io/", Some(("quay.io", "/"))),
            ("quay.io//org", Some(("quay.io", "//org"))),
            (
                "user:p%40ss@quay.io:443/a%2Fb?x#y",
                Some(("quay.io:443", "/a/b")),
            ),
            ("", Some(("", ""))),
            ("quay.io:", Some(("quay.io:", ""))),
            ("*.azurecr.io", Some(("*.azurecr.io", ""))),
            ("[::1]:5000/a", Some(("[::1]:5000", "/a"))),
            ("[fe80::1%25en0]", Some(("[fe80::1%en0]", ""))),
            ("r\u{e9}g", Some(("r\u{e9}g", ""))),
            ("q[tu]ay.io", None),
            ("[quay.io]", None),
            ("[1.2.3.4]", None),
            ("[::1", None),
            ("quay.io:*", None),
            ("registry:abc/x", None),
            ("a:1:2", None),
            (" quay.io", None),
            ("quay io", None),
            ("a/%zz", None),
            ("a/%2", None),
            ("a%20b", None),
            ("a#%", None),
            ("us er@quay.io", None),
            ("a\u{7f}", None),
            ("docker://quay.io", Some(("docker:", "//quay.io"))),
        ] {
            let found = parse(text.as_bytes());
            let expected = expected.map(|(host, path)| Url {
                host: host.into(),
                path: path.into(),
            });
            assert_eq!(found, expected, "{text}");
        }
    }
}
