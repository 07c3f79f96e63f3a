//! `delivery: Observe` on a real API server: the shipped controller and observers, a stand-in of `HyperShift`, random rotations, and a
//! watcher that compares each status with the node's file.

mod hypershift;

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use globalps_core::names::{ADDITIONAL_SECRET, GLOBAL_SECRET, SYNCER};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::interval;

use super::observed::{
    Files, LOOKS, Observers, Seen, Watcher, auth, content_of, objects, wait_clean, wait_restored,
};
use super::stage::Stage;
use crate::product::{NAMESPACE, pull_secret};
use hypershift::{ORIGINAL, content, merged};

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
    let stage = Stage::observed("observe", ("kube-system", ORIGINAL))?;
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
    files: Files,
    tasks: Vec<JoinHandle<()>>,
    observers: Observers,
    /// uid of `HyperShift`'s `DaemonSet`, and its resource version.
    daemon_set: (Option<String>, Option<String>),
}

impl Drop for Scene<'_> {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
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
        let files = Files::create(client, number).await?;
        let mut scene = Self {
            stage,
            client: client.clone(),
            files,
            tasks: vec![tokio::spawn(hypershift::merge(client.clone()))],
            observers: Observers::default(),
            daemon_set: Default::default(),
        };
        scene.daemon_set = scene.of_hypershift().await?;
        for file in scene.files.by_node.values() {
            let sync = hypershift::sync(client.clone(), file.clone(), poll);
            scene.tasks.push(tokio::spawn(sync));
        }
        stage.start_controller()?;
        scene.write(&passwords(0))?;
        scene.observers.start(stage, client, &scene.files).await?;
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
        let mut watcher = Watcher::new(self.files.by_node.clone());
        let ends = Instant::now() + duration;
        let mut looks = interval(LOOKS);
        let mut next = Instant::now() + Duration::from_secs(3);
        let mut round = 0;
        let mut auths = passwords(0);
        while Instant::now() < ends {
            looks.tick().await;
            self.look(&mut watcher).await?;
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
                _ => self.files.spoil(&json!({"auths": passwords(0)}))?,
            }
        }
        Ok(watcher.seen)
    }

    async fn look(&self, watcher: &mut Watcher) -> Result<()> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        let secret = secrets.get_opt(GLOBAL_SECRET).await?;
        let objects = objects(&self.client).await?;
        let additional = content(&self.client, ADDITIONAL_SECRET).await?;
        let original = content(&self.client, ORIGINAL).await?.unwrap_or_default();
        let Some((secret, additional)) = secret.zip(additional) else {
            return Ok(());
        };
        let merged = merged(&original, &additional).ok();
        let is_newest = merged == Some(content_of(&secret));
        watcher.compare(objects, &secret, is_newest, &additional)
    }

    /// Without the pull secret every node is restored, everything of globalps is gone, and `HyperShift`'s objects are as they were.
    async fn remove(&self) -> Result<()> {
        let args = ["delete", "secret", ADDITIONAL_SECRET, "-n", NAMESPACE];
        self.stage.cluster.kubectl(&args)?;
        wait_restored(&self.client).await?;
        for file in self.files.by_node.values() {
            let text = fs::read_to_string(file)?;
            ensure!(
                !text.contains("a.example.com"),
                "the file still has it: {text}"
            );
        }
        wait_clean(&self.client).await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), NAMESPACE);
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
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
