//! `fleet`: one pull secret for many clusters, on the management cluster.

mod accept;
mod add;
mod diff;
mod install;
mod join;
mod nodes;
mod remove;
mod status;

use super::pause;
use super::retry;
use super::undo;
use crate::cli::completion::{Live, Suggestion};
use crate::cli::{Connection, Fleet, FleetCommand};
use crate::cluster::client::Cluster;
use crate::cluster::fleet::{FleetFacts, FleetFilter};
use crate::error::{Exit, Result};
use crate::target::fleet_history::{revision_choices, revisions_of};
use crate::terminal::printer::Printer;
use crate::view::fleet::FleetStatus;

pub(super) async fn run(args: &Fleet, flags: &Connection, printer: &Printer) -> Result<Exit> {
    match &args.command {
        FleetCommand::Install(args) => install::run(args, flags, printer).await,
        FleetCommand::Status(args) if args.nodes => nodes::run(args, flags, printer).await,
        FleetCommand::Status(args) => status::run(args, flags, printer).await,
        FleetCommand::Diff(args) => diff::run(args, flags, printer).await,
        FleetCommand::Pause(args) => pause::pause_clusters(args, flags, printer).await,
        FleetCommand::Resume(args) => pause::resume_clusters(args, flags, printer).await,
        FleetCommand::Retry(args) => retry::retry_clusters(args, flags, printer).await,
        FleetCommand::Accept(args) => accept::run(args, flags, printer).await,
        FleetCommand::Undo(args) => undo::undo_in_clusters(args, flags, printer).await,
        FleetCommand::Add(args) => add::run(args, flags, printer).await,
        FleetCommand::Join(args) => join::run(args, flags, printer).await,
        FleetCommand::Remove(args) => remove::run(args, flags, printer).await,
    }
}

/// What may come next on a command line. `fleet`: the `FleetPullSecret` that is named already.
pub(super) async fn choices(
    live: Live,
    fleet: Option<&String>,
    cluster: &Cluster<'_>,
) -> Result<Vec<Suggestion>> {
    let filter = match live {
        Live::Fleets => FleetFilter::default(),
        _ => FleetFilter::of(fleet.map_or("", String::as_str)),
    };
    let facts = FleetFacts::observe(cluster, filter).await?;
    if live == Live::FleetRevisions
        && let Some((_, fleet)) = facts.fleets.iter().next()
    {
        return Ok(revision_choices(&revisions_of(cluster, fleet).await?));
    }
    let statuses = facts.statuses();
    if live == Live::Fleets {
        let choice = |status: &FleetStatus| {
            let (_, name) = status.fleet.name.split_once('/').unwrap_or_default();
            (name.to_owned(), status.fleet.reason.clone())
        };
        return Ok(statuses.iter().map(choice).collect());
    }
    let rows = statuses.iter().flat_map(|status| &status.clusters);
    Ok(rows
        .filter(|row| live == Live::MemberClusters || retry::may_retry(row))
        .map(|row| (row.name.clone(), row.phase.to_string()))
        .collect())
}
