//! `list`: the registries whose credentials are in force.

mod old;

use globalps_core::api::{GlobalPullSecret, GlobalPullSecretSpec, NodePullSecret};
use globalps_core::names;
use k8s_openapi::api::core::v1::Secret;

use crate::cli::{Connection, List as Args};
use crate::cluster::namespaces::secrets;
use crate::cluster::{Cluster, Sight, must_watch, node_secrets};
use crate::error::{Exit, Failure, Result, allowed};
use crate::secret::additional::{data_of, valid_in};
use crate::secret::history::sorted;
use crate::target::history::slots;
use crate::target::pull_secret;
use crate::terminal::output::Output;
use crate::terminal::printer::Printer;
use crate::view::listing::{Listing, RegistrySnapshot};
use crate::view::status::NO_CONFIGURATION;

pub(crate) async fn run(args: &Args, flags: &Connection, printer: &Printer) -> Result<Exit> {
    let cluster = Cluster::connect(flags, printer)?;
    must_watch(&cluster).await?;
    if args.where_old {
        return Box::pin(old::show(&cluster, args)).await;
    }
    let gps = match pull_secret::configuration(&cluster).await? {
        Some(gps) => gps,
        // The controller creates the configuration with the first pull secret.
        None if is_unused(&cluster).await? => {
            GlobalPullSecret::new(names::GLOBAL_SECRET, GlobalPullSecretSpec::default())
        }
        None => return Err(Failure::no(NO_CONFIGURATION.0, NO_CONFIGURATION.1)),
    };
    let listing = observe(&cluster, &gps).await?;
    let names = listing.registries.iter().map(|row| row.registry.clone());
    printer.print(&args.output, ("the list", &listing), names, || {
        if listing.registries.is_empty() {
            return;
        }
        let how = Output::new(&args.output, args.no_headers);
        printer.data(&listing.table(cluster.now(), how.layout(printer)));
    })?;
    for what in &listing.hidden {
        printer.warning(format_args!("this user may not {what}"));
    }
    if !listing.hidden.is_empty() {
        printer.hint(
            "`kubectl globalps check` lists your permissions; ask an administrator of the cluster for these",
        );
    } else if listing.registries.is_empty() {
        let (note, hint) = nothing_in_force(waiting(&cluster, &gps).await?);
        printer.note(note);
        printer.hint(hint);
    }
    Ok(Exit::Done)
}

/// Whether there is neither an additional pull secret nor content in force. A Secret that can't be read may exist.
async fn is_unused(cluster: &Cluster<'_>) -> Result<bool> {
    let (additional, global) = tokio::join!(
        pull_secret::get(cluster, names::ADDITIONAL_SECRET),
        pull_secret::in_force(cluster),
    );
    Ok(Sight::of(additional)? == Sight::Absent && Sight::of(global)? == Sight::Absent)
}

/// Number of registries in the pull secrets that are not in force; a Secret that can't be read counts as 1.
async fn waiting(cluster: &Cluster<'_>, gps: &GlobalPullSecret) -> Result<usize> {
    let sources = gps.spec.sources.iter().map(|source| source.name.as_str());
    let mut number = 0;
    for name in std::iter::once(names::ADDITIONAL_SECRET).chain(sources) {
        number += match Sight::of(pull_secret::get(cluster, name).await)? {
            Sight::Here(secret) => {
                valid_in(&secret, names::DATA_KEY).map_or(1, |config| config.entries().len())
            }
            Sight::Absent | Sight::Hidden => 0,
        };
    }
    Ok(number)
}

/// A note and a hint. `waiting`: number of registries that could be in force.
fn nothing_in_force(waiting: usize) -> (String, &'static str) {
    const STATUS: &str = "`kubectl globalps status` shows why";
    const ADD: &str = "`kubectl globalps add REGISTRY -u USER --password-stdin` adds some";
    let none = "no credentials are in force";
    match waiting {
        0 => (none.to_owned(), ADD),
        1 => (format!("{none}: 1 registry waits"), STATUS),
        some => (format!("{none}: {some} registries wait"), STATUS),
    }
}

async fn observe(cluster: &Cluster<'_>, gps: &GlobalPullSecret) -> Result<Listing> {
    let (global, nodes, kept) = tokio::join!(
        pull_secret::in_force(cluster),
        node_secrets(cluster),
        slots(cluster, gps.spec.history_limit),
    );
    let mut hidden = Vec::new();
    let mut hide = |what: &str, missing: &str| {
        hidden.push(format!("{what}: {missing}"));
    };
    let global = match Sight::of(global)? {
        Sight::Here(secret) => Some(secret),
        // Nothing is in force.
        Sight::Absent => Some(Secret::default()),
        Sight::Hidden => {
            hide(
                &format!("get Secret `{}`", names::GLOBAL_SECRET),
                "users, revisions, and registries of the additional and the original pull secret are missing",
            );
            None
        }
    };
    let kept = allowed(kept)?;
    if kept.is_none() {
        hide(
            &format!(
                "get the Secrets `{}0` and so on",
                names::HISTORY_SECRET_PREFIX
            ),
            "revisions may be later than the first one, and ages are missing",
        );
    }
    let nodes = allowed(nodes)?;
    if nodes.is_none() {
        hide("list nodepullsecrets", "the number of nodes is missing");
    }
    let has_scopes = global
        .as_ref()
        .is_some_and(|global| data_of(global, names::SCOPED_KEY).is_some());
    let settings = &gps.spec.image_pull_secrets;
    let in_namespaces = if has_scopes && settings.enabled {
        let found = allowed(secrets(cluster, &settings.secret_name).await)?;
        if found.is_none() {
            let what = format!("list Secrets `{}` of all namespaces", settings.secret_name);
            hide(&what, "the number of namespaces of a scope is missing");
        }
        found.map(|found| found.into_values().collect::<Vec<_>>())
    } else {
        None
    };
    let nodes: Option<Vec<&NodePullSecret>> = nodes
        .as_ref()
        .map(|nodes| nodes.iter().map(|(_, node)| node).collect());
    Ok(Listing::of(RegistrySnapshot {
        gps,
        global: global.as_ref(),
        revisions: &sorted(kept.unwrap_or_default(), global.as_ref()),
        nodes: nodes.as_deref(),
        in_namespaces: in_namespaces.as_deref(),
        hidden,
    }))
}
