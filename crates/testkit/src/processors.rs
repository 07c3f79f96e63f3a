//! How busy this machine's processors are.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Clock ticks of all processors since the machine booted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    idle: u64,
    all: u64,
}

/// Measures the idle share over one period after another.
pub(crate) struct Processors {
    period: Duration,
    since: Instant,
    before: Ticks,
    idle: f64,
}

impl Processors {
    pub(crate) fn new(period: Duration) -> Result<Self> {
        Ok(Self {
            period,
            since: Instant::now(),
            before: now()?,
            idle: 0.0,
        })
    }

    /// Idle share in the last whole period, from 0 to 1; 0 during the first period.
    pub(crate) fn idle(&mut self) -> Result<f64> {
        if self.since.elapsed() >= self.period {
            let now = now()?;
            self.idle = share(self.before, now);
            (self.since, self.before) = (Instant::now(), now);
        }
        Ok(self.idle)
    }

    /// Discards the measurement, because the load has changed: a new period begins.
    pub(crate) fn restart(&mut self) -> Result<()> {
        *self = Self::new(self.period)?;
        Ok(())
    }
}

fn now() -> Result<Ticks> {
    parse(&fs::read_to_string("/proc/stat")?).context("`/proc/stat` has another format")
}

/// See proc_stat(5). Time that the hypervisor gave to another machine is not idle time.
fn parse(stat: &str) -> Option<Ticks> {
    let all = stat.lines().next()?.strip_prefix("cpu ")?;
    let all: Vec<u64> = all
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()
        .ok()?;
    // The last two of the ten fields (guests) are included in the first two.
    Some(Ticks {
        idle: all.get(3)? + all.get(4)?,
        all: all.iter().take(8).sum(),
    })
}

#[expect(clippy::cast_precision_loss, reason = "a share needs few digits")]
fn share(before: Ticks, now: Ticks) -> f64 {
    let of = |after: u64, before: u64| after.saturating_sub(before) as f64;
    let all = of(now.all, before.all);
    if all == 0.0 {
        return 0.0;
    }
    of(now.idle, before.idle) / all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_a_disk_is_idle_and_stolen_time_is_not() {
        let stat = "cpu  10 1 20 300 40 2 3 24 5 0\ncpu0 1 1 1 1 1 1 1 1 1 1\nintr 1\n";
        let ticks = parse(stat).unwrap();
        assert_eq!(
            ticks,
            Ticks {
                idle: 340,
                all: 400
            }
        );
        assert_eq!(parse("cpu0 1 2 3"), None);
    }

    #[test]
    fn the_share_is_of_the_time_in_between() {
        let ticks = |idle, all| Ticks { idle, all };
        assert!((share(ticks(340, 400), ticks(370, 500)) - 0.3).abs() < 1e-9);
        assert!(share(ticks(340, 400), ticks(340, 400)).abs() < 1e-9);
    }
}
