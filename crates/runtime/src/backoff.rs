//! Pauses between attempts, and the randomness that keeps many programs from making theirs simultaneously.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use globalps_core::backoff::doubled;

/// Pauses that double from the first to the longest. Half of each is random, so that many retries do not coincide.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    attempts: u32,
}

impl Backoff {
    /// `first`: about the pause after the first failure. `longest`: about the pause after many.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            attempts: 0,
        }
    }

    /// Before the next attempt.
    pub fn pause(&mut self) -> Duration {
        let pause = doubled(self.first, self.longest, self.attempts, random());
        self.attempts = self.attempts.saturating_add(1);
        pause
    }

    /// After a success: the next pause is short again.
    pub fn reset(&mut self) {
        self.attempts = 0;
    }
}

/// Within a tenth of the duration.
pub fn jittered(duration: Duration) -> Duration {
    duration.mul_f64(0.9 + random() / 5.0)
}

/// At most this long.
pub fn up_to(duration: Duration) -> Duration {
    duration.mul_f64(random())
}

/// A random number from 0 to 1.
#[expect(clippy::cast_precision_loss, reason = "jitter needs no precision")]
pub fn random() -> f64 {
    (random_bits() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Each `RandomState` has its own random keys.
pub fn random_bits() -> u64 {
    RandomState::new().hash_one(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const FIRST: Duration = Duration::from_secs(1);
    const LONGEST: Duration = Duration::from_mins(1);

    #[test]
    fn pauses_double_to_the_limit_and_half_of_each_is_random() {
        let mut pauses = [0, 1, 5, 6, 99].map(|_| BTreeSet::new());
        for _ in 0..100 {
            let mut backoff = Backoff::new(FIRST, LONGEST);
            let drawn: Vec<_> = (0..100).map(|_| backoff.pause()).collect();
            for (set, attempt) in pauses.iter_mut().zip([0, 1, 5, 6, 99]) {
                set.insert(drawn[attempt]);
            }
        }
        for (set, full) in pauses.iter().zip([1, 2, 32, 60, 60]) {
            let full = Duration::from_secs(full);
            assert!(set.iter().all(|pause| (full / 2..=full).contains(pause)));
            assert!(
                set.len() > 50,
                "only {} of 100 pauses are distinct",
                set.len()
            );
        }
    }

    #[test]
    fn a_reset_starts_again_and_the_number_of_attempts_saturates() {
        let mut backoff = Backoff {
            attempts: u32::MAX,
            ..Backoff::new(FIRST, LONGEST)
        };
        assert!(backoff.pause() >= LONGEST / 2);
        backoff.reset();
        assert!(backoff.pause() <= FIRST);
    }

    #[test]
    fn jitter_stays_within_its_limits() {
        for _ in 0..1000 {
            assert!((LONGEST * 9 / 10..=LONGEST * 11 / 10).contains(&jittered(LONGEST)));
            assert!(up_to(LONGEST) <= LONGEST);
        }
    }
}
