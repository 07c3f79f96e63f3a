//! Parses `WWW-Authenticate`: the login schemes that a registry accepts. Pure.

use std::iter::Peekable;
use std::str::Chars;

/// The credentials that a registry requires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// User and password with each request.
    Basic,
    /// A token, which another server issues for user and password. Omits the challenge's scope, which is only an
    /// example before a repository is named.
    Bearer {
        realm: String,
        service: Option<String>,
    },
    /// An unsupported login scheme, by name.
    Other(String),
}

/// The preferred challenge of all headers: a token if it names a token server, otherwise the password.
pub(crate) fn choose<'a>(headers: impl IntoIterator<Item = &'a str>) -> Option<Challenge> {
    let all: Vec<Challenge> = headers.into_iter().flat_map(parse).collect();
    let is_bearer = |challenge: &&Challenge| matches!(challenge, Challenge::Bearer { .. });
    let is_basic = |challenge: &&Challenge| **challenge == Challenge::Basic;
    all.iter()
        .find(is_bearer)
        .or_else(|| all.iter().find(is_basic))
        .or(all.first())
        .cloned()
}

/// The challenges in one header by RFC 9110: a scheme, then `name=value` separated by commas, then the next scheme.
fn parse(header: &str) -> Vec<Challenge> {
    let mut found: Vec<(String, Vec<(String, String)>)> = Vec::new();
    let mut rest = header.chars().peekable();
    loop {
        while rest
            .next_if(|c| c.is_ascii_whitespace() || *c == ',')
            .is_some()
        {}
        let word = token(&mut rest);
        if word.is_empty() {
            // The rest can't be parsed without a token here.
            break;
        }
        while rest.next_if(char::is_ascii_whitespace).is_some() {}
        if rest.next_if_eq(&'=').is_none() {
            found.push((word, Vec::new()));
            continue;
        }
        while rest.next_if(char::is_ascii_whitespace).is_some() {}
        let value = value(&mut rest);
        if let Some((_, parameters)) = found.last_mut() {
            parameters.push((word.to_ascii_lowercase(), value));
        }
    }
    found
        .into_iter()
        .map(|(scheme, parameters)| challenge(scheme, &parameters))
        .collect()
}

fn challenge(scheme: String, parameters: &[(String, String)]) -> Challenge {
    let parameter = |wanted: &str| {
        parameters
            .iter()
            .find(|(name, _)| name == wanted)
            .map(|(_, value)| value.clone())
    };
    match (
        scheme.to_ascii_lowercase().as_str(),
        parameter("realm").filter(|realm| !realm.is_empty()),
    ) {
        ("basic", _) => Challenge::Basic,
        ("bearer", Some(realm)) => Challenge::Bearer {
            realm,
            service: parameter("service"),
        },
        _ => Challenge::Other(scheme),
    }
}

fn token(rest: &mut Peekable<Chars>) -> String {
    let allowed = |c: &char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(*c);
    std::iter::from_fn(|| rest.next_if(allowed)).collect()
}

/// A quoted string, in which a backslash escapes the next character; or, more lenient than the RFC, everything up to
/// the next comma or space.
fn value(rest: &mut Peekable<Chars>) -> String {
    if rest.next_if_eq(&'"').is_none() {
        return std::iter::from_fn(|| rest.next_if(|c| *c != ',' && !c.is_ascii_whitespace()))
            .collect();
    }
    let mut text = String::new();
    while let Some(character) = rest.next() {
        match character {
            '"' => break,
            '\\' => text.extend(rest.next()),
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer(realm: &str, service: Option<&str>) -> Challenge {
        Challenge::Bearer {
            realm: realm.to_owned(),
            service: service.map(str::to_owned),
        }
    }

    #[test]
    fn what_registries_send_is_understood() {
        let other = |name: &str| Some(Challenge::Other(name.to_owned()));
        #[rustfmt::skip]
        let cases = [
            (&[][..], None),
            (&["Basic realm=\"test\""], Some(Challenge::Basic)),
            (&["basic"], Some(Challenge::Basic)),
            (
                &[r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io""#],
                Some(bearer(
                    "https://auth.docker.io/token",
                    Some("registry.docker.io"),
                )),
            ),
            (
                &[
                    r#"Bearer realm="https://ghcr.io/token",service="ghcr.io",scope="repository:user/image:pull""#,
                ],
                Some(bearer("https://ghcr.io/token", Some("ghcr.io"))),
            ),
            (&["bearer  Realm = https://a/t , Service = s"], Some(bearer("https://a/t", Some("s")))),
            (
                &[r#"Bearer realm="https://a/t?x=\"1\",2",error="invalid_token""#],
                Some(bearer(r#"https://a/t?x="1",2"#, None)),
            ),
            (&[r#"Basic realm="a, Bearer", Bearer realm="https://a/t""#], Some(bearer("https://a/t", None))),
            (&["Basic realm=a", "Bearer realm=\"https://a/t\""], Some(bearer("https://a/t", None))),
            (&["Bearer service=\"no realm\"", "Basic realm=a"], Some(Challenge::Basic)),
            (&["Bearer realm=\"\""], other("Bearer")),
            (&["Negotiate"], other("Negotiate")),
            (&["NTLM, Negotiate"], other("NTLM")),
            (&["Negotiate dGV4dA=="], other("Negotiate")),
            (&["Bearer realm=\"https://a/t"], Some(bearer("https://a/t", None))),
            (&["", ", ,", "\"\""], None),
        ];
        for (headers, expected) in cases {
            assert_eq!(choose(headers.iter().copied()), expected, "{headers:?}");
        }
    }
}
