//! Odd values: whatever the API server accepts in a field of an object that others may write, only this object is
//! affected. API server, controller and plugin are real.

pub(crate) mod fields;
pub mod hub;
pub(in crate::fleet) mod objects;

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use globalps_core::api::Attach;
use globalps_core::names::{ADDITIONAL_SECRET, GLOBAL_SECRET};
use kube::Api;
use serde_json::{Value, json};

pub(super) use fields::node;
pub use objects::Tried;
use objects::{CRD, Objects, POLL, Probe, Target, resource, target, try_all};

use super::stage::{CONTROLLER_NAMESPACE, Stage};
use crate::product::{NAMESPACE, Product, pull_secret};
use crate::wait::retry;

/// Time until the status names an unreadable object.
const NAMED: Duration = crate::DEADLINE;
const ODD: &str = "odd";
const CONTROLLER: &str = "globalps-controller";

static TARGETS: [Target<'static>; 7] = [
    target(("", "v1", "Node"), None, ODD, &[]),
    target(("", "v1", "Namespace"), None, ODD, &[]),
    target(("", "v1", "ServiceAccount"), Some(ODD), ODD, &[]),
    target(("", "v1", "Secret"), Some(ODD), GLOBAL_SECRET, &[]),
    target(
        (CRD, "v1alpha1", "NodePullSecret"),
        Some(NAMESPACE),
        ODD,
        &[],
    ),
    target(
        (CRD, "v1alpha1", "GlobalPullSecret"),
        Some(NAMESPACE),
        GLOBAL_SECRET,
        &[],
    ),
    target(
        ("coordination.k8s.io", "v1", "Lease"),
        Some(CONTROLLER_NAMESPACE),
        CONTROLLER,
        // With another holder, another process leads.
        &["/spec/holderIdentity"],
    ),
];

pub fn run() -> Result<Tried> {
    let stage = Stage::with("odd-values", Some(Attach::Admission))?;
    crate::fleet::block_on(async {
        let client = stage.admin_client().await?;
        Scene {
            stage: &stage,
            objects: Objects { client },
            probes: 0,
        }
        .run()
        .await
    })
}

struct Scene<'a> {
    stage: &'a Stage,
    objects: Objects,
    probes: usize,
}

