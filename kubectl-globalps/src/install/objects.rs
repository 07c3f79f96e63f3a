//! The objects of an installation, applied one after the other, like `kubectl apply --server-side`.

use std::convert::Infallible;
use std::fmt::Debug;
use std::time::Duration;

use futures::StreamExt as _;
use globalps_core::decode::Item;
use globalps_core::names;
use globalps_runtime::object_watch::{ObjectState, watch_object};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout_at};

use crate::cli::Span;
use crate::cluster::{Cluster, start};
use crate::error::{Failure, Result};

/// Interval of checks whether pods run.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Applies the objects, custom resource definitions first, and waits until this Deployment runs. The preview has listed
/// the changes already.
pub(crate) async fn put_all(
    cluster: &Cluster<'_>,
    objects: Vec<Value>,
    deployment: &'static str,
    timeout: Span,
) -> Result<()> {
    let deadline = Instant::now() + timeout.0;
    let late = |what: &str, hint: &str| Failure::no(format!("{what} within {timeout}"), hint);
    // Later objects may be instances of the definitions.
    let (crds, others): (Vec<Object>, Vec<Object>) = objects
        .into_iter()
        .map(Object::of)
        .partition(|object| object.resource.kind == "CustomResourceDefinition");
    for crd in &crds {
        apply(cluster, crd, false).await?;
    }
    for crd in &crds {
        let api: Api<Item<CustomResourceDefinition>> = Api::all(cluster.client.clone());
        let name = crd.name();
        let established = timeout_at(deadline, until(api, &name, is_established)).await;
        established.map_err(|_| {
            late(
                &format!("the API server did not establish `{name}`"),
                "see `kubectl get crd` for the reason",
            )
        })??;
    }
    for object in &others {
        apply(cluster, object, false).await?;
    }
    let deployments: Api<Item<Deployment>> =
        Api::namespaced(cluster.client.clone(), names::CONTROLLER_NAMESPACE);
    let what = deployment.trim_start_matches("globalps-");
    cluster
        .printer()
        .note(format_args!("waiting for the {what} ..."));
    let available = Box::pin(until(deployments, deployment, is_available));
    let mut reason = None;
    let available = timeout_at(deadline, async {
        tokio::select! {
            found = available => found,
            never = Box::pin(explained(cluster, deployment, &mut reason)) => match never {},
        }
    });
    let available = available.await;
    available.map_err(|_| match reason {
        Some((reason, hint)) => late(
            &format!("the {what} did not become available ({reason})"),
            &hint,
        ),
        None => late(
            &format!("the {what} did not become available"),
            "see `kubectl -n globalps-system describe pods` for the reason",
        ),
    })?
}

