//! Waiting for a rollout to clusters.

use std::time::Duration;

use globalps_core::api::FleetPullSecret;
use globalps_core::names;
use tokio::time::Instant;

use crate::cli::FleetWait;
use crate::cluster::client::Cluster;
use crate::error::{Exit, Failure};
use crate::terminal::printer::Stream;
use crate::view::fleet::facts::{Scope, find};
use crate::view::fleet::follow::follow;
use crate::view::fleet::verdict::Goal;
use crate::view::following::Follow;

/// How long the hub may take to begin a rollout.
const TAKE_UP: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Follows the rollout where that was asked for, and else says how to.
pub(super) async fn follow_if(
    cluster: &Cluster<'_>,
    fleet: &str,
    goal: Goal,
    wait: &FleetWait,
) -> Result<Exit, Failure> {
    if !wait.wait {
        let flag = match cluster.namespace.as_str() {
            names::NAMESPACE => String::new(),
            namespace => format!(" -n {namespace}"),
        };
        let what = match goal {
            Goal::Synced => "rollout",
            Goal::Removed => "removal",
        };
        cluster.printer().note(format_args!(
            "follow the {what} with `kubectl globalps fleet status {fleet}{flag} --watch`"
        ));
        return Ok(Exit::Done);
    }
    let how = Follow::until(goal, wait.timeout, Stream::Err);
    follow(cluster, how, Scope::of(fleet)).await
}

/// Waits until the hub reports a newer revision than this, some seconds at most: a change may bring none.
pub(super) async fn taken_up(
    cluster: &Cluster<'_>,
    name: &str,
    before: i64,
) -> Result<(), Failure> {
    let deadline = Instant::now() + TAKE_UP;
    while Instant::now() < deadline {
        match find(cluster, name).await {
            Ok(fleet) if reported_revision(&fleet) > before => break,
            // The wait names an outage that lasts.
            Err(failure) if !failure.may_pass() => return Err(failure),
            _ => tokio::time::sleep(LOOK_AGAIN).await,
        }
    }
    Ok(())
}

/// The revision that the hub reported last; 0: none.
pub(super) fn reported_revision(fleet: &FleetPullSecret) -> i64 {
    fleet.status.as_ref().map_or(0, |status| status.revision)
}
