//! What scenes share in which another program writes the nodes' files: nodes that are directories, the shipped observers as processes,
//! and a watcher that compares each status with the node's file.

mod watcher;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use globalps_core::api::{NodePullSecret, Phase};
use globalps_core::names::{DATA_KEY, OBSERVER, RECORD_SECRET};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::ListParams;
use kube::{Api, Client};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use super::nodes;
use super::stage::Stage;
use crate::bare_node::in_pod;
use crate::product::NAMESPACE;
use crate::programs::shipped;
pub use watcher::Seen;
pub(super) use watcher::{Watcher, has, says};

const DEADLINE: Duration = Duration::from_secs(60);
pub(super) const LOOKS: Duration = Duration::from_millis(100);

/// Nodes without kubelets: each has a credentials file in a directory of its own.
pub(super) struct Files {
    pub(super) by_node: BTreeMap<String, PathBuf>,
    _directory: TempDir,
}

impl Files {
    /// Creates the Nodes, and no file yet.
    pub(super) async fn create(client: &Client, number: usize) -> Result<Self> {
        let names = nodes::create(client, number).await?.into_keys();
        let directory = TempDir::new()?;
        let mut by_node = BTreeMap::new();
        for name in names {
            let home = directory.path().join(&name);
            fs::create_dir_all(&home)?;
            by_node.insert(name, home.join("config.json"));
        }
        Ok(Self {
            by_node,
            _directory: directory,
        })
    }

    /// Another process changes one node's file. `old`: what it may have instead.
    pub(super) fn spoil(&self, old: &Value) -> Result<()> {
        let files: Vec<&PathBuf> = self.by_node.values().collect();
        let file = files[fastrand::usize(..files.len())];
        match fastrand::u8(0..4) {
            0 => fs::write(file, "{")?,
            1 => fs::write(file, r#"{"auths":{"x":{"auth":"*"}}}"#)?,
            2 => fs::write(file, old.to_string())?,
            _ => drop(fs::remove_file(file)),
        }
        Ok(())
    }
}

/// The shipped observers, one for each node. They end when this is dropped.
#[derive(Default)]
pub(super) struct Observers(Vec<Child>);

impl Drop for Observers {
    fn drop(&mut self) {
        for observer in &mut self.0 {
            let _ = observer.kill();
            let _ = observer.wait();
        }
    }
}

impl Observers {
    /// Starts them as soon as the controller has created their account.
    pub(super) async fn start(
        &mut self,
        stage: &Stage,
        client: &Client,
        files: &Files,
    ) -> Result<()> {
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
        until("the observers' account", async || {
            Ok(accounts.get_opt(OBSERVER).await?.is_some())
        })
        .await?;
        for (name, file) in &files.by_node {
            self.0.push(observer(stage, name, file)?);
        }
        Ok(())
    }
}

/// All nodes' objects.
pub(super) async fn objects(client: &Client) -> Result<Vec<NodePullSecret>> {
    let objects: Api<NodePullSecret> = Api::namespaced(client.clone(), NAMESPACE);
    Ok(objects.list(&ListParams::default()).await?.items)
}

/// Waits until each node reports that its file has nothing more of it.
pub(super) async fn wait_restored(client: &Client) -> Result<()> {
    until("the restored nodes to be reported", async || {
        let all = objects(client).await?;
        let mut statuses = all.iter().map(|object| object.status.as_ref());
        Ok(statuses.all(|status| status.is_some_and(|it| it.phase == Phase::Restored)))
    })
    .await
}

/// Waits until nothing of globalps is left but its configuration.
pub(super) async fn wait_clean(client: &Client) -> Result<()> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    until("the cleanup", async || {
        Ok(accounts.get_opt(OBSERVER).await?.is_none()
            && secrets.get_opt(RECORD_SECRET).await?.is_none()
            && objects(client).await?.is_empty())
    })
    .await
}

/// The credentials in a Secret.
pub(super) fn content_of(secret: &Secret) -> Vec<u8> {
    let data = secret.data.as_ref().and_then(|data| data.get(DATA_KEY));
    data.map(|bytes| bytes.0.clone()).unwrap_or_default()
}

pub(super) fn auth(password: &str) -> Value {
    json!({"username": "u", "password": password})
}

/// Starts the shipped observer of this node, with a token of a pod there.
fn observer(stage: &Stage, node: &str, file: &Path) -> Result<Child> {
    let pod = format!("{OBSERVER}-{node}");
    stage.apply(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod, "namespace": NAMESPACE, "labels": {"name": OBSERVER}},
        "spec": {"nodeName": node, "serviceAccountName": OBSERVER, "containers": [{"name": "syncer", "image": "none"}]}}))?;
    let token = stage.cluster.kubectl(&[
        "create",
        "token",
        OBSERVER,
        "-n",
        NAMESPACE,
        "--bound-object-kind=Pod",
        "--bound-object-name",
        &pod,
    ])?;
    let home = file.parent().context("a directory")?;
    let account = home.join("account");
    fs::create_dir_all(&account)?;
    fs::copy(stage.cluster.layout().pki("ca.crt"), account.join("ca.crt"))?;
    fs::write(account.join("token"), token.trim())?;
    fs::write(account.join("namespace"), NAMESPACE)?;
    let url = stage.cluster.api_url();
    let address = url.trim_start_matches("https://");
    let (host, port) = address.rsplit_once(':').context("a port")?;
    let mut command: Command = in_pod(home)?;
    command
        .arg(shipped("globalps-syncer")?)
        .args(["observe", "--node-name", node, "--config-file"])
        .arg(file)
        .arg("--ready-file")
        .arg(home.join("ready"))
        .env_clear()
        .env("KUBERNETES_SERVICE_HOST", host)
        .env("KUBERNETES_SERVICE_PORT", port.trim_end_matches('/'))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(home.join("log"))?);
    Ok(command.spawn()?)
}

pub(super) async fn until(what: &str, is_so: impl AsyncFn() -> Result<bool>) -> Result<()> {
    let waits = async {
        while !is_so().await? {
            sleep(LOOKS).await;
        }
        Ok(())
    };
    timeout(DEADLINE, waits)
        .await
        .with_context(|| format!("waited for {what}"))?
}
