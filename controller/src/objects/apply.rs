//! Carries a plan out: each object by server-side apply or delete, each call under a deadline.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use globalps_core::api::{
    GlobalPullSecret, GlobalPullSecretSpec, GlobalPullSecretStatus, NodePullSecret,
    NodePullSecretSpec,
};
use globalps_core::manifests::{SyncerObjects, syncer_objects};
use globalps_core::names::{
    ACCOUNT_ANNOTATION, ADDITIONAL_PROVEN_ANNOTATION, CONTROLLER_MANAGER, DATA_KEY, GLOBAL_SECRET,
    HISTORY_SLOTS, LAST_ADDITIONAL_KEY, LAST_ORIGINAL_KEY, LAST_SOURCE_KEY_PREFIX,
    LEADER_ANNOTATION, PROVEN_ANNOTATION, REFUSED_ANNOTATION, REFUSED_KEY, REVISION_ANNOTATION,
    ROLLED_OUT_ANNOTATION, SECRET_TYPE, SYNCER, history_secret,
};
use k8s_openapi::ByteString;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::content::history::{Kept, revision};
use crate::content::resolve::{Data, Global};
use crate::nodes::plan::{GlobalWrite, HistoryWrite};
use crate::objects::managed::Created;

const TIMEOUT: Duration = Duration::from_secs(15);
const DELETES_AT_ONCE: usize = 16;

/// What was being done, to which object, and why it did not work. Never what was in the object.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApplyError {
    #[error("{action} {object}: {}", without_content(.source))]
    Api {
        action: &'static str,
        object: String,
        source: kube::Error,
    },
    #[error("{action} {object}: no answer from the API server within {} s", TIMEOUT.as_secs())]
    Timeout {
        action: &'static str,
        object: String,
    },
}

/// The error without anything of an answer that could not be read, which may hold credentials.
pub(crate) fn without_content(error: &kube::Error) -> String {
    match error {
        kube::Error::SerdeError(_) => "the API server's answer could not be read".to_owned(),
        other => other.to_string(),
    }
}

pub(crate) struct Applier {
    client: Client,
    namespace: String,
    syncer_image: String,
    /// Who we are. The API server refuses a grant of any other than the Lease names.
    leader: String,
}

