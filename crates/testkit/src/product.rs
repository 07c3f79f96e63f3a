//! globalps on a test cluster, installed as a user installs it, and helpers for tests of it.

mod objects;

use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
pub(crate) use objects::condition;
pub use objects::{CONFIG, configuration, is_about_its_spec, merge, pull_secret, reconfigure};
use serde_json::{Value, json};

use crate::programs::release_path;
pub use crate::run::{Ran, run};
use crate::secrecy::{self, Search};
pub use crate::wait::DEADLINE;
use crate::{Access, Cluster, Node, kubernetes, until};

/// Namespace of globalps.
pub const NAMESPACE: &str = "kube-system";
/// The Secret that a user writes.
pub const ADDITIONAL: &str = "additional-pull-secret";
const POLL: Duration = Duration::from_millis(100);
/// Maximum time until the journal contains a failed start.
const JOURNAL: Duration = Duration::from_secs(3);
/// Length of an `InvocationID`.
const INVOCATION: usize = 32;

/// globalps on a cluster.
pub struct Product<'a> {
    cluster: &'a Cluster,
}

/// The shipped, static credential provider.
pub fn provider_path() -> PathBuf {
    release_path(globalps_provider::BINARY)
}

impl<'a> Product<'a> {
    /// Pushes both images into the open registry and installs with the plugin. Needs the output of `make image`.
    pub fn install(cluster: &'a Cluster) -> Result<Self> {
        Self::install_with(cluster, &[])
    }

    /// Like [`Self::install`], with additional flags.
    pub fn install_with(cluster: &'a Cluster, flags: &[&str]) -> Result<Self> {
        let product = Self { cluster };
        product.install_again(flags)?;
        Ok(product)
    }

    /// Runs `install` again with these flags.
    pub fn install_again(&self, flags: &[&str]) -> Result<()> {
        let controller = self.push("globalps-controller")?;
        let syncer = self.push("globalps-syncer")?;
        let images = [
            "install",
            "--apply",
            "--controller-image",
            &controller,
            "--syncer-image",
            &syncer,
        ];
        let ran = self.plugin(&[&images, flags].concat(), "")?;
        ensure!(ran.code == Some(0), "install failed: {}", ran.stderr);
        Ok(())
    }

    /// Attaches to a cluster on which globalps is installed.
    pub fn attach(cluster: &'a Cluster) -> Self {
        Self { cluster }
    }

    fn push(&self, name: &str) -> Result<String> {
        let archive = kubernetes::target_dir().join(format!("images/{name}.tar"));
        ensure!(
            archive.exists(),
            "`{}` is missing: run `make image`",
            archive.display()
        );
        self.cluster
            .registry()
            .push(&archive, Access::Open, &format!("{name}:test"))
    }

    /// The shipped, static plugin.
    pub fn plugin_path() -> PathBuf {
        release_path("kubectl-globalps")
    }

    /// Runs the plugin as the cluster's admin; `input` is its standard input.
    pub fn plugin(&self, args: &[&str], input: &str) -> Result<Ran> {
        let mut command = Command::new(Self::plugin_path());
        command
            .args(args)
            .env("KUBECONFIG", self.cluster.kubeconfig());
        run(&mut command, input)
    }

    /// Runs the plugin with the words of this line, as a user types them.
    ///
    /// # Panics
    ///
    /// If it can't be run, or shows a credential.
    pub fn types(&self, line: &str, input: &str) -> Ran {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ran = self.plugin(&words, input);
        ran.unwrap_or_else(|error| panic!("{error:#}"))
    }

    /// Like [`Self::types`], without input: the plugin must exit with this status.
    ///
    /// # Panics
    ///
    /// If it exits with another one.
    pub fn ends(&self, line: &str, code: i32) -> Ran {
        let ran = self.types(line, "");
        assert_eq!(ran.code, Some(code), "{line}: {ran:?}");
        ran
    }

    /// Runs `kubectl apply` for the additional Secret with this content. The type is `Opaque` if the API server would
    /// otherwise reject the content.
    pub fn apply(&self, content: &str) -> Result<()> {
        secrecy::remember_file(content);
        let valid_json =
            serde_json::from_str::<Value>(content).is_ok_and(|value| value.is_object());
        let type_ = if valid_json {
            "kubernetes.io/dockerconfigjson"
        } else {
            "Opaque"
        };
        self.apply_secret(&json!({"type": type_, "stringData": {".dockerconfigjson": content}}))
    }

