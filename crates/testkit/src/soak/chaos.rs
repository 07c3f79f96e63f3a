//! The random events.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use base64::Engine as _;
use serde_json::json;

use super::files::Files;
use super::kubectl::{kubectl, merge};
use super::oddities::Oddities;
use super::power::Power;
use super::refusals::Refusals;
use super::{CONFIG_FILE, content, limit};
use crate::product::{CONFIG, NAMESPACE, Product};
use crate::{Cluster, Node, until};

pub const REGISTRY: &str = "soak.example.com";
const SYNCER: &str = "global-pull-secret-syncer";
const SECRET: &str = "secret/global-pull-secret";
const CREDENTIAL_PROVIDER: &str = "CredentialProvider";

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
    ("delivery changed", 2, |chaos| chaos.deliver()),
    ("flags rewritten by kubeadm", 4, |chaos| {
        chaos.rewrite_flags()
    }),
    ("odd value", 6, |chaos| chaos.put_odd_value()),
    ("writes refused", 4, |chaos| chaos.refuse_writes()),
];

pub struct Chaos<'a> {
    cluster: &'a Cluster,
    product: &'a Product<'a>,
    nodes: &'a [Node],
    random: fastrand::Rng,
    passwords: Vec<String>,
    /// The configured delivery.
    delivery: &'static str,
    files: Files,
    power: Power<'a>,
    oddities: Oddities<'a>,
    refusals: Refusals<'a>,
    /// What the current event concerns.
    detail: String,
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
            delivery: CONFIG_FILE,
            files: Files::new()?,
            power: Power::new(cluster, nodes),
            oddities: Oddities::new(cluster),
            refusals: Refusals::new(cluster)?,
            detail: String::new(),
            counts: BTreeMap::new(),
        })
    }

    /// Runs one random event. Returns its name and whether it succeeded.
    pub fn step(&mut self) -> (String, Result<()>) {
        if let Err(error) = self.power.bring_back(false) {
            return ("node booted".to_owned(), Err(error));
        }
        if let Err(error) = self.refusals.end(false) {
            return ("writes allowed".to_owned(), Err(error));
        }
        self.detail.clear();
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
            return (format!("{name}{}", self.detail), outcome);
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

    /// Restarts everything, allows every write, takes odd values back, and resumes the rollout, with the file as delivery.
    pub fn calm(&mut self) -> Result<()> {
        let (deadline, poll) = (Duration::from_mins(1), Duration::from_secs(1));
        until("writes to be allowed", deadline, poll, || {
            Ok(self.refusals.end(true).ok())
        })?;
        self.power.bring_back(true)?;
        self.oddities.take_back()?;
        self.delivery = CONFIG_FILE;
        self.configure()
    }

    fn configure(&self) -> Result<()> {
        limit(self.cluster, self.delivery)
    }

    pub fn counts(&self) -> &BTreeMap<&'static str, (u32, u32)> {
        &self.counts
    }

    /// Node, registry and `auth` of each entry that another process wrote into a node's file.
    pub fn foreign(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.files.foreign()
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
        self.configure()
    }

    fn pause(&mut self) -> Result<()> {
        let patch = json!({"spec": {"rollout": {"paused": true}}});
        merge(self.cluster, CONFIG, &patch)
    }

    fn resume(&mut self) -> Result<()> {
        self.configure()
    }

    fn delete_config(&mut self) -> Result<()> {
        self.delete(CONFIG)?;
        self.configure()
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

    fn write_foreign(&mut self) -> Result<()> {
        let node = self.any_node();
        self.files.write_entry(&node)
    }

    fn rewrite_flags(&mut self) -> Result<()> {
        let node = self.running_node()?;
        self.detail = format!(" of {}", node.name());
        self.files.rewrite_flags(&node)
    }

    /// From one delivery to the other.
    fn deliver(&mut self) -> Result<()> {
        self.delivery = if self.delivery == CONFIG_FILE {
            CREDENTIAL_PROVIDER
        } else {
            CONFIG_FILE
        };
        self.detail = format!(" to {}", self.delivery);
        let patch = json!({"spec": {"kubelet": {"delivery": self.delivery}}});
        merge(self.cluster, CONFIG, &patch)
    }

    fn put_odd_value(&mut self) -> Result<()> {
        let node = self.any_node();
        self.detail = self.oddities.put(&mut self.random, node.name())?;
        Ok(())
    }

    fn refuse_writes(&mut self) -> Result<()> {
        let node = self.any_node();
        self.detail = self.refusals.begin(&mut self.random, node.name())?;
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
        self.power.cut(&mut self.random)
    }

    fn reboot(&mut self) -> Result<()> {
        self.power.reboot(&mut self.random)
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
        self.power.running(&mut self.random)
    }
}
