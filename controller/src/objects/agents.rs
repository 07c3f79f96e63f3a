//! Writes the objects of the syncer and the restorer one by one, and deletes what the controller created.

use std::collections::BTreeMap;
use std::fmt;

use globalps_core::api::{GlobalPullSecretSpec, NodePullSecret};
use globalps_core::manifests::{Agent, AgentObjects, SyncerObjects, syncer_objects};
use globalps_core::names::{ACCOUNT_ANNOTATION, CONTROLLER_MANAGER};
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
        ManagedObject { agent, kind }: ManagedObject,
        spec: &GlobalPullSecretSpec,
        account: &str,
        is_kept: bool,
    ) -> Result<LiveObject, ApplyError> {
        let SyncerObjects { syncer, restorer } = self.agent_objects(spec);
        let AgentObjects {
            service_account,
            role,
            role_binding,
            mut daemon_set,
        } = match agent {
            Agent::Syncer => syncer,
            Agent::Restorer => restorer,
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
                if let Some(spec) = &mut daemon_set.spec {
                    let metadata = spec.template.metadata.get_or_insert_default();
                    metadata.annotations = Some(annotations);
                }
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

    /// Deletes the object, if it exists, and returns which one it was.
    pub(crate) async fn remove(&self, object: Leftover) -> Result<Leftover, ApplyError> {
        match &object {
            Leftover::Managed(ManagedObject { agent, kind }) => {
                let name = agent.name();
                match kind {
                    ManagedKind::ServiceAccount => self.delete::<ServiceAccount>(name).await?,
                    ManagedKind::Role => self.delete::<Role>(name).await?,
                    ManagedKind::RoleBinding => self.delete::<RoleBinding>(name).await?,
                    ManagedKind::DaemonSet => self.delete::<DaemonSetView>(name).await?,
                }
            }
            Leftover::NodePullSecret(name) => self.delete::<NodePullSecret>(name).await?,
            Leftover::Secret(name) => self.delete::<Secret>(name).await?,
        }
        Ok(object)
    }
}
