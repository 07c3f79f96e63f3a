//! Pull secrets in thousands of namespaces: API server, etcd and controller are real, and there are no nodes.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use globalps_core::api::{Attach, GlobalPullSecret, GlobalPullSecretStatus};
use globalps_core::names::{ADDITIONAL_SECRET, GLOBAL_SECRET};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::meter::{Requests, Usage};
use super::objects::{apply_secret, configure};
use super::stage::Stage;
use crate::product::{NAMESPACE, pull_secret};

const POLL: Duration = Duration::from_millis(10);
const DEADLINE: Duration = Duration::from_mins(5);
/// Duration of the measurement of the API server's capacity.
const TIME: Duration = Duration::from_secs(5);
const NEW: usize = 20;

/// The duration of a step, and the number of Secrets that the controller wrote during it.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub time: Duration,
    pub writes: usize,
}

/// All results for one number of namespaces.
#[derive(Clone, Debug)]
pub struct Figures {
    pub namespaces: usize,
    /// From the write of the additional Secret until the status reports that every namespace has it.
    pub fill: Step,
    pub rotation: Step,
    /// From the response to the creation of a namespace until its Secret exists; sorted.
    pub new: Vec<Duration>,
    /// From the exclusion of all namespaces until none has the Secret.
    pub removal: Step,
    /// Number of Secrets of that size that this API server can apply per second.
    pub capacity: f64,
    /// Requests in the following idle minute, without watches.
    pub idle: Vec<(String, usize)>,
    /// The controller before the first fill, and at the end.
    pub fresh: Usage,
    pub last: Usage,
}

/// Starts a control plane with this many namespaces, and takes all measurements.
pub fn measure(namespaces: usize, idle: Duration) -> Result<Figures> {
    let stage = Stage::with(&format!("namespaces-{namespaces}"), Some(Attach::Admission))?;
    crate::fleet::block_on(run(&stage, namespaces, idle))
}

async fn run(stage: &Stage, namespaces: usize, idle: Duration) -> Result<Figures> {
    let client = stage.admin_client().await?;
    stream::iter(0..namespaces)
        .map(|at| create(&client, format!("bench-{at}")))
        .buffer_unordered(32)
        .try_collect::<Vec<()>>()
        .await?;
    let pid = stage.start_controller()?;
    let all = |status: &GlobalPullSecretStatus| {
        let found = status.image_pull_secrets.as_ref();
        found.is_some_and(|found| found.synced == found.total && found.total as usize >= namespaces)
    };
    sleep(Duration::from_secs(3)).await;
    let fresh = Usage::of(pid)?;
    let fill = step(&client, || apply(&client, "1"), all).await?;
    sleep(Duration::from_secs(1)).await;
    let rotation = step(&client, || apply(&client, "2"), all).await?;
    let mut new = Vec::new();
    for at in 0..NEW {
        new.push(created(&client, &format!("new-{at}")).await?);
    }
    new.sort();
    let removal = exclude(&client).await?;
    let include = json!({"imagePullSecrets": {"excludedNamespaces": ["kube-*"]}});
    step(&client, || configure(&client, &include), all).await?;
    sleep(Duration::from_secs(2)).await;
    let before = Requests::read(&client).await?;
    sleep(idle).await;
    let requests = Requests::read(&client).await?.since(&before);
    let last = Usage::of(pid)?;
    let capacity = capacity(&client, namespaces).await?;
    stage.stop_controller()?;
    Ok(Figures {
        namespaces,
        fill,
        rotation,
        new,
        removal,
        capacity,
        idle: requests.counts.into_iter().collect(),
        fresh,
        last,
    })
}

async fn create(client: &Client, name: String) -> Result<()> {
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    let api: Api<Namespace> = Api::all(client.clone());
    api.create(&PostParams::default(), &namespace).await?;
    Ok(())
}

/// Creates a namespace, and returns the time until it has its Secret.
async fn created(client: &Client, name: &str) -> Result<Duration> {
    create(client, name.to_owned()).await?;
    let begun = Instant::now();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), name);
    while begun.elapsed() < DEADLINE {
        if secrets.get_metadata_opt(GLOBAL_SECRET).await?.is_some() {
            return Ok(begun.elapsed());
        }
        sleep(Duration::from_millis(2)).await;
    }
    bail!("no Secret in `{name}`")
}

