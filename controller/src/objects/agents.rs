//! Writes the objects of the syncer and the restorer one by one, and deletes what the controller created.

use std::collections::BTreeMap;
use std::fmt;

use globalps_core::api::{GlobalPullSecretSpec, NodePullSecret};
use globalps_core::names::{ACCOUNT_ANNOTATION, CONTROLLER_MANAGER};
use globalps_core::reasons::Reason;
use globalps_manifests::{Agent, AgentObjects, SyncerObjects, syncer_objects};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use super::apply::{Applier, ApplyError, within};
use super::managed::{LiveObject, ManagedKind, ManagedObject};
use super::recreate::write_or_recreate;
use super::views::DaemonSetView;

/// An object that the controller created and deletes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Leftover {
    Managed(ManagedObject),
    NodePullSecret(String),
    Secret(String),
}

/// How far a deletion got: as far as that of the object that is least far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Removal {
    Refused,
    /// Deleted, but finalizers of other programs keep some. Such an object says nothing about a node.
    Kept,
    Gone,
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Managed(object) => object.fmt(f),
            Self::NodePullSecret(name) => write!(f, "NodePullSecret `{name}`"),
            Self::Secret(name) => write!(f, "Secret `{name}`"),
        }
    }
}

impl Applier {
    /// Applies one object of the syncer or the restorer, and returns it as stored by the API server. `account`: uid of the service
    /// account of the pods. `is_kept`: the pods keep their template, even if the configuration changed.
    pub(crate) async fn managed_object(
        &self,
        object: ManagedObject,
        spec: &GlobalPullSecretSpec,
        account: &str,
        is_kept: bool,
    ) -> Result<LiveObject, ApplyError> {
        let live = self.apply_managed(object, spec, account, is_kept).await?;
        if !live.is_being_deleted {
            return Ok(live);
        }
        tracing::warn!(%object, "another client is deleting it; recreating it");
        // In the background: a deletion in the foreground would wait for the pods of nodes that are off.
        let uid = Some(live.fingerprint.uid());
        Box::pin(self.delete_managed(object, uid)).await?;
        let live = Box::pin(self.apply_managed(object, spec, account, false)).await?;
        if live.is_being_deleted {
            return Err(ApplyError::Prevented {
                action: "write",
                object: object.to_string(),
                reason: Reason::Terminating,
                message: "another program keeps deleting it".to_owned(),
            });
        }
        Ok(live)
    }

    async fn delete_managed(
        &self,
        ManagedObject { agent, kind }: ManagedObject,
        uid: Option<&str>,
    ) -> Result<(), ApplyError> {
        let name = agent.name();
        match kind {
            ManagedKind::ServiceAccount => self.delete::<ServiceAccount>(name, uid).await,
            ManagedKind::Role => self.delete::<Role>(name, uid).await,
            ManagedKind::RoleBinding => self.delete::<RoleBinding>(name, uid).await,
            ManagedKind::DaemonSet => self.delete::<DaemonSet>(name, uid).await,
        }
    }

    async fn apply_managed(
        &self,
        ManagedObject { agent, kind }: ManagedObject,
        spec: &GlobalPullSecretSpec,
        account: &str,
        is_kept: bool,
    ) -> Result<LiveObject, ApplyError> {
        let SyncerObjects {
            syncer,
            restorer,
            observer,
        } = self.agent_objects(spec);
        let AgentObjects {
            service_account,
            role,
            role_binding,
            mut daemon_set,
        } = match agent {
            Agent::Syncer => syncer,
            Agent::Restorer => restorer,
            Agent::Observer => observer,
        };
        let name = agent.name();
        // A pod's token is bound to its account: a recreated account needs new pods.
        let annotations = BTreeMap::from([(ACCOUNT_ANNOTATION.to_owned(), account.to_owned())]);
        Ok(match kind {
            ManagedKind::ServiceAccount => {
                LiveObject::of(&self.apply(name, &service_account).await?.metadata)
            }
            ManagedKind::Role => LiveObject::of(&self.apply(name, &role).await?.metadata),
            ManagedKind::RoleBinding => {
                let api: Api<RoleBinding> = self.api();
                let write = || self.apply(name, &role_binding);
                let found = write_or_recreate(&api, name, name, &self.required(), write).await?;
                LiveObject::of(&found.metadata)
            }
            ManagedKind::DaemonSet if is_kept => {
                let template = json!({"metadata": {"annotations": annotations}});
                self.merge(name, &json!({"spec": {"template": template}}))
                    .await?
                    .into()
            }
            ManagedKind::DaemonSet => {
                daemon_set["spec"]["template"]["metadata"]["annotations"] = json!(annotations);
                let api: Api<DaemonSetView> = self.api();
                let write = || self.apply_body::<DaemonSetView, _>(name, &daemon_set);
                write_or_recreate(&api, name, name, &self.required(), write)
                    .await?
                    .into()
            }
        })
    }

    fn agent_objects(&self, spec: &GlobalPullSecretSpec) -> SyncerObjects {
        syncer_objects(&self.namespace, &self.syncer_image, spec)
    }

    async fn merge(&self, name: &str, body: &Value) -> Result<DaemonSetView, ApplyError> {
        let api: Api<DaemonSetView> = self.api();
        let params = PatchParams {
            field_manager: Some(CONTROLLER_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(body);
        within("patch", "DaemonSet", name, api.patch(name, &params, &patch)).await
    }

    /// Deletes the object, if it exists, and returns which one it was. An error while finalizers keep it.
    pub(crate) async fn remove(&self, object: Leftover) -> Result<Leftover, ApplyError> {
        match &object {
            Leftover::Managed(object) => self.delete_managed(*object, None).await?,
            Leftover::NodePullSecret(name) => self.delete::<NodePullSecret>(name, None).await?,
            Leftover::Secret(name) => self.delete::<Secret>(name, None).await?,
        }
        Ok(object)
    }
}
