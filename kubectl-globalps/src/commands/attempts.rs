//! Retries of a write that conflicts with another one.

use std::time::Duration;

use globalps_runtime::backoff::up_to;

/// Maximum number of attempts after conflicts.
pub(super) const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(50);

/// A random delay before the next attempt, so that conflicting clients don't collide again.
pub(super) async fn pause(attempt: u32) {
    tokio::time::sleep(PAUSE * attempt + up_to(PAUSE)).await;
}
