//! `fleet pause` and `fleet resume`: whether further clusters change.

use globalps_core::api::FleetPullSecret;

use super::super::pause::{report, set_paused};
use super::wait::follow_if;
use crate::cli::{Connection, FleetPause, FleetResume};
use crate::cluster::client::Cluster;
use crate::cluster::fleet::find;
use crate::error::{Exit, Result};
use crate::terminal::printer::Printer;
use crate::view::fleet::title;
use crate::view::fleet::verdict::{Goal, command};

pub(super) async fn pause(
    args: &FleetPause,
    flags: &Connection,
    printer: &Printer,
) -> Result<Exit> {
    let cluster = Cluster::connect(flags, printer)?;
    let title = title(&set(&cluster, &args.fleet, true).await?);
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
) -> Result<Exit> {
    let cluster = Cluster::connect(flags, printer)?;
    let fleet = set(&cluster, &args.fleet, false).await?;
    let goal = match fleet.metadata.deletion_timestamp {
        Some(_) => Goal::Removed,
        None => Goal::Synced,
    };
    follow_if(&cluster, &args.fleet, goal, &args.wait).await
}

async fn set(cluster: &Cluster<'_>, name: &str, paused: bool) -> Result<FleetPullSecret> {
    let fleet = find(cluster, name).await?;
    let changed = set_paused::<FleetPullSecret>(cluster, name, paused).await?;
    report(cluster, "fleetpullsecret", name, paused, changed);
    Ok(fleet)
}
