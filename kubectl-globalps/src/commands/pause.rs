//! `pause` and `resume` of the rollout, to nodes or to clusters.

use std::collections::BTreeMap;

use globalps_core::api::{DeliveryType, FleetPullSecret, GlobalPullSecret};
use globalps_core::names;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::api::Patch;
use serde_json::{Value, json};

use crate::change::restore_configuration::must_not_be_deleted;
use crate::cli::{Connection, FleetPause, FleetResume, Resume};
use crate::cluster::create::create;
use crate::cluster::fleet::find;
use crate::cluster::{Cluster, is_installed, must_watch, not_installed, params};
use crate::error::{Exit, Result};
use crate::target::pull_secret;
use crate::target::wait::follow_nodes_if;
use crate::target::wait_clusters::follow_clusters_if;
use crate::terminal::printer::Printer;
use crate::view::fleet::title;
use crate::view::fleet::verdict::{FleetGoal, command};

/// Annotation that says how Flux applies an object.
const FLUX_APPLY: &str = "kustomize.toolkit.fluxcd.io/ssa";

pub(super) async fn pause(flags: &Connection, printer: &Printer) -> Result<Exit> {
    let cluster = Cluster::connect(flags, printer)?;
    must_watch(&cluster).await?;
    set(&cluster, true).await?;
    let gps = pull_secret::configuration(&cluster).await.ok().flatten();
    printer.note(match gps.map(|gps| gps.spec.kubelet.delivery) {
        Some(DeliveryType::OpenShift) => "`openshift-config/pull-secret` does not change any more, but nodes still get what it has; resume with `kubectl globalps resume`",
        _ => "no further node changes; resume with `kubectl globalps resume`",
    });
    Ok(Exit::Done)
}

pub(super) async fn resume(args: &Resume, flags: &Connection, printer: &Printer) -> Result<Exit> {
    let cluster = Cluster::connect(flags, printer)?;
    must_watch(&cluster).await?;
    set(&cluster, false).await?;
    follow_nodes_if(&cluster, &args.wait).await
}

async fn set(cluster: &Cluster<'_>, paused: bool) -> Result<()> {
    let name = names::GLOBAL_SECRET;
    match set_paused::<GlobalPullSecret>(cluster, name, paused).await {
        Err(failure) if failure.is(404) && !is_installed(cluster).await => {
            Err(not_installed(cluster))
        }
        Err(failure) if failure.is(404) => {
            must_not_be_deleted(cluster).await?;
            create::<GlobalPullSecret>(cluster, (name, name), spec(paused), false).await?;
            report(cluster, "globalpullsecret", name, paused, true);
            Ok(())
        }
        set => set,
    }
}

pub(super) async fn pause_clusters(
    args: &FleetPause,
    flags: &Connection,
    printer: &Printer,
) -> Result<Exit> {
    let cluster = Cluster::connect(flags, printer)?;
    let title = title(&set_clusters(&cluster, &args.fleet, true).await?);
    printer.note(format_args!(
        "no further cluster is changed; go on with {}",
        command("resume", &title)
    ));
    Ok(Exit::Done)
}

pub(super) async fn resume_clusters(
    args: &FleetResume,
    flags: &Connection,
    printer: &Printer,
) -> Result<Exit> {
    let cluster = Cluster::connect(flags, printer)?;
    let fleet = set_clusters(&cluster, &args.fleet, false).await?;
    let goal = match fleet.metadata.deletion_timestamp {
        Some(_) => FleetGoal::Removed,
        None => FleetGoal::Synced,
    };
    follow_clusters_if(&cluster, &args.fleet, goal, &args.wait).await
}

async fn set_clusters(cluster: &Cluster<'_>, name: &str, paused: bool) -> Result<FleetPullSecret> {
    let fleet = find(cluster, name).await?;
    set_paused::<FleetPullSecret>(cluster, name, paused).await?;
    Ok(fleet)
}

/// Only that one field: the others are the user's, or have their defaults.
fn spec(paused: bool) -> Value {
    json!({"rollout": {"paused": paused}})
}

/// Pauses or resumes a rollout that there is.
async fn set_paused<K>(cluster: &Cluster<'_>, name: &str, paused: bool) -> Result<()>
where
    K: Resource<DynamicType = ()>,
{
    let params = params::patch(false);
    let kind = K::kind(&());
    let (api, patch) = (
        cluster.untyped::<K>(),
        Patch::Merge(json!({"spec": spec(paused)})),
    );
    let doing = format!("get {kind} `{name}`");
    let found = cluster.call(&doing, api.get(name)).await;
    // A user who may not read it may still be allowed to change it.
    if let Ok(object) = found {
        let is_paused = object.data["spec"]["rollout"]["paused"].as_bool();
        if is_paused.unwrap_or_default() == paused {
            report(cluster, &kind.to_lowercase(), name, paused, false);
            return Ok(());
        }
        if is_reverted_by_flux(&object.metadata) {
            cluster.printer().warning(format_args!(
                "Flux will revert this: set `spec.rollout.paused` at its source, or give the object the annotation `{FLUX_APPLY}: Merge`"
            ));
        }
    }
    let patched = api.patch(name, &params, &patch);
    let doing = format!("patch {kind} `{name}`");
    cluster.call(&doing, patched).await?;
    report(cluster, &kind.to_lowercase(), name, paused, true);
    Ok(())
}

/// Flux removes the fields of every manager whose name begins with `kubectl`, unless the object has the annotation.
fn is_reverted_by_flux(metadata: &ObjectMeta) -> bool {
    let has = |all: &Option<BTreeMap<String, String>>, key: &str| {
        all.as_ref().is_some_and(|all| all.contains_key(key))
    };
    has(&metadata.labels, "kustomize.toolkit.fluxcd.io/name")
        && !has(&metadata.annotations, FLUX_APPLY)
}

fn report(cluster: &Cluster<'_>, kind: &str, name: &str, paused: bool, changed: bool) {
    let word = match (paused, changed) {
        (true, true) => "paused",
        (true, false) => "already paused",
        (false, true) => "resumed",
        (false, false) => "is not paused",
    };
    let done = format!("{kind}.globalps.io/{name} {word}");
    cluster.printer().data(&done);
}
