//! `migrate`: replaces imagepullsecret-patcher with the pull secrets of globalps.

mod facts;

use std::collections::BTreeMap;
use std::time::Duration;

use globalps_core::api::Attach;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Secret, ServiceAccount};
use kube::api::{ListParams, Patch};
use kube::core::Selector;
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tokio::time::Instant;

use crate::cli::{Connection, DryRun, Migrate, Tool};
use crate::cluster::attempts::{ATTEMPTS, pause};
use crate::cluster::namespaces::is_ours;
use crate::cluster::{Cluster, params};
use crate::error::{Exit, Failure, Result};
use crate::secret::migration::{
    MOST, MigrationStep, PATCHER, account, refusal, step, without_reference,
};
use crate::terminal::{Printer, confirm, few, number};
use crate::view::migration::table;
use facts::{Found, observe};

const LOOK_AGAIN: Duration = Duration::from_millis(250);

pub(crate) async fn run(args: &Migrate, flags: &Connection, printer: &Printer) -> Result<Exit> {
    let Tool::ImagepullsecretPatcher = args.tool;
    let cluster = Cluster::connect(flags, printer)?;
    let name = args.secret_name.as_ref().map(|name| name.0.as_str());
    let found = observe(&cluster, name).await?;
    let running: Vec<&Deployment> = found.deployments.iter().filter(|d| is_running(d)).collect();
    if found.places.is_empty() && running.is_empty() {
        printer.note(format!("nothing of {PATCHER} is left"));
        return Ok(Exit::Done);
    }
    let steps: BTreeMap<String, MigrationStep> = found
        .places
        .iter()
        .map(|(name, place)| {
            (
                name.clone(),
                step(place, found.attach, args.ignore_running_pods),
            )
        })
        .collect();
    announce(&found, &running, &steps, printer);
    if let Some(refused) = refusal(&found.places, &found.secret_name) {
        return Err(refused);
    }
    let changes = |step: &MigrationStep| step.deletes || !step.accounts.is_empty();
    if running.is_empty() && !steps.values().any(changes) {
        return Ok(finish(
            &found,
            &steps,
            &MigrationSummary::default(),
            printer,
        ));
    }
    if args.dry_run == DryRun::Client {
        printer.note("a dry run: nothing was changed");
        return Ok(Exit::Done);
    }
    let is_dry_run = args.dry_run != DryRun::None;
    confirm(
        &cluster.title(),
        &format!("Replace {PATCHER} with globalps as shown?"),
        args.yes || is_dry_run,
    )?;
    let deadline = Instant::now() + args.timeout.0;
    for deployment in &running {
        stop(&cluster, deployment, args.dry_run).await?;
        if !is_dry_run {
            gone(&cluster, deployment, deadline).await?;
        }
    }
    let mut summary = MigrationSummary {
        how: args.dry_run,
        ..MigrationSummary::default()
    };
    for (namespace, step) in &steps {
        let migrated = migrate(&cluster, &found, namespace, step, &mut summary).await;
        match migrated {
            Err(failure) if failure.is(401) || failure.is(403) => return Err(failure),
            Err(failure) => summary
                .failed
                .push(format!("{namespace}: {}", failure.message)),
            Ok(()) => {}
        }
    }
    if is_dry_run && summary.failed.is_empty() {
        printer.note("a dry run: nothing was changed");
        return Ok(Exit::Done);
    }
    Ok(finish(&found, &steps, &summary, printer))
}

fn is_running(deployment: &Deployment) -> bool {
    let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    replicas.unwrap_or(1) > 0
}

fn title(deployment: &Deployment) -> String {
    let namespace = deployment.namespace().unwrap_or_default();
    format!("{namespace}/{}", deployment.name_any())
}

/// Prints the plan: the table as data, everything else as messages.
fn announce(
    found: &Found,
    running: &[&Deployment],
    steps: &BTreeMap<String, MigrationStep>,
    printer: &Printer,
) {
    if !found.places.is_empty() {
        printer.data(&table(&found.places, steps, &found.secret_name));
    }
    for deployment in running {
        printer.note(format!("scales Deployment `{}` to 0", title(deployment)));
    }
    if found.deployments.is_empty() {
        printer.warning(format!(
            "there is no Deployment with an image `{PATCHER}`: if it runs under another name, it creates its Secrets again"
        ));
    }
    if !found.foreign.is_empty() {
        let names: Vec<&str> = found.foreign.iter().map(String::as_str).collect();
        printer.warning(format!(
            "Secret `{}` is not of {PATCHER} in {}, and stays with its references: {}",
            found.secret_name,
            number(names.len(), "namespace"),
            few(&names, MOST)
        ));
    }
    let mut different: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, place) in found.places.iter().filter(|(_, place)| place.is_selected) {
        for registry in place.old.iter().flat_map(|old| &old.different) {
            different.entry(registry).or_default().push(name);
        }
    }
    for (registry, namespaces) in different {
        printer.warning(format!(
            "globalps has other credentials for `{registry}` than the Secret `{}` in {}",
            found.secret_name,
            few(&namespaces, MOST)
        ));
    }
}

