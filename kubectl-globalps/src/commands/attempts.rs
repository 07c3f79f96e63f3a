//! Repeating a write that met another one.

use std::time::Duration;

/// Attempts to write a change on conflicts.
pub(super) const ATTEMPTS: u32 = 5;

/// A random delay before the next attempt, so that clients in conflict don't collide again.
pub(super) async fn pause(attempt: u32) {
    let jitter = jiff::Timestamp::now().subsec_nanosecond().unsigned_abs() % 50;
    let millis = 50 * attempt + jitter;
    tokio::time::sleep(Duration::from_millis(millis.into())).await;
}
