//! The clock by which a lease is kept.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Time since the machine booted. It goes on while this process is stopped and while the machine sleeps, which `Instant`
/// does not promise, and nobody can set it.
pub(crate) fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}
