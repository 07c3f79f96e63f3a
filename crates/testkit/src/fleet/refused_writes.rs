//! Refused writes: an admission webhook rejects the controller's writes of one object, or never responds to them. All other
//! writes happen meanwhile, and the status names the object. API server and controller are real, syncers are simulated.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use globalps_core::api::Attach;
use globalps_core::names::{CONTROLLER, GLOBAL_SECRET, RESTORER, REVISION_ANNOTATION, SYNCER};
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::odd_values::node;
use super::stage::{CONTROLLER_NAMESPACE, Stage};
use super::syncers::Syncers;
use crate::product::NAMESPACE;
use crate::refuser::{OF_CONTROLLER, REFUSER, Refused, Refuser};
use crate::rights::service_account;

const NODES: usize = 6;
const POLL: Duration = Duration::from_millis(100);
/// Time until the API server uses a webhook configuration after its creation or deletion.
const EFFECTIVE: Duration = Duration::from_millis(1500);
/// Time until everything that is not refused is written.
const SOON: Duration = Duration::from_secs(60);
/// Like [`SOON`], while a write without a response delays each of several reconciles by up to 10 s.
const LATER: Duration = Duration::from_secs(100);
/// Maximum backoff of a refused write, with a margin.
const RETRIED: Duration = Duration::from_secs(90);
/// Stands for the new node or namespace of the iteration.
const NEW: &str = "new";
/// Objects of an existing node, of a new one, and of a new namespace.
const REFUSED: [(&str, &str, &str); 3] = [
    ("nodepullsecrets", NAMESPACE, "node-2"),
    ("nodepullsecrets", NAMESPACE, NEW),
    ("secrets", NEW, GLOBAL_SECRET),
];
/// Objects whose writes also get no response.
const SILENT: [(&str, &str, &str); 4] = [
    REFUSED[0],
    ("secrets", NAMESPACE, GLOBAL_SECRET),
    REFUSED[2],
    ("daemonsets", NAMESPACE, SYNCER),
];

/// Refuses writes of every kind. Returns the number of cases.
pub fn run() -> Result<usize> {
    let stage = Stage::with("refused-writes", Some(Attach::Admission))?;
    let refuser = Refuser::start()?;
    crate::fleet::block_on(async {
        let mut scene = Scene {
            stage: &stage,
            client: stage.admin_client().await?,
            syncers: Vec::new(),
            refuser: &refuser,
            round: 0,
        };
        scene.start().await?;
        for refused in REFUSED {
            scene.refuse(refused, false).await?;
        }
        for (kind, name) in OF_CONTROLLER {
            scene.refuse((kind, NAMESPACE, name), false).await?;
        }
        for refused in SILENT {
            scene.refuse(refused, true).await?;
        }
        scene.make_immutable().await?;
        scene.fill_a_quota().await?;
        Ok(scene.round)
    })
}

struct Scene<'a> {
    stage: &'a Stage,
    client: Client,
    /// The syncers run until these are dropped.
    syncers: Vec<Syncers>,
    refuser: &'a Refuser,
    round: usize,
}

/// What is not as expected yet; empty if everything is.
type Missing = Vec<String>;

