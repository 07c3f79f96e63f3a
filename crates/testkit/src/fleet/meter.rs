//! The API server's request metrics, and the kernel's statistics of the controller.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;

use super::stage::CONTROLLER_NAMESPACE;

/// Resources that a rotation reads or writes.
const RESOURCES: [&str; 5] = [
    "nodepullsecrets",
    "globalpullsecrets",
    "secrets",
    "nodes",
    "events",
];

/// Requests by verb, resource and subresource, and the bytes of responses and watch events.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    pub counts: BTreeMap<String, usize>,
    pub bytes: f64,
}

impl Requests {
    pub(super) async fn read(client: &Client) -> Result<Self> {
        let request = hyper::Request::get("/metrics").body(Vec::new())?;
        let text = client.request_text(request).await?;
        Ok(parse(&text))
    }

    pub(super) fn since(&self, before: &Self) -> Self {
        let counts = self.counts.iter().map(|(key, count)| {
            let before = before.counts.get(key).copied().unwrap_or_default();
            (key.clone(), count.saturating_sub(before))
        });
        Self {
            counts: counts.filter(|(_, count)| *count > 0).collect(),
            bytes: self.bytes - before.bytes,
        }
    }

    /// The requests of a rotation, without watches and heartbeats of nodes.
    pub fn of_rotation(&self) -> usize {
        let is_of_rotation = |key: &str| !key.starts_with("WATCH") && !key.contains("nodes");
        self.counts
            .iter()
            .filter(|(key, _)| is_of_rotation(key))
            .map(|(_, count)| count)
            .sum()
    }
}

/// Sums the relevant samples of Prometheus' text format.
fn parse(text: &str) -> Requests {
    let mut requests = Requests::default();
    for line in text.lines() {
        let Some((name, rest)) = line.split_once('{') else {
            continue;
        };
        let Some((labels, value)) = rest.rsplit_once("} ") else {
            continue;
        };
        let label = |wanted: &str| {
            labels
                .split("\",")
                .filter_map(|label| label.split_once("=\""))
                .find(|(name, _)| *name == wanted)
                .map_or("", |(_, value)| value.trim_end_matches('"'))
        };
        let value: f64 = value.trim().parse().unwrap_or_default();
        if !RESOURCES.contains(&label("resource")) {
            continue;
        }
        match name {
            "apiserver_request_total" => {
                let key = format!(
                    "{} {} {}",
                    label("verb"),
                    label("resource"),
                    label("subresource")
                );
                let count = value as usize;
                *requests
                    .counts
                    .entry(key.trim_end().to_owned())
                    .or_default() += count;
            }
            "apiserver_response_sizes_sum" | "apiserver_watch_events_sizes_sum" => {
                requests.bytes += value;
            }
            _ => {}
        }
    }
    requests
}

/// Resource usage of a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Current and peak memory, in KiB.
    pub resident: u64,
    pub most_resident: u64,
    pub processor: Duration,
}

impl Usage {
    pub(super) fn of(pid: u32) -> Result<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))
            .context("the controller has exited")?;
        let memory = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.split_whitespace().nth(1));
            number
                .and_then(|number| number.parse().ok())
                .context("no figure")
        };
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // After the command name in parentheses, `utime` and `stime` are the 12th and 13th fields.
        let fields = stat.rsplit_once(')').context("no name")?.1;
        let ticks = fields
            .split_whitespace()
            .skip(11)
            .take(2)
            .map(str::parse::<u64>)
            .sum::<Result<u64, _>>()?;
        Ok(Self {
            resident: memory("VmRSS")?,
            most_resident: memory("VmHWM")?,
            processor: Duration::from_millis(10) * u32::try_from(ticks)?,
        })
    }
}

/// Requests of the controller between two moments, by verb and resource, from the API server's audit log.
pub(super) fn audited(log: &Path, from: Timestamp, to: Timestamp) -> Result<Vec<(String, usize)>> {
    let mut counts = BTreeMap::<String, usize>::new();
    for line in tail(log, 64 << 20)?.lines() {
        let Ok(event) = serde_json::from_str::<Value>(line) else {
            continue; // the line is truncated or still being written
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let user = text(&event["user"]["username"]);
        let time: Option<Timestamp> = text(&event["requestReceivedTimestamp"]).parse().ok();
        if !user.starts_with(&format!("system:serviceaccount:{CONTROLLER_NAMESPACE}:"))
            || !time.is_some_and(|time| from <= time && time < to)
        {
            continue;
        }
        let verb = text(&event["verb"]);
        // The audit log records a watch twice: when it begins and when it ends.
        let stage = if verb == "watch" {
            "ResponseStarted"
        } else {
            "ResponseComplete"
        };
        if event["stage"] == stage {
            let resource = text(&event["objectRef"]["resource"]);
            *counts.entry(format!("{verb} {resource}")).or_default() += 1;
        }
    }
    Ok(counts.into_iter().collect())
}

/// The end of a log, at most this many bytes, because the whole log covers the fleet's whole life.
pub(super) fn tail(log: &Path, most: u64) -> Result<String> {
    let mut file = fs::File::open(log)?;
    let start = file.metadata()?.len().saturating_sub(most);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_api_servers_counts_are_summed_over_what_does_not_matter() {
        let text = "\
# HELP apiserver_request_total requests
apiserver_request_total{code=\"200\",dry_run=\"\",resource=\"nodepullsecrets\",subresource=\"status\",verb=\"PATCH\"} 3
apiserver_request_total{code=\"409\",dry_run=\"\",resource=\"nodepullsecrets\",subresource=\"status\",verb=\"PATCH\"} 1
apiserver_request_total{code=\"200\",resource=\"secrets\",subresource=\"\",verb=\"GET\"} 2
apiserver_request_total{code=\"0\",resource=\"nodepullsecrets\",subresource=\"\",verb=\"WATCH\"} 7
apiserver_request_total{code=\"200\",resource=\"nodes\",subresource=\"status\",verb=\"PATCH\"} 5
apiserver_request_total{code=\"200\",resource=\"leases\",subresource=\"\",verb=\"PUT\"} 99
apiserver_response_sizes_sum{resource=\"secrets\",verb=\"GET\"} 1.5e+03
apiserver_watch_events_sizes_sum{group=\"\",resource=\"secrets\",version=\"v1\"} 500
";
        let before = Requests {
            counts: [("GET secrets".to_owned(), 1)].into(),
            bytes: 1000.0,
        };
        let since = parse(text).since(&before);
        assert_eq!(since.counts["PATCH nodepullsecrets status"], 4);
        assert_eq!(since.counts["GET secrets"], 1);
        assert_eq!(since.of_rotation(), 5);
        assert!((since.bytes - 1000.0).abs() < 0.1);
    }
}
