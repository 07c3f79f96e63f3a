//! The contents of Secrets in namespaces, compared without keeping them. Pure.

use std::collections::BTreeMap;

use globalps_core::names::{DATA_KEY, SECRET_TYPE};
use k8s_openapi::api::core::v1::Secret;

use crate::content::digest::Digest;

/// `None`: it has no registry credentials.
pub(super) fn of_credentials(secret: &Secret) -> Option<Digest> {
    let is_config = secret.type_.as_deref() == Some(SECRET_TYPE);
    let data = secret.data.as_ref().filter(|_| is_config)?;
    Some(Digest::of(data.get(DATA_KEY)?.0.as_slice()))
}

/// Digests of the desired contents, by identity. It takes long to render a content, and there are few in thousands of namespaces.
#[derive(Debug, Default)]
pub struct Digests {
    known: BTreeMap<String, Digest>,
    used: BTreeMap<String, Digest>,
}

impl Digests {
    pub(super) fn of(&mut self, identity: &str, render: impl FnOnce() -> Vec<u8>) -> Digest {
        if let Some(digest) = self.used.get(identity) {
            return *digest;
        }
        let known = self.known.get(identity).copied();
        let digest = known.unwrap_or_else(|| Digest::of(render().as_slice()));
        self.used.insert(identity.to_owned(), digest);
        digest
    }

    /// Forgets those that were not used since the last call.
    pub(super) fn forget_others(&mut self) {
        self.known = std::mem::take(&mut self.used);
    }
}

#[cfg(any(test, feature = "testing"))]
impl Digests {
    /// The content with each of these identities is the identity itself.
    pub fn of_test(identities: impl IntoIterator<Item = String>) -> Self {
        let identities = identities.into_iter();
        Self {
            known: identities.map(|it| (it.clone(), Digest::of(it))).collect(),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_same_credentials_have_the_same_digest() {
        let of = |type_: &str, data: serde_json::Value| {
            let secret = json!({"metadata": {}, "type": type_, "data": data});
            of_credentials(&serde_json::from_value(secret).unwrap())
        };
        let found = of(
            SECRET_TYPE,
            json!({".dockerconfigjson": "e30=", "x": "eA=="}),
        );
        assert_eq!(found, Some(Digest::of(b"{}".as_slice())));
        assert!(!format!("{found:?}").contains(|c: char| c.is_ascii_digit()));
        for (type_, data) in [
            (SECRET_TYPE, json!({".dockerconfigjson": "W10="})),
            (SECRET_TYPE, json!({"x": "e30="})),
            ("Opaque", json!({".dockerconfigjson": "e30="})),
        ] {
            assert_ne!(of(type_, data), found);
        }
    }

    #[test]
    fn a_content_is_rendered_once_while_it_is_used() {
        let mut digests = Digests::default();
        let mut rendered = 0;
        for (case, uses, expected) in [
            ("the first plan", 2, 1),
            ("the next one", 2, 1),
            ("no namespace has it", 0, 1),
            ("one has it again", 2, 2),
        ] {
            for _ in 0..uses {
                digests.of("a", || {
                    rendered += 1;
                    vec![1]
                });
            }
            digests.forget_others();
            assert_eq!(rendered, expected, "{case}");
        }
    }
}
