//! Replaces an object whose immutable fields another client has set, with the content that the controller has.

use std::fmt::Debug;

use globalps_core::decode::Item;
use globalps_core::names::CONTROLLER_MANAGER;
use globalps_core::reasons::Reason;
use globalps_planner::refused::title;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::apply::{Applier, ApplyError, readable, within};
use super::stored::Deviation;

/// Writes the object. If it is immutable, deletes it and writes it again. `title`: its name in messages. `annotations`: those that
/// a policy requires of each write.
pub(crate) async fn write_or_recreate<K, T, F>(
    api: &Api<K>,
    name: &str,
    title: &str,
    annotations: &Value,
    mut write: impl FnMut() -> F,
) -> Result<T, ApplyError>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + Debug,
    F: Future<Output = Result<T, ApplyError>>,
{
    // Boxed: each request is large, and most are never made.
    let error = match Box::pin(write()).await {
        Err(error) if error.is_immutable() => error,
        done => return done,
    };
    let kind = K::kind(&());
    // The response has its uid and version. Not every such object may be read.
    let body = json!({"metadata": {"annotations": annotations}});
    let (params, patch) = (PatchParams::default(), Patch::Merge(&body));
    let call = api.patch_metadata(name, &params, &patch);
    match Box::pin(within("patch", &kind, title, call)).await {
        Err(error) if error.is_absent() => {}
        found => {
            let found = found?;
            tracing::warn!(%error, "another client made it immutable; recreating it");
            let params = DeleteParams {
                preconditions: Some(Preconditions {
                    resource_version: found.resource_version(),
                    uid: found.uid(),
                }),
                ..DeleteParams::background()
            };
            let call = api.delete(name, &params);
            match Box::pin(within("delete", &kind, title, call)).await {
                Err(error) if !error.is_absent() => return Err(error),
                _ => {}
            }
        }
    }
    Box::pin(write()).await
}

impl Applier {
    /// The annotations that a policy requires of each write.
    pub(super) fn required(&self) -> Value {
        let (key, leader) = self.leader();
        json!({key: leader})
    }

    /// Writes a Secret of the controller's own. Its state is read from it, so nothing of other clients stays in it.
    pub(super) async fn secret(&self, name: &str, secret: &Secret) -> Result<Secret, ApplyError> {
        let api: Api<Item<Secret>> = self.api();
        let write = || write_alone(&api, name, secret, CONTROLLER_MANAGER);
        write_or_recreate(&api, name, name, &self.required(), write).await
    }
}

/// Writes a Secret that nothing of other clients stays in. `object`: its name in messages.
pub(crate) async fn write_alone(
    api: &Api<Item<Secret>>,
    object: &str,
    secret: &Secret,
    manager: &str,
) -> Result<Secret, ApplyError> {
    let name = secret.name_any();
    let params = PatchParams::apply(manager).force();
    let patch = Patch::Apply(secret);
    let call = api.patch(&name, &params, &patch);
    let stored = readable("apply", "Secret", object, call).await?;
    let Some(deviation) = Deviation::of(secret, &stored) else {
        return Ok(stored);
    };
    let names = deviation.names();
    tracing::warn!(
        name = object,
        names,
        "other clients set fields of it; reverting them"
    );
    let params = PatchParams {
        field_manager: Some(manager.to_owned()),
        ..PatchParams::default()
    };
    let patch = deviation.patch(stored.metadata.resource_version.as_deref());
    let patch = Patch::Merge(&patch);
    // Boxed: it is large, and almost never made.
    let call = Box::pin(api.patch(&name, &params, &patch));
    let stored = readable("patch", "Secret", object, call).await?;
    let Some(deviation) = Deviation::of(secret, &stored) else {
        return Ok(stored);
    };
    let names = deviation.names();
    Err(ApplyError::Prevented {
        action: "write",
        object: title("Secret", object),
        reason: Reason::Changed,
        message: format!("another program changes each write of it: {names}"),
    })
}
