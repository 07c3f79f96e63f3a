//! A real Prometheus that scrapes the controllers of a test cluster, built from the Go module proxy in about two minutes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Cluster;
use crate::companions::{Companion, spawned};
use crate::kubernetes::build_beside;
use crate::product::run;
use crate::wait::until;

/// Only this process's own programs connect to it.
const ADDRESS: &str = "127.0.0.1:9390";
const SERVER: &str = "http://127.0.0.1:9390";
const READY: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);

/// A time series: its labels, and its values with their times in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Series {
    pub metric: std::collections::BTreeMap<String, String>,
    #[serde(alias = "value", deserialize_with = "samples")]
    pub values: Vec<(f64, f64)>,
}

/// One sample, or a list of them: `[1.5, "2"]`.
fn samples<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<(f64, f64)>, D::Error> {
    use serde::de::Error as _;
    let read = |sample: &Value| {
        let value = sample[1].as_str()?.parse().ok()?;
        Some((sample[0].as_f64()?, value))
    };
    let value = Value::deserialize(from)?;
    let found = if value[0].is_array() {
        value
            .as_array()
            .and_then(|all| all.iter().map(read).collect())
    } else {
        read(&value).map(|sample| vec![sample])
    };
    found.ok_or_else(|| D::Error::custom("a sample is no pair of a time and a number"))
}

/// A running Prometheus; it ends when this is dropped.
pub struct Prometheus<'a> {
    promtool: PathBuf,
    _running: Companion<'a>,
}

impl<'a> Prometheus<'a> {
    /// Starts it in an empty directory. `pods`: the controllers' names and addresses. `rules`: a file with alerts.
    pub fn start(
        cluster: &'a Cluster,
        directory: &Path,
        pods: &[(String, String)],
        rules: &Path,
    ) -> Result<Self> {
        let promtool = promtool()?;
        let checked = run(
            Command::new(&promtool).args(["check", "rules"]).arg(rules),
            "",
        )?;
        ensure!(
            checked.code == Some(0),
            "promtool rejects the alerts: {}{}",
            checked.stdout,
            checked.stderr
        );
        let target = |(name, address): &(String, String)| json!({"targets": [address], "labels": {"pod": name}});
        let config = json!({
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [std::path::absolute(rules)?],
            // Named like the PodMonitor.
            "scrape_configs": [{
                "job_name": "globalps-system/globalps-controller",
                "static_configs": pods.iter().map(target).collect::<Vec<_>>(),
            }],
        });
        let file = directory.join("prometheus.json");
        fs::write(&file, config.to_string())?;
        let mut server = Command::new(build("prometheus")?);
        server
            .arg(format!("--config.file={}", file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                directory.join("data").display()
            ))
            .arg(format!("--web.listen-address={ADDRESS}"));
        let running = spawned(cluster, "prometheus", &mut server, None)?;
        let prometheus = Self {
            promtool,
            _running: running,
        };
        until(
            "Prometheus to have scraped every controller",
            READY,
            POLL,
            || {
                let up = prometheus.instant("up == 1").unwrap_or_default();
                Ok((up.len() == pods.len()).then_some(()))
            },
        )?;
        Ok(prometheus)
    }

    /// The current value of each series.
    pub fn instant(&self, query: &str) -> Result<Vec<Series>> {
        self.query(&["instant"], query)
    }

    /// Values from `start` to `end`, in seconds since 1970, one every `step` seconds.
    pub fn range(&self, query: &str, (start, end): (f64, f64), step: u64) -> Result<Vec<Series>> {
        let flags = [
            format!("--start={start:.3}"),
            format!("--end={end:.3}"),
            format!("--step={step}s"),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        self.query(&[&["range"], &flags[..]].concat(), query)
    }

    fn query(&self, kind: &[&str], query: &str) -> Result<Vec<Series>> {
        let mut command = Command::new(&self.promtool);
        command.args(["query", "-o", "json"]).args(kind);
        let ran = run(command.args([SERVER, query]), "")?;
        ensure!(ran.code == Some(0), "`{query}`: {}", ran.stderr);
        serde_json::from_str(&ran.stdout).with_context(|| format!("`{query}`: {}", ran.stdout))
    }
}

/// Prometheus' tool that checks rules.
pub fn promtool() -> Result<PathBuf> {
    build("promtool")
}

fn build(name: &str) -> Result<PathBuf> {
    // Without service discovery for clouds, because the configuration lists the targets.
    let flags = ["-tags", "remove_all_sd", "-ldflags", "-s -w"];
    let package = format!("github.com/prometheus/prometheus/cmd/{name}");
    build_beside("tests/prometheus", &flags, &package, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_sample_and_many_are_read() {
        for (text, values) in [
            (r#"{"metric":{},"value":[1.5,"2"]}"#, vec![(1.5, 2.0)]),
            (
                r#"{"metric":{},"values":[[1,"2"],[2,"NaN"]]}"#,
                vec![(1.0, 2.0), (2.0, f64::NAN)],
            ),
        ] {
            let series: Series = serde_json::from_str(text).unwrap();
            assert_eq!(format!("{:?}", series.values), format!("{values:?}"));
        }
        serde_json::from_str::<Series>(r#"{"metric":{},"value":[1,2]}"#).unwrap_err();
    }
}
