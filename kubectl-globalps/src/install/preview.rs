//! Shows and confirms what `install` changes before it writes.

use futures::StreamExt as _;
use futures::stream;
use globalps_core::api::DeliveryType;
use globalps_core::names;
use globalps_manifests::to_yaml;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use super::object_changes::{ObjectChange, files, overlay, text};
use super::objects::Object;
use crate::cli::{Applying, DryRun, Form};
use crate::cluster::client::Cluster;
use crate::error::{Exit, Failure, Result, or_absent};
use crate::terminal::external_diff::show_files;
use crate::terminal::{Printer, can_ask, confirm, not_confirmed};

/// Whether to print the manifests without reading a cluster.
pub(crate) fn is_printed(output: Option<&Form>, dry_run: DryRun) -> Result<bool> {
    match (output, dry_run) {
        (None, _) => Ok(false),
        (Some(_), DryRun::Client) => Ok(true),
        (Some(_), DryRun::None | DryRun::Server) => Err(Failure::new(
            "`-o` prints manifests instead of applying them",
            "add `--dry-run=client`, or leave out `-o`",
        )),
    }
}

pub(crate) fn print(printer: &Printer, objects: &[Value], output: Option<&Form>) -> Result<()> {
    if output == Some(&Form::Yaml) {
        printer.data(&to_yaml(objects));
        return Ok(());
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    let names = objects.iter().map(|it| Object::of(it.clone()).title());
    printer.print(output, ("the manifests", &list), names, || {})
}

/// Objects that are compared concurrently.
const PARALLEL: usize = 8;

/// Shows the changes and asks. Returns `Some` after a dry run, which ends the command. `deleted`: objects that are
/// deleted before these are applied. `notes`: further effects.
pub(crate) async fn preview(
    cluster: &Cluster<'_>,
    objects: &[Value],
    deleted: &[Object],
    applying: &Applying,
    notes: &[String],
) -> Result<Option<Exit>> {
    let printer = cluster.printer();
    let (dry_run, yes) = (applying.dry_run, applying.is_confirmed());
    if dry_run == DryRun::None && !yes && !can_ask() {
        return Err(not_confirmed());
    }
    let how = match dry_run {
        DryRun::None => DryRun::Server,
        asked => asked,
    };
    let question = question(objects);
    let objects = objects.iter().cloned().map(Object::of);
    let compared = stream::iter(objects)
        .map(|object| async move { (object.place(), compare(cluster, &object, how).await) })
        .buffered(PARALLEL)
        .collect::<Vec<_>>();
    let gone = deleted
        .iter()
        .map(|object| (object.place(), ObjectChange::Deleted));
    let mut changes: Vec<(String, ObjectChange)> = gone.collect();
    for (title, change) in compared.await {
        let change = match change {
            // The apply may still succeed: a webhook may not support dry runs.
            Err(failure) if dry_run == DryRun::None => ObjectChange::Unknown(failure.message),
            change => change?,
        };
        changes.push((title, change));
    }
    if dry_run != DryRun::None {
        let text = text(&changes, ("", dry_run.suffix()));
        if show_files(&files(&changes))? {
            printer.note(text.trim_end());
        } else {
            printer.data(&text);
        }
        printer.note(format_args!("nothing was changed{}", dry_run.suffix()));
        return Ok(Some(Exit::Done));
    }
    let affects = changes.iter().any(|(_, change)| change.affects_existing());
    let is_same = changes
        .iter()
        .all(|(_, change)| *change == ObjectChange::Unchanged);
    let would = if yes { "" } else { "would be " };
    printer.note(text(&changes, (would, "")).trim_end());
    for note in notes {
        printer.note(note);
    }
    if affects && !yes && can_ask() {
        show_files(&files(&changes))?;
    }
    confirm(&cluster.title(), question, yes || is_same)?;
    Ok(None)
}

/// It names the delivery that writes into a Secret of the platform.
fn question(objects: &[Value]) -> &'static str {
    let openshift = DeliveryType::OpenShift.as_str();
    let has_it = |object: &Value| object["spec"]["kubelet"]["delivery"] == openshift;
    if objects.iter().any(has_it) {
        "Apply this, with delivery into `openshift-config/pull-secret`?"
    } else {
        "Apply this?"
    }
}

async fn compare(cluster: &Cluster<'_>, object: &Object, how: DryRun) -> Result<ObjectChange> {
    let (title, api) = (object.title(), object.api(&cluster.client));
    let name = object.name();
    let doing = format!("get `{title}`");
    let live = cluster.call(&doing, api.get_opt(&name)).await;
    let live: Option<DynamicObject> = or_absent(live)?;
    let after = if how == DryRun::Client {
        None
    } else {
        let params = PatchParams {
            dry_run: true,
            ..PatchParams::apply(names::PLUGIN_MANAGER).force()
        };
        let patch = Patch::Apply(&object.value);
        let call = api.patch(&name, &params, &patch);
        let doing = format!("apply `{title}` as a dry run");
        match cluster.call(&doing, call).await {
            Err(failure) if failure.is(404) && live.is_none() => None,
            after => Some(after?),
        }
    };
    let Some(live) = live else {
        return Ok(ObjectChange::Created);
    };
    let value = |object: DynamicObject| serde_json::to_value(object).unwrap_or_default();
    let live = value(live);
    let after = after.map_or_else(|| overlay(&live, &object.value), value);
    Ok(ObjectChange::between(live, after))
}
