//! Replaces an object whose immutable fields another client has set, with the content that the controller has.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::apply::{Applier, ApplyError, within};

/// Writes the object. If it is immutable, deletes it and writes it again. `title`: its name in messages. `annotations`: those that
/// a policy requires of each write.
pub(crate) async fn write_or_recreate<K, T, F>(
    api: &Api<K>,
    name: &str,
    title: &str,
    annotations: &Value,
    write: impl Fn() -> F,
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
        Err(error) if error.is_code(404) => {}
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
                Err(error) if !error.is_code(404) => return Err(error),
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

    /// Writes a Secret of the controller's own.
    pub(super) async fn secret(&self, name: &str, secret: &Secret) -> Result<Secret, ApplyError> {
        let api: Api<Secret> = self.api();
        let write = || self.apply(name, secret);
        write_or_recreate(&api, name, name, &self.required(), write).await
    }
}
