//! `fleet status`: how far every cluster is.

use jiff::Timestamp;
use serde::Serialize;

use crate::cli::{Connection, FleetStatus as Args, StatusFormat};
use crate::client::Cluster;
use crate::error::{Exit, Failure};
use crate::fleet::facts::{Facts, Scope};
use crate::fleet::follow::{Follow, follow, text};
use crate::fleet::verdict::{Goal, advice};
use crate::fleet::{FleetStatus, Overview, is_named, is_ready};
use crate::printer::{Printer, Stream, is_terminal, terminal_size};
use crate::table::Layout;

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
        fleet: args.fleet.clone(),
        clusters: args.clusters.clone(),
        all_namespaces: args.all_namespaces,
    };
    let cluster = Cluster::connect(flags, printer).await?;
    if args.watch {
        let how = Follow {
            goal: None,
            timeout: None,
            stream: Stream::Out,
        };
        return follow(&cluster, how, scope).await;
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
    unknown(&Facts::observe(&cluster, scope.clone()).await?)?;
    let waited = follow(&cluster, how, scope.clone()).await;
    // On a terminal the last frame is the result; elsewhere it is still to be printed, whatever came of the wait.
    if !live && !matches!(waited, Ok(Exit::Interrupted)) {
        let facts = Facts::observe(&cluster, scope).await?;
        print(printer, &facts.statuses(), &facts.scope, args)?;
    }
    waited
}

async fn show(cluster: &Cluster<'_>, args: &Args, scope: Scope) -> Result<Exit, Failure> {
    let facts = Facts::observe(cluster, scope).await?;
    unknown(&facts)?;
    let all = facts.statuses();
    let printer = cluster.printer();
    let is_table = matches!(args.output, StatusFormat::Table | StatusFormat::Wide);
    if all.is_empty() && is_table {
        let (place, hint) = if facts.scope.all_namespaces {
            let hint = "`kubectl globalps fleet add --help` shows how to create one";
            (String::new(), hint)
        } else {
            let hint = "`kubectl globalps fleet status -A` shows those of every namespace";
            (format!(" in namespace `{}`", cluster.namespace), hint)
        };
        printer.note(format_args!("there is no FleetPullSecret{place}"));
        printer.hint(hint);
        return Ok(Exit::No);
    }
    print(printer, &all, &facts.scope, args)?;
    for (message, hint) in all.iter().filter_map(advice) {
        if is_table {
            printer.note("");
        }
        printer.note(message);
        printer.hint(hint);
    }
    Ok(if is_ready(&all) { Exit::Done } else { Exit::No })
}

/// Clusters that were named and are not there.
fn unknown(facts: &Facts) -> Result<(), Failure> {
    let statuses = facts.statuses();
    let Some(status) = statuses.first().filter(|_| facts.scope.fleet.is_some()) else {
        return Ok(());
    };
    missing(&facts.scope.clusters, status)
}

pub(super) fn missing(named: &[String], status: &FleetStatus) -> Result<(), Failure> {
    let is_there = |name: &&String| {
        let one = std::slice::from_ref(*name);
        status.clusters.iter().any(|row| is_named(&row.name, one))
    };
    let missing: Vec<&str> = named
        .iter()
        .filter(|name| !is_there(name))
        .map(String::as_str)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::new(
        format!(
            "FleetPullSecret `{}` has no cluster `{}`",
            status.fleet.name,
            missing.join("`, `")
        ),
        "`kubectl globalps fleet status NAME` shows its clusters; labels select them",
    ))
}

fn print(
    printer: &Printer,
    all: &[FleetStatus],
    scope: &Scope,
    args: &Args,
) -> Result<(), Failure> {
    match (args.output, all) {
        (StatusFormat::Table | StatusFormat::Wide, all) => {
            let layout = Layout {
                width: terminal_size(Stream::Out).map(|(_, width)| width),
                wide: args.output == StatusFormat::Wide,
                no_headers: args.no_headers,
                color: printer.has_color(Stream::Out),
                ..Layout::default()
            };
            let now = Timestamp::now();
            printer.data(&text(all, scope, now, layout, None));
            Ok(())
        }
        (StatusFormat::Name, [status]) if scope.fleet.is_some() => {
            for row in &status.clusters {
                printer.data(&format!("clusterpullsecret.globalps.io/{}", row.object));
            }
            Ok(())
        }
        (StatusFormat::Name, all) => {
            for status in all {
                let (_, name) = status.fleet.name.split_once('/').unwrap_or_default();
                printer.data(&format!("fleetpullsecret.globalps.io/{name}"));
            }
            Ok(())
        }
        (format, [status]) if scope.fleet.is_some() => serialized(printer, format, status),
        (format, all) => serialized(printer, format, &Overview::of(all)),
    }
}

fn serialized(
    printer: &Printer,
    format: StatusFormat,
    value: &impl Serialize,
) -> Result<(), Failure> {
    let text = if format == StatusFormat::Yaml {
        serde_saphyr::to_string(value).ok()
    } else {
        serde_json::to_string_pretty(value).ok()
    };
    let text = text.ok_or_else(|| {
        Failure::new(
            "the status could not be written in that format",
            "leave out `-o`",
        )
    })?;
    printer.data(&text);
    Ok(())
}