async fn apply(client: &Client, password: &str) -> Result<()> {
    apply_secret(client, NAMESPACE, ADDITIONAL_SECRET, config(password)).await
}

fn config(password: &str) -> Value {
    let entry = json!({"username": "u", "password": password});
    json!({"auths": {"quay.io": entry, "ghcr.io": entry}})
}

/// From the write until the status describes it and `is_done`.
async fn step<F: Future<Output = Result<()>>>(
    client: &Client,
    write: impl FnOnce() -> F,
    is_done: impl Fn(&GlobalPullSecretStatus) -> bool,
) -> Result<Step> {
    let before = Requests::read(client).await?;
    let begun = Instant::now();
    write().await?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let configs: Api<GlobalPullSecret> = Api::namespaced(client.clone(), NAMESPACE);
    let version = secrets.get_metadata(ADDITIONAL_SECRET).await?;
    let version = version.metadata.resource_version.unwrap_or_default();
    loop {
        if begun.elapsed() > DEADLINE {
            bail!("not within {} s", DEADLINE.as_secs());
        }
        let config = configs.get(GLOBAL_SECRET).await?;
        let generation = config.metadata.generation;
        let status = config.status.unwrap_or_default();
        let is_about_it =
            status.observed_additional == version && Some(status.observed_generation) == generation;
        if is_about_it && is_done(&status) {
            break;
        }
        sleep(POLL).await;
    }
    since(client, begun, &before).await
}

/// From the exclusion of most namespaces until none of them has a pull secret.
async fn exclude(client: &Client) -> Result<Step> {
    let exclude = json!({"imagePullSecrets": {"excludedNamespaces": ["bench-*", "kube-*"]}});
    let before = Requests::read(client).await?;
    let begun = Instant::now();
    configure(client, &exclude).await?;
    let secrets: Api<Secret> = Api::all(client.clone());
    let named = ListParams::default().fields(&format!("metadata.name={GLOBAL_SECRET}"));
    let is_left = |name: Option<String>| name.is_some_and(|name| name.starts_with("bench-"));
    loop {
        let found = secrets.list_metadata(&named).await?;
        if !found.into_iter().any(|it| is_left(it.metadata.namespace)) {
            return since(client, begun, &before).await;
        }
        if begun.elapsed() > DEADLINE {
            bail!("not removed within {} s", DEADLINE.as_secs());
        }
        sleep(POLL).await;
    }
}

async fn since(client: &Client, begun: Instant, before: &Requests) -> Result<Step> {
    let time = begun.elapsed();
    let requests = Requests::read(client).await?.since(before);
    let of = |verb: &str| requests.counts.get(&format!("{verb} secrets")).copied();
    let writes = ["APPLY", "PATCH", "DELETE"].map(|verb| of(verb).unwrap_or_default());
    Ok(Step {
        time,
        writes: writes.iter().sum(),
    })
}

/// For the best of several numbers of clients.
async fn capacity(client: &Client, namespaces: usize) -> Result<f64> {
    let mut best = 0.0_f64;
    for clients in [16, 64] {
        let begun = Instant::now();
        let writers = (0..clients).map(|writer| {
            let client = client.clone();
            async move {
                let mut writes = 0_u32;
                while begun.elapsed() < TIME {
                    let at = (usize::try_from(writes)? * clients + writer) % namespaces;
                    let api: Api<Secret> = Api::namespaced(client.clone(), &format!("bench-{at}"));
                    let config = config(&format!("{writes}-{clients}")).to_string();
                    let secret = pull_secret(&format!("bench-{at}"), "capacity", &config);
                    let params = PatchParams::apply("bench").force();
                    api.patch_metadata("capacity", &params, &Patch::Apply(&secret))
                        .await
                        .context("a write of the capacity")?;
                    writes += 1;
                }
                anyhow::Ok(writes)
            }
        });
        let writes: u32 = futures::future::try_join_all(writers)
            .await?
            .into_iter()
            .sum();
        best = best.max(f64::from(writes) / begun.elapsed().as_secs_f64());
    }
    Ok(best)
}
