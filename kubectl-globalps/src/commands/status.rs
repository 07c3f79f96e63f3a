//! `status`: how far every node is.

use jiff::Timestamp;

use super::status_namespaces;
use crate::cli::{Connection, Status as Args, StatusFormat};
use crate::client::Cluster;
use crate::error::{Exit, Failure};
use crate::facts::{Facts, Scope};
use crate::follow::{Follow, follow_some};
use crate::hypershift;
use crate::printer::{Printer, Stream, is_terminal, terminal_size};
use crate::status::{FOLLOW, Goal, SYNCERS, Status, advice};
use crate::syncers::look;
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
    let scope = Scope {
        names: args.node.clone(),
        selector: args.selector.clone(),
    };
    let cluster = Cluster::connect(flags, printer).await?;
    if args.namespaces {
        return status_namespaces::show(&cluster, args).await;
    }
    if args.watch {
        let how = Follow {
            goal: None,
            timeout: None,
            stream: Stream::Out,
        };
        return follow_some(&cluster, how, scope).await;
    }
    if !args.wait {
        return show(&cluster, args, scope).await;
    }
    let live = args.output == StatusFormat::Table && is_terminal(Stream::Out);
    let how = Follow {
        goal: Some(Goal::Synced),
        timeout: Some(args.timeout),
        stream: if live { Stream::Out } else { Stream::Err },
    };
    let waited = follow_some(&cluster, how, scope.clone()).await;
    // On a terminal the last frame is the result; elsewhere it is still to be said, whatever came of the wait.
    if !live && !matches!(waited, Ok(Exit::Interrupted)) {
        let facts = Facts::observe_some(&cluster, scope).await?;
        let now = Timestamp::now();
        let status = Status::of(&facts, now);
        if !(is_empty(&status) && is_table(args.output)) {
            print(printer, &status, now, args)?;
        }
    }
    waited
}

async fn show(cluster: &Cluster<'_>, args: &Args, scope: Scope) -> Result<Exit, Failure> {
    let facts = Facts::observe_some(cluster, scope).await?;
    if !facts.installed
        && let Some(seen) = hypershift::look(cluster).await?
    {
        return seen.show(cluster.printer(), args.output);
    }
    let now = Timestamp::now();
    let status = Status::of(&facts, now);
    unknown(&facts, &status)?;
    let printer = cluster.printer();
    let (nothing, table) = (is_empty(&status), is_table(args.output));
    if !(nothing && table) {
        print(printer, &status, now, args)?;
    }
    let troubles = if facts.installed && !status.ready {
        look(cluster).await?
    } else {
        Vec::new()
    };
    // The reason itself says more than these.
    let advice = advice(&facts, &status)
        .filter(|(_, hint)| troubles.is_empty() || ![FOLLOW, SYNCERS].contains(hint))
        .map(|(message, hint)| (message, hint.to_owned()));
    let troubles = troubles.iter().map(|found| (found.message(), found.hint()));
    for (at, (message, hint)) in advice.into_iter().chain(troubles).enumerate() {
        if at > 0 || !nothing && table {
            printer.note("");
        }
        printer.note(message);
        printer.hint(hint);
    }
    Ok(if status.ready { Exit::Done } else { Exit::No })
}

/// Nodes that were named and are not there.
fn unknown(facts: &Facts, status: &Status) -> Result<(), Failure> {
    if !facts.installed {
        return Ok(());
    }
    let is_there = |name: &&String| status.nodes.iter().any(|row| row.name == **name);
    let missing: Vec<&str> = facts
        .scope
        .names
        .iter()
        .filter(|name| !is_there(name))
        .map(String::as_str)
        .collect();
    let message = if !missing.is_empty() {
        format!("globalps has no node `{}`", missing.join("`, `"))
    } else if !facts.scope.is_all() && status.nodes.is_empty() {
        "globalps has no node with such labels".to_owned()
    } else {
        return Ok(());
    };
    Err(Failure::new(
        message,
        "`kubectl globalps status` shows the nodes, `kubectl get nodes --show-labels` their labels",
    ))
}

/// There is nothing that a table could show.
fn is_empty(status: &Status) -> bool {
    let namespaces = status.namespaces.as_ref();
    let operators = status.operators.as_ref();
    status.nodes.is_empty()
        && status.revision == 0
        && !status.paused
        && namespaces.is_none_or(|row| row.is_enabled && row.status.total == 0)
        && operators.is_none_or(|row| row.is_enabled && row.status.total == 0)
}

fn is_table(format: StatusFormat) -> bool {
    matches!(format, StatusFormat::Table | StatusFormat::Wide)
}

fn print(printer: &Printer, status: &Status, now: Timestamp, args: &Args) -> Result<(), Failure> {
    let format = args.output;
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
                no_headers: args.no_headers,
                color: printer.has_color(Stream::Out),
                live: false,
            };
            printer.data(&table::render(status, now, layout, None));
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
