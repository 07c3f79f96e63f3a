//! The controller's Deployment: the namespace that it watches, and whether it runs.

use globalps_core::names;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;

use crate::client::Cluster;
use crate::error::Failure;

/// `None`: it is not installed.
pub(crate) async fn deployment(cluster: &Cluster<'_>) -> Result<Option<Deployment>, Failure> {
    let api: Api<Deployment> = Api::namespaced(cluster.client.clone(), names::CONTROLLER_NAMESPACE);
    let call = api.get_opt(names::CONTROLLER);
    let doing = "get the Deployment of the controller";
    cluster.call(doing, call).await
}

/// Namespace of the pull secrets that it watches.
pub(crate) fn watched(deployment: &Deployment) -> Option<&str> {
    let pod = deployment.spec.as_ref()?.template.spec.as_ref()?;
    let args = pod.containers.first()?.args.as_ref()?;
    args.iter().find_map(|arg| arg.strip_prefix("--namespace="))
}

/// The same of the cluster; `None`: no controller is installed, or this user may not read its Deployment.
pub(crate) async fn watched_in(cluster: &Cluster<'_>) -> Result<Option<String>, Failure> {
    let deployment = match deployment(cluster).await {
        Err(failure) if failure.is(403) => None,
        found => found?,
    };
    Ok(deployment.as_ref().and_then(watched).map(str::to_owned))
}

/// Refuses to write into a namespace that the controller does not watch.
pub(crate) async fn must_watch(cluster: &Cluster<'_>) -> Result<(), Failure> {
    let asked = &cluster.namespace;
    match watched_in(cluster).await? {
        Some(watched) if watched != *asked => Err(Failure::new(
            format!("the controller watches namespace `{watched}`, not `{asked}`"),
            format!("run the command with `-n {watched}`"),
        )),
        _ => Ok(()),
    }
}
