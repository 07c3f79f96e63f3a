//! Whether this controller gets on, for `/livez` and `/readyz`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::telemetry::clock;

/// A loop that did not come round for so long is stuck. No call that it waits for takes longer than 15 s.
const STUCK: Duration = Duration::from_mins(1);
/// Whoever leads renews every 3 s, and whoever stands by sees it.
const SILENT: Duration = Duration::from_secs(30);

/// Times are milliseconds of [`clock::now`].
#[derive(Debug)]
pub(crate) struct Health {
    beat: AtomicU64,
    answered: AtomicU64,
    /// It leads and does not know yet what is there.
    blind: AtomicBool,
}

impl Health {
    pub(crate) fn new() -> Self {
        Self {
            beat: AtomicU64::new(millis(clock::now())),
            answered: AtomicU64::new(0),
            blind: AtomicBool::new(false),
        }
    }

    /// The loop came round, or a step of its work is done.
    pub(crate) fn beat(&self) {
        self.beat.store(millis(clock::now()), Ordering::Relaxed);
    }

    /// The API server said something.
    pub(crate) fn answered(&self) {
        self.answered.store(millis(clock::now()), Ordering::Relaxed);
    }

    pub(crate) fn is_blind(&self, blind: bool) {
        self.blind.store(blind, Ordering::Relaxed);
    }

    /// `Err`: what is wrong.
    pub(crate) fn live(&self, now: Duration) -> Result<(), String> {
        let silent = since(&self.beat, now);
        if silent > STUCK {
            return Err(format!("the loop is stuck for {} s", silent.as_secs()));
        }
        Ok(())
    }

    /// `Err`: what is wrong. Whoever stands by is ready too: it can lead.
    pub(crate) fn ready(&self, now: Duration) -> Result<(), String> {
        self.live(now)?;
        let silent = since(&self.answered, now);
        if silent > SILENT {
            return Err(format!(
                "the API server is silent for {} s",
                silent.as_secs()
            ));
        }
        if self.blind.load(Ordering::Relaxed) {
            return Err("not every list has come yet".to_owned());
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
    fn a_loop_that_stands_still_and_a_silent_api_server_are_told() {
        let health = Health::new();
        let begun = clock::now();
        health.answered.store(0, Ordering::Relaxed);
        let ready = |after: u64| health.ready(begun + Duration::from_secs(after));
        let live = |after: u64| health.live(begun + Duration::from_secs(after));
        assert!(live(0).is_ok() && live(59).is_ok());
        assert_eq!(live(61), Err("the loop is stuck for 61 s".to_owned()));
        assert!(ready(31).is_err(), "the API server never answered");
        health.answered();
        assert!(ready(0).is_ok() && ready(29).is_ok());
        assert_eq!(
            ready(31),
            Err("the API server is silent for 31 s".to_owned())
        );
        health.is_blind(true);
        assert_eq!(ready(0), Err("not every list has come yet".to_owned()));
        assert!(live(0).is_ok(), "which is no reason to start it anew");
        health.is_blind(false);
        assert!(ready(0).is_ok());
    }
}
