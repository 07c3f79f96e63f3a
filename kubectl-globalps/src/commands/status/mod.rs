//! `status`: how far every node is.

mod namespaces;

use globalps_core::api::GlobalPullSecret;
use globalps_core::reasons::Reason;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;

use crate::cli::{Connection, Form, Status as Args};
use crate::cluster::facts::NodeFilter;
use crate::cluster::{
    Cluster, Facts, Sight, hypershift, installed, must_watch, must_watch_if_known,
};
use crate::error::{Exit, Failure, Result};
use crate::follow::live::Follow;
use crate::follow::nodes::follow_some;
use crate::target::pull_secret;
use crate::target::wait::after;
use crate::terminal::output::{Output, may_watch};
use crate::terminal::printer::Printer;
use crate::view::hypershift::HyperShiftStatus;
use crate::view::listing::{Listing, RegistrySnapshot};
use crate::view::status::{
    ADD, FOLLOW, Health, HealthState, NodesGoal, STALE, SYNCERS, Status, Summary, advice, missing,
    of_credentials,
};
use crate::view::table;

pub(crate) async fn run(args: &Args, flags: &Connection, printer: &Printer) -> Result<Exit> {
    may_watch(args.watch, &args.output)?;
    let how = Output::new(&args.output, args.no_headers);
    let filter = NodeFilter {
        names: args.node.clone(),
        selector: args.selector.clone(),
    };
    let cluster = Cluster::connect(flags, printer)?;
    if args.watch || args.wait {
        must_watch_if_known(&cluster).await?;
    } else {
        must_watch(&cluster).await?;
    }
    if args.namespaces {
        return namespaces::show(&cluster, args).await;
    }
    if args.watch {
        return follow_some(&cluster, Follow::watch(), filter).await;
    }
    if !args.wait {
        return show(&cluster, how, filter).await;
    }
    let wait = Follow::until(NodesGoal::Synced, args.timeout, how.of_wait());
    let waited = follow_some(&cluster, wait, filter.clone()).await;
    after(wait.stream, waited, async || {
        let now = cluster.now();
        let facts = Facts::observe_some(&cluster, filter).await?;
        let status = with_health(&cluster, &facts, now).await?;
        print(printer, &status, now, how).map(drop)
    })
    .await
}

/// One look. Says no where not every node is synced.
pub(crate) async fn show(
    cluster: &Cluster<'_>,
    how: Output<'_>,
    filter: NodeFilter,
) -> Result<Exit> {
    let facts = Facts::observe_some(cluster, filter).await?;
    if !facts.installed
        && let Some(found) = hypershift::look(cluster).await?
    {
        return of_hypershift(cluster.printer(), &HyperShiftStatus::of(found), how.format);
    }
    let now = cluster.now();
    let status = with_health(cluster, &facts, now).await?;
    unknown(&facts, &status)?;
    let has_text = print(cluster.printer(), &status, now, how)?;
    let exit = advise(cluster.printer(), &facts, &status, has_text);
    if *how.format == Form::Text && status.nodes.iter().any(|row| !row.reason.is_empty()) {
        cluster
            .printer()
            .hint("`-o wide` shows the message of each reason");
    }
    Ok(exit)
}

fn of_hypershift(printer: &Printer, status: &HyperShiftStatus, format: &Form) -> Result<Exit> {
    printer.print(format, ("the status", status), status.names(), || {
        printer.data(&status.text());
    })?;
    printer.note("this cluster runs HyperShift's own syncer: the state of its pods is shown; whether a node's file is written, and whether its kubelet uses it, is unknown");
    printer.hint("the log of a node's pod says more; globalps itself is not installed here, see `kubectl globalps install --help`");
    Ok(Exit::No)
}

