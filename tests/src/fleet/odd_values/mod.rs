//! Odd values: whatever the API server accepts in a field of an object that others may write, only this object is affected. API
//! server, controller and plugin are real.

mod fields;

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use globalps_core::api::Attach;
use globalps_core::decode::Item;
use globalps_core::manifests::NamespaceAccess;
use globalps_core::names::{ADDITIONAL_SECRET, DATA_KEY, GLOBAL_SECRET};
use kube::api::{ApiResource, DynamicObject, GetParams, Patch, PatchParams, PostParams};
use kube::core::{GroupVersionKind, Request};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::sleep;

pub(super) use fields::node;
use fields::{difference, is_writable, leaves, properties, replaced, schema, values};

use super::stage::{CONTROLLER_NAMESPACE, Stage};
use crate::kubernetes;
use crate::product::NAMESPACE;

const SOON: Duration = Duration::from_secs(15);
/// An unreadable object is named within this time.
const NAMED: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(50);
const ODD: &str = "odd";
const CONTROLLER: &str = "globalps-controller";

/// What was tried.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tried {
    pub kinds: usize,
    pub fields: usize,
    pub values: usize,
    pub accepted: usize,
}

/// An object that others may write.
struct Target {
    kind: (&'static str, &'static str, &'static str),
    namespace: Option<&'static str>,
    name: &'static str,
    /// Fields whose meaning is not up to others.
    fixed: &'static [&'static str],
}

const CRD: &str = "globalps.io";
static TARGETS: [Target; 7] = [
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
        // Another holder leads.
        &["/spec/holderIdentity"],
    ),
];

const fn target(
    kind: (&'static str, &'static str, &'static str),
    namespace: Option<&'static str>,
    name: &'static str,
    fixed: &'static [&'static str],
) -> Target {
    Target {
        kind,
        namespace,
        name,
        fixed,
    }
}

pub fn run() -> Result<Tried> {
    let access = NamespaceAccess {
        secret_name: GLOBAL_SECRET.to_owned(),
        attach: Attach::Admission,
        detaches: false,
    };
    let stage = Stage::with("odd-values", Some(access))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let client = stage.admin_client().await?;
        Scene {
            stage: &stage,
            client,
            probes: 0,
        }
        .run()
        .await
    })
}

struct Scene<'a> {
    stage: &'a Stage,
    client: Client,
    probes: usize,
}

