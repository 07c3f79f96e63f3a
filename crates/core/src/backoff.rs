//! Pauses between attempts.

use std::time::Duration;

/// The pause after this number of earlier ones. `jitter`: from 0, which is half of the pause, to 1.
pub fn doubled(first: Duration, longest: Duration, earlier: u32, jitter: f64) -> Duration {
    let pause = first.saturating_mul(2_u32.saturating_pow(earlier));
    pause.min(longest).mul_f64(0.5 + jitter / 2.0)
}