impl Applier {
    pub(crate) fn new(client: Client, namespace: &str, syncer_image: &str, leader: &str) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            syncer_image: syncer_image.to_owned(),
            leader: leader.to_owned(),
        }
    }

    fn leader(&self) -> (String, String) {
        (LEADER_ANNOTATION.to_owned(), self.leader.clone())
    }

    pub(crate) async fn global_secret(&self, write: &GlobalWrite) -> Result<Secret, ApplyError> {
        let Global {
            revision,
            // The observed one; the new one is beside it.
            merged: _,
            last_additional,
            last_original,
            last_sources,
            proven,
            rolled_out,
            is_additional_proven,
            refused,
            refused_why,
        } = &write.global;
        let kept = [
            (LAST_ADDITIONAL_KEY, last_additional),
            (LAST_ORIGINAL_KEY, last_original),
            (REFUSED_KEY, refused),
        ];
        let annotations = [
            (REVISION_ANNOTATION, Some(revision.to_string())),
            (
                PROVEN_ANNOTATION,
                (*proven != 0).then(|| proven.to_string()),
            ),
            (
                ROLLED_OUT_ANNOTATION,
                rolled_out.map(|time| time.to_string()),
            ),
            (
                ADDITIONAL_PROVEN_ANNOTATION,
                is_additional_proven.then(|| "true".to_owned()),
            ),
            (REFUSED_ANNOTATION, refused_why.clone()),
        ];
        let annotations = annotations
            .into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), value?)));
        let mut data = vec![(DATA_KEY.to_owned(), ByteString(write.merged.render()))];
        data.extend(kept.into_iter().filter_map(|(key, source)| {
            let bytes = source.as_ref()?.0.clone()?;
            Some((key.to_owned(), ByteString(bytes)))
        }));
        data.extend(last_sources.iter().filter_map(|(name, source)| {
            let key = format!("{LAST_SOURCE_KEY_PREFIX}{name}");
            Some((key, ByteString(source.0.clone()?)))
        }));
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(GLOBAL_SECRET.to_owned()),
                annotations: Some(annotations.chain([self.leader()]).collect()),
                ..ObjectMeta::default()
            },
            type_: Some(SECRET_TYPE.to_owned()),
            data: Some(data.into_iter().collect()),
            ..Secret::default()
        };
        self.apply(GLOBAL_SECRET, &secret).await
    }

    /// What the slots of the history hold; `None`: the slot is empty.
    pub(crate) async fn history(&self, slots: u32) -> Result<Vec<Option<Kept>>, ApplyError> {
        let api: Api<Secret> = self.api();
        let mut kept = Vec::new();
        for slot in 0..slots {
            let name = history_secret(slot);
            let found = within("read", "Secret", &name, api.get_opt(&name)).await?;
            kept.push(found.map(|secret| {
                let revision = revision(&secret);
                let bytes = secret.data.and_then(|mut data| data.remove(DATA_KEY));
                Kept {
                    revision,
                    additional: Data(bytes.map(|bytes| bytes.0)),
                }
            }));
        }
        Ok(kept)
    }

    pub(crate) async fn keep(&self, slot: u32, write: &HistoryWrite) -> Result<(), ApplyError> {
        let bytes = write.additional.0.clone().unwrap_or_default();
        let annotations = [
            (REVISION_ANNOTATION, write.revision.to_string()),
            (ROLLED_OUT_ANNOTATION, write.rolled_out.to_string()),
        ];
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(history_secret(slot)),
                annotations: Some(
                    annotations
                        .map(|(key, value)| (key.to_owned(), value))
                        .into(),
                ),
                ..ObjectMeta::default()
            },
            type_: Some(SECRET_TYPE.to_owned()),
            data: Some([(DATA_KEY.to_owned(), ByteString(bytes))].into()),
            ..Secret::default()
        };
        self.apply(&history_secret(slot), &secret).await?;
        Ok(())
    }

    /// Empties the slots from this one on.
    pub(crate) async fn forget_history(&self, from: u32) -> Result<(), ApplyError> {
        for slot in from..HISTORY_SLOTS {
            self.delete::<Secret>(&history_secret(slot)).await?;
        }
        Ok(())
    }

    /// The syncer and its permissions, as they are then, in the order of [`PIECES`](crate::objects::managed::PIECES). On the way
    /// back (`restores`) the pods stay as they are, whatever became of the configuration meanwhile.
    pub(crate) async fn syncer(
        &self,
        spec: &GlobalPullSecretSpec,
        restores: bool,
    ) -> Result<[Created; 4], ApplyError> {
        let SyncerObjects {
            service_account,
            role,
            role_binding,
            mut daemon_set,
        } = syncer_objects(&self.namespace, &self.syncer_image, spec);
        let service_account = self.apply(SYNCER, &service_account).await?;
        let role = self.apply(SYNCER, &role).await?;
        let role_binding = self.apply(SYNCER, &role_binding).await?;
        // A pod's token is good for one account, and one that was made anew is another: its pods start anew too.
        let account = service_account.metadata.uid.clone().unwrap_or_default();
        let annotations: BTreeMap<String, String> =
            [(ACCOUNT_ANNOTATION.to_owned(), account)].into();
        let daemon_set = if restores {
            let template = json!({"metadata": {"annotations": annotations}});
            self.merge(SYNCER, &json!({"spec": {"template": template}}))
                .await?
        } else {
            if let Some(spec) = &mut daemon_set.spec {
                let metadata = spec.template.metadata.get_or_insert_default();
                metadata.annotations = Some(annotations);
            }
            self.apply(SYNCER, &daemon_set).await?
        };
        Ok([
            Created::of(&service_account.metadata),
            Created::of(&role.metadata),
            Created::of(&role_binding.metadata),
            Created::of(&daemon_set.metadata),
        ])
    }

    async fn merge(&self, name: &str, body: &Value) -> Result<DaemonSet, ApplyError> {
        let api: Api<DaemonSet> = self.api();
        let params = PatchParams {
            field_manager: Some(CONTROLLER_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(body);
        within("patch", "DaemonSet", name, api.patch(name, &params, &patch)).await
    }

    /// The node's object with this spec. It is owned by the Node, so that it goes with it.
    pub(crate) async fn grant(
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

    /// The configuration with defaults, where the user wrote none.
    pub(crate) async fn default_config(&self) -> Result<GlobalPullSecret, ApplyError> {
        let body = json!({
            "apiVersion": GlobalPullSecret::api_version(&()),
            "kind": GlobalPullSecret::kind(&()),
            "metadata": {"name": GLOBAL_SECRET},
            "spec": {},
        });
        self.apply_body(GLOBAL_SECRET, &body).await
    }

    pub(crate) async fn status(
        &self,
        status: &GlobalPullSecretStatus,
    ) -> Result<GlobalPullSecret, ApplyError> {
        let api: Api<GlobalPullSecret> = self.api();
        let body = json!({"status": status});
        let params = PatchParams {
            field_manager: Some(CONTROLLER_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(&body);
        let call = api.patch_status(GLOBAL_SECRET, &params, &patch);
        within("write status of", "GlobalPullSecret", GLOBAL_SECRET, call).await
    }

    /// Deletes everything that was created for the nodes. The Secret goes last: while it is there, a controller that
    /// starts anew knows that the work is not done.
    pub(crate) async fn clean_up(&self, node_pull_secrets: &[String]) -> Result<(), ApplyError> {
        self.delete::<DaemonSet>(SYNCER).await?;
        stream::iter(node_pull_secrets)
            .map(|node| self.delete::<NodePullSecret>(node))
            .buffer_unordered(DELETES_AT_ONCE)
            .try_collect::<()>()
            .await?;
        self.delete::<RoleBinding>(SYNCER).await?;
        self.delete::<Role>(SYNCER).await?;
        self.delete::<ServiceAccount>(SYNCER).await?;
        self.forget_history(0).await?;
        self.delete::<Secret>(GLOBAL_SECRET).await
    }

    fn api<K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
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

    /// Forced: what is in the body is ours wholly.
    async fn apply_body<K, B>(&self, name: &str, body: &B) -> Result<K, ApplyError>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + DeserializeOwned
            + Debug,
        B: Serialize + Debug,
    {
        let api: Api<K> = self.api();
        let params = PatchParams::apply(CONTROLLER_MANAGER).force();
        let patch = Patch::Apply(body);
        within(
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
        let api: Api<K> = self.api();
        let params = DeleteParams::background();
        match within("delete", &K::kind(&()), name, api.delete(name, &params)).await {
            Ok(_) => Ok(()),
            Err(ApplyError::Api {
                source: kube::Error::Api(status),
                ..
            }) if status.code == 404 => Ok(()),
            Err(error) => Err(error),
        }
    }
}

async fn within<T>(
    action: &'static str,
    kind: &str,
    name: &str,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, ApplyError> {
    let object = || format!("{kind} `{name}`");
    match tokio::time::timeout(TIMEOUT, call).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(source)) => Err(ApplyError::Api {
            action,
            object: object(),
            source,
        }),
        Err(_) => Err(ApplyError::Timeout {
            action,
            object: object(),
        }),
    }
}