impl Scene<'_> {
    async fn run(&mut self) -> Result<Tried> {
        self.create("Node", None, node(ODD)).await?;
        self.create("Namespace", None, json!({"metadata": {"name": ODD}}))
            .await?;
        let account = json!({
            "metadata": {"name": ODD, "namespace": ODD, "labels": {"a": "b"}, "annotations": {"a": "b"}},
            "secrets": [{"name": "a"}], "imagePullSecrets": [{"name": "b"}], "automountServiceAccountToken": true,
        });
        self.create("ServiceAccount", Some(ODD), account).await?;
        let pid = self.stage.start_controller()?;
        let data = json!({"auths": {"r.example.com": {"auth": "dTpw"}}}).to_string();
        let secret = json!({
            "metadata": {"name": ADDITIONAL_SECRET, "namespace": NAMESPACE},
            "type": "kubernetes.io/dockerconfigjson", "stringData": {DATA_KEY: data},
        });
        self.create("Secret", Some(NAMESPACE), secret).await?;
        let config = target(
            (CRD, "v1alpha1", "GlobalPullSecret"),
            Some(NAMESPACE),
            GLOBAL_SECRET,
            &[],
        );
        let spec = json!({"spec": {"kubelet": {"delivery": "ConfigFile"}, "imagePullSecrets": {"enabled": true}}});
        self.patch(&config, &spec, false).await?;
        self.probe("at the start").await?;
        let mut tried = Tried::default();
        for target in &TARGETS {
            self.try_all(target, &mut tried).await?;
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

    /// Each value in each field of the object, as it is or as its schema has it.
    async fn try_all(&mut self, target: &Target, tried: &mut Tried) -> Result<()> {
        let kind = target.kind.2;
        let is_config = kind == "GlobalPullSecret";
        let before = self.get(target).await?;
        let mut paths = BTreeSet::new();
        leaves(&before, &mut String::new(), &mut paths);
        if let Some(schema) = schema(kind) {
            properties(&schema, &mut String::new(), &mut paths);
        }
        paths.retain(|path| is_writable(path) && !target.fixed.contains(&path.as_str()));
        ensure!(paths.len() > 3, "{kind} has no fields: {paths:?}");
        tried.kinds += 1;
        for path in paths {
            tried.fields += 1;
            let is_status = path.starts_with("/status");
            let mut accepted = 0;
            for value in values() {
                tried.values += 1;
                let now = self.get(target).await?;
                let patch = replaced(&now, &path, value);
                accepted += usize::from(self.patch(target, &patch, is_status).await.is_ok());
            }
            tried.accepted += accepted;
            if accepted > 0 && !is_config {
                self.probe(&format!("{kind} {path}")).await?;
            }
            // The controller may write it at the same time.
            for _ in 0..3 {
                let now = self.get(target).await?;
                for is_status in [false, true] {
                    let patch = difference(&now, &before, is_status);
                    let _ = self.patch(target, &patch, is_status).await;
                }
            }
            if accepted > 0 && is_config {
                self.probe(&format!("{kind} {path}, corrected")).await?;
            }
        }
        Ok(())
    }

    /// Without the bounds of their definitions, the objects of globalps are named, and nothing else is affected.
    async fn name_what_no_schema_refuses(&mut self) -> Result<()> {
        let [object, config] = ["NodePullSecret", "GlobalPullSecret"].map(|kind| {
            let found = TARGETS.iter().find(|target| target.kind.2 == kind);
            found.context(kind)
        });
        let (object, config) = (object?, config?);
        for plural in ["nodepullsecrets", "globalpullsecrets"] {
            self.forget_schema(plural).await?;
        }
        let odd = json!({"spec": {"revision": "many"}});
        self.patch_when_possible(object, &odd).await?;
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
        let odd = json!({"spec": {"rollout": {"maxUnavailable": 3_000_000_000_u32}}});
        self.patch_when_possible(config, &odd).await?;
        self.is_named("Ready", "GlobalPullSecret", "spec.rollout.maxUnavailable")
            .await?;
        let status = self.plugin(&["status", "-o", "json"])?;
        ensure!(
            status.to_string().contains("spec.rollout.maxUnavailable"),
            "{status}"
        );
        self.probe("an unreadable configuration").await?;
        self.patch(
            config,
            &json!({"spec": {"rollout": {"maxUnavailable": 1}}}),
            false,
        )
        .await?;
        self.probe("a corrected configuration").await
    }

    /// The condition has the reason `Unreadable`, and names the object and its field.
    async fn is_named(&self, type_: &str, object: &str, field: &str) -> Result<()> {
        let config = TARGETS
            .iter()
            .find(|target| target.kind.2 == "GlobalPullSecret");
        let config = config.context("the configuration")?;
        let begun = Instant::now();
        loop {
            let found = self.get(config).await?;
            let conditions = found["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            let condition = conditions.find(|condition| condition["type"] == type_);
            let message = condition.and_then(|found| found["message"].as_str());
            let message = message.unwrap_or_default();
            let is_unreadable = condition.is_some_and(|found| found["reason"] == "Unreadable");
            if is_unreadable && message.contains(object) && message.contains(field) {
                return Ok(());
            }
            ensure!(
                begun.elapsed() < NAMED,
                "{object} is not named: {condition:?}"
            );
            sleep(POLL).await;
        }
    }

    /// A new node gets its object, and a new namespace its Secret.
    async fn probe(&mut self, after: &str) -> Result<()> {
        self.probes += 1;
        let name = format!("probe-{}", self.probes);
        self.create("Node", None, node(&name)).await?;
        self.create("Namespace", None, json!({"metadata": {"name": name}}))
            .await?;
        let object = Api::namespaced_with(
            self.client.clone(),
            NAMESPACE,
            &resource((CRD, "v1alpha1", "NodePullSecret")),
        );
        self.exists(&object, &name, after).await?;
        let secret = resource(("", "v1", "Secret"));
        let secret = Api::namespaced_with(self.client.clone(), &name, &secret);
        self.exists(&secret, GLOBAL_SECRET, after).await
    }

    async fn exists(&self, api: &Api<Item<DynamicObject>>, name: &str, after: &str) -> Result<()> {
        let begun = Instant::now();
        while api.get_opt(name).await?.is_none() {
            let path = api.resource_url();
            ensure!(begun.elapsed() < SOON, "{after}: no {path}/{name}");
            sleep(POLL).await;
        }
        Ok(())
    }

    /// Lets the API server accept anything in objects of this kind.
    async fn forget_schema(&self, plural: &str) -> Result<()> {
        let crd = resource(("apiextensions.k8s.io", "v1", "CustomResourceDefinition"));
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &crd);
        let name = format!("{plural}.globalps.io");
        let found = api.get(&name).await?;
        let mut versions = found.data["spec"]["versions"].clone();
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        for version in versions.as_array_mut().into_iter().flatten() {
            version["schema"]["openAPIV3Schema"] = open.clone();
        }
        let patch = Patch::Merge(json!({"spec": {"versions": versions}}));
        api.patch(&name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// The API server takes a moment to use another schema.
    async fn patch_when_possible(&self, target: &Target, patch: &Value) -> Result<()> {
        let begun = Instant::now();
        loop {
            match self.patch(target, patch, false).await {
                Ok(()) => return Ok(()),
                Err(error) if begun.elapsed() > SOON => return Err(error),
                Err(_) => sleep(POLL).await,
            }
        }
    }

    fn plugin(&self, arguments: &[&str]) -> Result<Value> {
        let directory = kubernetes::target_dir().join("x86_64-unknown-linux-musl/release");
        let mut plugin = Command::new(directory.join("kubectl-globalps"));
        plugin
            .args(arguments)
            .env("KUBECONFIG", self.stage.cluster.kubeconfig());
        let output = plugin.output().context("run `make image` first")?;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        serde_json::from_slice(&output.stdout).context(error)
    }

    fn api(&self, kind: (&str, &str, &str), namespace: Option<&str>) -> Api<Item<DynamicObject>> {
        let client = self.client.clone();
        match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource(kind)),
            None => Api::all_with(client, &resource(kind)),
        }
    }

    async fn create(&self, kind: &str, namespace: Option<&str>, mut object: Value) -> Result<()> {
        object["apiVersion"] = json!("v1");
        object["kind"] = json!(kind);
        let object: DynamicObject = serde_json::from_value(object)?;
        let client = self.client.clone();
        let resource = resource(("", "v1", kind));
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        };
        api.create(&PostParams::default(), &object).await?;
        Ok(())
    }

    async fn get(&self, target: &Target) -> Result<Value> {
        let api = self.api(target.kind, target.namespace);
        let request = Request::new(api.resource_url());
        let request = request.get(target.name, &GetParams::default())?;
        Ok(self.client.request(request).await?)
    }

    async fn patch(&self, target: &Target, patch: &Value, is_status: bool) -> Result<()> {
        let api = self.api(target.kind, target.namespace);
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        if is_status {
            api.patch_status(target.name, &params, &patch).await?;
        } else {
            api.patch(target.name, &params, &patch).await?;
        }
        Ok(())
    }
}

fn resource((group, version, kind): (&str, &str, &str)) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}
