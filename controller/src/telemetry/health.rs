//! The health of the controller, for `/livez` and `/readyz`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::telemetry::clock;

/// A loop without an iteration for this time is stuck. No request in it takes longer than 15 s.
const STUCK_AFTER: Duration = Duration::from_mins(1);
/// The API server is unresponsive after this time. The leader renews the Lease every 3 s, and a standby watches it.
const UNRESPONSIVE_AFTER: Duration = Duration::from_secs(30);

/// Times are milliseconds of [`clock::now`].
#[derive(Debug)]
pub(crate) struct Health {
    beat: AtomicU64,
    answered: AtomicU64,
    /// Whether it leads while some cache is not synced.
    waits_for_caches: AtomicBool,
}

impl Health {
    pub(crate) fn new() -> Self {
        Self {
            beat: AtomicU64::new(millis(clock::now())),
            answered: AtomicU64::new(0),
            waits_for_caches: AtomicBool::new(false),
        }
    }

    /// The loop has finished an iteration, or a step of one.
    pub(crate) fn beat(&self) {
        self.beat.store(millis(clock::now()), Ordering::Relaxed);
    }

    /// The API server responded.
    pub(crate) fn answered(&self) {
        self.answered.store(millis(clock::now()), Ordering::Relaxed);
    }

    pub(crate) fn set_waits_for_caches(&self, waits: bool) {
        self.waits_for_caches.store(waits, Ordering::Relaxed);
    }

    /// `Err`: the reason.
    pub(crate) fn live(&self, now: Duration) -> Result<(), String> {
        let elapsed = since(&self.beat, now);
        if elapsed > STUCK_AFTER {
            return Err(format!(
                "the loop has been stuck for {} s",
                elapsed.as_secs()
            ));
        }
        Ok(())
    }

    /// `Err`: the reason. A standby is ready too, since it can lead.
    pub(crate) fn ready(&self, now: Duration) -> Result<(), String> {
        self.live(now)?;
        let elapsed = since(&self.answered, now);
        if elapsed > UNRESPONSIVE_AFTER {
            return Err(format!(
                "the API server has not responded for {} s",
                elapsed.as_secs()
            ));
        }
        if self.waits_for_caches.load(Ordering::Relaxed) {
            return Err("caches are not synced yet".to_owned());
        }
        Ok(())
    }
}

fn since(time: &AtomicU64, now: Duration) -> Duration {
    now.saturating_sub(Duration::from_millis(time.load(Ordering::Relaxed)))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Health {
        pub(crate) fn stuck_for(&self, time: Duration) {
            let beat = millis(clock::now().saturating_sub(time));
            self.beat.store(beat, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_stuck_loop_and_an_unresponsive_api_server_are_reported() {
        let health = Health::new();
        let begun = clock::now();
        health.answered.store(0, Ordering::Relaxed);
        let ready = |after: u64| health.ready(begun + Duration::from_secs(after));
        let live = |after: u64| health.live(begun + Duration::from_secs(after));
        assert!(live(0).is_ok() && live(59).is_ok());
        assert_eq!(live(61), Err("the loop has been stuck for 61 s".to_owned()));
        assert!(ready(31).is_err(), "the API server never responded");
        // Not `answered`, because a busy machine may get here later.
        health.answered.store(millis(begun), Ordering::Relaxed);
        assert!(ready(0).is_ok() && ready(29).is_ok());
        assert_eq!(
            ready(31),
            Err("the API server has not responded for 31 s".to_owned())
        );
        health.set_waits_for_caches(true);
        assert_eq!(ready(0), Err("caches are not synced yet".to_owned()));
        assert!(live(0).is_ok(), "a restart would not help");
        health.set_waits_for_caches(false);
        assert!(ready(0).is_ok());
    }
}
