//! `check`: reads everything and changes nothing.

pub(super) mod reason;

use crate::cli::{Check as Args, Connection};
use crate::cluster::{Cluster, must_watch_if_known};
use crate::credentials::live_check::trust;
use crate::diagnose::check::{CheckReport, unreachable};
use crate::diagnose::evidence::cluster::look;
use crate::error::{Exit, Result};
use crate::terminal::printer::{Printer, Stream, terminal_width};

pub(crate) async fn run(args: &Args, flags: &Connection, printer: &Printer) -> Result<Exit> {
    let asking = if args.registries {
        Some((&args.asking, trust(&args.asking)?))
    } else {
        None
    };
    let found = match Cluster::connect(flags, printer) {
        Ok(cluster) => {
            let (watches, found) = Box::pin(async {
                tokio::join!(must_watch_if_known(&cluster), look(asking, &cluster))
            })
            .await;
            watches?;
            found
        }
        Err(failure) => Err(failure),
    };
    let (checks, reached) = match found {
        Ok(checks) => (checks, true),
        Err(failure) => (vec![unreachable(&failure.message, &failure.hint)], false),
    };
    let report = CheckReport::of(checks);
    printer.print(&args.output, ("the report", &report), [], || {
        let paint = |code: &str, text: &str| printer.paint(Stream::Out, code, text);
        let width = terminal_width(Stream::Out).map(usize::from);
        printer.painted(&report.text(width, paint));
        if reached && !args.registries {
            printer.painted(
                "The registries were not asked whether they accept the credentials: `--registries`",
            );
        }
    })?;
    Ok(match (reached, report.healthy) {
        (false, _) => Exit::Failed,
        (true, true) => Exit::Done,
        (true, false) => Exit::No,
    })
}
