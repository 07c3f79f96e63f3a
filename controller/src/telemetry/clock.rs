//! The clock for leases and probes.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Time since the machine booted. It continues while this process is stopped and while the machine sleeps, which `Instant` does
/// not guarantee, and it can't be set.
pub(crate) fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}
