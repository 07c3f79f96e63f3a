//! Every wait has a deadline.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Deadline of events that must happen but have no promised time. Only a failing test waits this long, so that load on
/// the machine never exceeds it.
pub const DEADLINE: Duration = Duration::from_mins(2);
/// A longer pause would slow every test down noticeably.
const LONGEST_PAUSE: Duration = Duration::from_millis(700);

/// Calls `probe` until it returns a value, every `poll`, or less often if `probe` or the wait takes long, because the
/// probes of all tests compete for processor time with what the tests wait for. An error of `probe` ends the wait at
/// once. At the deadline the error says that `what` did not happen.
pub fn until<T>(
    what: &str,
    deadline: Duration,
    poll: Duration,
    mut probe: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        let asked = Instant::now();
        if let Some(value) = probe()? {
            return Ok(value);
        }
        if start.elapsed() >= deadline {
            bail!("{what}: not within {} s", deadline.as_secs_f32());
        }
        sleep(pause(poll, asked.elapsed(), start.elapsed()));
    }
}

/// Like [`until`] with [`DEADLINE`].
///
/// # Panics
///
/// If it doesn't happen by then.
#[track_caller]
pub fn wait<T>(what: &str, poll: Duration, probe: impl FnMut() -> Result<Option<T>>) -> T {
    match until(what, DEADLINE, poll, probe) {
        Ok(value) => value,
        Err(error) => panic!("{error:#}"),
    }
}

/// Calls `probe` every `poll` until it succeeds. At the deadline, returns the probe's error.
pub(crate) async fn retry<T>(
    deadline: Duration,
    poll: Duration,
    probe: impl AsyncFn() -> Result<T>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        match probe().await {
            Err(_) if start.elapsed() < deadline => tokio::time::sleep(poll).await,
            tried => return tried,
        }
    }
}

/// Time until the next call of a probe that took `took`, in a wait that has lasted `waited`. For a fast probe at most a
/// twentieth of the wait, and at most a few polls, because frequent polls usually look for a short-lived state.
fn pause(poll: Duration, took: Duration, waited: Duration) -> Duration {
    let patient = (waited / 20).min(poll * 4);
    poll.max((took * 3).max(patient).min(LONGEST_PAUSE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_probes_and_long_waits_are_probed_less_often() {
        for (poll, took, waited, expected) in [
            (100, 0, 0, 100),
            (100, 30, 30, 100),
            (100, 100, 100, 300),
            (100, 5_000, 5_000, 700),
            (2_000, 5_000, 5_000, 2_000),
            (50, 5, 1_000, 50),
            (50, 5, 4_000, 200),
            (50, 5, 60_000, 200),
            (2, 0, 60_000, 8),
        ] {
            let [poll, took, waited, expected] =
                [poll, took, waited, expected].map(Duration::from_millis);
            let actual = pause(poll, took, waited);
            assert_eq!(actual, expected, "{poll:?} {took:?} {waited:?}");
        }
    }
}
