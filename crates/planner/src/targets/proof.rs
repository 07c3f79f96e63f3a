//! The proof, in a Secret of another namespace, that the controller wrote it. Labels, annotations and managers are what any client
//! says; only the controller's own state has the key of the proof. Pure, but for new keys.

use std::fmt;

use globalps_core::names::PROOF_KEY;
use globalps_core::state::ProofKey;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use ring::{hmac, rand};

/// It proves nothing in another namespace, to which a program may copy the Secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Proof([u8; 16]);

impl Proof {
    /// For the Secret with this namespace and name.
    pub fn new(key: &ProofKey, namespace: &str, name: &str) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key.0);
        let tag = hmac::sign(&key, format!("{namespace}/{name}").as_bytes());
        let mut proof = [0; 16];
        proof
            .iter_mut()
            .zip(tag.as_ref())
            .for_each(|(to, from)| *to = *from);
        Self(proof)
    }

    /// What the Secret has in its place.
    pub fn of(secret: &Secret) -> Option<Self> {
        let value = secret.data.as_ref()?.get(PROOF_KEY)?;
        value.0.as_slice().try_into().ok().map(Self)
    }

    /// For the Secret's data.
    pub fn value(&self) -> ByteString {
        ByteString(self.0.to_vec())
    }
}

impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Proof")
    }
}

/// `None`: the machine has no random numbers.
pub fn new_key() -> Option<ProofKey> {
    let random = rand::generate(&rand::SystemRandom::new());
    random.ok().map(|random| ProofKey(random.expose()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_good_for_one_secret_and_one_key() {
        let (key, other) = (new_key().unwrap(), new_key().unwrap());
        let proof = Proof::new(&key, "a", "s");
        assert_eq!(proof, Proof::new(&key, "a", "s"));
        for (key, namespace, name) in [(&key, "b", "s"), (&key, "a", "t"), (&other, "a", "s")] {
            assert_ne!(proof, Proof::new(key, namespace, name));
        }
    }

    #[test]
    fn a_secret_has_what_was_put_in_and_only_a_proof_is_one() {
        let with = |value: ByteString| Secret {
            data: Some([(PROOF_KEY.to_owned(), value)].into()),
            ..Secret::default()
        };
        let proof = Proof::new(&ProofKey([7; 16]), "a", "s");
        assert_eq!(Proof::of(&with(proof.value())), Some(proof));
        for bytes in [vec![], vec![0; 15], vec![0; 17]] {
            assert_eq!(Proof::of(&with(ByteString(bytes))), None);
        }
        assert_eq!(Proof::of(&Secret::default()), None);
        assert!(!format!("{proof:?} {:?}", ProofKey([7; 16])).contains('7'));
    }
}
