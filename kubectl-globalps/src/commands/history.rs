//! `history`: the additional pull secrets that were rolled out.

use futures::future::try_join_all;
use globalps_core::names;
use k8s_openapi::api::core::v1::Secret;

use super::pull_secret;
use crate::cli::{Connection, History as Args, TableFormat};
use crate::cluster::client::Cluster;
use crate::cluster::controller::must_watch;
use crate::cluster::facts::is_additional_proven;
use crate::error::{Exit, Failure};
use crate::secret::changes::{InForce, text};
use crate::secret::history::{History, Progress, Revision, sorted};
use crate::terminal::printer::Printer;

pub(super) async fn run(
    args: &Args,
    flags: &Connection,
    printer: &Printer,
) -> Result<Exit, Failure> {
    let cluster = Cluster::connect(flags, printer)?;
    must_watch(&cluster).await?;
    let Observed {
        mut revisions,
        in_force,
        progress,
        ..
    } = observe(&cluster).await?;
    if let Some(number) = args.revision {
        revisions.retain(|revision| revision.number == number);
        if revisions.is_empty() {
            return Err(not_kept(number));
        }
    }
    let history = History::of(&revisions, &in_force, progress);
    let names = revisions.iter();
    let names = names.map(|revision| format!("secret/{}", revision.secret));
    printer.print(args.output, ("the history", &history), names, || {
        if revisions.is_empty() {
            printer.note("nothing was rolled out yet");
            return;
        }
        let is_wide = args.output == TableFormat::Wide;
        printer.data(&history.table(cluster.now(), is_wide));
        if let [only] = history.revisions.as_slice()
            && args.revision.is_some()
        {
            printer.data(&format!("\n{}", text(&only.changes)));
        }
    })?;
    Ok(Exit::Done)
}

pub(super) const HINT: &str = "see `kubectl globalps history`; `spec.historyLimit` of GlobalPullSecret `global-pull-secret` sets how many are kept";

fn not_kept(number: i64) -> Failure {
    Failure::new(format!("revision {number} is not kept"), HINT)
}

pub(super) struct Observed {
    /// What was rolled out, the newest first.
    pub revisions: Vec<Revision>,
    pub in_force: InForce,
    /// See [`is_additional_proven`].
    pub is_additional_proven: bool,
    /// Of the newest revision, while not every node has it.
    progress: Option<Progress>,
}

pub(super) async fn observe(cluster: &Cluster<'_>) -> Result<Observed, Failure> {
    let gps = pull_secret::configuration(cluster).await?;
    let spec = gps.as_ref().map(|gps| gps.spec.clone()).unwrap_or_default();
    let (slots, global) = tokio::try_join!(
        slots(cluster, spec.history_limit),
        pull_secret::get(cluster, names::GLOBAL_SECRET),
    )?;
    Ok(Observed {
        revisions: sorted(slots, global.as_ref()),
        in_force: InForce::of(global.as_ref(), Some(&spec), names::ADDITIONAL_SECRET),
        is_additional_proven: global
            .as_ref()
            .is_some_and(|global| is_additional_proven(&global.metadata)),
        progress: Progress::of(global.as_ref(), gps.as_ref()),
    })
}

/// The Secrets of the history.
pub(super) async fn slots(cluster: &Cluster<'_>, limit: u32) -> Result<Vec<Secret>, Failure> {
    let names = (0..limit.min(names::HISTORY_SLOTS)).map(names::history_secret);
    let found =
        try_join_all(names.map(async |name| pull_secret::get(cluster, &name).await)).await?;
    Ok(found.into_iter().flatten().collect())
}
