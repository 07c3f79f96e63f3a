//! Creates a namespace and a pod with one `kubectl apply`, many times, with admission and with service accounts. Prints
//! how many pods run and how long the first pull takes.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::product::{DEADLINE, Product};
use crate::{Access, Cluster, until};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

const POLL: Duration = Duration::from_millis(50);
/// A kubelet retries at least twice within this time. A pod that does not run by then lacks credentials.
const GIVEN_UP: Duration = Duration::from_secs(45);
/// Maximum number of pods at the same time: a node takes 110.
const TOGETHER: usize = 100;

#[derive(clap::Args)]
pub struct Args {
    /// Namespaces to create, each with a pod, for each way to attach pull secrets
    #[arg(long, env, default_value_t = 200)]
    count: usize,
}

pub fn run(args: &Args) -> Result<()> {
    let cluster = Cluster::up_named("race", 2)?;
    let registry = cluster.registry();
    let image = format!("{}/team/app:1", registry.address(Access::Private));
    let flags = ["--deliver-to-namespaces", "--delivery", "none", "--attach"];
    let product = Product::install_with(&cluster, &[&flags[..], &["service-accounts"]].concat())?;
    product.apply(&registry.docker_config()?)?;
    product.wait_synced()?;
    for attach in ["ServiceAccounts", "Admission"] {
        if attach == "Admission" {
            product.install_again(&[&flags[..], &["admission"]].concat())?;
            let mut last = Value::Null;
            until("admission", DEADLINE, POLL, || {
                last = product.status()?;
                Ok((last["imagePullSecrets"]["attach"] == attach).then_some(()))
            })
            .with_context(|| format!("{last:#}"))?;
        }
        let mut started = Vec::new();
        let mut failed = 0;
        for batch in 0..args.count.div_ceil(TOGETHER) {
            let of = (batch * TOGETHER)..((batch + 1) * TOGETHER).min(args.count);
            let names: Vec<String> = of
                .map(|at| format!("race-{}-{at}", attach.to_lowercase()))
                .collect();
            for name in &names {
                create(&cluster, name, &image)?;
            }
            let (times, left) = follow(&cluster, &names)?;
            started.extend(times);
            failed += left;
            let delete = [
                &["delete", "namespace", "--wait=false"],
                &names.iter().map(String::as_str).collect::<Vec<_>>()[..],
            ]
            .concat();
            cluster.kubectl(&delete)?;
        }
        started.sort_unstable();
        ensure!(!started.is_empty(), "no pod ran with {attach}");
        let at = |part: usize| started[(started.len() - 1) * part / 100];
        println!(
            "{attach}: {} of {} pods run, {failed} don't within {} s; seconds from the pod's creation until it runs: \
             {:.1} median, {:.1} of 95 %, {:.1} at most",
            started.len(),
            args.count,
            GIVEN_UP.as_secs(),
            at(50).as_secs_f32(),
            at(95).as_secs_f32(),
            at(100).as_secs_f32(),
        );
    }
    Ok(())
}

/// Creates both with one `kubectl apply`. The API server creates the service account a moment later.
fn create(cluster: &Cluster, name: &str, image: &str) -> Result<()> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": name, "labels": {"race": "true"}},
            "spec": {"terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": image, "imagePullPolicy": "Always"}]}},
    ]});
    // The API server rejects a pod without its service account, so the apply is retried.
    let (what, poll) = ("the pod is created", Duration::from_millis(10));
    until(what, DEADLINE, poll, || {
        Ok(cluster.kubectl_with(&["apply", "-f", "-"], &list).ok())
    })
    .map(drop)
}

/// Returns the time until each pod ran, and the number of pods that never ran.
fn follow(cluster: &Cluster, names: &[String]) -> Result<(Vec<Duration>, usize)> {
    let begun = Instant::now();
    let mut times = Vec::new();
    loop {
        let args = ["get", "pods", "-A", "-l", "race=true", "-o", "json"];
        let pods: Value = serde_json::from_str(&cluster.kubectl(&args)?)?;
        let pods = pods["items"].as_array().context("a list")?;
        let ours = pods.iter().filter(|pod| {
            let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
            names.iter().any(|name| name == namespace)
        });
        times.clear();
        for pod in ours {
            let started = &pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"];
            if let Some(started) = started.as_str() {
                let created = pod["metadata"]["creationTimestamp"]
                    .as_str()
                    .context("a time")?;
                let [from, to]: [jiff::Timestamp; 2] = [created.parse()?, started.parse()?];
                times.push(to.duration_since(from).try_into().unwrap_or_default());
            }
        }
        let is_over = times.len() == names.len() || begun.elapsed() > GIVEN_UP;
        if is_over {
            return Ok((times.clone(), names.len() - times.len()));
        }
        sleep(POLL);
    }
}
