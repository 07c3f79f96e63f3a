//! `history`: the additional pull secrets that were rolled out.

use crate::cli::{Connection, Form, History as Args};
use crate::cluster::{Cluster, must_watch};
use crate::error::{Exit, Failure, Result};
use crate::secret::changes::text;
use crate::target::history::{Observed, hint, observe};
use crate::terminal::printer::Printer;
use crate::view::history::History;

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

fn not_kept(number: i64, forgotten: i64) -> Failure {
    let hint = hint(Some(number), forgotten);
    Failure::new(format!("revision {number} is not kept"), hint)
}
