//! Measures how long a user waits for the plugin, on a fleet after a rollout.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use globalps_core::api::NodePullSecret;
use jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::live::Program;
use super::stage::Stage;
use super::{nodes as fleet_nodes, rotation};
use crate::product::{NAMESPACE, Product, Ran, run};
use crate::{DEADLINE, until};

/// The name under which kubectl runs the plugin to complete a command line.
const COMPLETE: &str = "kubectl_complete-globalps";

/// All measurements, each with several runs.
#[derive(Clone, Debug)]
pub struct PluginFigures {
    /// Size of the program in bytes.
    pub size: u64,
    pub help: Vec<Duration>,
    /// From the start of the program until the API server receives its first request, including TLS.
    pub first_request: Vec<Duration>,
    /// `status` with this format: the times, and the peak memory in KiB.
    pub status: Vec<(&'static str, Vec<Duration>, u64)>,
    /// From the start of `add`, without the check of the registry, until it exits: the Secret is stored then.
    pub add: Vec<Duration>,
    /// Completion of node names in a shell.
    pub complete: Vec<Duration>,
    /// `status --watch` and `status --wait`, with the heartbeats of all nodes.
    pub live: Vec<Live>,
}

/// A command that runs until the end of a rollout, or longer.
#[derive(Clone, Debug)]
pub struct Live {
    pub line: &'static str,
    /// From the start until every node was shown.
    pub first: Vec<Duration>,
    /// From the write of a change until it was shown, after the first second.
    pub change: Vec<Duration>,
    /// Peak memory in KiB.
    pub memory: u64,
}

/// Starts a control plane with this many nodes, and takes the measurements.
pub fn measure(nodes: usize, runs: usize) -> Result<PluginFigures> {
    let stage = Stage::up(nodes)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    // Its open watches belong to a cluster of that size.
    let _fleet = runtime.block_on(rotation::roll_out_once(&stage, nodes))?;
    let desk = Desk { stage: &stage };
    let json = desk.done("status -o json")?;
    let status: Value = serde_json::from_str(&json.stdout)?;
    ensure!(status["counts"]["synced"] == nodes, "{}", status["counts"]);

    let mut figures = PluginFigures {
        size: fs::metadata(Product::plugin_path())?.len(),
        help: repeat(runs, || desk.time("--help"))?,
        first_request: repeat(runs, || desk.first_request())?,
        status: Vec::new(),
        add: Vec::new(),
        complete: repeat(runs, || desk.complete(nodes))?,
        live: Vec::new(),
    };
    for format in ["table", "wide", "json", "yaml", "name"] {
        let line = format!("status -o {format}");
        let times = repeat(runs, || desk.time(&line))?;
        figures
            .status
            .push((format, times, desk.most_memory(&line)?));
    }
    for number in 0..runs {
        figures.add.push(desk.add(number)?);
    }
    let client = runtime.block_on(stage.admin_client())?;
    let beats = runtime.spawn(fleet_nodes::beat(client.clone(), nodes));
    let objects: Api<NodePullSecret> = Api::namespaced(client, NAMESPACE);
    let write = |patch: &Value| {
        let (name, params) = (fleet_nodes::name(0), PatchParams::default());
        let patch = Patch::Merge(patch);
        let written = objects.patch_status(&name, &params, &patch);
        runtime.block_on(written).map(drop)
    };
    // No controller runs any more, so the last `add` stays unreported, and nothing ends the wait.
    for line in ["status --watch", "status --wait --timeout 5m"] {
        figures.live.push(desk.live(line, nodes, runs, &write)?);
    }
    beats.abort();
    Ok(figures)
}

fn repeat(runs: usize, mut one: impl FnMut() -> Result<Duration>) -> Result<Vec<Duration>> {
    (0..runs).map(|_| one()).collect()
}

/// A user's machine with the plugin and a kubeconfig.
struct Desk<'a> {
    stage: &'a Stage,
}

