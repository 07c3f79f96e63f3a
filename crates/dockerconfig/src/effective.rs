//! Which of several entries for one registry is effective, and the keys under which readers find it.

use std::borrow::Cow;
use std::cmp::Reverse;

use super::canonical::{index_key, is_hub_index, is_hub_server, meant};
use super::entry::Entry;
use super::keys::is_for_older_kubelets;

/// Which readers can authenticate with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ability {
    /// With no reader. Docker, containerd and CRI-O send a user only with a password.
    Nothing,
    /// Only with CRI-O, by `identitytoken`, which it reads beside an `auth`.
    Token,
    /// Not with all readers: neither the response of a credential provider nor the kubelet's request can contain bytes
    /// that are not UTF-8.
    Bytes,
    Password,
}

impl Entry {
    pub(super) fn ability(&self) -> Ability {
        let Ok(Some(credential)) = self.credential() else {
            return Ability::Nothing;
        };
        if !self.has_host() {
            return Ability::Nothing;
        }
        if credential.is_complete() {
            if credential.as_text().is_some() {
                Ability::Password
            } else {
                Ability::Bytes
            }
        } else if self.has_identity_token() {
            Ability::Token
        } else {
            Ability::Nothing
        }
    }

    /// Whether some reader finds a host in its key.
    fn has_host(&self) -> bool {
        match self.index() {
            Some(index) => {
                !index.is_empty() && !index.starts_with(b"/") && !index.starts_with(b":")
            }
            None => is_for_older_kubelets(self.key()),
        }
    }

    /// Of several entries for one registry in one file, the lowest is effective: one that can authenticate with more readers, under
    /// the key that both readers prefer, as far as they prefer one. It does not depend on the order in the file, because content is
    /// sorted on its way to the readers.
    pub(super) fn rank(&self) -> (Reverse<Ability>, u8, u8, &str) {
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
        (Reverse(self.ability()), host, spelling, self.key())
    }

    /// The key for the entry in merged files: the canonical key, which both readers find, unless it is the key of another
    /// registry.
    pub(super) fn written_key(&self) -> Cow<'_, str> {
        let canonical = self.canonical_key();
        if is_own_index(&canonical) {
            canonical
        } else {
            Cow::Borrowed(self.key())
        }
    }

    /// Further keys for merged files: those under which a reader finds the entry for images for which it does not find the
    /// canonical key.
    pub(super) fn further_keys(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let index = meant(self.key(), self.index().unwrap_or_default());
        let server = is_hub_server(index).then(|| String::from_utf8_lossy(index));
        let server = server.filter(|key| is_own_index(key));
        // CRI-O treats this as part of the repository.
        let path = self.key().split_once('/').map_or("", |(_, path)| path);
        let below = path
            .strip_prefix("v1/")
            .or_else(|| path.strip_prefix("v2/"));
        let is_path = below.is_some_and(|below| !below.is_empty());
        let as_written = is_path.then_some(Cow::Borrowed(self.key()));
        server.into_iter().chain(as_written)
    }
}

/// Whether the text of an index key is a key for the same registry: not if it has a path such as `/v1/org`, or an escape.
fn is_own_index(text: &str) -> bool {
    !text.contains(char::REPLACEMENT_CHARACTER)
        && index_key(text).is_some_and(|index| index == text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;
    use super::*;

    #[test]
    fn a_user_or_a_password_alone_authenticates_nobody() {
        use Ability::{Bytes, Nothing, Password, Token};
        for (entry, expected) in [
            ("{}", Nothing),
            ("null", Nothing),
            (r#"{"auth":""}"#, Nothing),
            (r#"{"auth":null,"email":"e"}"#, Nothing),
            (r#"{"auth":"Og=="}"#, Nothing),
            (r#"{"auth":"OnA="}"#, Nothing),
            (r#"{"auth":"dTo="}"#, Nothing),
            (r#"{"auth":"dToAAA=="}"#, Nothing),
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
            (r#"{"auth":"cm9ib3Q6cORzcw=="}"#, Bytes),
            (r#"{"auth":"cOQ6cA=="}"#, Bytes),
        ] {
            let config = parse(format!(r#"{{"auths":{{"r":{entry}}}}}"#).as_bytes()).unwrap();
            assert_eq!(config.entries()[0].ability(), expected, "{entry}");
        }
    }

    #[test]
    fn a_key_without_a_host_serves_nobody() {
        use Ability::{Nothing, Password};
        for (key, expected) in [
            ("", Nothing),
            (" ", Nothing),
            ("https://", Nothing),
            ("https://u@", Nothing),
            ("/org", Nothing),
            (":5000", Nothing),
            ("<no value>", Nothing),
            ("${REGISTRY}", Nothing),
            ("quay io", Nothing),
            (" quay.io", Nothing),
            ("quay.io", Password),
            ("[::1]:5000", Password),
            // Kubelets that were built with an older Go read it.
            ("q[tu]ay.io", Password),
        ] {
            let config = parse(format!(r#"{{"auths":{{"{key}":{{"auth":"dTpw"}}}}}}"#).as_bytes());
            let config = config.unwrap();
            assert_eq!(config.entries()[0].ability(), expected, "{key:?}");
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
            (
                &["index.docker.io", "https://docker.io"],
                "https://docker.io",
            ),
            (&["https://quay.io", "quay.io"], "quay.io"),
            (&["quay.io/", "https://quay.io/v2/"], "https://quay.io/v2/"),
            (&["quay.io/", "quay.io/v1/"], "quay.io/"),
            (&["quay.io/v1/", "quay.io/"], "quay.io/"),
            (&["https://quay.io/v1", "quay.io/"], "https://quay.io/v1"),
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
