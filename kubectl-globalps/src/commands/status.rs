//! `status`: how far every node is.

use jiff::Timestamp;

use crate::cli::{Connection, Status as Args, StatusFormat};
use crate::client::Cluster;
use crate::error::{Exit, Failure};
use crate::facts::Facts;
use crate::follow::{Follow, follow};
use crate::printer::{Printer, Stream, is_terminal, terminal_size};
use crate::status::{Goal, Status, advice};
use crate::table::{self, Layout};

pub(super) async fn run(
    args: &Args,
    flags: &Connection,
    printer: &Printer,
) -> Result<Exit, Failure> {
    if args.watch && args.output != StatusFormat::Table {
        return Err(Failure::new(
            "`--watch` shows a table only",
            "leave out `-o`, or wait for the end with `--wait`",
        ));
    }
    let cluster = Cluster::connect(flags, printer).await?;
    if args.watch {
        let how = Follow {
            goal: None,
            timeout: None,
            stream: Stream::Out,
        };
        return follow(&cluster, how).await;
    }
    if !args.wait {
        return show(&cluster, args.output).await;
    }
    let live = args.output == StatusFormat::Table && is_terminal(Stream::Out);
    let how = Follow {
        goal: Some(Goal::Synced),
        timeout: Some(args.timeout),
        stream: if live { Stream::Out } else { Stream::Err },
    };
    let waited = follow(&cluster, how).await;
    // On a terminal the last frame is the result; elsewhere it is still to be said, whatever came of the wait.
    if !live && !matches!(waited, Ok(Exit::Interrupted)) {
        let facts = Facts::observe(&cluster).await?;
        let now = Timestamp::now();
        let status = Status::of(&facts, now);
        if !(is_empty(&status) && is_table(args.output)) {
            print(printer, &status, now, args.output)?;
        }
    }
    waited
}

async fn show(cluster: &Cluster<'_>, format: StatusFormat) -> Result<Exit, Failure> {
    let facts = Facts::observe(cluster).await?;
    let now = Timestamp::now();
    let status = Status::of(&facts, now);
    let printer = cluster.printer();
    let (nothing, table) = (is_empty(&status), is_table(format));
    if !(nothing && table) {
        print(printer, &status, now, format)?;
    }
    if let Some((message, hint)) = advice(&facts, &status) {
        if !nothing && table {
            printer.note("");
        }
        printer.note(message);
        printer.hint(hint);
    }
    Ok(if status.ready { Exit::Done } else { Exit::No })
}

/// There is nothing that a table could show.
fn is_empty(status: &Status) -> bool {
    status.nodes.is_empty() && status.conditions.is_empty()
}

fn is_table(format: StatusFormat) -> bool {
    matches!(format, StatusFormat::Table | StatusFormat::Wide)
}

fn print(
    printer: &Printer,
    status: &Status,
    now: Timestamp,
    format: StatusFormat,
) -> Result<(), Failure> {
    let unprintable = || {
        Failure::new(
            "the status could not be written in that format",
            "leave out `-o`",
        )
    };
    match format {
        StatusFormat::Table | StatusFormat::Wide => {
            let layout = Layout {
                width: terminal_size(Stream::Out).map(|(_, width)| width),
                height: None,
                wide: format == StatusFormat::Wide,
                color: printer.has_color(Stream::Out),
            };
            printer.data(&table::render(status, now, layout));
        }
        StatusFormat::Json => {
            printer.data(&serde_json::to_string_pretty(status).map_err(|_| unprintable())?);
        }
        StatusFormat::Yaml => {
            printer.data(&serde_saphyr::to_string(status).map_err(|_| unprintable())?);
        }
        StatusFormat::Name => {
            for row in &status.nodes {
                printer.data(&format!("nodepullsecret.globalps.io/{}", row.name));
            }
        }
    }
    Ok(())
}
