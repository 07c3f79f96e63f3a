//! `add --forget-old`: asks the controller to forget what the new credentials replace.

use std::time::Duration;

use globalps_core::api::{GlobalPullSecret, condition};
use globalps_core::dockerconfig::DockerConfig;
use globalps_core::names;
use kube::ResourceExt as _;
use kube::api::Patch;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::pull_secret;
use crate::cli::Span;
use crate::cluster::client::Cluster;
use crate::cluster::params;
use crate::error::{Exit, Failure};
use crate::secret::changes::InForce;
use crate::secret::history::revision_of;

const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Asks to forget everything before `content`, which the Secret has now. It needs no agreement with the controller on revisions:
/// either the newest one has this content already, or a later one will.
pub(super) async fn forget_before(
    cluster: &Cluster<'_>,
    secret: &str,
    content: &DockerConfig,
) -> Result<bool, Failure> {
    let (global, gps) = futures::try_join!(
        pull_secret::get(cluster, names::GLOBAL_SECRET),
        pull_secret::configuration(cluster),
    )?;
    let printer = cluster.printer();
    let newest = global.as_ref().map_or(0, revision_of);
    let spec = gps.as_ref().map(|gps| &gps.spec);
    let in_force = InForce::of(global.as_ref(), spec, secret).additional;
    let is_newest = in_force.means_the_same(content);
    let up_to = if is_newest { newest - 1 } else { newest };
    let (Some(gps), true) = (gps, up_to > 0) else {
        printer.note("there is no earlier content to forget");
        return Ok(false);
    };
    let asked = names::forget_up_to(gps.annotations()).and_then(Result::ok);
    let up_to = up_to.max(asked.unwrap_or_default());
    annotate(cluster, Some(up_to)).await?;
    printer.note(format_args!(
        "content up to revision {up_to} is forgotten once every reachable node has the new one; `kubectl globalps list --where-old` shows who still has it"
    ));
    Ok(true)
}

/// Withdraws a request to forget this revision, which the Secret goes back to.
pub(super) async fn withdraw(cluster: &Cluster<'_>, revision: i64) -> Result<(), Failure> {
    let Some(gps) = pull_secret::configuration(cluster).await? else {
        return Ok(());
    };
    let forgotten = gps.status.as_ref().map_or(0, |it| it.forgotten_revision);
    let asked = names::forget_up_to(gps.annotations()).and_then(Result::ok);
    if asked.is_some_and(|up_to| up_to >= revision && up_to > forgotten) {
        annotate(cluster, None).await?;
        cluster.printer().note(format_args!(
            "the request to forget revision {revision} is revoked"
        ));
    }
    Ok(())
}

async fn annotate(cluster: &Cluster<'_>, up_to: Option<i64>) -> Result<(), Failure> {
    let value = up_to.map(|number| number.to_string());
    let patch = json!({"metadata": {"annotations": {names::FORGET_ANNOTATION: value}}});
    let api = cluster.api::<GlobalPullSecret>();
    let params = params::patch(false);
    let patch = Patch::Merge(&patch);
    let patched = api.patch_metadata(names::GLOBAL_SECRET, &params, &patch);
    cluster.call("patch the GlobalPullSecret", patched).await?;
    Ok(())
}

/// Waits until the controller reports that it is done, except on unreachable nodes.
pub(super) async fn until_forgotten(cluster: &Cluster<'_>, timeout: Span) -> Result<Exit, Failure> {
    let deadline = Instant::now() + timeout.0;
    loop {
        let gps = pull_secret::configuration(cluster).await;
        let gps = match gps {
            Err(failure) if failure.may_pass() && Instant::now() < deadline => None,
            found => found?,
        };
        let conditions = gps.and_then(|gps| gps.status).map(|it| it.conditions);
        let mut conditions = conditions.into_iter().flatten();
        let found = conditions.find(|it| it.type_ == condition::OLD_FORGOTTEN);
        if let Some(found) = found.as_ref().filter(|found| found.status == "True") {
            cluster.printer().note(&found.message);
            return Ok(Exit::Done);
        }
        if Instant::now() >= deadline {
            let why = found.map_or("the controller has not reported it".to_owned(), |it| {
                it.message
            });
            return Err(Failure::no(
                format!("the earlier content is not forgotten within {timeout}: {why}"),
                "the new credentials are written; `kubectl globalps list --where-old` shows who has the old ones",
            ));
        }
        sleep(LOOK_AGAIN).await;
    }
}
