//! Retries of a write that conflicts with another one.

use std::time::Duration;

use globalps_runtime::backoff::up_to;

use crate::error::Result;

/// Maximum number of attempts after conflicts.
pub(crate) const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(50);

/// A random delay before the next attempt, so that conflicting clients don't collide again.
pub(crate) async fn pause(attempt: u32) {
    tokio::time::sleep(PAUSE * attempt + up_to(PAUSE)).await;
}

/// Repeats a change that reads before it writes, if another client wrote in between: the API server answers 409. `change` gets
/// the number of the attempt, from 1.
pub(crate) async fn until_written<T>(mut change: impl AsyncFnMut(u32) -> Result<T>) -> Result<T> {
    for attempt in 1..ATTEMPTS {
        match change(attempt).await {
            Err(failure) if failure.is(409) => pause(attempt).await,
            done => return done,
        }
    }
    change(ATTEMPTS).await
}
