//! The time of what deliveries remember.

use globalps_planner::refused;
use jiff::Timestamp;

use crate::telemetry::clock;

/// By the clock that nobody sets: see [`refused::steady`].
pub(super) fn steady() -> Timestamp {
    refused::steady(clock::now())
}
