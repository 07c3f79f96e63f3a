//! A tenant writes as many and as large objects as the API server accepts, of every kind that the controller reads in
//! the tenant's namespaces. The controller's memory stays small, and other namespaces get their Secrets in time. API
//! server and controller are real.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use globalps_core::api::Attach;
use globalps_core::names::{ATTACHED_ANNOTATION, CONTENT_ANNOTATION, GLOBAL_SECRET};
use kube::Client;
use serde_json::{Map, Value, json};
use tokio::time::sleep;

use super::meter::Usage;
use super::objects::{configure, status};
use super::stage::Stage;
use crate::wait::retry;

/// Maximum resident memory of the controller in KiB; its container has twice as much.
const MEMORY: u64 = 128 << 10;
/// Another user's namespace gets its Secret within this time, while the tenant's objects are read.
const SOON: Duration = Duration::from_secs(30);
/// The same after a restart, which waits for a Lease to expire and lists everything.
const RESTARTED: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(100);
/// Characters of the tenant's largest text. etcd accepts 1.5 MiB.
const LARGE: usize = 1_300_000;
/// Number of large objects of each kind.
const OBJECTS: usize = 20;
/// Number of small service accounts.
const ACCOUNTS: usize = 1500;
/// The first by name, so that it is one of those that the status names.
const TENANT: &str = "a-tenant";

/// Fails if the controller uses more memory, or a namespace waits longer.
pub fn run() -> Result<()> {
    let stage = Stage::managed("exhaustion", Attach::ServiceAccounts)?;
    crate::fleet::block_on(async {
        let client = stage.admin_client().await?;
        let stage = &stage;
        Scene { stage, client }.run().await
    })
}

struct Scene<'a> {
    stage: &'a Stage,
    client: Client,
}