    /// Runs `kubectl apply` for the additional Secret with this body.
    pub fn apply_secret(&self, body: &Value) -> Result<()> {
        let mut secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": ADDITIONAL, "namespace": NAMESPACE},
        });
        for (name, value) in body.as_object().context("a body")? {
            secret[name] = value.clone();
        }
        self.cluster.apply(&secret)
    }

    /// Runs `kubectl delete` for the additional Secret, which need not exist.
    pub fn delete(&self) -> Result<()> {
        self.cluster.kubectl_line(&format!(
            "delete secret {ADDITIONAL} -n {NAMESPACE} --ignore-not-found"
        ))?;
        Ok(())
    }

    /// Waits until the additional Secret's rollout is complete or, after a deletion, until everything is removed.
    pub fn wait_clean(&self) -> Result<()> {
        until(
            "everything that globalps created to be deleted",
            DEADLINE,
            POLL,
            || {
                for what in [
                    "nodepullsecrets",
                    "daemonset/global-pull-secret-syncer",
                    "daemonset/global-pull-secret-restorer",
                    "secret/global-pull-secret",
                ] {
                    let found = self.get(what)?;
                    if !found.is_null() && found["items"] != json!([]) {
                        return Ok(None);
                    }
                }
                Ok(Some(()))
            },
        )
    }

    /// An object, or the list of a kind, in the namespace of globalps; see [`Cluster::get`].
    pub fn get(&self, what: &str) -> Result<Value> {
        self.cluster.get(NAMESPACE, what)
    }

    /// Status of the `GlobalPullSecret`.
    pub fn status(&self) -> Result<Value> {
        Ok(self.get(CONFIG)?["status"].clone())
    }

    /// The revision in force.
    pub fn revision(&self) -> Result<i64> {
        let status = self.status()?;
        status["revision"].as_i64().context("no revision")
    }

    /// Status, reason and message of one of its conditions.
    pub fn condition(&self, type_: &str) -> Result<(String, String, String)> {
        Ok(condition(&self.status()?, type_))
    }

    /// Waits until the status is about the current additional Secret and the current spec, and the condition has this status.
    pub fn wait_condition(&self, type_: &str, wanted: &str) -> Result<(String, String, String)> {
        let what = format!("condition {type_}={wanted}");
        self.wait_until(&what, type_, |(status, _, _)| status == wanted)
    }

    fn wait_until(
        &self,
        what: &str,
        type_: &str,
        is_there: impl Fn(&(String, String, String)) -> bool,
    ) -> Result<(String, String, String)> {
        let waited = until(what, DEADLINE, POLL, || {
            let secret = self.get(&format!("secret/{ADDITIONAL}"))?;
            let version = secret["metadata"]["resourceVersion"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            let config = self.get(CONFIG)?;
            let status = &config["status"];
            let seen =
                status["observedAdditional"] == version.as_str() && is_about_its_spec(&config);
            let condition = condition(status, type_);
            Ok((seen && is_there(&condition)).then_some(condition))
        });
        waited.with_context(|| format!("status: {}", self.status().unwrap_or_default()))
    }

    /// Waits until every node has the content of the current additional Secret. A rollout completes without nodes that are not
    /// Ready. On a slow machine a node is not Ready for some seconds after its kubelet starts, and the condition then names it.
    pub fn wait_synced(&self) -> Result<()> {
        let on_each = |(status, _, message): &(String, String, String)| {
            status == "True" && !message.contains("NotReady")
        };
        self.wait_until("every node to be synced", "Ready", on_each)
            .map(|_| ())
    }

    /// Like [`Self::wait_synced`], and waits until the node has the revision. The condition alone says nothing about
    /// other sources: it is written after the assignment, and the node's file may already have the new content.
    pub fn wait_node_synced(&self, node: &str) -> Result<()> {
        self.wait_synced()?;
        until("the node to be synced", DEADLINE, POLL, || {
            let found = self.get(&format!("nodepullsecret/{node}"))?;
            let status = &found["status"];
            let is_newest = status["revision"] == self.status()?["revision"];
            let is_synced = is_about_its_spec(&found) && status["phase"] == "Synced";
            Ok((is_synced && is_newest).then_some(()))
        })
    }

    /// Waits until the condition has this reason. Returns its message.
    pub fn wait_reason(&self, type_: &str, reason: &str) -> Result<String> {
        until(&format!("{type_}: {reason}"), DEADLINE, POLL, || {
            let (_, found, message) = self.condition(type_)?;
            Ok((found == reason).then_some(message))
        })
        .with_context(|| format!("{:?}", self.condition(type_)))
    }

    /// Waits until the node reports this phase. Returns its status.
    pub fn wait_phase(&self, node: &Node, phase: &str) -> Result<Value> {
        let what = format!("{} is {phase}", node.name());
        until(&what, DEADLINE, POLL, || {
            let status = self.node_status(node.name())?;
            Ok((status["phase"] == phase).then_some(status))
        })
        .with_context(|| format!("{:?}", self.node_status(node.name())))
    }

    /// Waits until each of these nodes has the content by this delivery.
    pub fn wait_delivered(&self, nodes: &[Node], delivery: &str) -> Result<()> {
        let statuses = || -> Result<Vec<Value>> {
            let nodes = nodes.iter().map(|node| self.node_status(node.name()));
            nodes.collect()
        };
        let is_delivered = |it: &Value| it["delivery"] == delivery && it["phase"] == "Synced";
        until(&format!("delivery by {delivery}"), DEADLINE, POLL, || {
            let is_ready = self.condition("Ready")?.0 == "True";
            Ok((is_ready && statuses()?.iter().all(is_delivered)).then_some(()))
        })
        .with_context(|| format!("{:#?} {:#?}", statuses(), self.status()))
    }

    /// Status of a node's `NodePullSecret`.
    pub fn node_status(&self, node: &str) -> Result<Value> {
        Ok(self.get(&format!("nodepullsecret/{node}"))?["status"].clone())
    }

    /// Creates a pod with the image on the node; replaces an existing pod.
    pub fn start_pod(&self, name: &str, image: &str, node: &str) -> Result<()> {
        self.delete_pod(name)?;
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {
                "nodeName": node, "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": image, "imagePullPolicy": "Always"}],
            },
        });
        self.cluster.kubectl_with(&["apply", "-f", "-"], &pod)?;
        Ok(())
    }

    pub fn delete_pod(&self, name: &str) -> Result<()> {
        self.cluster.kubectl_line(&format!(
            "delete pod {name} --ignore-not-found --grace-period=0 --force"
        ))?;
        Ok(())
    }

    /// Waits until the pod runs or, with `refused`, until its image cannot be pulled; then returns the registry's
    /// message.
    pub fn wait_pod(&self, name: &str, refused: bool) -> Result<String> {
        let what = format!("pod {name} {}", if refused { "refused" } else { "running" });
        until(&what, DEADLINE, POLL, || {
            let pod = self.cluster.get("default", &format!("pod/{name}"))?;
            ensure!(!pod.is_null(), "the pod does not exist");
            if !refused {
                return Ok((pod["status"]["phase"] == "Running").then(String::new));
            }
            let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
            let message = waiting["message"].as_str().unwrap_or_default();
            // The first state only lasts until the kubelet processes the pod again.
            let is_refused =
                waiting["reason"] == "ErrImagePull" || waiting["reason"] == "ImagePullBackOff";
            Ok(is_refused.then(|| message.to_owned()))
        })
        .with_context(|| {
            let pod = self.cluster.get("default", &format!("pod/{name}"));
            format!("{:#}", pod.unwrap_or_default()["status"])
        })
    }

    /// Number of starts of the node's kubelet since the node booted, from systemd's journal.
    pub fn kubelet_starts(&self, node: &Node) -> Result<usize> {
        // systemd's MESSAGE_ID of "unit started".
        const STARTED: &str = "39f53479d3a045ac8e11786248231fbf";
        let show = [
            "systemctl",
            "show",
            "--property=InvocationID,ActiveState",
            "--value",
            "kubelet.service",
        ];
        let journal = [
            "journalctl",
            "-u",
            "kubelet.service",
            "-o",
            "json",
            "--no-pager",
        ];
        let begun = Instant::now();
        loop {
            node.exec(&["journalctl", "--sync"])?.ok()?;
            let unit = node.exec(&show)?.ok()?;
            let is_active = unit.lines().any(|line| line == "active");
            let invocation = unit.lines().find(|line| line.len() == INVOCATION);
            let invocation = invocation.unwrap_or_default();
            let journal = node.exec(&journal)?.ok()?;
            let starts = journal.lines().filter(|line| line.contains(STARTED));
            // On a busy machine the journal can lag by more than a few seconds, and `--sync` does not wait for messages
            // still in its socket. A start that failed before the program ran has no message.
            let is_complete = starts.clone().any(|line| line.contains(invocation));
            if is_complete || !is_active && begun.elapsed() > JOURNAL {
                return Ok(starts.count());
            }
            ensure!(
                begun.elapsed() < DEADLINE,
                "the journal has no message of the kubelet's start {invocation}"
            );
            sleep(POLL);
        }
    }

    /// Like [`Self::kubelet_starts`], for each of these nodes.
    pub fn starts(&self, nodes: &[Node]) -> Result<Vec<usize>> {
        nodes.iter().map(|node| self.kubelet_starts(node)).collect()
    }

    /// Number of starts of each node's kubelet since `before`.
    pub fn more_starts(&self, nodes: &[Node], before: &[usize]) -> Result<Vec<usize>> {
        let now = self.starts(nodes)?;
        Ok(now.iter().zip(before).map(|(now, it)| now - it).collect())
    }

    /// Fails if one of these texts is in a log, an event, a status or a readable file.
    pub fn assert_never_shown(&self, secrets: &[&str]) -> Result<()> {
        Search::for_some(secrets).cluster(self.cluster)
    }
}
