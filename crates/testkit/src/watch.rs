//! Records every change of objects, such as every `NodePullSecret`, in order and with the time of observation.

use std::collections::BTreeMap;
use std::io::BufReader;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::Cluster;
use crate::product::{DEADLINE, NAMESPACE};

/// A `kubectl get --watch` that runs until this is dropped: the current objects and all changes.
pub struct Changes {
    kubectl: Child,
    changes: Receiver<(SystemTime, Value)>,
}

impl Changes {
    /// `what`: arguments of `kubectl get`.
    pub fn start(cluster: &Cluster, what: &[&str]) -> Result<Self> {
        let mut kubectl = cluster
            .kubectl_command()
            .arg("get")
            .args(what)
            .args(["--watch", "-o", "json"])
            .stdout(Stdio::piped())
            .spawn()?;
        let output = kubectl.stdout.take().context("no pipe")?;
        let (sender, changes) = channel();
        std::thread::spawn(move || {
            let objects =
                serde_json::Deserializer::from_reader(BufReader::new(output)).into_iter::<Value>();
            for object in objects.map_while(Result::ok) {
                if sender.send((SystemTime::now(), object)).is_err() {
                    return;
                }
            }
        });
        Ok(Self { kubectl, changes })
    }

    /// Like [`Self::start`], for one Secret.
    pub fn of_secret(cluster: &Cluster, namespace: &str, name: &str) -> Result<Self> {
        let named = format!("--field-selector=metadata.name={name}");
        Self::start(cluster, &["secrets", "-n", namespace, &named])
    }

    /// The time at which an object first matched, among the changes not read yet.
    pub fn wait(&self, what: &str, is_wanted: impl Fn(&Value) -> bool) -> Result<SystemTime> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let (time, object) = self
                .changes
                .recv_timeout(left)
                .with_context(|| format!("{what} was not observed"))?;
            if is_wanted(&object) {
                return Ok(time);
            }
        }
    }
}

/// Zero if the watches saw the changes in the opposite order.
pub fn seconds_between(from: SystemTime, to: SystemTime) -> f32 {
    to.duration_since(from).unwrap_or_default().as_secs_f32()
}

pub fn median(mut seconds: Vec<f32>) -> f32 {
    seconds.sort_by(f32::total_cmp);
    seconds[seconds.len() / 2]
}

impl Drop for Changes {
    fn drop(&mut self) {
        // It may have ended by itself, with the API server.
        let _ = self.kubectl.kill();
        let _ = self.kubectl.wait();
    }
}

/// Like [`Changes`], for every `NodePullSecret`.
pub struct Watch {
    changes: Changes,
    nodes: usize,
}

impl Watch {
    /// Waits until every node has its object.
    pub fn start(cluster: &Cluster, nodes: usize) -> Result<Self> {
        let changes = Changes::start(cluster, &["nodepullsecrets", "-n", NAMESPACE])?;
        // The first events are the current objects.
        for _ in 0..nodes {
            changes.changes.recv_timeout(DEADLINE)?;
        }
        Ok(Self { changes, nodes })
    }

    /// Maximum number of nodes that had been assigned the revision and were not yet `Synced`, at any moment.
    pub fn most_at_once(self, revision: i64) -> Result<usize> {
        let mut open: BTreeMap<String, bool> = BTreeMap::new();
        let mut most = 0;
        while let Ok((_, object)) = self.changes.changes.recv_timeout(Duration::from_secs(1)) {
            let assigned = object["spec"]["revision"] == revision;
            open.insert(name(&object), assigned && !is_synced(&object, revision));
            most = most.max(open.values().filter(|open| **open).count());
        }
        ensure!(
            open.len() == self.nodes,
            "changes of {} nodes were seen",
            open.len()
        );
        Ok(most)
    }

    /// The time at which each node was first `Synced` with the revision.
    pub fn all_synced(&self, revision: i64) -> Result<BTreeMap<String, SystemTime>> {
        let mut synced = BTreeMap::new();
        while synced.len() < self.nodes {
            let (time, object) = self.changes.changes.recv_timeout(DEADLINE)?;
            if is_synced(&object, revision) {
                synced.entry(name(&object)).or_insert(time);
            }
        }
        Ok(synced)
    }
}

fn name(object: &Value) -> String {
    object["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn is_synced(object: &Value, revision: i64) -> bool {
    object["status"]["phase"] == "Synced" && object["status"]["revision"] == revision
}
