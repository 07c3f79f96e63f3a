//! `status`: how far every node is.

use jiff::Timestamp;

use super::status_namespaces;
use crate::cli::{Connection, Status as Args, StatusFormat};
use crate::cluster::client::Cluster;
use crate::cluster::facts::{Facts, Scope};
use crate::cluster::hypershift;
use crate::cluster::syncers::look;
use crate::error::{Exit, Failure};
use crate::terminal::layout::Layout;
use crate::terminal::printer::{Printer, Stream, is_terminal, json, terminal_size, yaml};
use crate::view::follow::follow_some;
use crate::view::following::Follow;
use crate::view::status::{FOLLOW, Goal, SYNCERS, Status, advice};
use crate::view::table;

/// How a status is printed.
#[derive(Clone, Copy)]
pub(super) struct Output {
    pub(super) format: StatusFormat,
    pub(super) no_headers: bool,
}

impl Output {
    pub(super) fn is_table(self) -> bool {
        matches!(self.format, StatusFormat::Table | StatusFormat::Wide)
    }

    pub(super) fn layout(self, printer: &Printer) -> Layout {
        Layout {
            width: terminal_size(Stream::Out).map(|(_, width)| width),
            wide: self.format == StatusFormat::Wide,
            no_headers: self.no_headers,
            color: printer.has_color(Stream::Out),
            ..Layout::default()
        }
    }

    /// Where a wait is shown: a table of its own on a terminal is the result, too.
    pub(super) fn of_wait(self) -> Stream {
        if self.format == StatusFormat::Table && is_terminal(Stream::Out) {
            Stream::Out
        } else {
            Stream::Err
        }
    }
}

/// A watch redraws a table, and nothing else.
pub(super) fn may_watch(watch: bool, format: StatusFormat) -> Result<(), Failure> {
    if watch && format != StatusFormat::Table {
        return Err(Failure::new(
            "`--watch` shows a table only",
            "leave out `-o`, or wait for the end with `--wait`",
        ));
    }
    Ok(())
}

pub(super) async fn run(
    args: &Args,
    flags: &Connection,
    printer: &Printer,
) -> Result<Exit, Failure> {
    may_watch(args.watch, args.output)?;
    let how = Output {
        format: args.output,
        no_headers: args.no_headers,
    };
    let scope = Scope {
        names: args.node.clone(),
        selector: args.selector.clone(),
    };
    let cluster = Cluster::connect(flags, printer)?;
    if args.namespaces {
        return status_namespaces::show(&cluster, args).await;
    }
    if args.watch {
        return follow_some(&cluster, Follow::watch(), scope).await;
    }
    if !args.wait {
        return show(&cluster, how, scope).await;
    }
    let wait = Follow::until(Goal::Synced, args.timeout, how.of_wait());
    let waited = follow_some(&cluster, wait, scope.clone()).await;
    // On a terminal the last frame is the result; elsewhere it is still to be printed, whatever came of the wait.
    if wait.stream == Stream::Err && !matches!(waited, Ok(Exit::Interrupted)) {
        let facts = Facts::observe_some(&cluster, scope).await?;
        let now = Timestamp::now();
        let status = Status::of(&facts, now);
        if !(is_empty(&status) && how.is_table()) {
            print(printer, &status, now, how)?;
        }
    }
    waited
}

/// One look. Says no where not every node is synced.
pub(super) async fn show(
    cluster: &Cluster<'_>,
    how: Output,
    scope: Scope,
) -> Result<Exit, Failure> {
    let facts = Facts::observe_some(cluster, scope).await?;
    if !facts.installed
        && let Some(seen) = hypershift::look(cluster).await?
    {
        return seen.show(cluster.printer(), how.format);
    }
    let now = Timestamp::now();
    let status = Status::of(&facts, now);
    unknown(&facts, &status)?;
    let has_table = how.is_table() && !is_empty(&status);
    if has_table || !how.is_table() {
        print(cluster.printer(), &status, now, how)?;
    }
    advise(cluster, &facts, &status, has_table).await
}

/// What is the matter and what to do, on stderr. `is_below`: of a table.
pub(super) async fn advise(
    cluster: &Cluster<'_>,
    facts: &Facts,
    status: &Status,
    is_below: bool,
) -> Result<Exit, Failure> {
    let printer = cluster.printer();
    let errors = if facts.installed && !status.ready {
        look(cluster).await?
    } else {
        Vec::new()
    };
    // The reason itself says more than these.
    let advice = advice(facts, status)
        .filter(|(_, hint)| errors.is_empty() || ![FOLLOW, SYNCERS].contains(hint))
        .map(|(message, hint)| (message, hint.to_owned()));
    let errors = errors.iter().map(|found| (found.message(), found.hint()));
    for (at, (message, hint)) in advice.into_iter().chain(errors).enumerate() {
        if at > 0 || is_below {
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

fn print(printer: &Printer, status: &Status, now: Timestamp, how: Output) -> Result<(), Failure> {
    match how.format {
        StatusFormat::Table | StatusFormat::Wide => {
            printer.painted(&table::render(status, now, how.layout(printer), None));
        }
        StatusFormat::Json => printer.data(&json("the status", status)?),
        StatusFormat::Yaml => printer.data(&yaml("the status", status)?),
        StatusFormat::Name => {
            for row in &status.nodes {
                printer.data(&format!("nodepullsecret.globalps.io/{}", row.name));
            }
        }
    }
    Ok(())
}