impl Scene<'_> {
    async fn start(&mut self) -> Result<()> {
        for at in 1..=NODES {
            self.add_node(&format!("node-{at}")).await?;
        }
        self.stage.start_controller()?;
        let spec = json!({"spec": {
            "kubelet": {"delivery": "ConfigFile"}, "imagePullSecrets": {"enabled": true},
            "rollout": {"maxUnavailable": "100%"},
        }});
        self.patch("globalpullsecrets", NAMESPACE, GLOBAL_SECRET, &spec)
            .await?;
        self.stage.write_password(self.round)?;
        let missing = async || self.missing(0, None).await;
        until("the first rollout", RETRIED, missing).await
    }

    /// Refuses the writes of one object while everything changes; then allows them.
    async fn refuse(
        &mut self,
        (kind, namespace, name): (&str, &str, &str),
        silent: bool,
    ) -> Result<()> {
        self.round += 1;
        let new = self.new_name();
        let of_round = |text: &str| {
            if text == NEW {
                new.clone()
            } else {
                text.to_owned()
            }
        };
        let (namespace, name) = (of_round(namespace), of_round(name));
        let case = format!("{kind} {namespace}/{name}, silent: {silent}");
        eprintln!("{case}");
        let title = if namespace == NAMESPACE {
            format!("{} `{name}`", resource(kind).kind)
        } else {
            namespace.clone()
        };
        let refused = Refused {
            kind,
            namespace,
            name,
        };
        self.block(&refused, silent).await?;
        let before = self.revision().await?;
        self.change(Some(&refused)).await?;
        let missing = async || self.missing(before, Some(&refused)).await;
        let soon = if silent { LATER } else { SOON };
        until(&case, soon, missing).await?;
        let is_shown = !["events", "globalpullsecrets"].contains(&kind);
        if is_shown && !refused.name.ends_with('-') {
            let is_named = async || self.unnamed(&title).await;
            until(&format!("{case}: named"), soon, is_named).await?;
        }
        self.allow().await?;
        let missing = async || self.missing(before, None).await;
        until(&format!("{case}: allowed"), RETRIED, missing).await
    }

    /// Fills a quota, so that it has no room for the object of a new node.
    async fn fill_a_quota(&mut self) -> Result<()> {
        self.round += 1;
        let (deleted, _) = OBJECTS[self.round % OBJECTS.len()];
        ensure!(deleted == "daemonsets", "a DaemonSet is to be restored");
        let before = self.revision().await?;
        let full = json!({"count/nodepullsecrets.globalps.io": "1"});
        let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": {"name": "full", "namespace": NAMESPACE}, "spec": {"hard": full}});
        self.stage.apply(&quota)?;
        // No controller runs that updates this status.
        let status = json!({"status": {"hard": full, "used": full}});
        let quotas = self.api("resourcequotas", NAMESPACE);
        let patch = Patch::Merge(&status);
        quotas
            .patch_status("full", &PatchParams::default(), &patch)
            .await?;
        sleep(EFFECTIVE).await;
        let refused = Refused {
            kind: "nodepullsecrets",
            namespace: NAMESPACE.to_owned(),
            name: self.new_name(),
        };
        self.change(Some(&refused)).await?;
        let missing = async || self.missing(before, Some(&refused)).await;
        until("a full quota", SOON, missing).await?;
        let title = format!("NodePullSecret `{}`", refused.name);
        until("a full quota: named", SOON, async || {
            self.unnamed(&title).await
        })
        .await?;
        quotas.delete("full", &DeleteParams::default()).await?;
        let missing = async || self.missing(before, None).await;
        until("no quota", RETRIED, missing).await
    }

    /// Makes the Secret with the content immutable, like another client.
    async fn make_immutable(&mut self) -> Result<()> {
        self.round += 1;
        let before = self.revision().await?;
        let immutable = json!({"immutable": true});
        self.patch("secrets", NAMESPACE, GLOBAL_SECRET, &immutable)
            .await?;
        self.change(None).await?;
        let missing = async || self.missing(before, None).await;
        until("an immutable Secret", SOON, missing).await
    }

    /// Name of the node and of the namespace that are new in this iteration.
    fn new_name(&self) -> String {
        format!("new-{}", self.round)
    }

    /// Changes password and configuration, adds a node and a namespace, and deletes another object of the syncers.
    async fn change(&mut self, refused: Option<&Refused<'_>>) -> Result<()> {
        self.stage.write_password(self.round)?;
        // The controller stores this field in its state.
        let spec = json!({"spec": {"historyLimit": 3 + self.round % 2}});
        self.patch("globalpullsecrets", NAMESPACE, GLOBAL_SECRET, &spec)
            .await?;
        // One after the other, because the controller restores an object that is often deleted only at intervals.
        let next = OBJECTS[self.round % OBJECTS.len()];
        let of_case =
            |(kind, name): &(&str, &str)| refused.is_some_and(|it| it.is(kind, NAMESPACE, name));
        for (kind, name) in OBJECTS.into_iter().filter(|it| *it == next || of_case(it)) {
            let api = self.api(kind, NAMESPACE);
            api.delete(name, &DeleteParams::default()).await?;
        }
        let new = self.new_name();
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": new}});
        self.stage.apply(&namespace)?;
        self.add_node(&new).await
    }

    async fn add_node(&mut self, name: &str) -> Result<()> {
        let mut object = node(name);
        object["apiVersion"] = json!("v1");
        object["kind"] = json!("Node");
        let object: DynamicObject = serde_json::from_value(object)?;
        let nodes: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource("nodes"));
        nodes.create(&PostParams::default(), &object).await?;
        let client = self.stage.syncer_client().await?;
        let syncers = Syncers::start(&[client], &[name.to_owned()]).await?;
        self.syncers.push(syncers);
        Ok(())
    }

    /// What is missing: every node must have a revision after this one, every namespace its Secret, and every object of
    /// the syncers must exist, except the refused object.
    async fn missing(&self, before: i64, refused: Option<&Refused<'_>>) -> Result<Missing> {
        let is_refused = |kind: &str, namespace: &str, name: &str| {
            refused.is_some_and(|it| it.is(kind, namespace, name))
        };
        let mut missing = Missing::new();
        let has_content = !is_refused("secrets", NAMESPACE, GLOBAL_SECRET);
        let revision = self.revision().await?;
        if has_content && revision <= before {
            missing.push(format!("a revision after {before}"));
        }
        let mut nodes: Vec<String> = (1..=NODES).map(|at| format!("node-{at}")).collect();
        nodes.extend((1..=self.round).map(|round| format!("new-{round}")));
        let objects = self.api("nodepullsecrets", NAMESPACE);
        for name in nodes
            .iter()
            .filter(|name| !is_refused("nodepullsecrets", NAMESPACE, name))
        {
            let object = objects.get_opt(name).await?;
            let has = object.map(|it| it.data["status"]["revision"].as_i64().unwrap_or_default());
            if has.is_none_or(|has| has_content && has < revision) {
                missing.push(format!("{name}: {has:?}"));
            }
        }
        for (kind, name) in OBJECTS {
            let exists = self.api(kind, NAMESPACE).get_opt(name).await?.is_some();
            if !exists && !is_refused(kind, NAMESPACE, name) {
                missing.push(format!("{kind} {name}"));
            }
        }
        let new = self.new_name();
        if self.round > 0 && !is_refused("secrets", &new, GLOBAL_SECRET) {
            let secret = self.api("secrets", &new).get_opt(GLOBAL_SECRET).await?;
            missing.extend(secret.is_none().then(|| format!("the Secret in {new}")));
        }
        Ok(missing)
    }

    /// The number of the newest revision.
    async fn revision(&self) -> Result<i64> {
        let secret = self
            .api("secrets", NAMESPACE)
            .get_opt(GLOBAL_SECRET)
            .await?;
        let annotation = secret.and_then(|it| it.annotations().get(REVISION_ANNOTATION).cloned());
        Ok(annotation.map_or(Ok(0), |annotation| annotation.parse())?)
    }

    /// The conditions, if they don't name the object.
    async fn unnamed(&self, title: &str) -> Result<Missing> {
        let api = self.api("globalpullsecrets", NAMESPACE);
        let config = api.get(GLOBAL_SECRET).await?;
        let conditions = config.data["status"]["conditions"].to_string();
        let is_named = conditions.contains(title);
        Ok((!is_named).then_some(conditions).into_iter().collect())
    }

    async fn block(&self, refused: &Refused<'_>, silent: bool) -> Result<()> {
        let user = service_account(CONTROLLER_NAMESPACE, CONTROLLER);
        let webhook = self.refuser.configuration(&[&user], refused, silent);
        self.stage.apply(&webhook)?;
        sleep(EFFECTIVE).await;
        Ok(())
    }

    async fn allow(&self) -> Result<()> {
        let kind = resource("validatingwebhookconfigurations");
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &kind);
        api.delete(REFUSER, &DeleteParams::default()).await?;
        sleep(EFFECTIVE).await;
        Ok(())
    }

    fn api(&self, kind: &str, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &resource(kind))
    }

    async fn patch(&self, kind: &str, namespace: &str, name: &str, patch: &Value) -> Result<()> {
        let api = self.api(kind, namespace);
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        Ok(())
    }
}

