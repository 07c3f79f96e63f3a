//! Which Secrets are the controller's. Any client can name itself like the controller and copy labels and annotations, so a Secret
//! must have the proof, or be one that had it. Pure.

use std::collections::BTreeMap;

use globalps_core::state::ProofKey;

use super::views::PullSecretView;
use crate::content::digest::Digest;
use crate::targets::proof::Proof;

/// Empty at the start of each term.
#[derive(Debug, Default)]
pub struct Ownership {
    key: Option<ProofKey>,
    /// By namespace.
    secrets: BTreeMap<String, Provenance>,
}

#[derive(Debug)]
struct Provenance {
    uid: Digest,
    proof: Option<Proof>,
    is_proved: bool,
    is_own: bool,
}

impl Ownership {
    /// Records all Secrets, which have this name. Call it before each plan. `key`: as stored.
    pub fn observe(
        &mut self,
        secrets: &BTreeMap<String, PullSecretView>,
        key: Option<ProofKey>,
        name: &str,
    ) {
        let is_same_key = std::mem::replace(&mut self.key, key) == key;
        self.secrets
            .retain(|namespace, _| secrets.contains_key(namespace));
        for (namespace, secret) in secrets {
            let known = self
                .secrets
                .get(namespace)
                .filter(|known| known.uid == secret.uid);
            if known.is_some_and(|known| is_same_key && known.proof == secret.proof) {
                continue;
            }
            // Who changes the Secret that had the proof may remove the proof, and it is the same Secret.
            let was_own = known.is_some_and(|known| known.is_own);
            let expected = secret
                .proof
                .zip(key)
                .map(|(_, key)| Proof::new(&key, namespace, name));
            let is_proved = expected.is_some() && expected == secret.proof;
            let known = Provenance {
                uid: secret.uid,
                proof: secret.proof,
                is_proved,
                is_own: is_proved || was_own,
            };
            self.secrets.insert(namespace.clone(), known);
        }
    }

    /// The controller wrote it.
    pub(super) fn is_own(&self, secret: &PullSecretView) -> bool {
        self.of(secret).is_some_and(|known| known.is_own)
    }

    /// The same, and the next leader will know.
    pub(super) fn is_proved(&self, secret: &PullSecretView) -> bool {
        self.of(secret)
            .is_some_and(|known| known.is_proved && known.proof == secret.proof)
    }

    fn of(&self, secret: &PullSecretView) -> Option<&Provenance> {
        let known = self.secrets.get(&secret.namespace);
        known.filter(|known| known.uid == secret.uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: ProofKey = ProofKey([1; 16]);

    fn secret(uid: &str, proof: Option<Proof>) -> PullSecretView {
        PullSecretView {
            uid: Digest::of(uid),
            proof,
            ..PullSecretView::of_test("a")
        }
    }

    #[test]
    fn a_proven_secret_is_the_controllers_until_replaced() {
        let mut ownership = Ownership::default();
        let proof = Some(Proof::new(&KEY, "a", "s"));
        let of_other = Some(Proof::new(&KEY, "b", "s"));
        let mut is = |secret: Option<PullSecretView>, key| {
            let secrets = secret.iter().map(|it| (it.namespace.clone(), it.clone()));
            ownership.observe(&secrets.collect(), key, "s");
            secret.map(|it| (ownership.is_own(&it), ownership.is_proved(&it)))
        };
        for (case, uid, proof, key, expected) in [
            ("another client's", "1", None, Some(KEY), (false, false)),
            (
                "a copy from another namespace",
                "2",
                of_other,
                Some(KEY),
                (false, false),
            ),
            (
                "restored from a backup",
                "3",
                proof,
                Some(KEY),
                (true, true),
            ),
            ("changed", "3", None, Some(KEY), (true, false)),
            ("changed again", "3", of_other, Some(KEY), (true, false)),
            ("written again", "3", proof, Some(KEY), (true, true)),
            (
                "the key was lost",
                "3",
                proof,
                Some(ProofKey([2; 16])),
                (true, false),
            ),
            ("and not replaced", "3", proof, None, (true, false)),
            ("in place of it", "4", None, Some(KEY), (false, false)),
            ("before the key was known", "5", proof, None, (false, false)),
            ("and after that", "5", proof, Some(KEY), (true, true)),
        ] {
            assert_eq!(is(Some(secret(uid, proof)), key), Some(expected), "{case}");
        }
        assert_eq!(is(None, Some(KEY)), None);
        assert_eq!(
            is(Some(secret("5", None)), Some(KEY)),
            Some((false, false)),
            "forgotten"
        );
    }
}
