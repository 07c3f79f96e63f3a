//! Objects of the Operator Lifecycle Manager (`operators.coreos.com/v1alpha1`), reduced to what the plan needs: a
//! `ClusterServiceVersion` can have half a megabyte.

use std::borrow::Cow;

use kube::Resource;
use kube::core::DynamicResourceScope;
use kube::core::{ApiResource, GroupVersionKind, ObjectMeta};
use serde::Deserialize;

/// A `Subscription`, `CatalogSource` or `ClusterServiceVersion`. One type for all, because the code of a watch is generated per
/// type.
#[derive(Clone, Debug, Deserialize)]
pub struct OlmObject {
    metadata: ObjectMeta,
    #[serde(default)]
    pub(super) spec: OlmSpec,
    #[serde(default)]
    pub(super) status: OlmStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct OlmSpec {
    /// Subscription: name of the `CatalogSource`.
    pub(super) source: String,
    pub(super) source_namespace: String,
    /// `CatalogSource`: names of pull secrets in its namespace.
    pub(super) secrets: Vec<String>,
    /// `ClusterServiceVersion` only.
    pub(super) install: Install,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OlmStatus {
    /// Subscription: the version that is being installed. Its pods need the Secrets before it becomes the installed one.
    #[serde(rename = "currentCSV")]
    pub(super) current_csv: String,
    #[serde(rename = "installedCSV")]
    pub(super) installed_csv: String,
    /// `ClusterServiceVersion` only.
    pub(super) reason: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Install {
    pub(super) spec: Strategy,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Strategy {
    pub(super) deployments: Vec<Deployment>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Deployment {
    pub(super) spec: DeploymentSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct DeploymentSpec {
    pub(super) template: Template,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Template {
    pub(super) spec: Pod,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Pod {
    pub(super) service_account_name: String,
}

/// A kind of [`OlmObject`], such as `Subscription`.
pub fn resource(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(
        "operators.coreos.com",
        "v1alpha1",
        kind,
    ))
}

impl Resource for OlmObject {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        resource.kind.as_str().into()
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        resource.group.as_str().into()
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        resource.version.as_str().into()
    }

    fn api_version(resource: &ApiResource) -> Cow<'_, str> {
        resource.api_version.as_str().into()
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        resource.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
