//! `status --namespaces`: all namespaces, with the state of their pull secrets.

use globalps_core::names;
use globalps_core::namespaces::Selection;
use k8s_openapi::api::core::v1::Secret;
use serde::Serialize;

use crate::cli::Status as Args;
use crate::cluster::Cluster;
use crate::cluster::namespaces::{PartsInForce, namespaces, secrets};
use crate::error::{Exit, Failure, Result, allowed};
use crate::target::pull_secret;
use crate::terminal::output::Output;
use crate::view::namespaces::{NamespaceRow, Snapshot, rows, table};

/// `status --namespaces -o json`: scripts rely on its shape.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Listing<'a> {
    /// Name of the Secret in the namespaces.
    secret_name: &'a str,
    /// `Admission` or `ServiceAccounts`; empty if unknown.
    attach: &'a str,
    namespaces: &'a [NamespaceRow],
}

pub(crate) async fn show(cluster: &Cluster<'_>, args: &Args) -> Result<Exit> {
    let gps = pull_secret::configuration(cluster).await?;
    let settings = gps.as_ref().map(|gps| gps.spec.image_pull_secrets.clone());
    let settings = settings.unwrap_or_default();
    let status = gps.as_ref().and_then(|gps| gps.status.as_ref());
    let status = status.and_then(|status| status.image_pull_secrets.as_ref());
    if !settings.enabled && status.is_none() {
        return Err(Failure::no(
            "namespaces get no pull secrets: `spec.imagePullSecrets.enabled` is false",
            "`kubectl globalps install --deliver-to-namespaces` switches it on",
        ));
    }
    let selection = Selection::new(&settings)
        .map_err(|why| Failure::no(why, "change it with `kubectl edit` in the GlobalPullSecret"))?;
    let known = status.map(|status| &status.secret_name);
    let name = known.filter(|name| !name.is_empty());
    let name = name.unwrap_or(&settings.secret_name);
    let global = cluster.api::<Secret>();
    let (namespaces, secrets, global) = futures::join!(
        namespaces(cluster),
        secrets(cluster, name),
        cluster.call(
            "read the content in force",
            global.get_metadata_opt(names::GLOBAL_SECRET)
        ),
    );
    // A user who may not read it sees no old content.
    let in_force = allowed(global)?.flatten();
    let in_force = in_force.as_ref().map(PartsInForce::of);
    let rows = rows(&Snapshot {
        settings: &settings,
        selection: &selection,
        status,
        namespaces: &namespaces?,
        secrets: &secrets?,
        in_force: in_force.as_ref(),
    });
    let listing = Listing {
        secret_name: name,
        attach: status.map_or("", |status| &status.attach),
        namespaces: &rows,
    };
    print(cluster, &listing, args)?;
    Ok(Exit::of(rows.iter().all(|row| row.state.is_settled())))
}

fn print(cluster: &Cluster<'_>, listing: &Listing, args: &Args) -> Result<()> {
    let printer = cluster.printer();
    let how = Output::new(&args.output, args.no_headers);
    let names = listing.namespaces.iter();
    let names = names.map(|row| format!("namespace/{}", row.name));
    let what = ("the list of namespaces", listing);
    printer.print(&args.output, what, names, || {
        let layout = how.layout(printer);
        printer.painted(&table(listing.namespaces, cluster.now(), layout));
    })
}
