//! What `uninstall` would restore and delete.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use globalps_core::api::{Phase, Restart};
use globalps_core::names;
use jiff::Timestamp;

use super::objects::Object;
use crate::cli::DryRun;
use crate::cluster::facts::Sight;
use crate::cluster::{Cluster, Facts};
use crate::error::{Exit, Result, or_absent};
use crate::view::status::{Status, left};

/// The message if there is nothing of globalps.
pub(crate) const NOTHING: &str = "globalps is not installed: there is nothing to delete";

/// Whether there is an object to delete. `objects`: see [`show`].
pub(crate) async fn is_any_there(cluster: &Cluster<'_>, objects: &[Object]) -> Result<bool> {
    for object in std::iter::once(&additional(cluster)).chain(objects) {
        if is_deleted(cluster, object, DryRun::Client).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Announces the deleted credentials, and how to save them.
pub(crate) fn announce_credentials(cluster: &Cluster<'_>, facts: &Facts) {
    if facts.additional() == Sight::Absent {
        return;
    }
    let (printer, name) = (cluster.printer(), names::ADDITIONAL_SECRET);
    printer.note(format_args!(
        "Secret `{}/{name}` and its history are deleted too",
        cluster.namespace
    ));
    printer.hint(format_args!(
        "to keep the credentials, first save them: `kubectl get secret {name} -n {} -o yaml > FILE`; `kubectl globalps add --from-file FILE --all` adds them again",
        cluster.namespace
    ));
}

fn additional(cluster: &Cluster<'_>) -> Object {
    let namespace = &cluster.namespace;
    Object::named("v1", "Secret", namespace, names::ADDITIONAL_SECRET)
}

/// Lists what is deleted. `objects`: candidates, of which the existing ones are deleted.
pub(crate) async fn show(
    cluster: &Cluster<'_>,
    facts: &Facts,
    objects: Vec<Object>,
    dry_run: DryRun,
    skip_unreachable: bool,
) -> Result<Exit> {
    let mut shown = nodes(facts, skip_unreachable, cluster.now());
    shown.push_str(&deliveries(facts));
    for object in std::iter::once(additional(cluster)).chain(objects) {
        if is_deleted(cluster, &object, dry_run).await? {
            // Writing to a string can't fail.
            let _ = writeln!(shown, "{} deleted{}", object.place(), dry_run.suffix());
        }
    }
    let printer = cluster.printer();
    if shown.is_empty() {
        printer.note(NOTHING);
    } else {
        printer.data(&shown);
        announce_credentials(cluster, facts);
    }
    printer.note(format_args!("nothing was changed{}", dry_run.suffix()));
    Ok(Exit::Done)
}

/// Whether the object exists; with `--dry-run=server`, the API server validates its deletion.
async fn is_deleted(cluster: &Cluster<'_>, object: &Object, dry_run: DryRun) -> Result<bool> {
    if dry_run == DryRun::Server {
        return object.delete(cluster, true).await;
    }
    let (api, name) = (object.api(&cluster.client), object.name());
    let doing = format!("see whether `{}` exists", object.title());
    let found = cluster.call(&doing, api.get_metadata_opt(&name)).await;
    Ok(or_absent(found)?.is_some())
}

/// Announces what happens to the nodes, before the prompt.
pub(crate) fn announce_nodes(cluster: &Cluster<'_>, facts: &Facts, skip_unreachable: bool) {
    let lines = nodes(facts, skip_unreachable, cluster.now());
    if !lines.is_empty() {
        cluster.printer().note(lines.trim_end());
    }
}

/// A line for each node with credentials: whether it is restored now, and whether its kubelet restarts.
fn nodes(facts: &Facts, skip_unreachable: bool, now: Timestamp) -> String {
    let kubelet = facts.gps().map(|gps| &gps.spec.kubelet);
    let restart = kubelet.map(|kubelet| kubelet.restart);
    let is_observed = kubelet.is_some_and(|kubelet| kubelet.delivery.is_observed());
    let mut lines = String::new();
    let all = Status::of(facts, now);
    let left: BTreeSet<&str> = left(facts, &all)
        .iter()
        .map(|row| row.name.as_str())
        .collect();
    for row in &all.nodes {
        let status = facts.node_secrets.get(&row.name);
        let status = status.and_then(|object| object.status.as_ref());
        let is_untouched = status.is_none_or(|status| status.restored || status.revision == 0);
        let what = match (is_untouched, &row.phase) {
            (_, Phase::Unreachable) if skip_unreachable => "skipped, because it is unreachable",
            (_, Phase::Unreachable) => "unreachable: the command waits for it",
            _ if skip_unreachable && left.contains(row.name.as_str()) => {
                "skipped, because it can't be restored"
            }
            (true, _) | (_, Phase::Unsupported) => continue,
            _ if is_observed => "restored by the program that writes its file",
            _ if restart == Some(Restart::Never) => "restored, without a kubelet restart",
            _ => "restored, with a kubelet restart",
        };
        let _ = writeln!(lines, "node/{} {what}", row.name);
    }
    lines
}

/// Pull secrets that the controller removes from namespaces and operators.
fn deliveries(facts: &Facts) -> String {
    let status = facts.gps().and_then(|gps| gps.status.as_ref());
    let Some(status) = status else {
        return String::new();
    };
    let namespaces = status.image_pull_secrets.as_ref();
    let namespaces = namespaces.map(|it| ("namespaces", it.total, it.service_accounts));
    let operators = status.operators.as_ref();
    let operators = operators.map(|it| ("operators", it.total, it.service_accounts));
    let mut lines = String::new();
    for (of, total, accounts) in [namespaces, operators].into_iter().flatten() {
        let _ = writeln!(
            lines,
            "pull secrets of {total} {of} deleted, and references of {accounts} service accounts removed"
        );
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use globalps_core::api::{
        GlobalPullSecret, GlobalPullSecretSpec, GlobalPullSecretStatus, ImagePullSecretsStatus,
        NodePullSecret, NodePullSecretSpec, NodePullSecretStatus,
    };

    fn facts(restart: Restart) -> Facts {
        let mut facts = Facts {
            installed: true,
            ..Facts::default()
        };
        for (name, revision, restored) in [("a", 3, false), ("b", 0, true)] {
            let mut object = NodePullSecret::new(name, NodePullSecretSpec::default());
            object.status = Some(NodePullSecretStatus {
                revision,
                restored,
                phase: Phase::Synced,
                ..NodePullSecretStatus::default()
            });
            facts.node_secrets.insert(name, object);
        }
        let mut spec = GlobalPullSecretSpec::default();
        spec.kubelet.restart = restart;
        let mut gps = GlobalPullSecret::new(names::GLOBAL_SECRET, spec);
        gps.status = Some(GlobalPullSecretStatus {
            image_pull_secrets: Some(ImagePullSecretsStatus {
                total: 7,
                service_accounts: 2,
                ..ImagePullSecretsStatus::default()
            }),
            ..GlobalPullSecretStatus::default()
        });
        facts.global.insert(names::GLOBAL_SECRET, gps);
        facts
    }

    #[test]
    fn nodes_with_credentials_are_restored_and_the_others_not() {
        let now = Timestamp::UNIX_EPOCH;
        for (restart, expected) in [
            (Restart::Always, "node/a restored, with a kubelet restart\n"),
            (
                Restart::Never,
                "node/a restored, without a kubelet restart\n",
            ),
        ] {
            assert_eq!(nodes(&facts(restart), false, now), expected);
        }
        let expected =
            "pull secrets of 7 namespaces deleted, and references of 2 service accounts removed\n";
        assert_eq!(deliveries(&facts(Restart::Always)), expected);
    }
}
