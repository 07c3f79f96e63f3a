//! Draws the Grafana dashboard in `docs/img/dashboard.svg` from the metrics of a rollout on twelve real nodes, of which one
//! fails. Each panel must have data, and every alert must be evaluated.

use std::thread::sleep;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, ensure};
use globalps_testkit::broken_kubelet::break_kubelet;
use globalps_testkit::product::{DEADLINE, Product};
use globalps_testkit::prometheus::Prometheus;
use globalps_testkit::{Cluster, kubernetes, until};
use serde_json::{Value, json};

use super::panels::{Answered, panels, svg};

const POLL: Duration = Duration::from_millis(100);
const SYSTEM: &str = "globalps-system";
const BAD: &str = "bad.example.com";
/// At rest, before, between and after rollouts.
const REST: Duration = Duration::from_secs(12);

/// Draw the Grafana dashboard from the metrics of a rollout on real nodes
#[derive(clap::Args)]
pub struct Args {
    /// Number of nodes
    #[arg(long, env, default_value_t = 12)]
    nodes: u8,
}

/// Draws it.
pub fn draw(args: &Args) -> Result<()> {
    let cluster = Cluster::up_named("dashboard", args.nodes)?;
    let product = Product::install_with(&cluster, &["--deliver-to-namespaces"])?;
    let directory = tempfile::tempdir()?;
    let monitoring = kubernetes::workspace().join("manifests/monitoring");
    let prometheus = Prometheus::start(
        &cluster,
        directory.path(),
        &controllers(&cluster)?,
        &monitoring.join("alerts.yaml"),
    )?;
    let start = now()?;
    sleep(REST);
    rollouts(&cluster, &product)?;
    sleep(REST);
    let range = (start, now()?);

    let evaluated = prometheus.instant("count by (alertname) (ALERTS)")?;
    for series in &evaluated {
        println!("alert: {:?}", series.metric);
    }
    let text = std::fs::read_to_string(monitoring.join("dashboard.json"))?;
    let mut answered: Vec<Answered> = Vec::new();
    for panel in panels(&text)? {
        let mut answers = Vec::new();
        for target in &panel.targets {
            let query = target.query(seconds(range.1 - range.0));
            let answer = match panel.kind.as_str() {
                "timeseries" => prometheus.range(&query, range, 1)?,
                _ => prometheus.instant(&query)?,
            };
            ensure!(
                !answer.is_empty(),
                "panel `{}` has no data: {query}",
                panel.title
            );
            answers.push(answer);
        }
        answered.push((panel, answers));
    }
    let picture = kubernetes::workspace().join("docs/img/dashboard.svg");
    std::fs::write(picture, svg(&answered, range)?)?;
    println!("docs/img/dashboard.svg: {} panels", answered.len());
    Ok(())
}

/// Names and addresses of the controller's pods.
fn controllers(cluster: &Cluster) -> Result<Vec<(String, String)>> {
    until("two controllers", DEADLINE, POLL, || {
        let pods = cluster.kubectl(&["get", "pods", "-n", SYSTEM, "-o", "json"])?;
        let pods: Value = serde_json::from_str(&pods)?;
        let address = |pod: &Value| {
            let ip = pod["status"]["podIP"].as_str()?;
            let name = pod["metadata"]["name"].as_str()?;
            Some((name.to_owned(), format!("{ip}:8080")))
        };
        let found: Vec<_> = pods["items"]
            .as_array()
            .context("no pods")?
            .iter()
            .map(address)
            .collect();
        let all: Option<Vec<_>> = found.into_iter().collect();
        Ok(all.filter(|all| all.len() == 2))
    })
}

/// The first rollout, one that a node fails, and the one after it.
fn rollouts(cluster: &Cluster, product: &Product) -> Result<()> {
    product.apply(&content("registry.example.com", 1))?;
    product.wait_synced()?;
    sleep(REST);
    let nodes = cluster.nodes()?;
    break_kubelet(&nodes[nodes.len() / 2], BAD)?;
    product.apply(&content(BAD, 1))?;
    product.wait_condition("Degraded", "True")?;
    sleep(REST);
    product.apply(&content("registry.example.com", 2))?;
    product.wait_synced()
}

fn content(registry: &str, round: u8) -> String {
    json!({"auths": {registry: {"username": "robot", "password": round.to_string()}}}).to_string()
}

fn now() -> Result<f64> {
    Ok(SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)?
        .as_secs_f64())
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a few minutes"
)]
fn seconds(time: f64) -> u64 {
    time.ceil() as u64
}
