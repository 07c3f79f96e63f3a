//! `list --where-old`: the places that still have replaced content.

use globalps_core::api::NodePullSecret;
use globalps_core::names;

use crate::cli::List as Args;
use crate::cluster::namespaces::secrets;
use crate::cluster::{Cluster, Facts};
use crate::error::{Exit, Failure, Result, allowed};
use crate::target::history::slots;
use crate::target::pull_secret;
use crate::terminal::output::Output;
use crate::view::old::{WhereOld, WhereOldSnapshot};
use crate::view::status::Status;

pub(crate) async fn show(cluster: &Cluster<'_>, args: &Args) -> Result<Exit> {
    let found = Box::pin(observe(cluster)).await?;
    let printer = cluster.printer();
    let names = found.places.iter();
    let names = names.map(|place| format!("{:?}/{}", place.kind, place.name).to_lowercase());
    printer.print(&args.output, ("the list", &found), names, || {
        if found.places.is_empty() {
            return;
        }
        let how = Output::new(&args.output, args.no_headers);
        printer.data(&found.table(how.layout(printer)));
    })?;
    for what in &found.hidden {
        printer.warning(format_args!("this user may not {what}"));
    }
    if let Some(request) = &found.request {
        printer.note(&request.message);
    } else if !found.places.is_empty() {
        printer.hint("`kubectl globalps add REGISTRY -u USER --password-stdin --forget-old` replaces a leaked password and forgets the old one");
    }
    if found.places.is_empty() && found.hidden.is_empty() {
        printer.note("no place has earlier content");
        return Ok(Exit::Done);
    }
    Ok(Exit::No)
}

async fn observe(cluster: &Cluster<'_>) -> Result<WhereOld> {
    let (facts, kept, rolled_out, global, additional) = tokio::join!(
        Facts::observe(cluster),
        slots(cluster, names::HISTORY_SLOTS),
        pull_secret::get(cluster, names::ROLLED_OUT_SECRET),
        pull_secret::in_force(cluster),
        pull_secret::get(cluster, names::ADDITIONAL_SECRET),
    );
    let facts = facts?;
    let mut hidden = Vec::new();
    let mut hide = |what: String| hidden.push(format!("{what}, so its places are missing"));
    let mut one = |name: &str, answer| {
        Ok::<_, Failure>(allowed(answer)?.unwrap_or_else(|| {
            hide(format!("get Secret `{name}`"));
            None
        }))
    };
    let rolled_out = one(names::ROLLED_OUT_SECRET, rolled_out)?;
    let global = one(names::GLOBAL_SECRET, global)?;
    let additional = one(names::ADDITIONAL_SECRET, additional)?;
    let mut kept = allowed(kept)?.unwrap_or_else(|| {
        let prefix = names::HISTORY_SECRET_PREFIX;
        hide(format!("get the Secrets `{prefix}0` and so on"));
        Vec::new()
    });
    kept.extend(rolled_out);
    let gps = facts.gps();
    let status = gps.and_then(|gps| gps.status.as_ref()?.image_pull_secrets.as_ref());
    let name = match (status, gps.map(|gps| &gps.spec.image_pull_secrets)) {
        (Some(status), _) if !status.secret_name.is_empty() => Some(&status.secret_name),
        (_, Some(settings)) if settings.enabled => Some(&settings.secret_name),
        _ => None,
    };
    let mut in_namespaces = Vec::new();
    if let Some(name) = name {
        match allowed(secrets(cluster, name).await)? {
            Some(found) => in_namespaces.extend(found),
            None => hide(format!("list Secrets `{name}` of all namespaces")),
        }
    }
    let rows = Status::of(&facts, cluster.now()).nodes;
    let nodes: Vec<(NodePullSecret, _)> = rows
        .into_iter()
        .filter_map(|row| Some((facts.node_secrets.get(&row.name)?.clone(), row.phase)))
        .collect();
    Ok(WhereOld::of(WhereOldSnapshot {
        gps: facts.gps(),
        global: global.as_ref(),
        additional: additional.as_ref(),
        secrets: &kept,
        nodes: &nodes,
        in_namespaces: &in_namespaces,
        hidden,
    }))
}
