//! `uninstall`: restores every node, then deletes everything that `install` created.

use std::collections::BTreeSet;
use std::time::Duration;

use globalps_core::api::{
    Attach, DeliveryType, GlobalPullSecret, HostedControlPlaneRef, KubeconfigRef, SecretRef,
    SourceRef,
};
use globalps_core::names;
use globalps_manifests::{Agent, Manifests, NamespaceAccess, OperatorAccess, openshift};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::api::DeleteParams;
use serde_json::json;
use tokio::time::Instant;

use crate::change::restore_intent::restore_on_purpose;
use crate::cli::{Connection, DryRun, Uninstall};
use crate::cluster::facts::Sight;
use crate::cluster::{Cluster, Facts, controller, hypershift, must_watch_to_uninstall};
use crate::error::{Exit, Failure, Result, allowed, or_absent};
use crate::follow::live::Follow;
use crate::follow::nodes::follow;
use crate::follow::skipped::Skipped;
use crate::install::installer::Installer;
use crate::install::leftovers::{self, Marks};
use crate::install::objects::Object;
use crate::install::operator_access;
use crate::install::uninstall_preview::{self, NOTHING};
use crate::target::pull_secret::warn_if_kept;
use crate::terminal::{Printer, Stream, confirm, nodes};
use crate::view::status::{NodesGoal, PAUSED, is_removal_held};

/// Interval of checks whether an object is deleted.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

pub(super) async fn run(args: &Uninstall, flags: &Connection, printer: &Printer) -> Result<Exit> {
    let is_dry_run = args.dry_run != DryRun::None;
    let cluster = Cluster::connect(flags, printer)?;
    must_watch_to_uninstall(&cluster).await?;
    let facts = Facts::observe(&cluster).await?;
    let to_restore = !facts.node_secrets.is_empty() || matches!(facts.merged(), Sight::Here(_));
    let of_namespaces = leftovers::secret_name(&cluster, &facts).await?;
    let operators = allowed(operator_access::granted(&cluster).await)?.unwrap_or_default();
    let serves_operators = facts.gps().is_some_and(|gps| {
        let status = gps.status.as_ref();
        gps.spec.operators.enabled || status.is_some_and(|status| status.operators.is_some())
    });
    let to_empty = of_namespaces.is_some() && facts.gps().is_some() || serves_operators;
    let deployment = controller::deployment(&cluster, controller::Program::Controller).await?;
    let installer = Installer::of(deployment.as_ref());
    if (to_restore || to_empty) && !runs(deployment.as_ref()) {
        let what = match (facts.node_secrets.len(), to_empty) {
            (0, true) => "the pull secrets in other namespaces are not removed yet".to_owned(),
            (number, _) => format!("{} not restored yet", nodes(number as u64)),
        };
        return Err(Failure::new(
            format!("{what}, and the controller is not running"),
            "see `kubectl -n globalps-system get pods`; when it runs, uninstall again",
        ));
    }
    let is_paused = facts.gps().is_some_and(|gps| gps.spec.rollout.paused);
    if to_restore && is_paused {
        return Err(Failure::new(
            format!("{}, so no node would be restored", PAUSED.0),
            format!("{}; then uninstall again", PAUSED.1),
        ));
    }
    if args.skip_unreachable {
        Skipped::announce(&cluster, &facts)?;
    }
    let has_operators = serves_operators || !operators.is_empty();
    let objects = match installer {
        Some(_) => Vec::new(),
        None => objects(&cluster.namespace, &facts, operators),
    };
    if is_dry_run {
        let agents = syncer_objects(&cluster).await?;
        let all = agents.into_iter().chain(objects).collect();
        if let Some(installer) = &installer {
            printer.note(installer.removal());
        }
        let skips = args.skip_unreachable;
        return uninstall_preview::show(&cluster, &facts, all, args.dry_run, skips).await;
    }
    let is_rest = facts.installed || of_namespaces.is_some() || has_operators;
    if !is_rest && !uninstall_preview::is_any_there(&cluster, &objects).await? {
        printer.note(NOTHING);
        return Ok(Exit::Done);
    }
    uninstall_preview::announce_nodes(&cluster, &facts, args.skip_unreachable);
    uninstall_preview::announce_credentials(&cluster, &facts);
    ask(&cluster, installer.as_ref(), args.yes)?;
    let deadline = Instant::now() + args.timeout.0;
    switch_off(&cluster, &facts).await?;
    delete_additional(&cluster).await?;
    if to_restore {
        let goal = NodesGoal::Restored {
            skip_unreachable: args.skip_unreachable,
        };
        let how = Follow::until(goal, args.timeout, Stream::Err);
        let exit = follow(&cluster, how).await?;
        if exit != Exit::Done {
            return Ok(exit);
        }
    }
    if to_empty {
        leftovers::until_reported(&cluster, deadline).await?;
    }
    if let Some(name) = &of_namespaces {
        leftovers::sweep(&cluster, &Marks::of_namespaces(name)).await?;
    }
    if has_operators {
        leftovers::sweep(&cluster, &Marks::OF_OPERATORS).await?;
    }
    // The controller cleans up last, so it must run until then.
    for object in syncer_objects(&cluster).await? {
        until_gone(&cluster, &object, deadline).await?;
    }
    let delivery = facts.gps().map(|gps| gps.spec.kubelet.delivery);
    if delivery == Some(DeliveryType::OpenShift) {
        // As long as there is a record, the cluster's own pull secret may have entries of globalps.
        let record = Object::named("v1", "Secret", &cluster.namespace, names::APPLIED_SECRET);
        until_gone(&cluster, &record, deadline).await?;
    }
    if let Some(installer) = &installer {
        warn_if_kept(&cluster, names::ADDITIONAL_SECRET).await;
        printer.note("every node is restored");
        printer.hint(installer.removal());
        return Ok(Exit::Done);
    }
    delete_all(&cluster, &objects, deadline).await?;
    warn_if_kept(&cluster, names::ADDITIONAL_SECRET).await;
    printer.note("globalps is uninstalled");
    Ok(Exit::Done)
}

