//! `pause` and `resume`: hold the rollout, and go on with it.

use globalps_core::api::GlobalPullSecret;
use globalps_core::names;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::discovery::ApiResource;
use serde_json::json;

use super::follow_if;
use crate::cli::{Connection, Resume};
use crate::client::Cluster;
use crate::error::{Exit, Failure};
use crate::printer::Printer;
use crate::status::Goal;

pub(super) async fn pause(flags: &Connection, printer: &Printer) -> Result<Exit, Failure> {
    let cluster = Cluster::connect(flags, printer).await?;
    set(&cluster, true).await?;
    printer.note("no further node is changed; go on with `kubectl globalps resume`");
    Ok(Exit::Done)
}

pub(super) async fn resume(
    args: &Resume,
    flags: &Connection,
    printer: &Printer,
) -> Result<Exit, Failure> {
    let cluster = Cluster::connect(flags, printer).await?;
    set(&cluster, false).await?;
    follow_if(&cluster, Goal::Synced, &args.wait).await
}

/// Only that one field: the others are the user's, or have their defaults.
async fn set(cluster: &Cluster<'_>, paused: bool) -> Result<(), Failure> {
    // Not the typed API: an object made of it would pin every default of today.
    let resource = ApiResource::erase::<GlobalPullSecret>(&());
    let api: Api<DynamicObject> =
        Api::namespaced_with(cluster.client.clone(), &cluster.namespace, &resource);
    let name = names::GLOBAL_SECRET;
    let spec = json!({"spec": {"rollout": {"paused": paused}}});
    let params = PatchParams {
        field_manager: Some(names::PLUGIN_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let patched = cluster
        .call(
            &format!("patch GlobalPullSecret `{name}`"),
            api.patch(name, &params, &Patch::Merge(&spec)),
        )
        .await;
    match patched {
        Err(failure) if failure.is(404) => {
            let mut object = DynamicObject::new(name, &resource);
            object.data = spec;
            let params = PostParams {
                field_manager: Some(names::PLUGIN_MANAGER.to_owned()),
                ..PostParams::default()
            };
            cluster
                .call(
                    &format!("create GlobalPullSecret `{name}`"),
                    api.create(&params, &object),
                )
                .await?;
        }
        other => drop(other?),
    }
    let word = if paused { "paused" } else { "resumed" };
    cluster
        .printer()
        .data(&format!("globalpullsecret.globalps.io/{name} {word}"));
    Ok(())
}
