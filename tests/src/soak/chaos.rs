//! The random events.

use std::collections::BTreeMap;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use serde_json::{Value, json};

use super::{content, limit};
use crate::product::{CONFIG, NAMESPACE, Product, run};
use crate::{Cluster, Node, until};

pub const REGISTRY: &str = "soak.example.com";
const SYNCER: &str = "global-pull-secret-syncer";
const SECRET: &str = "secret/global-pull-secret";
/// Maximum number of nodes without power at the same time.
const DOWN: usize = 2;

type Step = fn(&mut Chaos<'_>) -> Result<()>;

/// Name, relative frequency, and what the event does.
#[allow(
    clippy::redundant_closure_for_method_calls,
    reason = "a method is not general enough over its lifetime"
)]
const STEPS: &[(&str, u32, Step)] = &[
    ("rotation", 20, |chaos| chaos.rotate()),
    ("invalid rotation", 6, |chaos| chaos.rotate_invalid()),
    ("Secret deleted and recreated", 2, |chaos| {
        chaos.delete_and_apply()
    }),
    ("pause", 2, |chaos| chaos.pause()),
    ("resume", 5, |chaos| chaos.resume()),
    ("entry of another process", 10, |chaos| {
        chaos.write_foreign()
    }),
    ("controller killed", 6, |chaos| {
        chaos.kill("globalps-contro")
    }),
    ("controller pod deleted", 3, |chaos| {
        chaos.delete_controller()
    }),
    ("syncer killed", 8, |chaos| chaos.kill("globalps-syncer")),
    ("syncer pod deleted", 4, |chaos| chaos.delete_syncer()),
    ("kubelet killed", 6, |chaos| chaos.kill("kubelet")),
    ("API server killed", 3, |chaos| chaos.kill_api_server()),
    ("API server frozen", 4, |chaos| chaos.freeze_api_server()),
    ("power cut", 4, |chaos| chaos.cut_power()),
    ("reboot", 2, |chaos| chaos.reboot()),
    ("DaemonSet deleted", 2, |chaos| {
        chaos.delete(&format!("daemonset/{SYNCER}"))
    }),
    ("ServiceAccount deleted", 2, |chaos| {
        chaos.delete(&format!("serviceaccount/{SYNCER}"))
    }),
    ("Role deleted", 2, |chaos| {
        chaos.delete(&format!("role/{SYNCER}"))
    }),
    ("RoleBinding deleted", 2, |chaos| {
        chaos.delete(&format!("rolebinding/{SYNCER}"))
    }),
    ("global-pull-secret deleted", 2, |chaos| {
        chaos.delete(SECRET)
    }),
    ("NodePullSecret deleted", 3, |chaos| {
        let object = chaos.node_object();
        chaos.delete(&object)
    }),
    ("GlobalPullSecret deleted", 1, |chaos| chaos.delete_config()),
    ("DaemonSet changed", 2, |chaos| {
        let patch = json!({"spec": {"template": {"spec": {"priorityClassName": null, "terminationGracePeriodSeconds": 7}}}});
        merge(chaos.cluster, &format!("daemonset/{SYNCER}"), &patch)
    }),
    ("Role changed", 2, |chaos| {
        merge(
            chaos.cluster,
            &format!("role/{SYNCER}"),
            &json!({"rules": []}),
        )
    }),
    ("RoleBinding changed", 2, |chaos| {
        merge(
            chaos.cluster,
            &format!("rolebinding/{SYNCER}"),
            &json!({"subjects": []}),
        )
    }),
    ("global-pull-secret changed", 2, |chaos| {
        chaos.change_secret()
    }),
    ("revision deleted", 1, |chaos| {
        merge(
            chaos.cluster,
            SECRET,
            &json!({"metadata": {"annotations": null}}),
        )
    }),
    ("NodePullSecret changed", 2, |chaos| {
        let object = chaos.node_object();
        merge(
            chaos.cluster,
            &object,
            &json!({"spec": {"revision": 1, "restore": false}}),
        )
    }),
];

pub struct Chaos<'a> {
    cluster: &'a Cluster,
    product: &'a Product<'a>,
    nodes: &'a [Node],
    random: fastrand::Rng,
    passwords: Vec<String>,
    foreign: BTreeMap<(String, String), String>,
    /// Nodes without power, and when to boot them.
    down: BTreeMap<String, Instant>,
    /// Nodes that are rebooting.
    reboots: BTreeMap<String, JoinHandle<Result<()>>>,
    counts: BTreeMap<&'static str, (u32, u32)>,
}

impl<'a> Chaos<'a> {
    pub fn new(
        cluster: &'a Cluster,
        product: &'a Product<'a>,
        nodes: &'a [Node],
        seed: u64,
    ) -> Result<Self> {
        ensure!(!nodes.is_empty(), "no nodes");
        Ok(Self {
            cluster,
            product,
            nodes,
            random: fastrand::Rng::with_seed(seed),
            passwords: Vec::new(),
            foreign: BTreeMap::new(),
            down: BTreeMap::new(),
            reboots: BTreeMap::new(),
            counts: BTreeMap::new(),
        })
    }