/// The objects of the syncers.
const OBJECTS: [(&str, &str); 5] = [
    ("daemonsets", SYNCER),
    ("daemonsets", RESTORER),
    ("serviceaccounts", SYNCER),
    ("roles", SYNCER),
    ("rolebindings", SYNCER),
];

impl Refused<'_> {
    /// Without its Role, the API server rejects a RoleBinding as well.
    fn is(&self, kind: &str, namespace: &str, name: &str) -> bool {
        let kind = if self.kind == "roles" && kind == "rolebindings" {
            "roles"
        } else {
            kind
        };
        (self.kind, &*self.namespace, &*self.name) == (kind, namespace, name)
    }
}

fn resource(plural: &str) -> ApiResource {
    let (group, version, kind) = match plural {
        "nodes" => ("", "v1", "Node"),
        "secrets" => ("", "v1", "Secret"),
        "serviceaccounts" => ("", "v1", "ServiceAccount"),
        "resourcequotas" => ("", "v1", "ResourceQuota"),
        "daemonsets" => ("apps", "v1", "DaemonSet"),
        "roles" => ("rbac.authorization.k8s.io", "v1", "Role"),
        "rolebindings" => ("rbac.authorization.k8s.io", "v1", "RoleBinding"),
        "nodepullsecrets" => ("globalps.io", "v1alpha1", "NodePullSecret"),
        "globalpullsecrets" => ("globalps.io", "v1alpha1", "GlobalPullSecret"),
        _ => (
            "admissionregistration.k8s.io",
            "v1",
            "ValidatingWebhookConfiguration",
        ),
    };
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

/// Waits until nothing is missing.
async fn until(
    what: &str,
    deadline: Duration,
    missing: impl AsyncFn() -> Result<Missing>,
) -> Result<()> {
    let begun = Instant::now();
    loop {
        let missing = missing().await.with_context(|| what.to_owned())?;
        if missing.is_empty() {
            eprintln!("    {what}: {:.1} s", begun.elapsed().as_secs_f32());
            return Ok(());
        }
        ensure!(begun.elapsed() < deadline, "{what}: missing: {missing:?}");
        sleep(POLL).await;
    }
}