fn ask(cluster: &Cluster<'_>, installer: Option<&Installer>, is_confirmed: bool) -> Result<()> {
    let question = match installer {
        None => {
            "Restore every node, delete the additional pull secret and its history, and remove globalps from the cluster?"
        }
        Some(installer) => {
            cluster.printer().note(installer.removal());
            "Restore every node, and delete the additional pull secret and its history?"
        }
    };
    confirm(&cluster.title(), question, is_confirmed)
}

/// Deletes the installation's objects, and what a controller that was deleted too early may have left.
async fn delete_all(cluster: &Cluster<'_>, objects: &[Object], deadline: Instant) -> Result<()> {
    for object in objects {
        delete(cluster, object).await?;
    }
    for object in objects {
        until_gone(cluster, object, deadline).await?;
    }
    let state = Object::named("v1", "Secret", &cluster.namespace, names::STATE_SECRET);
    delete(cluster, &state).await
}

fn runs(deployment: Option<&Deployment>) -> bool {
    let status = deployment.and_then(|deployment| deployment.status.as_ref());
    status.is_some_and(|status| status.available_replicas.unwrap_or_default() > 0)
}

async fn delete_additional(cluster: &Cluster<'_>) -> Result<()> {
    let api = cluster.api::<Secret>();
    let name = names::ADDITIONAL_SECRET;
    let title = format!("Secret `{}/{name}`", cluster.namespace);
    let params = DeleteParams::default();
    if cluster.delete(&title, &api, name, &params).await? {
        let namespace = &cluster.namespace;
        cluster
            .printer()
            .data(&format!("secret/{name} (namespace {namespace}) deleted"));
    }
    Ok(())
}

/// Removes all sources, but not their Secrets, and disables delivery to namespaces and operators.
async fn switch_off(cluster: &Cluster<'_>, facts: &Facts) -> Result<()> {
    if facts.gps().is_none() {
        return Ok(());
    }
    let doing = format!(
        "turn off delivery in GlobalPullSecret `{}`",
        names::GLOBAL_SECRET
    );
    let off = |gps: &GlobalPullSecret| {
        let mut spec = json!({});
        if !gps.spec.sources.is_empty() {
            spec["sources"] = json!([]);
        }
        if gps.spec.image_pull_secrets.enabled {
            spec["imagePullSecrets"] = json!({"enabled": false});
        }
        if gps.spec.operators.enabled {
            spec["operators"] = json!({"enabled": false});
        }
        Some(spec).filter(|spec| *spec != json!({}) || is_removal_held(gps))
    };
    restore_on_purpose(cluster, &doing, off, false).await
}

/// Objects that the controller creates while there is something to sync. Where `HyperShift`'s own controller delivers, those of the
/// syncer's name are its.
async fn syncer_objects(cluster: &Cluster<'_>) -> Result<Vec<Object>> {
    let is_hypershifts = hypershift::daemon_set(cluster).await?.is_some();
    let agents = Agent::ALL.into_iter();
    let agents = agents.filter(|agent| !is_hypershifts || *agent != Agent::Syncer);
    let kinds = [
        ("apps/v1", "DaemonSet"),
        ("rbac.authorization.k8s.io/v1", "RoleBinding"),
        ("rbac.authorization.k8s.io/v1", "Role"),
        ("v1", "ServiceAccount"),
    ];
    let of_agent = |agent: Agent| {
        kinds.map(|(version, kind)| Object::named(version, kind, &cluster.namespace, agent.name()))
    };
    Ok(agents.flat_map(of_agent).collect())
}