impl Scene<'_> {
    async fn run(&mut self) -> Result<Tried> {
        self.objects.create("Node", None, node(ODD)).await?;
        self.objects
            .create("Namespace", None, json!({"metadata": {"name": ODD}}))
            .await?;
        let account = json!({
            "metadata": {"name": ODD, "namespace": ODD, "labels": {"a": "b"}, "annotations": {"a": "b"}},
            "secrets": [{"name": "a"}], "imagePullSecrets": [{"name": "b"}], "automountServiceAccountToken": true,
        });
        self.objects
            .create("ServiceAccount", Some(ODD), account)
            .await?;
        let pid = self.stage.start_controller()?;
        let data = json!({"auths": {"r.example.com": {"auth": "dTpw"}}}).to_string();
        let secret = pull_secret(NAMESPACE, ADDITIONAL_SECRET, &data);
        self.objects
            .create("Secret", Some(NAMESPACE), secret)
            .await?;
        let config = target(
            (CRD, "v1alpha1", "GlobalPullSecret"),
            Some(NAMESPACE),
            GLOBAL_SECRET,
            &[],
        );
        let spec = json!({"spec": {"kubelet": {"delivery": "ConfigFile"}, "imagePullSecrets": {"enabled": true}}});
        self.objects.patch(&config, &spec, false).await?;
        self.probe("at the start").await?;
        let mut tried = Tried::default();
        for target in &TARGETS {
            // A configuration with odd values affects everything.
            let is_shared = target.kind.2 == "GlobalPullSecret";
            try_all(self, target, is_shared, &mut tried).await?;
        }
        self.name_what_no_schema_refuses().await?;
        // A new leader has no last readable version.
        self.stage.stop_controller()?;
        self.stage.start_controller()?;
        self.probe("by the next controller").await?;
        let log = self.stage.cluster.layout().log(CONTROLLER);
        let log = std::fs::read_to_string(log)?;
        ensure!(
            !log.contains("could not decode"),
            "a list or watch as a whole was not decoded (of {pid})"
        );
        Ok(tried)
    }

    /// Removes the bounds of the definitions: the controller then names unreadable objects of globalps, and nothing
    /// else is affected.
    async fn name_what_no_schema_refuses(&mut self) -> Result<()> {
        let [object, config] = ["NodePullSecret", "GlobalPullSecret"].map(|kind| {
            let found = TARGETS.iter().find(|target| target.kind.2 == kind);
            found.context(kind)
        });
        let (object, config) = (object?, config?);
        for plural in ["nodepullsecrets", "globalpullsecrets"] {
            self.objects.forget_schema(plural).await?;
        }
        let odd = json!({"spec": {"revision": "many"}});
        self.objects.patch_when_possible(object, &odd).await?;
        self.is_named("Degraded", &format!("{NAMESPACE}/{ODD}"), "spec.revision")
            .await?;
        self.probe("an unreadable NodePullSecret").await?;
        let status = self.plugin(&["status", "-o", "json"])?;
        let nodes = status["nodes"].as_array().context("nodes")?;
        let odd = nodes.iter().find(|node| node["name"] == ODD);
        ensure!(
            odd.is_some_and(|node| node["phase"] == "Unreadable"),
            "{nodes:?}"
        );
        let check = self.plugin(&["check", "-o", "json"])?.to_string();
        ensure!(
            check.contains(&format!("{NAMESPACE}/{ODD}")) && check.contains("spec.revision"),
            "{check}"
        );
        for (odd, field, corrected) in [
            (
                json!({"rollout": {"maxUnavailable": 3_000_000_000_u32}}),
                "spec.rollout.maxUnavailable",
                json!({"rollout": {"maxUnavailable": 1}}),
            ),
            // No node can have this label, so every node would be held, and the field not named.
            (
                json!({"nodeSelector": {"a b!!": "x"}}),
                "spec.nodeSelector",
                json!({"nodeSelector": {"a b!!": null}}),
            ),
        ] {
            let odd = json!({"spec": odd});
            self.objects.patch_when_possible(config, &odd).await?;
            self.is_named("Ready", "GlobalPullSecret", field).await?;
            let status = self.plugin(&["status", "-o", "json"])?;
            ensure!(status.to_string().contains(field), "{status}");
            self.probe("an unreadable configuration").await?;
            let corrected = json!({"spec": corrected});
            self.objects.patch(config, &corrected, false).await?;
            self.probe("a corrected configuration").await?;
        }
        Ok(())
    }

    /// Checks that the condition has the reason `Unreadable`, and names the object and its field.
    async fn is_named(&self, type_: &str, object: &str, field: &str) -> Result<()> {
        let config = TARGETS
            .iter()
            .find(|target| target.kind.2 == "GlobalPullSecret");
        let config = config.context("the configuration")?;
        retry(NAMED, POLL, async || {
            let found = self.objects.get(config).await?;
            let conditions = found["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            let condition = conditions.find(|condition| condition["type"] == type_);
            let message = condition.and_then(|found| found["message"].as_str());
            let message = message.unwrap_or_default();
            let is_unreadable = condition.is_some_and(|found| found["reason"] == "Unreadable");
            ensure!(
                is_unreadable && message.contains(object) && message.contains(field),
                "{object} is not named: {condition:?}"
            );
            Ok(())
        })
        .await
    }

    fn plugin(&self, arguments: &[&str]) -> Result<Value> {
        let mut plugin = Command::new(Product::plugin_path());
        plugin
            .args(arguments)
            .env("KUBECONFIG", self.stage.cluster.kubeconfig());
        let output = plugin.output().context("run `make image` first")?;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        serde_json::from_slice(&output.stdout).context(error)
    }
}

impl Probe for Scene<'_> {
    fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Checks that a new node gets its object, and a new namespace its Secret, and that the plugin can read the other objects.
    async fn probe(&mut self, after: &str) -> Result<()> {
        self.probes += 1;
        let name = format!("probe-{}", self.probes);
        self.objects.create("Node", None, node(&name)).await?;
        self.objects
            .create("Namespace", None, json!({"metadata": {"name": name}}))
            .await?;
        let object = Api::namespaced_with(
            self.objects.client.clone(),
            NAMESPACE,
            &resource((CRD, "v1alpha1", "NodePullSecret")),
        );
        self.objects.exists(&object, &name, after).await?;
        let secret = resource(("", "v1", "Secret"));
        let secret = Api::namespaced_with(self.objects.client.clone(), &name, &secret);
        self.objects.exists(&secret, GLOBAL_SECRET, after).await?;
        let status = self.plugin(&["status", "-o", "json"])?;
        let nodes = status["nodes"].as_array().context("nodes")?;
        ensure!(
            nodes.iter().any(|node| node["name"] == *name),
            "{after}: the plugin shows no {name}: {nodes:?}"
        );
        Ok(())
    }
}