    /// Runs one random event. Returns its name and whether it succeeded.
    pub fn step(&mut self) -> (String, Result<()>) {
        if let Err(error) = self.bring_back(false) {
            return ("node booted".to_owned(), Err(error));
        }
        let all: u32 = STEPS.iter().map(|(_, weight, _)| weight).sum();
        let mut at = self.random.u32(0..all);
        for (name, weight, step) in STEPS {
            if at >= *weight {
                at -= weight;
                continue;
            }
            let outcome = step(self);
            let (done, failed) = self.counts.entry(name).or_default();
            *(if outcome.is_ok() { done } else { failed }) += 1;
            return ((*name).to_owned(), outcome);
        }
        unreachable!("the weights add up")
    }

    /// Waits: mostly briefly, so that events overlap; sometimes long enough for a rollout.
    pub fn rest(&mut self) {
        let most = if self.random.u8(0..5) == 0 {
            15_000
        } else {
            4_000
        };
        thread::sleep(Duration::from_millis(self.random.u64(0..most)));
    }

    /// Restarts everything and resumes the rollout.
    pub fn calm(&mut self) -> Result<()> {
        self.bring_back(true)?;
        limit(self.cluster)
    }

    pub fn counts(&self) -> &BTreeMap<&'static str, (u32, u32)> {
        &self.counts
    }

    /// Node, registry and `auth` of each entry that another process wrote into a node's file.
    pub fn foreign(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        let entries = self.foreign.iter();
        entries.map(|((node, registry), auth)| (node.as_str(), registry.as_str(), auth.as_str()))
    }

    pub fn passwords(&self) -> impl Iterator<Item = &str> {
        self.passwords.iter().map(String::as_str)
    }

    /// Returns a new password.
    pub fn password(&mut self) -> String {
        let password = format!("soak-{}-{:016x}", self.passwords.len(), self.random.u64(..));
        self.passwords.push(password.clone());
        password
    }

    fn rotate(&mut self) -> Result<()> {
        let password = self.password();
        self.product.apply(&content(&password))
    }

    fn rotate_invalid(&mut self) -> Result<()> {
        let bad = [
            r#"{"auths":{"soak.example.com":{"auth":"no base64"}}}"#,
            r#"{"auths":{"soak.example.com":{"auth":"bm8gY29sb24="}}}"#,
            r#"{"auths":[]}"#,
        ];
        let bad = bad[self.random.usize(..bad.len())];
        self.product.apply(bad)
    }

    /// The nodes begin to restore, and some or all of them may finish.
    fn delete_and_apply(&mut self) -> Result<()> {
        self.product.delete()?;
        thread::sleep(Duration::from_millis(self.random.u64(0..20_000)));
        let password = self.password();
        self.product.apply(&content(&password))?;
        limit(self.cluster)
    }

    fn pause(&mut self) -> Result<()> {
        let patch = json!({"spec": {"rollout": {"paused": true}}});
        merge(self.cluster, CONFIG, &patch)
    }

    fn resume(&mut self) -> Result<()> {
        limit(self.cluster)
    }

    fn delete_config(&mut self) -> Result<()> {
        self.delete(CONFIG)?;
        limit(self.cluster)
    }

    fn change_secret(&mut self) -> Result<()> {
        let text = r#"{"auths":{"evil.example.com":{"auth":"ZXZpbDpldmls"}}}"#;
        let text = base64::prelude::BASE64_STANDARD.encode(text);
        merge(
            self.cluster,
            SECRET,
            &json!({"data": {".dockerconfigjson": text}}),
        )
    }

    /// Does what `docker login` does: reads the file and replaces it with one that has one more entry.
    fn write_foreign(&mut self) -> Result<()> {
        let node = self.any_node();
        let registry = format!("foreign-{}.example.com", self.foreign.len());
        let auth =
            base64::prelude::BASE64_STANDARD.encode(format!("foreign:{}", self.foreign.len()));
        let directory = node.kubelet_dir();
        let path = directory.join("config.json");
        let mut config: Value = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).context("the node's file is not JSON")?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => json!({"auths": {}}),
            Err(error) => return Err(error.into()),
        };
        config["auths"][&registry] = json!({"auth": auth});
        let temporary = directory.join("config.json.of-somebody-else");
        std::fs::write(&temporary, config.to_string())?;
        std::fs::rename(&temporary, &path)?;
        self.foreign
            .insert((node.name().to_owned(), registry), auth);
        Ok(())
    }

    fn kill(&mut self, process: &str) -> Result<()> {
        let node = self.running_node()?;
        let output = node.exec(&["pkill", "-KILL", "-x", process])?;
        ensure!(output.status.success(), "{} has none", node.name());
        Ok(())
    }

    fn delete_controller(&mut self) -> Result<()> {
        let label = "app.kubernetes.io/name=globalps-controller";
        self.delete_pod("globalps-system", label)
    }

    fn delete_syncer(&mut self) -> Result<()> {
        self.delete_pod(NAMESPACE, &format!("name={SYNCER}"))
    }

    fn delete_pod(&mut self, namespace: &str, label: &str) -> Result<()> {
        let pods = kubectl(
            self.cluster,
            &["get", "pods", "-n", namespace, "-l", label, "-o", "name"],
        )?;
        let pods: Vec<&str> = pods.split_whitespace().collect();
        ensure!(!pods.is_empty(), "there is no such pod");
        let pod = pods[self.random.usize(..pods.len())];
        kubectl(
            self.cluster,
            &["delete", pod, "-n", namespace, "--wait=false"],
        )?;
        Ok(())
    }

    fn kill_api_server(&mut self) -> Result<()> {
        let pause = Duration::from_millis(self.random.u64(0..8_000));
        self.cluster.restart_api_server(pause)
    }

    /// Other events happen while the API server is frozen.
    fn freeze_api_server(&mut self) -> Result<()> {
        self.cluster.signal("kube-apiserver", "STOP")?;
        let meanwhile = match self.random.u8(0..3) {
            0 => self.kill("globalps-syncer"),
            1 => self.kill("kubelet"),
            _ => self.write_foreign(),
        };
        thread::sleep(Duration::from_millis(self.random.u64(0..12_000)));
        self.cluster.signal("kube-apiserver", "CONT")?;
        meanwhile
    }

    fn cut_power(&mut self) -> Result<()> {
        let node = self.running_node()?;
        ensure!(
            self.down.len() + self.reboots.len() < DOWN,
            "the maximum number of nodes is already down"
        );
        node.power_cut()?;
        // Half of the nodes come back at once, the others after the cluster has noticed.
        let most = if self.random.bool() { 3 } else { 90 };
        let back = Instant::now() + Duration::from_secs(self.random.u64(0..most));
        self.down.insert(node.name().to_owned(), back);
        Ok(())
    }

    fn reboot(&mut self) -> Result<()> {
        let node = self.running_node()?;
        ensure!(
            self.down.len() + self.reboots.len() < DOWN,
            "the maximum number of nodes is already down"
        );
        let name = node.name().to_owned();
        let reboot = thread::spawn(move || node.reboot());
        self.reboots.insert(name, reboot);
        Ok(())
    }

    fn delete(&mut self, what: &str) -> Result<()> {
        kubectl(
            self.cluster,
            &["delete", what, "-n", NAMESPACE, "--wait=false"],
        )?;
        Ok(())
    }

    fn node_object(&mut self) -> String {
        format!("nodepullsecret/{}", self.any_node().name())
    }

    fn any_node(&mut self) -> Node {
        self.nodes[self.random.usize(..self.nodes.len())].clone()
    }

    fn running_node(&mut self) -> Result<Node> {
        let busy = |node: &&Node| {
            !self.down.contains_key(node.name()) && !self.reboots.contains_key(node.name())
        };
        let running: Vec<&Node> = self.nodes.iter().filter(busy).collect();
        ensure!(!running.is_empty(), "no node runs");
        Ok(running[self.random.usize(..running.len())].clone())
    }

    /// Boots the nodes whose outage is over.
    fn bring_back(&mut self, all: bool) -> Result<()> {
        let now = Instant::now();
        let due: Vec<String> = self
            .down
            .iter()
            .filter(|(_, back)| all || **back <= now)
            .map(|(name, _)| name.clone())
            .collect();
        for name in due {
            let node = self.cluster.node(&name)?;
            until(
                "the node's boot",
                Duration::from_mins(1),
                Duration::from_secs(1),
                || Ok((node.is_running()? || node.boot().is_ok()).then_some(())),
            )?;
            self.down.remove(&name);
        }
        let over: Vec<String> = self
            .reboots
            .iter()
            .filter(|(_, reboot)| all || reboot.is_finished())
            .map(|(name, _)| name.clone())
            .collect();
        for name in over {
            let Some(reboot) = self.reboots.remove(&name) else {
                continue;
            };
            let outcome = reboot
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            if outcome.is_err() && !self.cluster.node(&name)?.is_running()? {
                self.down.insert(name, now);
            }
        }
        if all && !self.down.is_empty() {
            return self.bring_back(all);
        }
        Ok(())
    }
}

/// `kubectl patch --type=merge`.
pub fn merge(cluster: &Cluster, what: &str, patch: &Value) -> Result<()> {
    let patch = patch.to_string();
    kubectl(
        cluster,
        &["patch", what, "-n", NAMESPACE, "--type=merge", "-p", &patch],
    )?;
    Ok(())
}

/// Runs kubectl, with a timeout no longer than an outage of the API server.
fn kubectl(cluster: &Cluster, args: &[&str]) -> Result<String> {
    let mut command = cluster.kubectl_command();
    let ran = run(command.args(args).arg("--request-timeout=20s"), "")?;
    ensure!(ran.code == Some(0), "{}", ran.stderr.trim());
    Ok(ran.stdout)
}
