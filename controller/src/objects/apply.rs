//! Writes objects by server-side apply, and deletes them; each request has a deadline.

use std::fmt::Debug;

use globalps_core::api::{GlobalPullSecret, NodePullSecret, NodePullSecretSpec};
use globalps_core::decode::Item;
use globalps_core::names::{
    ABANDON_ANNOTATION, CONTROLLER_MANAGER, DATA_KEY, FORGET_ANNOTATION, GLOBAL_SECRET,
    LEADER_ANNOTATION, MAY_REPLACE_ANNOTATION, OPENSHIFT_ORIGINAL, ROLLED_OUT_SECRET, SECRET_TYPE,
    STATE_SECRET, history_secret,
};
use globalps_core::reasons::Reason;
use globalps_core::state::State;
use globalps_dockerconfig::DockerConfig;
use globalps_planner::content::history::{self, HistoryWrite, Kept};
use globalps_planner::content::secret::{self, GlobalWrite, RolledOutWrite};
use globalps_planner::refused::title;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::{ByteString, NamespaceResourceScope};
use kube::api::{
    Api, DeleteParams, ListParams, PartialObjectMeta, Patch, PatchParams, Preconditions,
};
use kube::{Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

pub(crate) use super::request::{ApplyError, is_absent, is_denied, readable, within};
use crate::objects::helm::HelmRelease;
use crate::objects::views::NodeFields;

pub(crate) struct Applier {
    client: Client,
    pub(super) namespace: String,
    pub(super) syncer_image: String,
    /// Holder identity of the Lease. The API server rejects assignments by others.
    leader: String,
    /// `None`: the controller was not installed with Helm.
    release: Option<HelmRelease>,
}

/// Annotations of a node's object. As applied values they are nobody else's, so the next write without them removes them.
#[derive(Clone, Debug)]
pub(crate) struct Notes {
    /// No later cleanup may finish without the node.
    pub(crate) ends_abandonment: bool,
    /// The node forgets content up to this revision.
    pub(crate) forgets: Option<i64>,
    /// The files of others that its syncer may replace.
    pub(crate) may_replace: Option<String>,
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

    /// `name`: where this delivery keeps it.
    pub(crate) async fn global_secret(
        &self,
        name: &str,
        write: &GlobalWrite,
    ) -> Result<Secret, ApplyError> {
        let mut secret = secret::encode(write);
        secret.metadata.name = Some(name.to_owned());
        secret.annotations_mut().extend([self.leader()]);
        self.secret(name, &secret).await
    }

    pub(crate) async fn rolled_out_secret(
        &self,
        write: &RolledOutWrite,
    ) -> Result<Secret, ApplyError> {
        let mut secret = secret::encode_rolled_out(write);
        secret.annotations_mut().extend([self.leader()]);
        self.secret(ROLLED_OUT_SECRET, &secret).await
    }

    pub(crate) async fn state_secret(&self, state: &State) -> Result<Secret, ApplyError> {
        let mut secret = state.secret();
        secret.annotations_mut().extend([self.leader()]);
        self.secret(STATE_SECRET, &secret).await
    }

    /// A Secret of the controller.
    pub(crate) async fn own_secret(
        &self,
        name: &str,
        mut secret: Secret,
    ) -> Result<Secret, ApplyError> {
        secret.annotations_mut().extend([self.leader()]);
        self.secret(name, &secret).await
    }

    /// The Secret that observers compare the nodes' files with.
    pub(crate) async fn delivered(&self, entries: &DockerConfig) -> Result<Secret, ApplyError> {
        let data = (DATA_KEY.to_owned(), ByteString(entries.render()));
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(GLOBAL_SECRET.to_owned()),
                ..ObjectMeta::default()
            },
            type_: Some(SECRET_TYPE.to_owned()),
            data: Some([data].into()),
            ..Secret::default()
        };
        self.own_secret(GLOBAL_SECRET, secret).await
    }

    /// Writes this document into `OpenShift`'s own pull secret, unless that has changed.
    pub(crate) async fn cluster_secret(
        &self,
        known: &Secret,
        document: Vec<u8>,
    ) -> Result<Secret, ApplyError> {
        let (namespace, name) = OPENSHIFT_ORIGINAL;
        let api: Api<Item<Secret>> = self.in_namespace(namespace);
        let params = PatchParams {
            field_manager: Some(CONTROLLER_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let body = json!({
            "metadata": {"uid": known.metadata.uid, "resourceVersion": known.metadata.resource_version},
            "data": {DATA_KEY: ByteString(document)},
        });
        let patch = Patch::Merge(&body);
        let object = format!("{namespace}/{name}");
        readable("write", "Secret", &object, api.patch(name, &params, &patch)).await
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
        self.secret(&history_secret(slot), &secret).await?;
        Ok(())
    }

    /// Writes the node's object. The Node owns it, so it is deleted with the Node.
    pub(crate) async fn assign(
        &self,
        node: &str,
        node_uid: &str,
        spec: &NodePullSecretSpec,
        notes: Notes,
    ) -> Result<NodePullSecret, ApplyError> {
        let mut object = NodePullSecret::new(node, spec.clone());
        let ended = (ABANDON_ANNOTATION.to_owned(), "false".to_owned());
        let forgets = notes.forgets;
        let forgets = forgets.map(|up_to| (FORGET_ANNOTATION.to_owned(), up_to.to_string()));
        let annotations = [self.leader()].into_iter().chain(forgets);
        let annotations = annotations.chain(notes.ends_abandonment.then_some(ended));
        let replaces = notes.may_replace;
        let annotations =
            annotations.chain(replaces.map(|found| (MAY_REPLACE_ANNOTATION.to_owned(), found)));
        object.metadata.annotations = Some(annotations.collect());
        object.metadata.owner_references = Some(vec![OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: node.to_owned(),
            uid: node_uid.to_owned(),
            ..OwnerReference::default()
        }]);
        self.apply(node, &object).await
    }

    /// Whether no other program owns the node's credentials file now, as the API server's newest version of the Node says.
    pub(crate) async fn is_file_free(&self, node: &str, uid: &str) -> Result<bool, ApplyError> {
        let api: Api<NodeFields> = Api::all(self.client.clone());
        let name = format!("metadata.name={node}");
        // The controller may list Nodes. Without a version the list is not from a cache.
        let params = ListParams::default().fields(&name);
        let found = within("read", "Node", node, api.list(&params)).await?;
        let mut found = found.items.iter();
        Ok(found.any(|it| it.uid().as_deref() == Some(uid) && it.file_owner().is_empty()))
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

    pub(super) async fn apply<K>(&self, name: &str, object: &K) -> Result<K, ApplyError>
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
    pub(super) async fn apply_body<K, B>(&self, name: &str, body: &B) -> Result<K, ApplyError>
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

    /// Deletes the object, if it exists, and if it is still this one. What finalizers keep is not gone: an error that names them.
    pub(super) async fn delete<K>(&self, name: &str, uid: Option<&str>) -> Result<(), ApplyError>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + DeserializeOwned
            + Debug,
    {
        // Its metadata says whether it is gone, even if the rest can't be decoded.
        let api: Api<Item<PartialObjectMeta<K>>> = self.api();
        let params = DeleteParams {
            preconditions: uid.map(|uid| Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: None,
            }),
            ..DeleteParams::background()
        };
        let kind = K::kind(&());
        let done = match within("delete", &kind, name, api.delete(name, &params)).await {
            Err(error) if error.is_absent() => return Ok(()),
            done => done?,
        };
        let left = done.left().and_then(|left| left.into_result().ok());
        match left.filter(|left| left.metadata.deletion_timestamp.is_some()) {
            Some(left) if !left.finalizers().is_empty() => Err(ApplyError::Prevented {
                action: "delete",
                object: title(&kind, name),
                reason: Reason::Terminating,
                message: format!(
                    "it can't be deleted while it has the finalizers {}, which other programs added",
                    left.finalizers().join(", ")
                ),
            }),
            _ => Ok(()),
        }
    }
}
