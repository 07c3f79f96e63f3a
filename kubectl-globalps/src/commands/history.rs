//! `history`: the additional pull secrets that were rolled out.

use futures::future::try_join_all;
use globalps_core::names;
use jiff::Timestamp;

use super::pull_secret;
use crate::cli::{Connection, History as Args, ListFormat};
use crate::cluster::client::Cluster;
use crate::error::{Exit, Failure};
use crate::secret::changes::{InForce, text};
use crate::secret::history::{History, Revision, sorted};
use crate::terminal::printer::{Printer, json, yaml};

pub(super) async fn run(
    args: &Args,
    flags: &Connection,
    printer: &Printer,
) -> Result<Exit, Failure> {
    let cluster = Cluster::connect(flags, printer)?;
    let (mut revisions, in_force) = observe(&cluster).await?;
    if let Some(number) = args.revision {
        revisions.retain(|revision| revision.number == number);
        if revisions.is_empty() {
            return Err(not_kept(number));
        }
    }
    let history = History::of(&revisions, &in_force);
    match args.output {
        ListFormat::Json => printer.data(&json("the history", &history)?),
        ListFormat::Yaml => printer.data(&yaml("the history", &history)?),
        ListFormat::Table if revisions.is_empty() => printer.note("nothing was rolled out yet"),
        ListFormat::Table => {
            printer.data(&history.table(Timestamp::now()));
            if let [only] = history.revisions.as_slice()
                && args.revision.is_some()
            {
                printer.data(&format!("\n{}", text(&only.changes)));
            }
        }
    }
    Ok(Exit::Done)
}

pub(super) const HINT: &str = "see `kubectl globalps history`; `spec.historyLimit` of GlobalPullSecret `global-pull-secret` sets how many are kept";

fn not_kept(number: i64) -> Failure {
    Failure::new(format!("revision {number} is not kept"), HINT)
}

/// What was rolled out, the newest first, and what is in force.
pub(super) async fn observe(cluster: &Cluster<'_>) -> Result<(Vec<Revision>, InForce), Failure> {
    let gps = pull_secret::configuration(cluster).await?;
    let spec = gps.map(|gps| gps.spec).unwrap_or_default();
    let slots = (0..spec.history_limit.min(names::HISTORY_SLOTS)).map(names::history_secret);
    let (slots, global) = tokio::try_join!(
        try_join_all(slots.map(async |name| pull_secret::get(cluster, &name).await)),
        pull_secret::get(cluster, names::GLOBAL_SECRET),
    )?;
    let revisions = sorted(slots.into_iter().flatten(), global.as_ref());
    Ok((
        revisions,
        InForce::of(global.as_ref(), Some(&spec), names::ADDITIONAL_SECRET),
    ))
}