/// Also whether controller and syncers run.
pub(crate) async fn with_health(
    cluster: &Cluster<'_>,
    facts: &Facts,
    now: Timestamp,
) -> Result<Status> {
    let mut status = Status::of(facts, now);
    if facts.installed {
        let seen = Box::pin(installed(cluster)).await?.with(Some(facts));
        let mut health = Health::of(&seen, now);
        let mut conditions = status.conditions.iter();
        let refused = conditions.find(|found| found.reason == Reason::NotWritten);
        if let Some(refused) = refused {
            health.syncers_refused(&refused.message);
        }
        status.health = Some(health);
        if let Some(gps) = facts.gps() {
            let listing = registries(cluster, gps).await?;
            let image = match &seen.controller {
                Sight::Here(found) => Some(found.image.as_str()),
                Sight::Absent | Sight::Hidden => None,
            };
            let summary = Summary::of(&gps.spec, image, listing.as_ref(), facts.changed());
            status.summary = Some(summary);
        }
    }
    Ok(status)
}

const NOTHING_CHANGES: &str = "nothing changes until the controller runs";
const GONE: &str = "nodes keep what they have, and no change reaches them";

/// What is in force; `None`: this user may not read it.
async fn registries(cluster: &Cluster<'_>, gps: &GlobalPullSecret) -> Result<Option<Listing>> {
    let global = match Sight::of(pull_secret::in_force(cluster).await)? {
        Sight::Here(secret) => secret,
        Sight::Absent => Secret::default(),
        Sight::Hidden => return Ok(None),
    };
    Ok(Some(Listing::of(RegistrySnapshot {
        gps,
        global: Some(&global),
        revisions: &[],
        nodes: None,
        in_namespaces: None,
        hidden: Vec::new(),
    })))
}

/// What is the matter and what to do, on stderr. `is_below`: of a table.
pub(crate) fn advise(printer: &Printer, facts: &Facts, status: &Status, is_below: bool) -> Exit {
    let health = status.health.as_ref().filter(|_| !status.ready);
    let errors = health.map_or(&[][..], |health| &health.pod_errors);
    // The reason itself says more than these.
    let advice = advice(facts, status)
        .filter(|(_, hint)| errors.is_empty() || ![FOLLOW, SYNCERS].contains(hint))
        .map(|(message, hint)| (message, hint.to_owned()));
    let errors = errors.iter().map(|found| (found.message(), found.hint()));
    // The phases of the nodes stay as they were.
    let gone = status.health.as_ref().filter(|_| status.ready);
    let gone = gone.and_then(Health::is_gone);
    let is_down = health.is_some_and(|health| health.controller.state == HealthState::Unhealthy);
    // A controller that is down is the cause, and has been named.
    let advice = advice.map(|(message, hint)| match health {
        Some(health) if is_down && [FOLLOW, STALE, ADD].contains(&hint.as_str()) => {
            let repair = health.controller.repair.clone();
            (NOTHING_CHANGES.to_owned(), repair)
        }
        _ => (message, hint),
    });
    let credentials = of_credentials(status);
    let of_gone = gone.map(|(why, repair)| (format!("{why}: {GONE}"), repair.to_owned()));
    let lines = advice.into_iter().chain(of_gone);
    let lines = lines.chain(credentials).chain(errors);
    for (at, (message, hint)) in lines.enumerate() {
        if at > 0 || is_below {
            printer.note("");
        }
        printer.note(message);
        printer.hint(hint);
    }
    match status.ready {
        true if gone.is_some() => Exit::No,
        true => Exit::Done,
        // As every command that needs an installation.
        false if !facts.installed => Exit::Failed,
        false => Exit::No,
    }
}

/// Nodes that were named and are not there.
fn unknown(facts: &Facts, status: &Status) -> Result<()> {
    match missing(facts, &status.nodes).filter(|_| facts.installed) {
        Some((message, hint)) => Err(Failure::new(message, hint)),
        None => Ok(()),
    }
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

/// Whether there was something to print: of an empty status there is no table, but what does not run is shown.
fn print(printer: &Printer, status: &Status, now: Timestamp, how: Output<'_>) -> Result<bool> {
    let text = if is_empty(status) {
        let health = status.health.as_ref().filter(|health| !health.is_well());
        health.map_or(String::new(), |health| health.lines(false).join("\n"))
    } else {
        table::render(status, now, how.layout(printer), None)
    };
    let names = status.nodes.iter();
    let names = names.map(|row| format!("nodepullsecret.globalps.io/{}", row.name));
    printer.print(how.format, ("the status", status), names, || {
        if !text.is_empty() {
            printer.painted(&text);
        }
    })?;
    Ok(how.is_table() && !text.is_empty())
}