/// Scales the tool to 0 replicas.
async fn stop(cluster: &Cluster<'_>, deployment: &Deployment, how: DryRun) -> Result<()> {
    let title = title(deployment);
    let (namespace, name) = (
        deployment.namespace().unwrap_or_default(),
        deployment.name_any(),
    );
    let api: Api<Deployment> = Api::namespaced(cluster.client.clone(), &namespace);
    let params = params::patch(how == DryRun::Server);
    let patch = Patch::Merge(json!({"spec": {"replicas": 0}}));
    let doing = format!("scale Deployment `{title}` to 0");
    let patched = cluster.call(&doing, api.patch(&name, &params, &patch));
    patched.await?;
    let line = format!("deployment.apps/{name} of namespace {namespace} scaled to 0");
    done(cluster, &line, how);
    Ok(())
}

fn done(cluster: &Cluster<'_>, line: &str, how: DryRun) {
    cluster.printer().data(&format!("{line}{}", how.suffix()));
}

/// Waits until the tool's pods are gone, because it would recreate everything.
async fn gone(cluster: &Cluster<'_>, deployment: &Deployment, deadline: Instant) -> Result<()> {
    let title = title(deployment);
    let namespace = deployment.namespace().unwrap_or_default();
    let selector = deployment.spec.as_ref().map(|spec| spec.selector.clone());
    let selector = selector.and_then(|selector| Selector::try_from(selector).ok());
    // Without a selector there are no pods to wait for.
    let Some(selector) = selector.filter(|selector| !selector.selects_all()) else {
        return Ok(());
    };
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), &namespace);
    loop {
        let params = ListParams::default().labels_from(&selector).limit(1);
        let doing = format!("list the pods of Deployment `{title}`");
        let left = cluster.call(&doing, pods.list_metadata(&params)).await?;
        if left.items.is_empty() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(Failure::no(
                format!("the pods of Deployment `{title}` are still there, so nothing was removed"),
                "does an autoscaler or GitOps tool scale it up again? Stop that, then migrate again",
            ));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

#[derive(Debug, Default)]
struct MigrationSummary {
    how: DryRun,
    accounts: usize,
    secrets: usize,
    /// Error messages.
    failed: Vec<String>,
}

/// Removes the references, then the Secret. Does nothing if globalps' Secret has been deleted meanwhile.
async fn migrate(
    cluster: &Cluster<'_>,
    found: &Found,
    namespace: &str,
    step: &MigrationStep,
    summary: &mut MigrationSummary,
) -> Result<()> {
    if step.accounts.is_empty() && !step.deletes {
        return Ok(());
    }
    let secrets: Api<Secret> = Api::namespaced(cluster.client.clone(), namespace);
    let ours = &found.ours;
    let doing = format!("get Secret `{namespace}/{ours}`");
    let own = cluster.call(&doing, secrets.get_metadata_opt(ours)).await?;
    if !own.is_some_and(|secret| is_ours(&secret)) {
        return Err(Failure::no(
            format!("Secret `{namespace}/{ours}` of globalps is gone, so nothing was removed"),
            "`kubectl globalps status --namespaces` shows the reason; then migrate again",
        ));
    }
    for name in &step.accounts {
        if detach(cluster, found, (namespace, name), summary.how).await? {
            summary.accounts += 1;
            let line = format!("serviceaccount/{name} of namespace {namespace} detached");
            done(cluster, &line, summary.how);
        }
    }
    let old = found
        .places
        .get(namespace)
        .and_then(|place| place.old.as_ref());
    if let Some(old) = old.filter(|_| step.deletes)
        && let name = &found.secret_name
        && let title = format!("Secret `{namespace}/{name}`")
        && let params = params::delete(summary.how == DryRun::Server, &old.metadata)
        && cluster.delete(&title, &secrets, name, &params).await?
    {
        summary.secrets += 1;
        let line = format!("secret/{name} of namespace {namespace} deleted");
        done(cluster, &line, summary.how);
    }
    Ok(())
}

/// Removes all references to the patcher's Secret from the service account. Returns `false` if there were none.
async fn detach(
    cluster: &Cluster<'_>,
    found: &Found,
    (namespace, name): (&str, &str),
    how: DryRun,
) -> Result<bool> {
    let api: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), namespace);
    let title = format!("ServiceAccount `{namespace}/{name}`");
    let params = params::patch(how == DryRun::Server);
    let mut has_changed = false;
    let mut attempt = 1;
    loop {
        let call = api.get_opt(name);
        let Some(current) = cluster.call(&format!("get {title}"), call).await? else {
            return Ok(has_changed);
        };
        let Some(refers) = account(&current, &found.secret_name, &found.ours) else {
            return Ok(has_changed);
        };
        if found.attach == Attach::ServiceAccounts && !refers.has_ours {
            return Err(Failure::no(
                format!(
                    "{title} has lost the reference of globalps, so nothing was removed from it"
                ),
                "`kubectl globalps status --namespaces` shows the reason; then migrate again",
            ));
        }
        let patch: Patch<()> = Patch::Json(without_reference(&current, &found.secret_name));
        let doing = format!("remove the reference from {title}");
        match cluster.call(&doing, api.patch(name, &params, &patch)).await {
            // A dry run leaves the reference, so a further attempt would find it again.
            Ok(_) if how == DryRun::Server => return Ok(true),
            Ok(_) => has_changed = true,
            // Another client has changed the service account since, so the patch's test fails.
            Err(failure) if (failure.is(422) || failure.is(409)) && attempt < ATTEMPTS => {
                attempt += 1;
                pause(attempt).await;
            }
            Err(failure) => return Err(failure),
        }
    }
}

