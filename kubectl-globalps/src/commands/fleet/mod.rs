//! `fleet`: one pull secret for many clusters, on the management cluster.

mod add;
mod diff;
mod install;
mod join;
mod member;
mod nodes;
mod pause;
mod remove;
mod retry;
mod status;
mod undo;

use std::time::Duration;

use globalps_core::api::{ClusterPhase, FleetPullSecret};
use globalps_core::names;
use tokio::time::Instant;

use crate::cli::{Connection, Fleet, FleetCommand, FleetWait};
use crate::client::Cluster;
use crate::completion::{Choice, Live};
use crate::error::{Exit, Failure};
use crate::fleet::facts::{Facts, Scope, find};
use crate::fleet::follow::follow;
use crate::fleet::verdict::Goal;
use crate::fleet::{ClusterRow, FleetStatus};
use crate::following::Follow;
use crate::printer::{Printer, Stream};

/// How long the hub may take to begin a rollout.
const TAKE_UP: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(200);

pub(super) async fn run(
    args: &Fleet,
    flags: &Connection,
    printer: &Printer,
) -> Result<Exit, Failure> {
    match &args.command {
        FleetCommand::Install(args) => install::run(args, flags, printer).await,
        FleetCommand::Status(args) => status::run(args, flags, printer).await,
        FleetCommand::Diff(args) => diff::run(args, flags, printer).await,
        FleetCommand::Pause(args) => pause::pause(args, flags, printer).await,
        FleetCommand::Resume(args) => pause::resume(args, flags, printer).await,
        FleetCommand::Retry(args) => retry::run(args, flags, printer).await,
        FleetCommand::Undo(args) => undo::run(args, flags, printer).await,
        FleetCommand::Add(args) => add::run(args, flags, printer).await,
        FleetCommand::Join(args) => join::run(args, flags, printer).await,
        FleetCommand::Remove(args) => remove::run(args, flags, printer).await,
    }
}

/// Follows the rollout where that was asked for, and else says how to.
async fn follow_if(
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
async fn taken_up(cluster: &Cluster<'_>, name: &str, before: i64) -> Result<(), Failure> {
    let deadline = Instant::now() + TAKE_UP;
    while revision(&find(cluster, name).await?) <= before && Instant::now() < deadline {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok(())
}

/// The revision that the hub reported last; 0: none.
fn revision(fleet: &FleetPullSecret) -> i64 {
    fleet.status.as_ref().map_or(0, |status| status.revision)
}

/// What may come next on a command line. `fleet`: the `FleetPullSecret` that is named already.
pub(super) async fn choices(
    live: Live,
    fleet: Option<&String>,
    cluster: &Cluster<'_>,
) -> Result<Vec<Choice>, Failure> {
    let scope = match live {
        Live::Fleets => Scope::default(),
        _ => Scope::of(fleet.map_or("", String::as_str)),
    };
    let facts = Facts::observe(cluster, scope).await?;
    if live == Live::FleetRevisions
        && let Some((_, fleet)) = facts.fleets.iter().next()
    {
        return undo::choices(cluster, fleet).await;
    }
    let statuses = facts.statuses();
    if live == Live::Fleets {
        let choice = |status: &FleetStatus| {
            let (_, name) = status.fleet.name.split_once('/').unwrap_or_default();
            (name.to_owned(), status.fleet.reason.clone())
        };
        return Ok(statuses.iter().map(choice).collect());
    }
    let is_failed = |row: &ClusterRow| {
        let phase = row.phase;
        matches!(phase, ClusterPhase::Failed | ClusterPhase::Blocked) && !row.object.is_empty()
    };
    let rows = statuses.iter().flat_map(|status| &status.clusters);
    Ok(rows
        .filter(|row| live == Live::MemberClusters || is_failed(row))
        .map(|row| (row.name.clone(), row.phase.to_string()))
        .collect())
}
