//! Since when the leader has seen the Secret of a namespace as it is, by its own monotonic clock: the time in `managedFields` is of the
//! API server, and every client that may change the Secret may write it. Pure.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::views::PullSecretView;
use crate::content::digest::Digest;

/// Empty at the start of each term.
#[derive(Clone, Debug, Default)]
pub struct SecretClock {
    /// What appears from now on, this leader has seen appear.
    has_begun: bool,
    /// By namespace.
    secrets: BTreeMap<String, LastChange>,
    /// Time since the leader's machine booted, at the last observation.
    now: SignedDuration,
}

/// What starts the time again when it changes: whether it is being deleted, and its content.
type SecretState = (bool, Option<Digest>);

#[derive(Clone, Debug)]
struct LastChange {
    state: SecretState,
    since: SignedDuration,
}

fn state(secret: &PullSecretView) -> SecretState {
    let is_deleted = secret.is_being_deleted;
    (is_deleted, secret.content.filter(|_| !is_deleted))
}

impl SecretClock {
    /// Records all Secrets, by namespace, and forgets those that are gone. Call it before each plan.
    pub fn observe(
        &mut self,
        secrets: &BTreeMap<String, PullSecretView>,
        now: SignedDuration,
        wall: Timestamp,
    ) {
        let has_begun = std::mem::replace(&mut self.has_begun, true);
        self.now = now;
        self.secrets.retain(|name, _| secrets.contains_key(name));
        for (namespace, secret) in secrets {
            let state = state(secret);
            let last = self.secrets.get(namespace);
            if last.is_some_and(|last| last.state == state) {
                continue;
            }
            // A new leader does not wait again for what an earlier one has waited for. A time in the future says nothing.
            let written = secret.written.filter(|_| !has_begun);
            let before = match (state.1, written) {
                (Some(_), Some(written)) => wall.duration_since(written),
                _ => SignedDuration::ZERO,
            };
            let since = now - before.max(SignedDuration::ZERO);
            self.secrets
                .insert(namespace.clone(), LastChange { state, since });
        }
    }

    /// How long the Secret has been as it is; zero if that is newer than the last observation.
    pub(super) fn unchanged_for(&self, secret: &PullSecretView) -> SignedDuration {
        let last = self.secrets.get(&secret.namespace);
        let last = last.filter(|last| last.state == state(secret));
        last.map_or(SignedDuration::ZERO, |last| self.now - last.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600;

    fn at(second: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
    }

    fn secret(content: &str, written: Option<Timestamp>) -> PullSecretView {
        PullSecretView {
            content: Some(Digest::of(content)),
            written,
            ..PullSecretView::of_test("a")
        }
    }

    fn observe(clock: &mut SecretClock, secret: Option<&PullSecretView>, second: i64) {
        let secrets = secret.map(|secret| (secret.namespace.clone(), secret.clone()));
        let now = SignedDuration::from_secs(second);
        clock.observe(&secrets.into_iter().collect(), now, at(2 * HOUR + second));
    }

    #[test]
    fn written_times_count_only_for_what_the_leader_did_not_see() {
        let mut clock = SecretClock::default();
        observe(&mut clock, None, 0);
        for written in [
            None,
            Some(at(0)),
            Some(at(3 * HOUR)),
            Some(Timestamp::MAX),
            Some(Timestamp::MIN),
        ] {
            let secret = secret("5", written);
            assert_eq!(clock.unchanged_for(&secret), SignedDuration::ZERO);
            for (second, expected) in [(1, 0), (8, 7)] {
                observe(&mut clock, Some(&secret), second);
                let seen = clock.unchanged_for(&secret).as_secs();
                assert_eq!(seen, expected, "{written:?} does not matter");
            }
            observe(&mut clock, None, 9);
        }
        for (written, expected) in [
            (None, 0),
            (Some(at(2 * HOUR - 30)), 30),
            (Some(at(2 * HOUR + 30)), 0),
            (Some(Timestamp::MAX), 0),
        ] {
            let secret = secret("5", written);
            let mut clock = SecretClock::default();
            observe(&mut clock, Some(&secret), 0);
            let seen = clock.unchanged_for(&secret).as_secs();
            assert_eq!(seen, expected, "{written:?}: an earlier leader wrote it");
        }
    }

    #[test]
    fn a_change_starts_the_time_again_and_another_version_does_not() {
        let mut clock = SecretClock::default();
        observe(&mut clock, None, 0);
        let first = secret("5", None);
        observe(&mut clock, Some(&first), 1);
        let touched = PullSecretView {
            version: 2,
            written: Some(Timestamp::MAX),
            ..first.clone()
        };
        observe(&mut clock, Some(&touched), 4);
        assert_eq!(clock.unchanged_for(&touched).as_secs(), 3);
        for changed in [
            secret("6", None),
            PullSecretView {
                content: None,
                ..first.clone()
            },
            PullSecretView {
                is_being_deleted: true,
                ..first.clone()
            },
        ] {
            observe(&mut clock, Some(&first), 4);
            observe(&mut clock, Some(&changed), 5);
            assert_eq!(clock.unchanged_for(&changed), SignedDuration::ZERO);
            assert_eq!(clock.unchanged_for(&first), SignedDuration::ZERO);
        }
    }
}
