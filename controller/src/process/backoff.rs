//! The pause before another attempt.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

/// Doubles from the first to the longest; up to half of it is random, so that many retries do not coincide.
pub(crate) fn backoff((first, longest): (Duration, Duration), retries: u32) -> Duration {
    let pause = first
        .saturating_mul(2_u32.saturating_pow(retries))
        .min(longest);
    pause / 2 + pause.mul_f64(random() / 2.0)
}

/// Within a tenth of the duration, so that many of them do not coincide.
pub(crate) fn jittered(duration: Duration) -> Duration {
    duration.mul_f64(0.9 + random() / 5.0)
}

/// Random, at most this long.
pub(crate) fn up_to(duration: Duration) -> Duration {
    duration.mul_f64(random())
}

/// From 0 to 1.
#[expect(clippy::cast_precision_loss, reason = "jitter needs no precision")]
pub(crate) fn random() -> f64 {
    (random_bits() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Each `RandomState` has its own random keys.
pub(crate) fn random_bits() -> u64 {
    RandomState::new().hash_one(())
}