/// Waits until the object satisfies the condition.
async fn until<K>(api: Api<Item<K>>, name: &str, is_so: fn(&K) -> bool) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut states = watch_object(api, name, "what is installed");
    while let Some(state) = states.next().await {
        match state {
            ObjectState::Present(object) if is_so(&object) => break,
            ObjectState::Forbidden => {
                return Err(Failure::new(
                    format!("`{name}` could not be watched: the API server does not allow it"),
                    "check your permissions with `kubectl auth can-i --list`",
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

fn is_established(crd: &CustomResourceDefinition) -> bool {
    let status = crd.status.as_ref();
    let mut conditions = status
        .and_then(|it| it.conditions.as_ref())
        .into_iter()
        .flatten();
    conditions.any(|it| it.type_ == "Established" && it.status == "True")
}

/// Reports what prevents the pods from running as soon as it is known, once per reason.
async fn explained(
    cluster: &Cluster<'_>,
    deployment: &str,
    last: &mut Option<start::Reason>,
) -> Infallible {
    loop {
        sleep(LOOK_AGAIN).await;
        let found = start::look(cluster, deployment).await;
        let Some(reason) = found.ok().flatten() else {
            continue;
        };
        if last.as_ref() != Some(&reason) {
            cluster.printer().warning(&reason.0);
            cluster.printer().hint(&reason.1);
        }
        *last = Some(reason);
    }
}

/// Whether every replica runs the Deployment's current template. Its conditions are unreliable: just after an apply
/// they still describe the previous state.
fn is_available(deployment: &Deployment) -> bool {
    let wanted = deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.replicas)
        .unwrap_or(1);
    let Some(status) = &deployment.status else {
        return false;
    };
    let all = [
        status.replicas,
        status.updated_replicas,
        status.available_replicas,
    ];
    status.observed_generation >= deployment.metadata.generation
        && all
            .iter()
            .all(|number| number.unwrap_or_default() == wanted)
}

/// An object of the manifests, with its API resource and namespace.
pub(crate) struct Object {
    pub value: Value,
    pub resource: ApiResource,
}

impl Object {
    pub(crate) fn of(value: Value) -> Self {
        let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
        let (group, version) = match text("apiVersion").split_once('/') {
            Some(parts) => parts,
            None => ("", text("apiVersion")),
        };
        let gvk = GroupVersionKind::gvk(group, version, text("kind"));
        Self {
            resource: ApiResource::from_gvk(&gvk),
            value,
        }
    }

    /// Only type and name: enough to read or delete the object.
    pub(crate) fn named(version: &str, kind: &str, namespace: &str, name: &str) -> Self {
        Self::of(json!({
            "apiVersion": version,
            "kind": kind,
            "metadata": {"name": name, "namespace": namespace},
        }))
    }

    pub(crate) fn metadata(&self, key: &str) -> Option<&str> {
        self.value.get("metadata")?.get(key)?.as_str()
    }

    pub(crate) fn name(&self) -> String {
        self.metadata("name").unwrap_or_default().to_owned()
    }

    /// The title, with the namespace if there is one.
    pub(crate) fn place(&self) -> String {
        match self.metadata("namespace") {
            Some(namespace) => format!("{} (namespace {namespace})", self.title()),
            None => self.title(),
        }
    }

    /// In kubectl's format: `deployment.apps/globalps-controller`.
    pub(crate) fn title(&self) -> String {
        let kind = self.resource.kind.to_lowercase();
        let group = match self.resource.group.as_str() {
            "" => String::new(),
            group => format!(".{group}"),
        };
        format!("{kind}{group}/{}", self.name())
    }

    pub(crate) fn api(&self, client: &Client) -> Api<DynamicObject> {
        match self.metadata("namespace") {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.resource),
            None => Api::all_with(client.clone(), &self.resource),
        }
    }

    /// `false` if the object or its kind doesn't exist.
    pub(crate) async fn delete(&self, cluster: &Cluster<'_>, dry_run: bool) -> Result<bool> {
        let (title, api) = (format!("`{}`", self.title()), self.api(&cluster.client));
        let params = DeleteParams {
            dry_run,
            ..DeleteParams::background()
        };
        cluster.delete(&title, &api, &self.name(), &params).await
    }
}

/// Server-side apply with force, because globalps owns these objects entirely.
pub(crate) async fn apply(cluster: &Cluster<'_>, object: &Object, dry_run: bool) -> Result<()> {
    let title = object.title();
    let params = PatchParams {
        dry_run,
        ..PatchParams::apply(names::PLUGIN_MANAGER).force()
    };
    let (api, name) = (object.api(&cluster.client), object.name());
    let patch = Patch::Apply(&object.value);
    let doing = format!("apply `{title}`");
    let applied = cluster
        .call(&doing, api.patch(&name, &params, &patch))
        .await?;
    cluster.printer().detail(format_args!(
        "{title} is at {}",
        applied.resource_version().unwrap_or_default()
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use globalps_manifests::HubInstall;

    use super::*;

    #[test]
    fn a_controller_is_available_only_with_what_was_applied_last() {
        use k8s_openapi::api::apps::v1::DeploymentStatus;
        for (sentence, observed, updated, available, expected) in [
            ("runs", 2, 1, 1, true),
            ("not taken up yet", 1, 1, 1, false),
            ("the old one still runs", 2, 0, 1, false),
            ("not ready", 2, 1, 0, false),
        ] {
            let mut deployment = Deployment::default();
            deployment.metadata.generation = Some(2);
            deployment.status = Some(DeploymentStatus {
                observed_generation: Some(observed),
                replicas: Some(1),
                updated_replicas: Some(updated),
                available_replicas: Some(available),
                ..DeploymentStatus::default()
            });
            assert_eq!(is_available(&deployment), expected, "{sentence}");
        }
        assert!(!is_available(&Deployment::default()));
    }

    #[test]
    fn objects_are_named_and_placed_as_kubectl_does() {
        let manifests = HubInstall {
            image: "h".to_owned(),
            namespaces: vec!["clusters".to_owned()],
            trusted_namespaces: Vec::new(),
            shards: 1,
        };
        let objects: Vec<Object> = manifests.objects().into_iter().map(Object::of).collect();
        let titles: Vec<String> = objects.iter().map(Object::title).collect();
        for expected in [
            "namespace/globalps-system",
            "customresourcedefinition.apiextensions.k8s.io/fleetpullsecrets.globalps.io",
            "deployment.apps/globalps-hub",
        ] {
            assert!(titles.iter().any(|title| title == expected), "{titles:?}");
        }
        let places = objects.iter().map(Object::place);
        let expected = "deployment.apps/globalps-hub (namespace globalps-system)";
        assert!(places.clone().any(|place| place == expected));
        assert!(
            places
                .clone()
                .any(|place| place == "namespace/globalps-system")
        );
        let plurals: Vec<&str> = objects.iter().map(|o| o.resource.plural.as_str()).collect();
        assert!(plurals.contains(&"customresourcedefinitions"));
        assert!(plurals.contains(&"deployments"));
    }
}
