//! `delivery: Observe` on a real API server: the shipped controller and observers, a stand-in of `HyperShift`, random rotations, and a
//! watcher that compares each status with the node's file.

mod hypershift;
mod watcher;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use globalps_core::api::{NodePullSecret, Phase};
use globalps_core::names::{ADDITIONAL_SECRET, GLOBAL_SECRET, OBSERVER, RECORD_SECRET, SYNCER};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::{interval, sleep, timeout};

use super::nodes;
use super::stage::Stage;
use crate::bare_node::in_pod;
use crate::product::{NAMESPACE, pull_secret};
use crate::programs::shipped;
pub use watcher::Seen;
use watcher::Watcher;

const DEADLINE: Duration = Duration::from_secs(60);
const LOOKS: Duration = Duration::from_millis(100);
/// Registry that the original has too.
const SHARED: &str = "quay.io";
const REGISTRIES: [&str; 4] = [
    SHARED,
    "a.example.com",
    "b.example.com:5000",
    "c.example.com/team",
];

/// Rotates for this long with this many nodes, whose stand-in of `HyperShift`'s syncer looks every `poll`; then removes the pull
/// secret.
pub fn run(nodes: usize, duration: Duration, poll: Duration) -> Result<Seen> {
    let stage = Stage::observed("observe", ("kube-system", hypershift::ORIGINAL))?;
    super::block_on(async {
        let client = stage.admin_client().await?;
        let mut scene = Scene::start(&stage, &client, nodes, poll).await?;
        let seen = scene.rotate(duration).await?;
        scene.remove().await?;
        Ok(seen)
    })
}

struct Scene<'a> {
    stage: &'a Stage,
    client: Client,
    files: BTreeMap<String, PathBuf>,
    tasks: Vec<JoinHandle<()>>,
    observers: Vec<Child>,
    /// uid of `HyperShift`'s `DaemonSet`, and its resource version.
    daemon_set: (Option<String>, Option<String>),
    _directory: TempDir,
}

impl Drop for Scene<'_> {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        for observer in &mut self.observers {
            let _ = observer.kill();
            let _ = observer.wait();
        }
    }
}

fn auth(password: &str) -> Value {
    json!({"username": "u", "password": password})
}

impl<'a> Scene<'a> {
    async fn start(
        stage: &'a Stage,
        client: &Client,
        number: usize,
        poll: Duration,
    ) -> Result<Self> {
        let original =
            json!({"auths": {SHARED: auth("of-the-platform"), "platform.example.com": auth("p")}});
        stage.apply_all(&hypershift::objects(&original.to_string()))?;
        let names = nodes::create(client, number).await?.into_keys();
        let directory = TempDir::new()?;
        let mut files = BTreeMap::new();
        for name in names {
            let home = directory.path().join(&name);
            fs::create_dir_all(&home)?;
            files.insert(name, home.join("config.json"));
        }
        let mut scene = Self {
            stage,
            client: client.clone(),
            files,
            tasks: vec![tokio::spawn(hypershift::merge(client.clone()))],
            observers: Vec::new(),
            daemon_set: Default::default(),
            _directory: directory,
        };
        scene.daemon_set = scene.of_hypershift().await?;
        for file in scene.files.values() {
            let sync = hypershift::sync(client.clone(), file.clone(), poll);
            scene.tasks.push(tokio::spawn(sync));
        }
        stage.start_controller()?;
        scene.write(&passwords(0))?;
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
        until("the observers' account", async || {
            Ok(accounts.get_opt(OBSERVER).await?.is_some())
        })
        .await?;
        for (name, file) in &scene.files {
            scene.observers.push(observer(stage, name, file)?);
        }
        Ok(scene)
    }

    async fn of_hypershift(&self) -> Result<(Option<String>, Option<String>)> {
        let sets: Api<DaemonSet> = Api::namespaced(self.client.clone(), NAMESPACE);
        let set = sets.get(SYNCER).await?;
        Ok((set.uid(), set.resource_version()))
    }

