//! Measures the speed of a rotation, and the resources that the programs use.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant, SystemTime};

use crate::audit::Request;
use crate::product::Product;
use crate::watch::Watch;
use crate::{Cluster, Node, kubernetes};
use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde_json::{Value, json};

const NODES: u8 = 3;
const ROTATIONS: i64 = 20;
const RESTART_INTERVAL: Duration = Duration::from_secs(11);
const IDLE: Duration = Duration::from_mins(10);

pub fn run() -> Result<()> {
    let cluster = Cluster::up_named("bench", NODES)?;
    let product = Product::install(&cluster)?;
    let nodes = cluster.nodes()?;
    product.apply(&content(0))?;
    product.wait_synced()?;
    let before = product.starts(&nodes)?;

    let mut times = Times::default();
    for round in 1..=ROTATIONS {
        // The syncer waits before it restarts the same kubelet again; this wait must not count.
        std::thread::sleep(RESTART_INTERVAL);
        let watch = Watch::start(&cluster, nodes.len())?;
        let begun = SystemTime::now();
        product.apply(&content(round))?;
        let synced = watch.all_synced(round + 1)?;
        let assigned = assignments(&cluster, begun)?;
        let mut written = Vec::new();
        for node in &nodes {
            let file = std::fs::metadata(node.kubelet_dir().join("config.json"))?.modified()?;
            let assigned = *assigned
                .get(node.name())
                .context("a node without an assignment")?;
            let synced = *synced.get(node.name()).context("a node without a status")?;
            times
                .assigned_to_file
                .push(file.duration_since(assigned).unwrap_or_default());
            times
                .assigned_to_synced
                .push(synced.duration_since(assigned)?);
            written.push(file);
        }
        let first = written.into_iter().min().context("no nodes")?;
        let last = synced.into_values().max().context("no nodes")?;
        times.first_file.push(first.duration_since(begun)?);
        times.all_synced.push(last.duration_since(begun)?);
        product.wait_synced()?;
    }
    let starts: usize = product.more_starts(&nodes, &before)?.into_iter().sum();
    let rotations = usize::try_from(ROTATIONS)?;

    println!(
        "{NODES} nodes, {ROTATIONS} rotations, one node at a time, each verified; times from the start of `kubectl apply`"
    );
    println!(
        "first node's file written   {}",
        spread(&mut times.first_file)
    );
    println!(
        "every node Synced           {}",
        spread(&mut times.all_synced)
    );
    println!(
        "assigned to file written    {}",
        spread(&mut times.assigned_to_file)
    );
    println!(
        "assigned to Synced          {}",
        spread(&mut times.assigned_to_synced)
    );
    let mut alone = (0..ROTATIONS)
        .map(|_| restart_alone(&nodes[0]))
        .collect::<Result<Vec<_>>>()?;
    println!("kubelet restart alone       {}", spread(&mut alone));
    println!(
        "kubelet starts              {} for {} node changes",
        starts,
        rotations * nodes.len()
    );
    for node in &nodes {
        for program in ["globalps-controller", "globalps-syncer"] {
            let script = format!(
                "for p in $(pgrep -x {}); do grep VmRSS /proc/$p/status; done",
                &program[..15]
            );
            for line in node.exec(&["sh", "-c", &script])?.ok()?.lines() {
                println!(
                    "resident memory             {} {program} on {}",
                    line.trim_start_matches("VmRSS:").trim(),
                    node.name()
                );
            }
        }
    }
    idle(&cluster, &nodes[0])?;
    for image in ["globalps-controller", "globalps-syncer"] {
        let size =
            std::fs::metadata(kubernetes::target_dir().join(format!("images/{image}.tar")))?.len();
        println!("image                       {size} bytes {image}");
    }
    Ok(())
}

#[derive(Default)]
struct Times {
    first_file: Vec<Duration>,
    all_synced: Vec<Duration>,
    assigned_to_file: Vec<Duration>,
    assigned_to_synced: Vec<Duration>,
}

/// When the API server completed the controller's assignment to each node, after `since`.
fn assignments(cluster: &Cluster, since: SystemTime) -> Result<BTreeMap<String, SystemTime>> {
    let mut assignments = BTreeMap::new();
    for Request {
        event, answered, ..
    } in Request::all(cluster, "nodepullsecrets")?
    {
        let object = &event["objectRef"];
        let is_assignment = object["subresource"].is_null()
            && event["verb"] == "patch"
            && event["stage"] == "ResponseComplete";
        let name = object["name"].as_str().filter(|_| is_assignment);
        if let Some(name) = name.filter(|_| answered >= since) {
            assignments.entry(name.to_owned()).or_insert(answered);
        }
    }
    Ok(assignments)
}

