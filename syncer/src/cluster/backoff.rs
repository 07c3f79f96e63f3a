//! Pauses between failed attempts.

use std::time::Duration;

/// Pauses that double up to a limit. Half of each is random, so that nodes don't retry simultaneously.
#[derive(Debug)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    attempts: u32,
}

impl Default for Backoff {
    /// For requests to the API server.
    fn default() -> Self {
        Self::new(Duration::from_millis(200), Duration::from_secs(30))
    }
}

impl Backoff {
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            attempts: 0,
        }
    }

    pub(crate) fn next(&mut self) -> Duration {
        let factor = 2_u32.saturating_pow(self.attempts);
        let pause = self.first.saturating_mul(factor).min(self.longest);
        self.attempts = self.attempts.saturating_add(1);
        pause / 2 + (pause / 2).mul_f64(fastrand::f64())
    }

    pub(crate) fn reset(&mut self) {
        self.attempts = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn pauses_double_to_the_limit_and_half_of_each_is_random() {
        let (first, longest) = (Duration::from_secs(1), Duration::from_mins(1));
        let mut pauses = [0, 1, 5, 6, 99].map(|_| BTreeSet::new());
        for _ in 0..100 {
            let mut backoff = Backoff::new(first, longest);
            let drawn: Vec<_> = (0..100).map(|_| backoff.next()).collect();
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
            ..Backoff::default()
        };
        assert!(backoff.next() > Duration::from_secs(14));
        backoff.reset();
        assert!(backoff.next() <= Duration::from_millis(200));
    }
}