/// All objects that `install` can create, in reverse order. `operators`: the granted pull secrets of catalogs.
fn objects(namespace: &str, facts: &Facts, operators: BTreeSet<(String, String)>) -> Vec<Object> {
    let (openshift_namespace, openshift_name) = names::OPENSHIFT_ORIGINAL;
    let original = facts
        .gps()
        .and_then(|gps| gps.spec.original.secret_ref.clone())
        .unwrap_or_else(|| SecretRef {
            namespace: openshift_namespace.to_owned(),
            name: openshift_name.to_owned(),
            key: names::DATA_KEY.to_owned(),
        });
    // Only type and name of the objects matter here, so the images are arbitrary.
    let manifests = Manifests {
        namespace: namespace.to_owned(),
        original: Some(original),
        // The Role's name doesn't depend on the sources.
        sources: vec![SourceRef {
            name: String::new(),
            scope: None,
        }],
        // Covers both forms: `Admission` includes the objects of the other one.
        image_pull_secrets: Some(NamespaceAccess {
            secret_name: String::new(),
            attach: Attach::Admission,
            detaches: false,
        }),
        operators: Some(OperatorAccess { secrets: operators }),
        hosted_control_plane: Some(HostedControlPlaneRef {
            namespace: String::new(),
            name: String::new(),
            kubeconfig_secret_ref: KubeconfigRef {
                name: String::new(),
                key: String::new(),
            },
        }),
        ..Manifests::default()
    };
    let all = openshift(namespace).into_iter().chain(manifests.objects());
    let mut objects: Vec<Object> = all.map(Object::of).collect();
    objects.reverse();
    objects
}

async fn delete(cluster: &Cluster<'_>, object: &Object) -> Result<()> {
    if object.delete(cluster, false).await? {
        cluster
            .printer()
            .data(&format!("{} deleted", object.place()));
    }
    Ok(())
}

async fn until_gone(cluster: &Cluster<'_>, object: &Object, deadline: Instant) -> Result<()> {
    let title = object.title();
    loop {
        let (api, name) = (object.api(&cluster.client), object.name());
        let doing = format!("see whether `{title}` is gone");
        let found = cluster.call(&doing, api.get_metadata_opt(&name)).await;
        if or_absent(found)?.is_none() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let namespace = object.metadata("namespace");
            let place = namespace.map_or(String::new(), |namespace| format!(" -n {namespace}"));
            return Err(Failure::no(
                format!("`{title}` still exists"),
                format!(
                    "`kubectl get {title}{place} -o yaml` shows what it waits for; then uninstall again"
                ),
            ));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_objects_of_every_form_of_an_installation_are_removed() {
        let operators = [("olm".to_owned(), "pull".to_owned())].into();
        let objects = objects("kube-system", &Facts::default(), operators);
        let titles: Vec<String> = objects.iter().map(Object::title).collect();
        for expected in [
            "clusterrole.rbac.authorization.k8s.io/globalps-image-pull-secrets",
            "clusterrolebinding.rbac.authorization.k8s.io/globalps-image-pull-secrets",
            "mutatingadmissionpolicy.admissionregistration.k8s.io/globalps-image-pull-secrets",
            "mutatingadmissionpolicybinding.admissionregistration.k8s.io/globalps-image-pull-secrets",
            "role.rbac.authorization.k8s.io/globalps-controller-sources",
            "clusterrole.rbac.authorization.k8s.io/globalps-operators",
            "clusterrolebinding.rbac.authorization.k8s.io/globalps-operators",
            "role.rbac.authorization.k8s.io/globalps-operators",
            "rolebinding.rbac.authorization.k8s.io/globalps-operators",
            "deployment.apps/globalps-controller",
            "role.rbac.authorization.k8s.io/globalps-controller-pull-secret",
            "rolebinding.rbac.authorization.k8s.io/globalps-controller-pull-secret",
            "rolebinding.rbac.authorization.k8s.io/globalps-controller-scc",
            "rolebinding.rbac.authorization.k8s.io/global-pull-secret-syncer-scc",
            "rolebinding.rbac.authorization.k8s.io/global-pull-secret-restorer-scc",
            "rolebinding.rbac.authorization.k8s.io/globalps-observer-scc",
        ] {
            assert!(
                titles.iter().any(|title| title == expected),
                "{expected}: {titles:?}"
            );
        }
    }
}