impl Scene<'_> {
    async fn run(&self) -> Result<()> {
        let accounts = json!(["default", "ci-*"]);
        let spec = json!({"imagePullSecrets": {"enabled": true, "serviceAccounts": accounts}});
        configure(&self.client, &spec).await?;
        self.stage.write_password(1)?;
        let pid = self.stage.start_controller()?;
        self.covers("before", RESTARTED).await?;
        print("fresh", Usage::of(pid)?);

        self.attack().await?;
        self.covers("meanwhile", SOON).await?;
        self.stage.write_password(2)?;
        self.covers("rotated", SOON).await?;
        self.is_named().await?;
        let attacked = Usage::of(pid)?;
        print("attacked", attacked);

        self.stage.stop_controller()?;
        let pid = self.stage.start_controller()?;
        self.covers("restarted", RESTARTED).await?;
        self.stage.write_password(3)?;
        self.covers("rotated-again", SOON).await?;
        let restarted = Usage::of(pid)?;
        print("restarted", restarted);
        for usage in [attacked, restarted] {
            ensure!(usage.most_resident <= MEMORY, "{} KiB", usage.most_resident);
        }
        Ok(())
    }

    /// Waits until a new namespace has the Secret, and its service account the reference.
    async fn covers(&self, namespace: &str, time: Duration) -> Result<()> {
        let begun = Instant::now();
        self.create("namespaces", &named(namespace)).await?;
        let path = format!("/api/v1/namespaces/{namespace}");
        loop {
            let secret = self.get(&format!("{path}/secrets/{GLOBAL_SECRET}")).await;
            let account = self.get(&format!("{path}/serviceaccounts/default")).await;
            let names = account.map(|account| account["imagePullSecrets"][0]["name"].clone());
            if secret.is_ok() && names.is_ok_and(|name| name == GLOBAL_SECRET) {
                eprintln!("`{namespace}` after {:.1} s", begun.elapsed().as_secs_f32());
                return Ok(());
            }
            ensure!(begun.elapsed() < time, "`{namespace}` is not covered");
            sleep(POLL).await;
        }
    }

    /// Checks that the status names the tenant's namespace.
    async fn is_named(&self) -> Result<()> {
        retry(SOON, POLL, async || {
            let found = status(&self.client).await?.image_pull_secrets;
            let failures = found.map(|found| found.failures).unwrap_or_default();
            let reasons = ["TooManyReferences", "TooManyAccounts"];
            let mut of_tenant = failures.iter().filter(|it| it.namespace == TENANT);
            let is_named = of_tenant.any(|it| reasons.contains(&it.reason.as_str()));
            ensure!(is_named, "the namespace is not named");
            Ok(())
        })
        .await
    }

    async fn attack(&self) -> Result<()> {
        let begun = Instant::now();
        self.create("namespaces", &named(TENANT)).await?;
        // In JSON, the API server writes `<` as six characters.
        let text = "<".repeat(LARGE);
        let names = |count: usize| -> Vec<Value> {
            (0..count)
                .map(|at| json!({"name": format!("s-{at}")}))
                .collect()
        };
        let accounts: [(&str, Value); 4] = [
            ("text", json!({"secrets": [{"name": text}]})),
            ("empty", json!({"secrets": vec![json!({}); LARGE / 17]})),
            ("references", json!({"imagePullSecrets": names(40_000)})),
            ("reference", json!({"imagePullSecrets": [{"name": text}]})),
        ];
        // Some match the patterns, so that the controller wants to change them.
        for prefix in ["a", "ci"] {
            for (what, content) in &accounts {
                let objects = (0..OBJECTS / 2).map(|at| {
                    let mut account = named(&format!("{prefix}-{what}-{at:03}"));
                    account["metadata"]["annotations"] = json!({ATTACHED_ANNOTATION: "x"});
                    merge(&mut account, content);
                    account
                });
                self.create_all(&format!("namespaces/{TENANT}/serviceaccounts"), objects)
                    .await?;
            }
        }
        let record: Vec<String> = (0..60).map(|at| format!("{at:060}")).collect();
        let small = (0..ACCOUNTS).map(|at| {
            let mut account = named(&format!("b-{at:05}"));
            account["metadata"]["annotations"] = json!({ATTACHED_ANNOTATION: record.join(",")});
            account
        });
        self.create_all(&format!("namespaces/{TENANT}/serviceaccounts"), small)
            .await?;
        let labels: Map<String, Value> = (0..60_000)
            .map(|at| (format!("l{at:07}"), json!("")))
            .collect();
        let labels = Value::Object(labels);
        let spaces = (0..OBJECTS).map(|at| {
            let mut space = named(&format!("space-{at:03}"));
            if at % 2 == 0 {
                space["metadata"]["labels"] = labels.clone();
            }
            space
        });
        self.create_all("namespaces", spaces).await?;
        // Each key is in the managed fields.
        let data: Map<String, Value> = (0..20_000)
            .map(|at| (format!("k{at:06}"), json!("")))
            .collect();
        let annotation = "x".repeat(200_000);
        for at in 0..OBJECTS {
            let mut secret = named(GLOBAL_SECRET);
            secret["stringData"] = if at % 2 == 0 {
                json!({"k": "x".repeat(1_000_000)})
            } else {
                Value::Object(data.clone())
            };
            secret["metadata"]["annotations"] = json!({CONTENT_ANNOTATION: annotation});
            let path = format!("namespaces/space-{at:03}/secrets/{GLOBAL_SECRET}");
            self.apply(&path, &secret).await?;
        }
        eprintln!("written within {:.0} s", begun.elapsed().as_secs_f32());
        Ok(())
    }

    async fn create_all(&self, path: &str, objects: impl Iterator<Item = Value>) -> Result<()> {
        stream::iter(objects)
            .map(|object| async move { self.create(path, &object).await })
            .buffer_unordered(8)
            .try_collect::<Vec<()>>()
            .await?;
        Ok(())
    }

    async fn create(&self, path: &str, object: &Value) -> Result<()> {
        let request = hyper::Request::post(format!("/api/v1/{path}"));
        let request = request.header("content-type", "application/json");
        let request = request.body(object.to_string().into_bytes())?;
        let created = self.client.request_text(request).await;
        created.with_context(|| format!("create {}", object["metadata"]["name"]))?;
        Ok(())
    }

    /// Server-side apply like another client, because the controller may have written the object before.
    async fn apply(&self, path: &str, object: &Value) -> Result<()> {
        let mut object = object.clone();
        merge(&mut object, &json!({"apiVersion": "v1", "kind": "Secret"}));
        let request =
            hyper::Request::patch(format!("/api/v1/{path}?fieldManager=tenant&force=true"));
        let request = request.header("content-type", "application/apply-patch+yaml");
        let request = request.body(object.to_string().into_bytes())?;
        self.client.request_text(request).await.context("apply")?;
        Ok(())
    }

    async fn get(&self, path: &str) -> Result<Value> {
        let request = hyper::Request::get(path).body(Vec::new())?;
        Ok(self.client.request(request).await?)
    }
}

fn named(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

/// Adds these fields.
fn merge(object: &mut Value, fields: &Value) {
    for (key, value) in fields.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
}

fn print(what: &str, usage: Usage) {
    let (resident, most) = (usage.resident / 1024, usage.most_resident / 1024);
    eprintln!("{what}: {resident} MiB resident, at most {most} MiB");
}
