//! `fleet status`: how far every cluster is.

use crate::cli::{Connection, FleetStatus as Args};
use crate::cluster::client::Cluster;
use crate::cluster::fleet::{FleetFacts, FleetFilter};
use crate::error::{Exit, Result};
use crate::follow::clusters::follow;
use crate::follow::live::Follow;
use crate::target::clusters::missing;
use crate::target::wait::after;
use crate::target::wait_clusters::taken_up;
use crate::terminal::output::{Output, may_watch};
use crate::terminal::printer::Printer;
use crate::view::fleet::table::text;
use crate::view::fleet::verdict::{FleetGoal, advice};
use crate::view::fleet::{FleetStatus, Overview, is_ready};

pub(super) async fn run(args: &Args, flags: &Connection, printer: &Printer) -> Result<Exit> {
    may_watch(args.watch, &args.output)?;
    let how = Output::new(&args.output, args.no_headers);
    let filter = FleetFilter {
        fleet: args.fleet.clone(),
        clusters: args.clusters.clone(),
        all_namespaces: args.all_namespaces,
    };
    let cluster = Cluster::connect(flags, printer)?;
    if args.watch {
        return follow(&cluster, Follow::watch(), filter).await;
    }
    if !args.wait {
        return show(&cluster, how, filter).await;
    }
    let wait = Follow::until(FleetGoal::Synced, args.timeout, how.of_wait());
    match FleetFacts::observe(&cluster, filter.clone()).await {
        // The wait outlasts it.
        Err(failure) if failure.may_pass() => {}
        facts => {
            unknown(&facts?)?;
            if let Some(name) = &filter.fleet {
                taken_up(&cluster, name, args.timeout).await?;
            }
        }
    }
    let waited = follow(&cluster, wait, filter.clone()).await;
    after(wait.stream, waited, async || {
        let facts = FleetFacts::observe(&cluster, filter).await?;
        print(&cluster, &facts.statuses(), &facts.filter, how)
    })
    .await
}

async fn show(cluster: &Cluster<'_>, how: Output<'_>, filter: FleetFilter) -> Result<Exit> {
    let facts = FleetFacts::observe(cluster, filter).await?;
    unknown(&facts)?;
    let all = facts.statuses();
    let printer = cluster.printer();
    if all.is_empty() && how.is_table() {
        let (place, hint) = if facts.filter.all_namespaces {
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
    print(cluster, &all, &facts.filter, how)?;
    for (message, hint) in all.iter().filter_map(advice) {
        if how.is_table() {
            printer.note("");
        }
        printer.note(message);
        printer.hint(hint);
    }
    Ok(Exit::of(is_ready(&all)))
}

/// Clusters that were named and are not there.
fn unknown(facts: &FleetFacts) -> Result<()> {
    let statuses = facts.statuses();
    let Some(status) = statuses.first().filter(|_| facts.filter.fleet.is_some()) else {
        return Ok(());
    };
    missing(&facts.filter.clusters, status)
}

pub(super) fn print(
    cluster: &Cluster<'_>,
    all: &[FleetStatus],
    filter: &FleetFilter,
    how: Output<'_>,
) -> Result<()> {
    let printer = cluster.printer();
    let text = || {
        let now = cluster.now();
        printer.painted(&text(all, filter, now, how.layout(printer), None));
    };
    if let [status] = all
        && filter.fleet.is_some()
    {
        let clusters = status.managed();
        let names = clusters.map(|row| format!("clusterpullsecret.globalps.io/{}", row.object));
        return printer.print(how.format, ("the status", status), names, text);
    }
    let names = all.iter().map(|status| {
        let (_, name) = status.fleet.name.split_once('/').unwrap_or_default();
        format!("fleetpullsecret.globalps.io/{name}")
    });
    printer.print(how.format, ("the status", &Overview::of(all)), names, text)
}
