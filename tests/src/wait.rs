//! Every wait has a deadline.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Calls `probe` every `poll` until it returns a value. An error of `probe` ends the wait at once. At the deadline the
/// error says that `what` did not happen.
pub fn until<T>(
    what: &str,
    deadline: Duration,
    poll: Duration,
    mut probe: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(value) = probe()? {
            return Ok(value);
        }
        if start.elapsed() >= deadline {
            bail!("{what}: not within {} s", deadline.as_secs_f32());
        }
        sleep(poll);
    }
}
