//! What `why` reads beside the credentials: events, the image on the node, and whether `add` would help.

use globalps_core::names;
use k8s_openapi::api::core::v1::{Event, Node, ServiceAccount};
use kube::Api;
use kube::api::ListParams;

use crate::cli::Asking;
use crate::cluster::namespaces::each;
use crate::cluster::{Cluster, Program, deployment, not_running};
use crate::diagnose::evidence::image::Shared;
use crate::diagnose::why::{Adding, Live, PodSeen, is_same_image};
use crate::error::{Result, allowed, quoted};
use crate::secret::changes::InForce;
use crate::target::pull_secret;

/// Events of pods that match this field selector. Empty for a user who may not read them: usually the container's
/// status has the message too.
pub(crate) async fn events(
    cluster: &Cluster<'_>,
    namespace: Option<&str>,
    field: &str,
) -> Result<Vec<Event>> {
    let client = cluster.client.clone();
    let api: Api<Event> = match namespace {
        Some(namespace) => Api::namespaced(client, namespace),
        None => Api::all(client),
    };
    let params = ListParams::default().fields(&format!("involvedObject.kind=Pod,{field}"));
    let mut found = Vec::new();
    let keep = |event: Event| found.push(event);
    match each(cluster, &api, params, "list the events of pods", keep).await {
        Err(failure) if !failure.is(403) => Err(failure),
        _ => Ok(found),
    }
}

/// Whether the node has the image. The node's status lists at most 50 images. False if this user may not read it.
pub(crate) async fn has_image(cluster: &Cluster<'_>, node: &str, image: &str) -> Result<bool> {
    let api: Api<Node> = Api::all(cluster.client.clone());
    let found = allowed(cluster.call("get the pod's Node", api.get_opt(node)).await)?;
    let images = found.flatten().and_then(|node| node.status?.images);
    let mut names = images.iter().flatten().flat_map(|image| &image.names);
    Ok(names.any(|names| names.iter().any(|name| is_same_image(name, image))))
}

/// `None` if the pod has none, or this user may not read it.
pub(crate) async fn account(
    cluster: &Cluster<'_>,
    seen: &PodSeen,
) -> Result<Option<ServiceAccount>> {
    if seen.service_account.is_empty() {
        return Ok(None);
    }
    let api: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), &seen.namespace);
    let call = api.get_opt(&seen.service_account);
    let found = cluster.call("get the pod's ServiceAccount", call).await;
    Ok(allowed(found)?.flatten())
}

/// Reads the facts that decide whether `add` helps in this cluster.
pub(crate) async fn adding(cluster: &Cluster<'_>, shared: &Shared) -> Result<Adding> {
    let found = allowed(deployment(cluster, Program::Controller).await)?;
    let stopped = found
        .as_ref()
        .and_then(|found| not_running(Program::Controller, found.as_ref(), cluster.now()));
    let spec = shared.gps.as_ref().map(|gps| &gps.spec);
    Ok(Adding {
        in_force: InForce::of(shared.global.as_ref(), spec, names::ADDITIONAL_SECRET),
        has_content: shared.global.is_some(),
        gps: shared.gps.clone(),
        is_not_installed: found == Some(None),
        stopped,
        not_written: shared.not_written.clone(),
        live: live(cluster, shared).await?,
    })
}

/// The current pull secrets, without those that this user may not read.
async fn live(cluster: &Cluster<'_>, shared: &Shared) -> Result<Vec<Live>> {
    let spec = shared.gps.as_ref().map(|gps| &gps.spec);
    let sources = spec.into_iter().flat_map(|spec| &spec.sources);
    let sources = sources.map(|source| (source.name.as_str(), source.scope.is_none()));
    let mut found = Vec::new();
    for (name, is_for_every_pod) in std::iter::once((names::ADDITIONAL_SECRET, true)).chain(sources)
    {
        let secret = allowed(pull_secret::get(cluster, name).await)?;
        found.extend(secret.flatten().map(|secret| Live {
            name: name.to_owned(),
            secret,
            merged: InForce::of(shared.global.as_ref(), spec, name).additional,
            is_for_every_pod,
        }));
    }
    Ok(found)
}

/// The flag used to contact the registries, quoted for a shell; may be empty.
pub(crate) fn asked_with(flags: &Asking) -> String {
    match &flags.ca_file {
        Some(file) => format!("--ca-file {}", quoted(&file.to_string_lossy())),
        None if flags.insecure => "--insecure".to_owned(),
        None => String::new(),
    }
}
