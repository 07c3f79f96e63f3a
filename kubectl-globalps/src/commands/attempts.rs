//! Repeating a write that met another one.

use std::time::Duration;

use globalps_runtime::backoff::up_to;

/// Attempts to write a change on conflicts.
pub(super) const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(50);

/// A random delay before the next attempt, so that clients in conflict don't collide again.
pub(super) async fn pause(attempt: u32) {
    tokio::time::sleep(PAUSE * attempt + up_to(PAUSE)).await;
}
