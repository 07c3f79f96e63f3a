//! Which of several entries for one registry is effective, and the keys under which readers find it.

use std::borrow::Cow;

use super::canonical::{index_key, is_hub_index, is_hub_server};
use super::entry::{Entry, Secret};

/// Which readers can authenticate with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ability {
    /// None. Docker, containerd and CRI-O send a user only with a password.
    Nothing,
    /// Only CRI-O, by `identitytoken`, which it reads beside an `auth`.
    Token,
    Password,
}

impl Entry {
    pub(super) fn ability(&self) -> Ability {
        let Ok(Some(credential)) = self.credential() else {
            return Ability::Nothing;
        };
        let is_empty = |secret: &Secret| secret.expose().is_empty();
        if !is_empty(&credential.username) && !is_empty(&credential.password) {
            Ability::Password
        } else if self.has_identity_token() {
            Ability::Token
        } else {
            Ability::Nothing
        }
    }

    /// Of several keys for one registry in one file, the lowest is effective: the one that both readers prefer, as far as they
    /// prefer one.
    pub(super) fn rank(&self) -> (u8, u8) {
        let index = self.index().unwrap_or_default();
        let host = match index {
            index if is_hub_index(index) => 1,
            index if is_hub_server(index) => 2,
            _ => 0,
        };
        let spelling = match self.key() {
            key if key.as_bytes() == index => 0,
            // CRI-O does not find the others.
            key if key.contains("://") => 1,
            _ => 2,
        };
        (host, spelling)
    }

    /// The key for the entry in merged files: the canonical key, which both readers find, unless it is the key of another
    /// registry.
    pub(super) fn written_key(&self) -> Cow<'_, str> {
        let canonical = self.canonical_key();
        let is_same = !canonical.contains(char::REPLACEMENT_CHARACTER)
            && index_key(&canonical).is_some_and(|index| index == canonical.as_bytes());
        if is_same {
            canonical
        } else {
            Cow::Borrowed(self.key())
        }
    }

    /// A further key for merged files: the one under which a reader finds the entry for images for which it does not find the
    /// canonical key.
    pub(super) fn further_key(&self) -> Option<Cow<'_, str>> {
        let index = self.index()?;
        if is_hub_server(index) {
            return Some(String::from_utf8_lossy(index));
        }
        // To CRI-O, this is part of the repository.
        let (_, path) = self.key().split_once('/')?;
        let below = path
            .strip_prefix("v1/")
            .or_else(|| path.strip_prefix("v2/"));
        below
            .filter(|below| !below.is_empty())
            .map(|_| Cow::Borrowed(self.key()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::parse::parse;
    use super::*;

    #[test]
    fn a_user_or_a_password_alone_authenticates_nobody() {
        use Ability::{Nothing, Password, Token};
        for (entry, expected) in [
            ("{}", Nothing),
            ("null", Nothing),
            (r#"{"auth":""}"#, Nothing),
            (r#"{"auth":null,"email":"e"}"#, Nothing),
            (r#"{"auth":"Og=="}"#, Nothing),
            (r#"{"auth":"OnA="}"#, Nothing),
            (r#"{"auth":"dTo="}"#, Nothing),
            (r#"{"username":"u"}"#, Nothing),
            (r#"{"username":"u","password":""}"#, Nothing),
            (r#"{"password":"p"}"#, Nothing),
            (r#"{"identitytoken":"t"}"#, Nothing),
            (r#"{"registrytoken":"t"}"#, Nothing),
            (r#"{"auth":"dTo=","identitytoken":""}"#, Nothing),
            (r#"{"auth":"Og==","identitytoken":"t"}"#, Token),
            (r#"{"username":"u","identitytoken":"t"}"#, Token),
            (r#"{"auth":"dTpw"}"#, Password),
            (r#"{"auth":"dTpw","username":""}"#, Password),
            (r#"{"username":"u","password":"p"}"#, Password),
            (r#"{"auth":"dTpw","identitytoken":"t"}"#, Password),
        ] {
            let config = parse(format!(r#"{{"auths":{{"r":{entry}}}}}"#).as_bytes()).unwrap();
            assert_eq!(config.entries()[0].ability(), expected, "{entry}");
        }
    }

    #[test]
    fn one_key_of_a_registry_is_effective_in_a_file() {
        for (keys, expected) in [
            (
                &["docker.io", "https://index.docker.io/v1/"][..],
                "docker.io",
            ),
            (&["https://index.docker.io/v1/", "docker.io"], "docker.io"),
            (
                &["registry-1.docker.io", "https://index.docker.io/v1/"],
                "https://index.docker.io/v1/",
            ),
            (&["https://quay.io", "quay.io"], "quay.io"),
            (&["quay.io/", "https://quay.io/v2/"], "https://quay.io/v2/"),
            (&["quay.io/", "quay.io/v1/"], "quay.io/"),
        ] {
            let entries: Vec<String> = keys
                .iter()
                .map(|key| format!(r#""{key}":{{"auth":"dTpw"}}"#))
                .collect();
            let text = format!(r#"{{"auths":{{{}}}}}"#, entries.join(","));
            let config = parse(text.as_bytes()).unwrap();
            let effective: Vec<&str> = config
                .by_canonical_key()
                .values()
                .map(|entry| entry.key())
                .collect();
            assert_eq!(effective, [expected], "{keys:?}");
        }
    }
}