fn finish(
    found: &Found,
    steps: &BTreeMap<String, MigrationStep>,
    summary: &MigrationSummary,
    printer: &Printer,
) -> Exit {
    printer.note(format!(
        "removed {} and {} of {PATCHER}",
        number(summary.accounts, "reference"),
        number(summary.secrets, "Secret"),
    ));
    for sentence in &summary.failed {
        printer.warning(sentence);
    }
    let is_selected = |name: &String| {
        found
            .places
            .get(name)
            .is_some_and(|place| place.is_selected)
    };
    let stays = |wanted: bool| -> Vec<&str> {
        let steps = steps.iter().filter(|(_, step)| !step.stays.is_empty());
        let names = steps
            .map(|(name, _)| name)
            .filter(|name| is_selected(name) == wanted);
        names.map(String::as_str).collect()
    };
    let (waiting, outside) = (stays(true), stays(false));
    if !outside.is_empty() {
        printer.warning(format!(
            "nobody updates the Secret `{}` any more in {} that globalps does not select: {}",
            found.secret_name,
            number(outside.len(), "namespace"),
            few(&outside, MOST)
        ));
    }
    if !waiting.is_empty() {
        printer.warning(format!(
            "something is left in {}: {}",
            number(waiting.len(), "namespace"),
            few(&waiting, MOST)
        ));
        printer.hint(
            "the column STAYS shows what: restart pods with `kubectl -n NAMESPACE rollout restart deployment`, add service accounts to `spec.imagePullSecrets.serviceAccounts`, then migrate again",
        );
    } else if summary.failed.is_empty() {
        for deployment in &found.deployments {
            printer.note(format!(
                "Deployment `{}` is scaled to 0; uninstall it with the tool that installed it",
                title(deployment)
            ));
        }
    }
    Exit::of(waiting.is_empty() && summary.failed.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Color;
    use crate::secret::migration::Old;
    use crate::secret::migration::{Account, NamespaceFacts};

    fn found(place: NamespaceFacts) -> Found {
        Found {
            secret_name: "image-pull-secret".to_owned(),
            ours: "global-pull-secret".to_owned(),
            attach: Attach::Admission,
            deployments: Vec::new(),
            places: [("a".to_owned(), place)].into(),
            foreign: Vec::new(),
        }
    }

    #[test]
    fn the_answer_is_no_while_globalps_can_replace_anything_left() {
        let printer = Printer::new(Color::Never, 0);
        let place = |is_selected, pods: &[&str]| NamespaceFacts {
            old: Some(Old::default()),
            accounts: vec![Account {
                name: "default".to_owned(),
                has_ours: false,
            }],
            is_selected,
            is_synced: is_selected,
            pods: pods.iter().map(|pod| (*pod).to_owned()).collect(),
        };
        for (place, failed, expected) in [
            (place(true, &[]), "", Exit::Done),
            (place(true, &["web"]), "", Exit::No),
            (place(false, &["web"]), "", Exit::Done),
            (place(true, &[]), "a: why", Exit::No),
        ] {
            let steps = [("a".to_owned(), step(&place, Attach::Admission, false))];
            let summary = MigrationSummary {
                failed: Some(failed.to_owned())
                    .filter(|f| !f.is_empty())
                    .into_iter()
                    .collect(),
                ..MigrationSummary::default()
            };
            let exit = finish(&found(place), &steps.into(), &summary, &printer);
            assert_eq!(exit, expected);
        }
    }
}
