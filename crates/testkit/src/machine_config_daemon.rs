//! A stand-in of the Machine Config Daemon that updates a node of `HyperShift` in place: it marks the Node, asks for a drain, writes
//! the credentials file, compares it byte by byte after a while, and only then reports the end.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::config_file::{self, ConfigFile};
use crate::{Cluster, Node};

const PREFIX: &str = "machineconfiguration.openshift.io";

pub struct MachineConfigDaemon<'a> {
    cluster: &'a Cluster,
    node: Node,
    random: fastrand::Rng,
    /// Number of the current configuration; 0: the node was never updated.
    current: u32,
}

impl<'a> MachineConfigDaemon<'a> {
    /// Makes the node one of a node pool.
    pub fn new(cluster: &'a Cluster, node: &Node, seed: u64) -> Result<Self> {
        let labels = json!({"hypershift.openshift.io/nodePool": "pool"});
        let daemon = Self {
            cluster,
            node: node.clone(),
            random: fastrand::Rng::with_seed(seed),
            current: 0,
        };
        daemon.patch(&json!({"metadata": {"labels": labels}}))?;
        Ok(daemon)
    }

    /// A random time up to this one.
    pub fn moment(&mut self, most: Duration) -> Duration {
        most.mul_f64(self.random.f64())
    }

    /// Whether an event with the probability 1 to this number happens.
    pub fn once_in(&mut self, times: u32) -> bool {
        self.random.u32(..times) == 0
    }

    /// Requests the update. The node's owner is no longer globalps.
    pub fn begin(&mut self) -> Result<()> {
        self.current += 1;
        self.annotate(&json!({
            "desiredConfig": self.name(), "desiredDrain": format!("drain-{}", self.name()),
        }))?;
        self.patch(&json!({"spec": {"unschedulable": true}}))?;
        self.annotate(&json!({"state": "Working"}))
    }

    /// Writes the file as the daemon does: a new file takes the place of the old one.
    pub fn write(&self, file: &ConfigFile) -> Result<()> {
        let path = self.node.kubelet_dir().join("config.json");
        let temporary = path.with_file_name(".config.json.mcd");
        fs::write(&temporary, &file.bytes)?;
        fs::set_permissions(&temporary, fs::Permissions::from_mode(file.mode))?;
        fs::rename(&temporary, &path)?;
        Ok(())
    }

    /// Fails where the real daemon would never report the end.
    pub fn compare(&self, file: &ConfigFile) -> Result<()> {
        let found = config_file::read(&self.node)?;
        ensure!(
            found.as_ref() == Some(file),
            "unexpected on-disk state: {found:?} instead of {file:?}"
        );
        Ok(())
    }

    /// Reports the end.
    pub fn end(&self) -> Result<Instant> {
        self.patch(&json!({"spec": {"unschedulable": null}}))?;
        let name = self.name();
        self.annotate(&json!({
            "currentConfig": name, "desiredDrain": format!("uncordon-{name}"), "state": "Done",
        }))?;
        Ok(Instant::now())
    }

    /// A whole update with random pauses up to this long. Returns when it ended.
    pub fn update(&mut self, file: &ConfigFile, most: Duration) -> Result<Instant> {
        self.begin()?;
        sleep(self.moment(most));
        self.write(file)?;
        sleep(self.moment(most));
        self.compare(file)
            .with_context(|| format!("update {}", self.current))?;
        self.end()
    }

    fn name(&self) -> String {
        format!("rendered-{}", self.current)
    }

    fn annotate(&self, annotations: &Value) -> Result<()> {
        let annotations = annotations.as_object().into_iter().flatten();
        let named = annotations.map(|(name, value)| (format!("{PREFIX}/{name}"), value.clone()));
        let named: serde_json::Map<String, Value> = named.collect();
        self.patch(&json!({"metadata": {"annotations": named}}))
    }

    fn patch(&self, patch: &Value) -> Result<()> {
        let what = format!("node/{}", self.node.name());
        self.cluster.patch("default", &what, patch)
    }
}