    fn write(&self, auths: &BTreeMap<&str, Value>) -> Result<()> {
        let content = json!({"auths": auths}).to_string();
        self.stage
            .apply(pull_secret(NAMESPACE, ADDITIONAL_SECRET, &content))
    }

    /// Changes the pull secret and the files at random moments.
    async fn rotate(&mut self, duration: Duration) -> Result<Seen> {
        let mut watcher = Watcher::new(self.client.clone(), self.files.clone());
        let ends = Instant::now() + duration;
        let mut looks = interval(LOOKS);
        let mut next = Instant::now() + Duration::from_secs(3);
        let mut round = 0;
        let mut auths = passwords(0);
        while Instant::now() < ends {
            looks.tick().await;
            watcher.look().await?;
            if Instant::now() < next {
                continue;
            }
            next = Instant::now() + Duration::from_millis(fastrand::u64(200..4000));
            round += 1;
            match fastrand::u8(0..8) {
                0..4 => {
                    let registry = REGISTRIES[fastrand::usize(..REGISTRIES.len())];
                    auths.insert(registry, auth(&format!("password-{round}")));
                    self.write(&auths)?;
                }
                4 if auths.len() > 1 => {
                    auths.pop_last();
                    self.write(&auths)?;
                }
                _ => self.spoil()?,
            }
        }
        Ok(watcher.seen)
    }

    /// Another process changes one node's file.
    fn spoil(&self) -> Result<()> {
        let files: Vec<&PathBuf> = self.files.values().collect();
        let file = files[fastrand::usize(..files.len())];
        match fastrand::u8(0..4) {
            0 => fs::write(file, "{")?,
            1 => fs::write(file, r#"{"auths":{"x":{"auth":"*"}}}"#)?,
            2 => fs::write(file, json!({"auths": passwords(0)}).to_string())?,
            _ => drop(fs::remove_file(file)),
        }
        Ok(())
    }

    /// Without the pull secret every node is restored, everything of globalps is gone, and `HyperShift`'s objects are as they were.
    async fn remove(&self) -> Result<()> {
        let args = ["delete", "secret", ADDITIONAL_SECRET, "-n", NAMESPACE];
        self.stage.cluster.kubectl(&args)?;
        let objects: Api<NodePullSecret> = Api::namespaced(self.client.clone(), NAMESPACE);
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        until("the restored nodes to be reported", async || {
            let all = objects.list(&ListParams::default()).await?.items;
            let is_restored = |object: &NodePullSecret| {
                object
                    .status
                    .as_ref()
                    .is_some_and(|it| it.phase == Phase::Restored)
            };
            Ok(all.iter().all(is_restored))
        })
        .await?;
        for file in self.files.values() {
            let text = fs::read_to_string(file)?;
            ensure!(
                !text.contains("a.example.com"),
                "the file still has it: {text}"
            );
        }
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), NAMESPACE);
        until("the cleanup", async || {
            Ok(accounts.get_opt(OBSERVER).await?.is_none()
                && secrets.get_opt(RECORD_SECRET).await?.is_none()
                && objects.list(&ListParams::default()).await?.items.is_empty())
        })
        .await?;
        ensure!(
            self.of_hypershift().await? == self.daemon_set,
            "the DaemonSet has changed"
        );
        ensure!(
            accounts.get_opt(SYNCER).await?.is_some(),
            "its account is gone"
        );
        ensure!(
            secrets.get_opt(GLOBAL_SECRET).await?.is_none(),
            "HyperShift's controller deletes it"
        );
        Ok(())
    }
}

/// The same for each registry but the shared one.
fn passwords(round: usize) -> BTreeMap<&'static str, Value> {
    let registries = REGISTRIES.into_iter();
    registries
        .map(|registry| (registry, auth(&format!("password-{round}"))))
        .collect()
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

async fn until(what: &str, is_so: impl AsyncFn() -> Result<bool>) -> Result<()> {
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
