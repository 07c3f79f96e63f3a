//! Installs globalps in a member cluster that does not have it.

use std::time::Duration;

use globalps_core::names::{
    CONTROLLER, CONTROLLER_NAMESPACE, DATA_KEY, FLEET_ANNOTATION, IMAGES_SECRET,
    INSTALLATION_ANNOTATION, NAMESPACE,
};
use globalps_planner::clusters::installation::Installation;
use globalps_planner::content::source::Data;
use globalps_runtime::request::within;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;
use tokio::time::sleep;

use crate::objects::apply::is_absent;

/// Attempts and pause for an object whose CRD is not served yet.
const SERVED: (u32, Duration) = (40, Duration::from_millis(250));

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InstallState {
    /// The controller of this release runs, or another client installed globalps.
    Running,
    /// The controller of this release does not run yet, or pods of an earlier one still do. `written`: this call applied objects.
    Starting { written: bool },
}

/// `manager`: the hub's field manager. `fleet`: `NAMESPACE/NAME` of the `FleetPullSecret`.
pub(super) async fn install(
    client: &Client,
    installation: &Installation,
    manager: &str,
    fleet: &str,
) -> Result<InstallState, kube::Error> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), CONTROLLER_NAMESPACE);
    if let Some(found) = within(deployments.get_opt(CONTROLLER)).await? {
        let is = |key, value: &str| found.annotations().get(key).is_some_and(|it| it == value);
        if !is(FLEET_ANNOTATION, fleet) {
            return Ok(InstallState::Running);
        }
        if is(INSTALLATION_ANNOTATION, &installation.fingerprint())
            && has_pull_secret(client, installation).await?
        {
            let starting = InstallState::Starting { written: false };
            return Ok(if runs(&found) {
                InstallState::Running
            } else {
                starting
            });
        }
    }
    for object in installation.objects(fleet) {
        apply(client, object, manager).await?;
    }
    Ok(InstallState::Starting { written: true })
}

/// Every pod has the newest template, and one is ready, so the cluster's status comes from this release.
fn runs(deployment: &Deployment) -> bool {
    deployment.status.as_ref().is_some_and(|status| {
        status.observed_generation == deployment.metadata.generation
            && status.replicas == status.updated_replicas
            && status.available_replicas.is_some_and(|count| count > 0)
    })
}

async fn has_pull_secret(
    client: &Client,
    installation: &Installation,
) -> Result<bool, kube::Error> {
    let Some(desired) = &installation.pull_secret else {
        return Ok(true);
    };
    for namespace in [CONTROLLER_NAMESPACE, NAMESPACE] {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let found = within(secrets.get_opt(IMAGES_SECRET)).await?;
        if found.is_none_or(|secret| Data::of(&secret, DATA_KEY) != *desired) {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn apply(client: &Client, object: Value, manager: &str) -> Result<(), kube::Error> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let version = text(&object["apiVersion"]);
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    let kind = text(&object["kind"]);
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
    let name = text(&object["metadata"]["name"]);
    let namespace = text(&object["metadata"]["namespace"]);
    let api: Api<DynamicObject> = if namespace.is_empty() {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), &namespace, &resource)
    };
    // Reverts out-of-band changes.
    let params = PatchParams::apply(manager).force();
    let patch = Patch::Apply(object);
    let (attempts, pause) = SERVED;
    for _ in 1..attempts {
        match within(api.patch(&name, &params, &patch)).await {
            Err(kube::Error::Api(status)) if is_absent(&status) => sleep(pause).await,
            applied => return applied.map(drop),
        }
    }
    within(api.patch(&name, &params, &patch)).await.map(drop)
}
