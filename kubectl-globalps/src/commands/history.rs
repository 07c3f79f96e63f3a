//! `history`: the additional pull secrets that were rolled out.

use futures::future::try_join_all;
use globalps_core::names;
use k8s_openapi::api::core::v1::Secret;

use super::pull_secret;
use crate::cli::{Connection, Form, History as Args};
use crate::cluster::facts::was_additional_rolled_out;
use crate::cluster::{Cluster, must_watch};
use crate::error::{Exit, Failure, Result};
use crate::secret::changes::{InForce, text};
use crate::secret::history::{StoredRevision, sorted};
use crate::terminal::printer::Printer;
use crate::view::history::{History, Progress};

pub(super) async fn run(args: &Args, flags: &Connection, printer: &Printer) -> Result<Exit> {
    let cluster = Cluster::connect(flags, printer)?;
    must_watch(&cluster).await?;
    let Observed {
        mut revisions,
        in_force,
        progress,
        forgotten,
        ..
    } = observe(&cluster).await?;
    if let Some(number) = args.revision {
        revisions.retain(|revision| revision.number == number);
        if revisions.is_empty() {
            return Err(not_kept(number, forgotten));
        }
    }
    let history = History::of(&revisions, &in_force, progress);
    let names = revisions.iter();
    let names = names.map(|revision| format!("secret/{}", revision.secret));
    printer.print(&args.output, ("the history", &history), names, || {
        if revisions.is_empty() {
            printer.note("nothing was rolled out yet");
            return;
        }
        let is_wide = args.output == Form::Wide;
        printer.data(&history.table(cluster.now(), is_wide));
        if let [only] = history.revisions.as_slice()
            && args.revision.is_some()
        {
            printer.data(&format!("\n{}", text(&only.changes)));
        }
    })?;
    Ok(Exit::Done)
}

const HINT: &str = "see `kubectl globalps history`; `spec.historyLimit` of GlobalPullSecret `global-pull-secret` sets how many are kept";

/// The hint for a revision that is not kept; `None`: no revision that differs is kept. `forgotten`: content up to this
/// revision was forgotten on request.
pub(super) fn hint(number: Option<i64>, forgotten: i64) -> String {
    if forgotten > 0 && number.is_none_or(|number| number <= forgotten) {
        return format!(
            "content up to revision {forgotten} was forgotten on request, because a password in it leaked; `kubectl globalps add` writes new credentials"
        );
    }
    HINT.to_owned()
}

fn not_kept(number: i64, forgotten: i64) -> Failure {
    let hint = hint(Some(number), forgotten);
    Failure::new(format!("revision {number} is not kept"), hint)
}

pub(super) struct Observed {
    /// Newest first.
    pub revisions: Vec<StoredRevision>,
    pub in_force: InForce,
    /// See [`was_additional_rolled_out`].
    pub was_additional_rolled_out: bool,
    /// Progress of the newest revision while not every node has it.
    progress: Option<Progress>,
    /// Content up to this revision was forgotten on request; 0 if none was.
    pub forgotten: i64,
}

pub(super) async fn observe(cluster: &Cluster<'_>) -> Result<Observed> {
    let gps = pull_secret::configuration(cluster).await?;
    let spec = gps.as_ref().map(|gps| gps.spec.clone()).unwrap_or_default();
    let (slots, global) = tokio::try_join!(
        slots(cluster, spec.history_limit),
        pull_secret::get(cluster, names::GLOBAL_SECRET),
    )?;
    Ok(Observed {
        revisions: sorted(slots, global.as_ref()),
        in_force: InForce::of(global.as_ref(), Some(&spec), names::ADDITIONAL_SECRET),
        was_additional_rolled_out: global
            .as_ref()
            .is_some_and(|global| was_additional_rolled_out(&global.metadata)),
        progress: Progress::of(global.as_ref(), gps.as_ref()),
        forgotten: gps
            .and_then(|gps| gps.status)
            .map_or(0, |status| status.forgotten_revision),
    })
}

/// The Secrets of the history.
pub(super) async fn slots(cluster: &Cluster<'_>, limit: u32) -> Result<Vec<Secret>> {
    let names = (0..limit.min(names::HISTORY_SLOTS)).map(names::history_secret);
    let found =
        try_join_all(names.map(async |name| pull_secret::get(cluster, &name).await)).await?;
    Ok(found.into_iter().flatten().collect())
}
