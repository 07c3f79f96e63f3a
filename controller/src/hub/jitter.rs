//! Randomness of pauses, so that many do not end at once.

use std::hash::{BuildHasher as _, RandomState};

/// From 0 to 1. Each `RandomState` has its own random keys.
#[allow(clippy::cast_precision_loss)] // Jitter needs no precision.
pub(super) fn random() -> f64 {
    (RandomState::new().hash_one(()) >> 11) as f64 / (1_u64 << 53) as f64
}
