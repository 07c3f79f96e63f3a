//! `fleet pause` and `fleet resume`: whether further clusters change.

use globalps_core::api::FleetPullSecret;
use globalps_core::names;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::discovery::ApiResource;
use serde_json::json;

use super::follow_if;
use crate::cli::{Connection, FleetPause, FleetResume};
use crate::client::Cluster;
use crate::error::{Exit, Failure};
use crate::fleet::facts::find;
use crate::fleet::title;
use crate::fleet::verdict::{Goal, command};
use crate::printer::Printer;

pub(super) async fn pause(
    args: &FleetPause,
    flags: &Connection,
    printer: &Printer,
) -> Result<Exit, Failure> {
    let cluster = Cluster::connect(flags, printer).await?;
    let title = set(&cluster, &args.fleet, true).await?;
    printer.note(format_args!(
        "no further cluster is changed; go on with {}",
        command("resume", &title)
    ));
    Ok(Exit::Done)
}

pub(super) async fn resume(
    args: &FleetResume,
    flags: &Connection,
    printer: &Printer,
) -> Result<Exit, Failure> {
    let cluster = Cluster::connect(flags, printer).await?;
    set(&cluster, &args.fleet, false).await?;
    follow_if(&cluster, &args.fleet, Goal::Synced, &args.wait).await
}

/// Only that one field: the others are the user's, or have their defaults.
async fn set(cluster: &Cluster<'_>, name: &str, paused: bool) -> Result<String, Failure> {
    let fleet = find(cluster, name).await?;
    // Not the typed API: an object made of it would pin every default of today.
    let resource = ApiResource::erase::<FleetPullSecret>(&());
    let api: Api<DynamicObject> =
        Api::namespaced_with(cluster.client.clone(), &cluster.namespace, &resource);
    let patch = Patch::Merge(json!({"spec": {"rollout": {"paused": paused}}}));
    let params = PatchParams {
        field_manager: Some(names::PLUGIN_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let title = title(&fleet);
    cluster
        .call(
            &format!("patch FleetPullSecret `{title}`"),
            api.patch(name, &params, &patch),
        )
        .await?;
    let word = if paused { "paused" } else { "resumed" };
    cluster
        .printer()
        .data(&format!("fleetpullsecret.globalps.io/{name} {word}"));
    Ok(title)
}
