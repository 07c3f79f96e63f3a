//! Writes objects by server-side apply, and deletes them; each request has a deadline.

use std::collections::BTreeMap;
use std::fmt::Debug;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use globalps_core::api::{
    GlobalPullSecret, GlobalPullSecretSpec, NodePullSecret, NodePullSecretSpec,
};
use globalps_core::decode::Item;
use globalps_core::manifests::{Agent, AgentObjects, SyncerObjects, syncer_objects};
use globalps_core::names::{
    ACCOUNT_ANNOTATION, CONTROLLER_MANAGER, GLOBAL_SECRET, HISTORY_SLOTS, LEADER_ANNOTATION,
    ROLLED_OUT_SECRET, STATE_SECRET, history_secret,
};
use globalps_core::state::State;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::{Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::managed::{LiveObject, PerKind, PerObject};
pub(crate) use super::request::{ApplyError, readable, within};
use super::views::DaemonSetView;
use crate::content::history::{self, HistoryWrite, Kept};
use crate::content::secret::{self, GlobalWrite, RolledOutWrite};
use crate::objects::helm::HelmRelease;

const DELETES_AT_ONCE: usize = 16;

pub(crate) struct Applier {
    client: Client,
    namespace: String,
    syncer_image: String,
    /// Holder identity of the Lease. The API server rejects assignments by others.
    leader: String,
    /// `None`: the controller was not installed with Helm.
    release: Option<HelmRelease>,
}

impl Applier {
    pub(crate) fn new(
        client: Client,
        namespace: &str,
        syncer_image: &str,
        leader: &str,
        release: Option<HelmRelease>,
    ) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            syncer_image: syncer_image.to_owned(),
            leader: leader.to_owned(),
            release,
        }
    }

    pub(super) fn leader(&self) -> (String, String) {
        (LEADER_ANNOTATION.to_owned(), self.leader.clone())
    }

    pub(crate) async fn global_secret(&self, write: &GlobalWrite) -> Result<Secret, ApplyError> {
        let mut secret = secret::encode(write);
        secret.annotations_mut().extend([self.leader()]);
        self.apply(GLOBAL_SECRET, &secret).await
    }

    pub(crate) async fn rolled_out_secret(
        &self,
        write: &RolledOutWrite,
        owner: Option<String>,
    ) -> Result<Secret, ApplyError> {
        let mut secret = secret::encode_rolled_out(write, owner);
        secret.annotations_mut().extend([self.leader()]);
        self.apply(ROLLED_OUT_SECRET, &secret).await
    }

    pub(crate) async fn state_secret(&self, state: &State) -> Result<Secret, ApplyError> {
        let mut secret = state.secret();
        secret.annotations_mut().extend([self.leader()]);
        self.apply(STATE_SECRET, &secret).await
    }

    pub(crate) async fn forget_state(&self) -> Result<(), ApplyError> {
        self.delete::<Secret>(STATE_SECRET).await
    }

    pub(crate) async fn forget_rolled_out(&self) -> Result<(), ApplyError> {
        self.delete::<Secret>(ROLLED_OUT_SECRET).await
    }

    /// The slots of the history; `None`: empty.
    pub(crate) async fn history(&self, slots: u32) -> Result<Vec<Option<Kept>>, ApplyError> {
        let api: Api<Item<Secret>> = self.api();
        let mut kept = Vec::new();
        for slot in 0..slots {
            let name = history_secret(slot);
            let found = within("read", "Secret", &name, api.get_opt(&name)).await?;
            // One that can't be read has no content to keep.
            let found = found.and_then(|found| found.into_result().ok());
            kept.push(found.as_ref().map(history::decode));
        }
        Ok(kept)
    }

    pub(crate) async fn keep(&self, slot: u32, write: &HistoryWrite) -> Result<(), ApplyError> {
        let secret = history::encode(slot, write);
        self.apply(&history_secret(slot), &secret).await?;
        Ok(())
    }

    /// Deletes the slots from this one on.
    pub(crate) async fn forget_history(&self, from: u32) -> Result<(), ApplyError> {
        for slot in from..HISTORY_SLOTS {
            self.delete::<Secret>(&history_secret(slot)).await?;
        }
        Ok(())
    }

    /// Applies the syncer and the restorer with their permissions, and returns them as stored by the API server. The pods of the
    /// agents in `kept` keep their template, even if the configuration changed.
    pub(crate) async fn syncer(
        &self,
        spec: &GlobalPullSecretSpec,
        kept: &[Agent],
    ) -> Result<PerObject<LiveObject>, ApplyError> {
        let SyncerObjects { syncer, restorer } =
            syncer_objects(&self.namespace, &self.syncer_image, spec);
        let apply = |agent, objects| Box::pin(self.agent(agent, objects, kept.contains(&agent)));
        Ok(PerObject {
            syncer: apply(Agent::Syncer, syncer).await?,
            restorer: apply(Agent::Restorer, restorer).await?,
        })
    }

    async fn agent(
        &self,
        agent: Agent,
        objects: AgentObjects,
        is_kept: bool,
    ) -> Result<PerKind<LiveObject>, ApplyError> {
        let AgentObjects {
            service_account,
            role,
            role_binding,
            mut daemon_set,
        } = objects;
        let name = agent.name();
        let service_account = self.apply(name, &service_account).await?;
        let role = self.apply(name, &role).await?;
        let role_binding = self.apply(name, &role_binding).await?;
        // A pod's token is bound to its account: a recreated account needs new pods.
        let account = service_account.metadata.uid.clone().unwrap_or_default();
        let annotations: BTreeMap<String, String> =
            [(ACCOUNT_ANNOTATION.to_owned(), account)].into();
        let daemon_set: DaemonSetView = if is_kept {
            let template = json!({"metadata": {"annotations": annotations}});
            self.merge(name, &json!({"spec": {"template": template}}))
                .await?
        } else {
            if let Some(spec) = &mut daemon_set.spec {
                let metadata = spec.template.metadata.get_or_insert_default();
                metadata.annotations = Some(annotations);
            }
            self.apply_body(name, &daemon_set).await?
        };
        Ok(PerKind {
            service_account: LiveObject::of(&service_account.metadata),
            role: LiveObject::of(&role.metadata),
            role_binding: LiveObject::of(&role_binding.metadata),
            daemon_set: LiveObject::from(daemon_set),
        })
    }

    async fn merge(&self, name: &str, body: &Value) -> Result<DaemonSetView, ApplyError> {
        let api: Api<Item<DaemonSetView>> = self.api();
        let params = PatchParams {
            field_manager: Some(CONTROLLER_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(body);
        readable("patch", "DaemonSet", name, api.patch(name, &params, &patch)).await
    }

    /// Writes the node's object. The Node owns it, so it is deleted with the Node.
    pub(crate) async fn assign(
        &self,
        node: &str,
        node_uid: &str,
        spec: &NodePullSecretSpec,
    ) -> Result<NodePullSecret, ApplyError> {
        let mut object = NodePullSecret::new(node, spec.clone());
        object.metadata.annotations = Some([self.leader()].into());
        object.metadata.owner_references = Some(vec![OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: node.to_owned(),
            uid: node_uid.to_owned(),
            ..OwnerReference::default()
        }]);
        self.apply(node, &object).await
    }

    /// Creates the configuration with defaults, without changing an existing one.
    pub(crate) async fn default_config(&self) -> Result<GlobalPullSecret, ApplyError> {
        let metadata = self.release.as_ref().map(HelmRelease::metadata);
        let mut body = json!({
            "apiVersion": GlobalPullSecret::api_version(&()),
            "kind": GlobalPullSecret::kind(&()),
            "metadata": metadata.unwrap_or_else(|| json!({})),
            "spec": {},
        });
        body["metadata"]["name"] = GLOBAL_SECRET.into();
        self.apply_body(GLOBAL_SECRET, &body).await
    }

    /// Returns the object, if it is readable.
    pub(crate) async fn status(
        &self,
        status: &impl Serialize,
    ) -> Result<Option<GlobalPullSecret>, ApplyError> {
        let api: Api<Item<GlobalPullSecret>> = self.api();
        let body = json!({"status": status});
        let params = PatchParams {
            field_manager: Some(CONTROLLER_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(&body);
        let call = api.patch_status(GLOBAL_SECRET, &params, &patch);
        let written = within("write status of", "GlobalPullSecret", GLOBAL_SECRET, call).await?;
        Ok(written.into_result().ok())
    }

    /// Deletes the syncer and the restorer, with their objects.
    pub(crate) async fn remove_agents(
        &self,
        node_pull_secrets: &[String],
    ) -> Result<(), ApplyError> {
        for agent in Agent::ALL {
            self.delete::<DaemonSetView>(agent.name()).await?;
        }
        stream::iter(node_pull_secrets)
            .map(|node| self.delete::<NodePullSecret>(node))
            .buffer_unordered(DELETES_AT_ONCE)
            .try_collect::<()>()
            .await?;
        for agent in Agent::ALL {
            self.delete::<RoleBinding>(agent.name()).await?;
            self.delete::<Role>(agent.name()).await?;
            self.delete::<ServiceAccount>(agent.name()).await?;
        }
        Ok(())
    }

    /// Deletes everything that the controller created. The Secret is last: while it exists, a new leader continues the cleanup.
    pub(crate) async fn clean_up(&self, node_pull_secrets: &[String]) -> Result<(), ApplyError> {
        self.remove_agents(node_pull_secrets).await?;
        self.forget_history(0).await?;
        self.forget_rolled_out().await?;
        self.forget_state().await?;
        self.delete::<Secret>(GLOBAL_SECRET).await
    }

    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    pub(super) fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        self.in_namespace(&self.namespace)
    }

    pub(super) fn in_namespace<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn apply<K>(&self, name: &str, object: &K) -> Result<K, ApplyError>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + Serialize
            + DeserializeOwned
            + Debug,
    {
        self.apply_body(name, object).await
    }

    /// Forced: the controller manages every field in the body.
    async fn apply_body<K, B>(&self, name: &str, body: &B) -> Result<K, ApplyError>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + DeserializeOwned
            + Debug,
        B: Serialize + Debug,
    {
        let api: Api<Item<K>> = self.api();
        let params = PatchParams::apply(CONTROLLER_MANAGER).force();
        let patch = Patch::Apply(body);
        readable(
            "apply",
            &K::kind(&()),
            name,
            api.patch(name, &params, &patch),
        )
        .await
    }

    async fn delete<K>(&self, name: &str) -> Result<(), ApplyError>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + DeserializeOwned
            + Debug,
    {
        let api: Api<Item<K>> = self.api();
        let params = DeleteParams::background();
        match within("delete", &K::kind(&()), name, api.delete(name, &params)).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_code(404) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