/// Time from a restart of a node's kubelet by systemd, without globalps, until its socket accepts a connection again.
fn restart_alone(node: &Node) -> Result<Duration> {
    std::thread::sleep(Duration::from_secs(3));
    let socket = node.kubelet_dir().join("pod-resources/kubelet.sock");
    let begun = Instant::now();
    node.exec(&["systemctl", "restart", "kubelet.service"])?
        .ok()?;
    while UnixStream::connect(&socket).is_err() {
        ensure!(
            begun.elapsed() < Duration::from_secs(30),
            "the kubelet does not accept connections"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(begun.elapsed())
}

/// Measures the resources of an idle syncer.
fn idle(cluster: &Cluster, node: &Node) -> Result<()> {
    // Waits until no kubelet is under observation any more.
    std::thread::sleep(Duration::from_secs(60));
    let (before, since) = (Usage::of_syncer(node)?, SystemTime::now());
    std::thread::sleep(IDLE);
    let after = Usage::of_syncer(node)?;
    let minutes = IDLE.as_secs() / 60;
    println!(
        "syncer, {minutes} idle minutes      {} wake-ups, {} clock ticks of 10 ms, {}",
        after.wakeups - before.wakeups,
        after.ticks - before.ticks,
        requests(cluster, since)?
    );
    Ok(())
}

struct Usage {
    /// Voluntary context switches, which count wake-ups.
    wakeups: u64,
    /// CPU time in clock ticks.
    ticks: u64,
}

impl Usage {
    fn of_syncer(node: &Node) -> Result<Self> {
        let script = "cd /proc/$(pgrep -x globalps-syncer) && cat stat && cat task/*/status";
        let text = node.exec(&["sh", "-c", script])?.ok()?;
        let mut lines = text.lines();
        // After the command name in parentheses, `utime` and `stime` are the 12th and 13th fields.
        let stat = lines.next().context("no stat")?;
        let fields = stat
            .rsplit_once(')')
            .context("no name")?
            .1
            .split_whitespace();
        let ticks = fields
            .skip(11)
            .take(2)
            .map(str::parse::<u64>)
            .sum::<Result<_, _>>()?;
        let switches = lines.filter_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        let wakeups = switches
            .map(|number| number.trim().parse::<u64>())
            .sum::<Result<_, _>>()?;
        Ok(Self { wakeups, ticks })
    }
}

/// Requests of all syncers after `since`, by verb.
fn requests(cluster: &Cluster, since: SystemTime) -> Result<String> {
    let mut verbs: BTreeMap<String, u32> = BTreeMap::new();
    for line in std::fs::read_to_string(cluster.audit_log())?.lines() {
        let event: Value = serde_json::from_str(line)?;
        let user = event["user"]["username"].as_str().unwrap_or_default();
        let time = event["requestReceivedTimestamp"]
            .as_str()
            .unwrap_or_default();
        if user.ends_with(":global-pull-secret-syncer")
            && SystemTime::from(time.parse::<Timestamp>()?) >= since
        {
            let verb = event["verb"].as_str().unwrap_or_default();
            // The audit log records a watch twice: when it begins and when it ends.
            let first = if verb == "watch" {
                "ResponseStarted"
            } else {
                "ResponseComplete"
            };
            if event["stage"] != first {
                continue;
            }
            *verbs.entry(verb.to_owned()).or_default() += 1;
        }
    }
    let verbs: Vec<String> = verbs
        .iter()
        .map(|(verb, number)| format!("{number} {verb}"))
        .collect();
    Ok(format!("requests of {NODES} syncers: {}", verbs.join(", ")))
}

fn content(round: i64) -> String {
    json!({"auths": {"bench.example.com": {"username": "bench", "password": round.to_string()}}})
        .to_string()
}

/// Median, minimum and maximum.
fn spread(times: &mut [Duration]) -> String {
    times.sort();
    let seconds = |at: usize| times[at].as_secs_f64();
    format!(
        "{:.3} s median ({:.3} to {:.3})",
        seconds(times.len() / 2),
        seconds(0),
        seconds(times.len() - 1)
    )
}
