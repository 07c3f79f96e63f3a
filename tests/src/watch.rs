//! Every change of every `NodePullSecret`, in order and with the time at which it was seen.

use std::collections::BTreeMap;
use std::io::BufReader;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::Cluster;
use crate::product::{DEADLINE, NAMESPACE};

/// A `kubectl get --watch` that runs until this is dropped.
pub struct Watch {
    kubectl: Child,
    changes: Receiver<(SystemTime, Value)>,
    nodes: usize,
}

impl Watch {
    /// Begins once every node has its object.
    pub fn start(cluster: &Cluster, nodes: usize) -> Result<Self> {
        let mut kubectl = cluster
            .kubectl_command()
            .args([
                "get",
                "nodepullsecrets",
                "-n",
                NAMESPACE,
                "--watch",
                "-o",
                "json",
            ])
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
        let watch = Self {
            kubectl,
            changes,
            nodes,
        };
        // The first ones are what is there now.
        for _ in 0..nodes {
            watch.changes.recv_timeout(DEADLINE)?;
        }
        Ok(watch)
    }

    /// Most nodes that were granted the revision and not yet `Synced` at the same time, of all that was seen.
    pub fn most_at_once(self, revision: i64) -> Result<usize> {
        let mut open: BTreeMap<String, bool> = BTreeMap::new();
        let mut most = 0;
        while let Ok((_, object)) = self.changes.recv_timeout(Duration::from_secs(1)) {
            let granted = object["spec"]["revision"] == revision;
            open.insert(name(&object), granted && !is_synced(&object, revision));
            most = most.max(open.values().filter(|open| **open).count());
        }
        ensure!(
            open.len() == self.nodes,
            "changes of {} nodes were seen",
            open.len()
        );
        Ok(most)
    }

    /// When each node was first seen `Synced` at the revision.
    pub fn all_synced(&self, revision: i64) -> Result<BTreeMap<String, SystemTime>> {
        let mut synced = BTreeMap::new();
        while synced.len() < self.nodes {
            let (time, object) = self.changes.recv_timeout(DEADLINE)?;
            if is_synced(&object, revision) {
                synced.entry(name(&object)).or_insert(time);
            }
        }
        Ok(synced)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // It may have ended by itself, with the API server.
        let _ = self.kubectl.kill();
        let _ = self.kubectl.wait();
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