impl Desk<'_> {
    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(Product::plugin_path());
        command
            .args(line.split_whitespace())
            .env("KUBECONFIG", self.stage.cluster.kubeconfig());
        command
    }

    fn done(&self, line: &str) -> Result<Ran> {
        let ran = run(&mut self.command(line), "")?;
        ensure!(ran.code == Some(0), "`{line}` failed: {}", ran.stderr);
        Ok(ran)
    }

    /// From the start of the plugin until it has exited and all its output has been read.
    fn time(&self, line: &str) -> Result<Duration> {
        let begun = Instant::now();
        self.done(line)?;
        Ok(begun.elapsed())
    }

    /// `write`: changes the status of one node.
    fn live(
        &self,
        line: &'static str,
        nodes: usize,
        runs: usize,
        write: &impl Fn(&Value) -> kube::Result<()>,
    ) -> Result<Live> {
        let mut live = Live {
            line,
            first: Vec::new(),
            change: Vec::new(),
            memory: 0,
        };
        for number in 0..runs {
            let begun = Instant::now();
            let mut program = Program::start(self.command(line))?;
            program.wait_for(" revision ", nodes)?;
            live.first.push(begun.elapsed());
            std::thread::sleep(Duration::from_secs(1));
            let reason = format!("Bench{number}of{}", line.len());
            let begun = Instant::now();
            write(&json!({"status": {"reason": reason}}))?;
            program.wait_for(&reason, 1)?;
            live.change.push(begun.elapsed());
            live.memory = live.memory.max(most_memory(program.id())?);
        }
        Ok(live)
    }

    /// Peak memory, which the kernel reports just before the process exits.
    fn most_memory(&self, line: &str) -> Result<u64> {
        let mut child = self.command(line).stdout(Stdio::null()).spawn()?;
        let mut most = 0;
        while child.try_wait()?.is_none() {
            most = most.max(most_memory(child.id())?);
            std::thread::sleep(Duration::from_micros(200));
        }
        ensure!(most > 0, "`{line}` exited before its memory was read");
        Ok(most)
    }

    fn add(&self, number: usize) -> Result<Duration> {
        let line = "add --registry quay.io -u robot --password-stdin --skip-check";
        let begun = Instant::now();
        let ran = run(&mut self.command(line), &format!("password-{number}"))?;
        let time = begun.elapsed();
        ensure!(ran.code == Some(0), "`{line}` failed: {}", ran.stderr);
        Ok(time)
    }

    fn complete(&self, nodes: usize) -> Result<Duration> {
        let mut command = self.command("");
        command.arg0(COMPLETE).args(["status", "--node", ""]);
        let begun = Instant::now();
        let ran = run(&mut command, "")?;
        let time = begun.elapsed();
        // One line per node, and the directive.
        ensure!(ran.stdout.lines().count() == nodes + 1, "{ran:?}");
        Ok(time)
    }

    fn first_request(&self) -> Result<Duration> {
        let begun = Timestamp::now();
        self.done("history")?;
        let received = until(
            "the request in the audit log",
            DEADLINE,
            Duration::from_millis(20),
            || first_since(&self.stage.cluster.audit_log(), begun),
        )?;
        Ok(received.duration_since(begun).unsigned_abs())
    }
}

/// Peak memory in KiB; 0 if the process has exited.
fn most_memory(process: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.map_or(Ok(0), str::parse)?)
}

/// The time of the admin's first request that the API server received after `since`, in microseconds.
fn first_since(log: &Path, since: Timestamp) -> Result<Option<Timestamp>> {
    let text = super::meter::tail(log, 1 << 20)?;
    let times = text.lines().filter_map(|line| {
        let event: Value = serde_json::from_str(line).ok()?;
        let user = event["user"]["username"].as_str()?;
        let time: Timestamp = event["requestReceivedTimestamp"].as_str()?.parse().ok()?;
        (user == "admin" && time >= since).then_some(time)
    });
    Ok(times.min())
}

/// The median.
pub fn median(times: &[Duration]) -> Result<Duration> {
    let mut times = times.to_vec();
    times.sort_unstable();
    times
        .get(times.len() / 2)
        .copied()
        .context("no measurements")
}
