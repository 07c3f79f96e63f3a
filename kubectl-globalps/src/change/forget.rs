//! `add --forget-old`: asks the controller to forget what the new credentials replace.

use std::time::Duration;

use globalps_core::api::{GlobalPullSecret, GlobalPullSecretStatus, condition};
use globalps_core::names;
use globalps_dockerconfig::DockerConfig;
use kube::ResourceExt as _;
use kube::api::Patch;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::cli::Span;
use crate::cluster::{Cluster, params};
use crate::error::{Exit, Failure, Result};
use crate::secret::changes::InForce;
use crate::secret::history::revision_of;
use crate::target::pull_secret;

const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Requests to forget everything before `content`, the Secret's present content. Doesn't need to know the controller's
/// revision: either the newest one has this content already, or a later one will. Returns the last revision to forget;
/// `None` if there is none.
pub(crate) async fn forget_before(
    cluster: &Cluster<'_>,
    secret: &str,
    content: &DockerConfig,
) -> Result<Option<i64>> {
    let (global, gps) = futures::try_join!(
        pull_secret::in_force(cluster),
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
        return Ok(None);
    };
    let asked = names::forget_up_to(gps.annotations()).and_then(Result::ok);
    let up_to = up_to.max(asked.unwrap_or_default());
    annotate(cluster, Some(up_to)).await?;
    printer.note(format_args!(
        "content up to revision {up_to} is forgotten once every reachable node has the new one; `kubectl globalps list --where-old` shows who still has it"
    ));
    Ok(Some(up_to))
}

/// Withdraws the request to forget this revision, because the Secret goes back to it.
pub(crate) async fn withdraw(cluster: &Cluster<'_>, revision: i64) -> Result<()> {
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

async fn annotate(cluster: &Cluster<'_>, up_to: Option<i64>) -> Result<()> {
    let value = up_to.map(|number| number.to_string());
    let patch = json!({"metadata": {"annotations": {names::FORGET_ANNOTATION: value}}});
    let api = cluster.api::<GlobalPullSecret>();
    let params = params::patch(false);
    let patch = Patch::Merge(&patch);
    let patched = api.patch_metadata(names::GLOBAL_SECRET, &params, &patch);
    cluster.call("patch the GlobalPullSecret", patched).await?;
    Ok(())
}

/// Waits until the controller reports that it has forgotten this revision, except on unreachable nodes. Ignores reports
/// of an earlier request.
pub(crate) async fn until_forgotten(
    cluster: &Cluster<'_>,
    up_to: i64,
    timeout: Span,
) -> Result<Exit> {
    let deadline = Instant::now() + timeout.0;
    loop {
        let gps = pull_secret::configuration(cluster).await;
        let gps = match gps {
            Err(failure) if failure.may_pass() && Instant::now() < deadline => None,
            found => found?,
        };
        let status = gps.and_then(|gps| gps.status).unwrap_or_default();
        match answer(&status, up_to) {
            Ok(message) => {
                cluster.printer().note(message);
                return Ok(Exit::Done);
            }
            Err(why) if Instant::now() >= deadline => {
                return Err(Failure::no(
                    format!("the earlier content is not forgotten within {timeout}: {why}"),
                    "the new credentials are written; `kubectl globalps list --where-old` shows who has the old ones",
                ));
            }
            Err(_) => {}
        }
        sleep(LOOK_AGAIN).await;
    }
}

/// The controller's report on this request. `Err`: why the revision is not forgotten yet.
fn answer(status: &GlobalPullSecretStatus, up_to: i64) -> Result<&str, &str> {
    let mut conditions = status.conditions.iter();
    let found = conditions.find(|it| it.type_ == condition::OLD_FORGOTTEN);
    match found {
        Some(found) if found.status != "True" => Err(&found.message),
        // Until the controller has seen the request, the condition is about an earlier one.
        Some(found) if status.forgotten_revision >= up_to => Ok(&found.message),
        _ => Err("the controller has not reported it"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_report_of_an_earlier_request_is_no_answer() {
        const LATER: Result<&str, &str> = Err("the controller has not reported it");
        for (forgotten, condition, expected) in [
            (1, Some("True"), LATER),
            (2, Some("True"), Ok("said")),
            (2, Some("False"), Err("said")),
            (1, Some("False"), Err("said")),
            (2, None, LATER),
        ] {
            let conditions = condition.map(|status| {
                json!({
                    "type": "OldForgotten", "status": status, "reason": "Forgotten", "message": "said",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                })
            });
            let status = GlobalPullSecretStatus {
                forgotten_revision: forgotten,
                conditions: conditions
                    .into_iter()
                    .map(|it| serde_json::from_value(it).expect("a condition"))
                    .collect(),
                ..GlobalPullSecretStatus::default()
            };
            assert_eq!(answer(&status, 2), expected, "{forgotten} {condition:?}");
        }
    }
}
