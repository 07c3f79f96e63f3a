//! Waiting for a rollout to clusters.

use globalps_core::api::{FleetPullSecret, condition};
use k8s_openapi::api::core::v1::Secret;

use crate::cli::{FleetWait, Span};
use crate::cluster::fleet::{FleetFilter, find};
use crate::cluster::{Cluster, Program};
use crate::error::{Exit, Result};
use crate::follow::clusters::follow;
use crate::follow::live::Follow;
use crate::target::wait::until_reported;
use crate::terminal::printer::Stream;
use crate::view::fleet::verdict::FleetGoal;

/// Follows the rollout where that was asked for, and else says how to.
pub(crate) async fn follow_clusters_if(
    cluster: &Cluster<'_>,
    fleet: &str,
    goal: FleetGoal,
    wait: &FleetWait,
) -> Result<Exit> {
    if !wait.wait {
        let flag = format!(" -n {}", cluster.namespace);
        let what = match goal {
            FleetGoal::Synced => "rollout",
            FleetGoal::Removed => "removal",
        };
        cluster.printer().note(format_args!(
            "follow the {what} with `kubectl globalps fleet status {fleet}{flag} --watch`"
        ));
        return Ok(Exit::Done);
    }
    let how = Follow::until(goal, wait.timeout, Stream::Err);
    follow(cluster, how, FleetFilter::of(fleet)).await
}

/// Waits until the hub has reported on the source Secret and the spec as they are now.
pub(crate) async fn taken_up(cluster: &Cluster<'_>, name: &str, timeout: Span) -> Result<()> {
    let source = find(cluster, name).await?.spec.secret_ref.name;
    let look = async || {
        let fleet = find(cluster, name).await?;
        let api = cluster.api::<Secret>();
        let doing = format!("see whether Secret `{}/{source}` exists", cluster.namespace);
        let version = match cluster.call(&doing, api.get_metadata_opt(&source)).await {
            // Hidden from this user.
            Err(failure) if failure.is(403) => return Ok(true),
            found => found?.and_then(|found| found.metadata.resource_version),
        };
        Ok(is_reported(&fleet, &version.unwrap_or_default()))
    };
    match until_reported(cluster, Program::Hub, &source, timeout, look).await {
        // The hub may not read the Secret, for example: the wait names what is the matter.
        Err(_) if !is_ready(&find(cluster, name).await?) => Ok(()),
        done => done,
    }
}

fn is_ready(fleet: &FleetPullSecret) -> bool {
    let conditions = fleet.status.iter().flat_map(|status| &status.conditions);
    let mut ready = conditions.filter(|found| found.type_ == condition::READY);
    ready.any(|found| found.status == "True")
}

/// `version`: of the source Secret; empty: there is none. An object that is being deleted is reported on by its end.
fn is_reported(fleet: &FleetPullSecret, version: &str) -> bool {
    let is_fresh = fleet.status.as_ref().is_some_and(|status| {
        let generation = fleet.metadata.generation.unwrap_or_default();
        status.observed_generation >= generation && status.observed_secret == version
    });
    is_fresh || fleet.metadata.deletion_timestamp.is_some()
}
