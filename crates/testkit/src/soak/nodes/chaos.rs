//! The random events.

use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use serde_json::{Value, json};

use super::files::Files;
use super::kubectl::{kubectl, merge};
use super::oddities::Oddities;
use super::power::Power;
use super::refusals::Refusals;
use super::{CALM, CONFIG_FILE, POLL, all_have, check, content, limit};
use crate::product::{CONFIG, NAMESPACE, Product};
use crate::soak::{Events, World, events};
use crate::{Cluster, Node, until};

const SYNCER: &str = "global-pull-secret-syncer";
const OF_CONTROLLER: &str = "app.kubernetes.io/name=globalps-controller";
const SECRET: &str = "secret/global-pull-secret";
const CREDENTIAL_PROVIDER: &str = "CredentialProvider";

pub struct Chaos<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) product: &'a Product<'a>,
    pub(super) nodes: &'a [Node],
    events: Events,
    pub(super) passwords: Vec<String>,
    /// The configured delivery.
    delivery: &'static str,
    pub(super) files: Files,
    power: Power<'a>,
    oddities: Oddities<'a>,
    refusals: Refusals<'a>,
}

impl World for Chaos<'_> {
    events! { |it, node|
        "rotation", 20, it.rotate();
        "invalid rotation", 6, it.rotate_invalid();
        "Secret deleted and recreated", 2, it.delete_and_apply();
        "pause", 2, it.pause_rollout();
        "resume", 5, it.configure();
        "entry of another process", 10, it.files.write_entry(&node);
        "controller killed", 6, it.kill("globalps-contro");
        "controller pod deleted", 3, it.delete_pod("globalps-system", OF_CONTROLLER);
        "syncer killed", 8, it.kill("globalps-syncer");
        "syncer pod deleted", 4, it.delete_pod(NAMESPACE, &format!("name={SYNCER}"));
        "kubelet killed", 6, it.kill("kubelet");
        "API server killed", 3, it.kill_api_server();
        "API server frozen", 4, it.freeze_api_server(&node);
        "power cut", 4, it.power.cut(&mut it.events.random);
        "reboot", 2, it.power.reboot(&mut it.events.random);
        "DaemonSet deleted", 2, it.delete(&format!("daemonset/{SYNCER}"));
        "ServiceAccount deleted", 2, it.delete(&format!("serviceaccount/{SYNCER}"));
        "Role deleted", 2, it.delete(&format!("role/{SYNCER}"));
        "RoleBinding deleted", 2, it.delete(&format!("rolebinding/{SYNCER}"));
        "global-pull-secret deleted", 2, it.delete(SECRET);
        "NodePullSecret deleted", 3, it.delete(&object_of(&node));
        "GlobalPullSecret deleted", 1, it.delete_config();
        "DaemonSet changed", 2, it.change(&format!("daemonset/{SYNCER}"), &json!({"spec": {"template": {
            "spec": {"priorityClassName": null, "terminationGracePeriodSeconds": 7}}}}));
        "Role changed", 2, it.change(&format!("role/{SYNCER}"), &json!({"rules": []}));
        "RoleBinding changed", 2, it.change(&format!("rolebinding/{SYNCER}"), &json!({"subjects": []}));
        "global-pull-secret changed", 2, it.change_secret();
        "revision deleted", 1, it.change(SECRET, &json!({"metadata": {"annotations": null}}));
        "NodePullSecret changed", 2, it.change(&object_of(&node), &json!({"spec": {"revision": 1, "restore": false}}));
        "delivery changed", 2, it.deliver();
        "flags rewritten by kubeadm", 4, it.rewrite_flags();
        "odd value", 6, it.put_odd_value(&node);
        "writes refused", 4, it.refuse_writes(&node);
    }
    type Drawn = Node;
    /// All events are in one iteration.
    const ROUND: usize = usize::MAX;
    const SETTLED: Duration = CALM;
    const POLL: Duration = POLL;
    const MAY_FAIL: bool = true;

    fn events(&mut self) -> &mut Events {
        &mut self.events
    }

    /// First ends the disturbances whose time is over.
    async fn draw(&mut self) -> Result<Node> {
        self.power.bring_back(false)?;
        self.refusals.end(false)?;
        Ok(self.nodes[self.events.random.usize(..self.nodes.len())].clone())
    }

    /// Mostly brief, so that events overlap; sometimes long enough for a rollout.
    fn pause(&mut self) -> Duration {
        let is_long = self.events.random.u8(0..5) == 0;
        self.events.below(if is_long { 15_000 } else { 4_000 })
    }

    /// Restarts everything, allows every write, reverts odd values, resumes the rollout with delivery by file, and
    /// applies the last content.
    async fn heal(&mut self) -> Result<()> {
        let (deadline, poll) = (Duration::from_mins(1), Duration::from_secs(1));
        until("writes to be allowed", deadline, poll, || {
            Ok(self.refusals.end(true).ok())
        })?;
        self.power.bring_back(true)?;
        self.oddities.take_back()?;
        self.delivery = CONFIG_FILE;
        self.configure()?;
        for node in self.nodes {
            node.wait_ready(Duration::from_mins(3))?;
        }
        let last = content(&self.password());
        until("the last content to be accepted", CALM, POLL, || {
            Ok(self.product.apply(&last).ok())
        })
    }

    async fn settled(&mut self) -> Result<()> {
        let (ready, ..) = self.product.condition("Ready")?;
        ensure!(ready == "True", "not ready");
        let last = self.passwords.last().context("no content")?;
        ensure!(all_have(self.nodes, last)?, "a node has other content");
        Ok(())
    }

    async fn check(&mut self) -> Result<()> {
        check(self)
    }
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
            events: Events::new(seed),
            passwords: Vec::new(),
            delivery: CONFIG_FILE,
            files: Files::new()?,
            power: Power::new(cluster, nodes),
            oddities: Oddities::new(cluster),
            refusals: Refusals::new(cluster)?,
        })
    }

    fn change(&self, what: &str, patch: &Value) -> Result<()> {
        merge(self.cluster, what, patch)
    }

    fn configure(&self) -> Result<()> {
        limit(self.cluster, self.delivery)
    }

    /// Returns a new password.
    pub fn password(&mut self) -> String {
        let password = format!(
            "soak-{}-{:016x}",
            self.passwords.len(),
            self.events.random.u64(..)
        );
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
        let bad = bad[self.events.random.usize(..bad.len())];
        self.product.apply(bad)
    }

    /// The nodes begin to restore; some or all of them may finish.
    fn delete_and_apply(&mut self) -> Result<()> {
        self.product.delete()?;
        thread::sleep(self.events.below(20_000));
        let password = self.password();
        self.product.apply(&content(&password))?;
        self.configure()
    }

    fn pause_rollout(&self) -> Result<()> {
        self.change(CONFIG, &json!({"spec": {"rollout": {"paused": true}}}))
    }

    fn delete_config(&mut self) -> Result<()> {
        self.delete(CONFIG)?;
        self.configure()
    }

    fn change_secret(&mut self) -> Result<()> {
        let text = r#"{"auths":{"evil.example.com":{"auth":"ZXZpbDpldmls"}}}"#;
        let text = base64::prelude::BASE64_STANDARD.encode(text);
        self.change(SECRET, &json!({"data": {".dockerconfigjson": text}}))
    }

    fn rewrite_flags(&mut self) -> Result<()> {
        let node = self.running_node()?;
        self.events.detail = format!(" of {}", node.name());
        self.files.rewrite_flags(&node)
    }

    /// Switches to the other delivery.
    fn deliver(&mut self) -> Result<()> {
        self.delivery = if self.delivery == CONFIG_FILE {
            CREDENTIAL_PROVIDER
        } else {
            CONFIG_FILE
        };
        self.events.detail = format!(" to {}", self.delivery);
        let patch = json!({"spec": {"kubelet": {"delivery": self.delivery}}});
        self.change(CONFIG, &patch)
    }

    fn put_odd_value(&mut self, node: &Node) -> Result<()> {
        self.events.detail = self.oddities.put(&mut self.events.random, node.name())?;
        Ok(())
    }

    fn refuse_writes(&mut self, node: &Node) -> Result<()> {
        self.events.detail = self.refusals.begin(&mut self.events.random, node.name())?;
        Ok(())
    }

    fn kill(&mut self, process: &str) -> Result<()> {
        let node = self.running_node()?;
        let output = node.exec(&["pkill", "-KILL", "-x", process])?;
        ensure!(output.status.success(), "{} has none", node.name());
        Ok(())
    }

    fn delete_pod(&mut self, namespace: &str, label: &str) -> Result<()> {
        let pods = kubectl(
            self.cluster,
            &["get", "pods", "-n", namespace, "-l", label, "-o", "name"],
        )?;
        let pods: Vec<&str> = pods.split_whitespace().collect();
        ensure!(!pods.is_empty(), "there is no such pod");
        let pod = pods[self.events.random.usize(..pods.len())];
        kubectl(
            self.cluster,
            &["delete", pod, "-n", namespace, "--wait=false"],
        )?;
        Ok(())
    }

    fn kill_api_server(&mut self) -> Result<()> {
        let pause = self.events.below(8_000);
        self.cluster.restart_api_server(pause)
    }

    /// Other events happen while the API server is frozen.
    fn freeze_api_server(&mut self, node: &Node) -> Result<()> {
        self.cluster.signal("kube-apiserver", "STOP")?;
        let meanwhile = match self.events.random.u8(0..3) {
            0 => self.kill("globalps-syncer"),
            1 => self.kill("kubelet"),
            _ => self.files.write_entry(node),
        };
        thread::sleep(self.events.below(12_000));
        self.cluster.signal("kube-apiserver", "CONT")?;
        meanwhile
    }

    fn delete(&mut self, what: &str) -> Result<()> {
        kubectl(
            self.cluster,
            &["delete", what, "-n", NAMESPACE, "--wait=false"],
        )?;
        Ok(())
    }

    fn running_node(&mut self) -> Result<Node> {
        self.power.running(&mut self.events.random)
    }
}

fn object_of(node: &Node) -> String {
    format!("nodepullsecret/{}", node.name())
}
