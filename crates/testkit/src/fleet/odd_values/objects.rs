//! Writes odd values to each field of an object.

use std::time::Duration;

use anyhow::{Result, ensure};
use globalps_core::decode::Item;
use kube::api::{ApiResource, DynamicObject, GetParams, Patch, PatchParams, PostParams};
use kube::core::{GroupVersionKind, Request};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::fields::{difference, paths, replaced, values};
use crate::wait::retry;

const SOON: Duration = crate::DEADLINE;
pub(in crate::fleet) const POLL: Duration = Duration::from_millis(50);
pub(in crate::fleet) const CRD: &str = "globalps.io";

/// The values that were tried.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tried {
    pub kinds: usize,
    pub fields: usize,
    pub values: usize,
    pub accepted: usize,
}

/// An object that others may write.
pub(in crate::fleet) struct Target<'a> {
    pub(in crate::fleet) kind: (&'static str, &'static str, &'static str),
    pub(in crate::fleet) namespace: Option<&'a str>,
    pub(in crate::fleet) name: &'a str,
    /// Fields whose meaning is not up to other clients.
    pub(in crate::fleet) fixed: &'static [&'static str],
}

pub(in crate::fleet) const fn target<'a>(
    kind: (&'static str, &'static str, &'static str),
    namespace: Option<&'a str>,
    name: &'a str,
    fixed: &'static [&'static str],
) -> Target<'a> {
    Target {
        kind,
        namespace,
        name,
        fixed,
    }
}

/// A test cluster with odd objects.
pub(in crate::fleet) trait Probe {
    fn objects(&self) -> &Objects;

    /// Checks that other objects are not affected.
    async fn probe(&mut self, after: &str) -> Result<()>;
}

/// Tries each value in each field that the object or its schema has. `is_shared`: others are probed once the object is corrected.
pub(in crate::fleet) async fn try_all(
    scene: &mut impl Probe,
    target: &Target<'_>,
    is_shared: bool,
    tried: &mut Tried,
) -> Result<()> {
    let kind = target.kind.2;
    let before = scene.objects().get(target).await?;
    let mut paths = paths(&before, kind);
    paths.retain(|path| !target.fixed.contains(&path.as_str()));
    ensure!(paths.len() > 3, "{kind} has no fields: {paths:?}");
    tried.kinds += 1;
    for path in paths {
        tried.fields += 1;
        let is_status = path.starts_with("/status");
        let mut accepted = 0;
        for value in values() {
            tried.values += 1;
            let now = scene.objects().get(target).await?;
            let patch = replaced(&now, &path, value.clone());
            let stored = scene.objects().patch(target, &patch, is_status).await;
            // If the value was pruned or replaced by its default, the object is unchanged.
            if stored.is_ok_and(|stored| is_changed(&now, &stored)) {
                accepted += 1;
                if !is_shared {
                    scene.probe(&format!("{value} in {kind} {path}")).await?;
                }
            }
        }
        tried.accepted += accepted;
        // The controller may write the object at the same time.
        for _ in 0..3 {
            let now = scene.objects().get(target).await?;
            for is_status in [false, true] {
                let patch = difference(&now, &before, is_status);
                let _ = scene.objects().patch(target, &patch, is_status).await;
            }
        }
        if accepted > 0 && is_shared {
            scene.probe(&format!("{kind} {path}, corrected")).await?;
        }
    }
    Ok(())
}

/// Ignores what the API server itself counts and records.
fn is_changed(before: &Value, after: &Value) -> bool {
    let [before, after] = [before, after].map(|object| {
        let mut object = object.clone();
        for field in ["resourceVersion", "generation", "managedFields"] {
            object["metadata"][field].take();
        }
        object
    });
    before != after
}

pub(in crate::fleet) struct Objects {
    pub(in crate::fleet) client: Client,
}

impl Objects {
    pub(in crate::fleet) async fn exists(
        &self,
        api: &Api<Item<DynamicObject>>,
        name: &str,
        after: &str,
    ) -> Result<()> {
        retry(SOON, POLL, async || {
            let (found, path) = (api.get_opt(name).await?, api.resource_url());
            ensure!(found.is_some(), "{after}: no {path}/{name}");
            Ok(())
        })
        .await
    }

    /// Makes the API server accept any value in objects of this kind.
    pub(in crate::fleet) async fn forget_schema(&self, plural: &str) -> Result<()> {
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
    pub(in crate::fleet) async fn patch_when_possible(
        &self,
        target: &Target<'_>,
        patch: &Value,
    ) -> Result<()> {
        let patched = retry(SOON, POLL, async || self.patch(target, patch, false).await);
        patched.await.map(drop)
    }

    pub(in crate::fleet) fn api(
        &self,
        kind: (&str, &str, &str),
        namespace: Option<&str>,
    ) -> Api<Item<DynamicObject>> {
        let client = self.client.clone();
        match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource(kind)),
            None => Api::all_with(client, &resource(kind)),
        }
    }

    pub(in crate::fleet) async fn create(
        &self,
        kind: &str,
        namespace: Option<&str>,
        mut object: Value,
    ) -> Result<()> {
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

    pub(in crate::fleet) async fn create_as(
        &self,
        kind: (&str, &str, &str),
        namespace: &str,
        mut object: Value,
    ) -> Result<()> {
        object["apiVersion"] = json!(format!("{}/{}", kind.0, kind.1));
        object["kind"] = json!(kind.2);
        let object: DynamicObject = serde_json::from_value(object)?;
        let client = self.client.clone();
        let api: Api<DynamicObject> = Api::namespaced_with(client, namespace, &resource(kind));
        api.create(&PostParams::default(), &object).await?;
        Ok(())
    }

    pub(in crate::fleet) async fn get(&self, target: &Target<'_>) -> Result<Value> {
        let api = self.api(target.kind, target.namespace);
        let request = Request::new(api.resource_url());
        let request = request.get(target.name, &GetParams::default())?;
        Ok(self.client.request(request).await?)
    }

    /// Returns the object as the API server stored it.
    pub(in crate::fleet) async fn patch(
        &self,
        target: &Target<'_>,
        patch: &Value,
        is_status: bool,
    ) -> Result<Value> {
        let api = self.api(target.kind, target.namespace);
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        let request = Request::new(api.resource_url());
        let request = if is_status {
            request.patch_subresource("status", target.name, &params, &patch)?
        } else {
            request.patch(target.name, &params, &patch)?
        };
        Ok(self.client.request(request).await?)
    }
}

pub(in crate::fleet) fn resource((group, version, kind): (&str, &str, &str)) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}
