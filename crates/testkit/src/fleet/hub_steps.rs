//! One step of a measurement of the hub: its duration, the requests, and the minimum duration that the limits allow.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use jiff::Timestamp;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::hub_stage::HubProcess;
use super::members::Members;
use super::meter::{Usage, audited};

/// The duration of a step, and the hub's activity during it.
#[derive(Clone, Debug)]
pub struct Step {
    pub time: Duration,
    /// Minimum number of consecutive batches that the limits require.
    pub waves: usize,
    /// Number of requests to the management cluster and to the members, by kind.
    pub requests: Vec<(String, usize)>,
    pub at_members: Vec<(String, usize)>,
    pub reconciles: u64,
    pub processor: Duration,
}

impl Step {
    /// The minimum duration, from the limits and the members' response times.
    pub fn least(&self, time: Duration) -> Duration {
        time * u32::try_from(self.waves).unwrap_or(u32::MAX)
    }

    /// The hub's writes on the management cluster.
    pub fn writes(&self) -> usize {
        let is_write = |what: &str| {
            ["patch ", "create ", "delete "]
                .iter()
                .any(|it| what.starts_with(it))
        };
        let requests = self.requests.iter().filter(|(what, _)| is_write(what));
        requests.map(|(_, count)| count).sum()
    }
}

/// All counters at one moment.
pub(super) struct Mark {
    pub(super) begun: Instant,
    time: Timestamp,
    at_members: BTreeMap<String, usize>,
    reconciles: u64,
    processor: Duration,
}

impl Mark {
    /// The counters before a hub runs.
    pub(super) fn before(members: &Members) -> Self {
        Self {
            begun: Instant::now(),
            time: Timestamp::now(),
            at_members: members.requests(),
            reconciles: 0,
            processor: Duration::ZERO,
        }
    }

    pub(super) async fn now(members: &Members, hub: HubProcess) -> Result<Self> {
        Ok(Self {
            reconciles: reconciles(hub.port).await?,
            processor: Usage::of(hub.pid)?.processor,
            ..Self::before(members)
        })
    }

    /// The activity since the mark.
    pub(super) async fn until_now(
        self,
        members: &Members,
        hub: HubProcess,
        log: &Path,
        waves: usize,
    ) -> Result<Step> {
        let (time, to) = (self.begun.elapsed(), Timestamp::now());
        let now = Self::now(members, hub).await?;
        // The newest requests appear in the log a moment later.
        sleep(Duration::from_secs(1)).await;
        let at_members = now.at_members.iter().map(|(what, count)| {
            let before = self.at_members.get(what).copied().unwrap_or_default();
            (what.clone(), count - before)
        });
        Ok(Step {
            time,
            waves,
            requests: audited(log, self.time, to)?,
            at_members: at_members.filter(|(_, count)| *count > 0).collect(),
            reconciles: now.reconciles - self.reconciles,
            processor: now.processor.saturating_sub(self.processor),
        })
    }
}

/// Number of reconciles, from the hub's metrics.
async fn reconciles(port: u16) -> Result<u64> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let request = "GET /metrics HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await?;
    let mut page = String::new();
    stream.read_to_string(&mut page).await?;
    let mut lines = page.lines();
    let count = lines.find_map(|line| line.strip_prefix("globalps_reconciles_total "));
    Ok(count.context("no metrics of the hub")?.parse()?)
}

/// Number of open files of a process.
pub(super) fn files(pid: u32) -> Result<usize> {
    Ok(fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}

/// Number of consecutive batches: a canary, then twice as many as already have the revision, up to `most`, until all have it.
pub(super) fn waves(mut done: usize, all: usize, most: usize) -> usize {
    let mut waves = 0;
    while done < all {
        done += (2 * done).clamp(1, most.max(1));
        waves += 1;
    }
    waves
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_double_up_to_the_limit() {
        assert_eq!(waves(0, 9, 100), 3, "1, 2, 6");
        assert_eq!(waves(0, 1000, 100), 15, "1, 2, 6, 18, 54, and 10 times 100");
        assert_eq!(waves(0, 5, 1), 5);
        assert_eq!(waves(666, 1000, 100), 4, "others have it already");
    }
}
