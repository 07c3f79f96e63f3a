//! Pauses between attempts that failed.

use std::time::Duration;

/// First and longest pause after an error.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

/// Pauses that double, half of each random, so that nodes don't retry at once.
#[derive(Debug, Default)]
pub(crate) struct Backoff(u32);

impl Backoff {
    pub(crate) fn next(&mut self) -> Duration {
        let pause = RETRY
            .0
            .saturating_mul(2_u32.saturating_pow(self.0))
            .min(RETRY.1);
        self.0 += 1;
        let random = jiff::Timestamp::now().subsec_nanosecond().unsigned_abs() % 1000;
        pause / 2 + pause / 2 * random / 1000
    }

    pub(crate) fn reset(&mut self) {
        self.0 = 0;
    }
}
