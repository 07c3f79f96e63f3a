//! What delivery leaves in namespaces, for `uninstall`: the controller removes it, and the plugin what is still there after that.

use std::time::Duration;

use globalps_core::api::GlobalPullSecret;
use globalps_core::names;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{DeleteParams, ListParams, PartialObjectMeta, PatchParams, Preconditions};
use kube::{Api, ResourceExt as _};
use tokio::time::Instant;

use crate::client::Cluster;
use crate::error::Failure;
use crate::facts::Facts;
use crate::namespaces::{all_metadata, detach, is_labelled, json_patch, secrets};

const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Name of the Secret that namespaces have, or may have; `None`: they never had one.
pub(super) async fn secret_name(
    cluster: &Cluster<'_>,
    facts: &Facts,
) -> Result<Option<String>, Failure> {
    if let Some(gps) = facts.gps() {
        let settings = &gps.spec.image_pull_secrets;
        let status = gps.status.as_ref();
        let status = status.and_then(|status| status.image_pull_secrets.as_ref());
        let known = status.map(|status| status.secret_name.clone());
        let wanted = settings.enabled.then(|| settings.secret_name.clone());
        return Ok(known.filter(|name| !name.is_empty()).or(wanted));
    }
    // Without a GlobalPullSecret, the permission tells.
    let roles: Api<ClusterRole> = Api::all(cluster.client.clone());
    let name = names::IMAGE_PULL_SECRETS;
    let call = roles.get_opt(name);
    let doing = format!("get ClusterRole `{name}`");
    match cluster.call(&doing, call).await {
        Err(failure) if failure.is(403) => Ok(None),
        found => Ok(found?.as_ref().and_then(named_by)),
    }
}

/// The Secret that the role's rules name.
fn named_by(role: &ClusterRole) -> Option<String> {
    let mut rules = role.rules.iter().flatten();
    let of_secrets = rules.find(|rule| {
        let resources = rule.resources.as_deref().unwrap_or_default();
        resources.iter().any(|resource| resource == "secrets")
    })?;
    of_secrets.resource_names.as_ref()?.first().cloned()
}

/// Waits until the controller reports that nothing is left.
pub(super) async fn until_reported(
    cluster: &Cluster<'_>,
    deadline: Instant,
) -> Result<(), Failure> {
    let api = cluster.api::<GlobalPullSecret>();
    loop {
        let call = api.get_opt(names::GLOBAL_SECRET);
        let Some(gps) = cluster.call("get the GlobalPullSecret", call).await? else {
            return Ok(());
        };
        let Some(left) = open(&gps) else {
            return Ok(());
        };
        if Instant::now() >= deadline {
            return Err(Failure::no(
                left,
                "repair what it names, or give it more time with `--timeout`; then uninstall again",
            ));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// What the controller still has to remove, as a sentence; `None`: nothing.
fn open(gps: &GlobalPullSecret) -> Option<String> {
    let what = "the pull secrets of namespaces are still being removed";
    let Some(status) = &gps.status else {
        return None;
    };
    let is_fresh = status.observed_generation >= gps.metadata.generation.unwrap_or_default();
    match &status.image_pull_secrets {
        None => (!is_fresh).then(|| what.to_owned()),
        Some(found) => Some(match found.failures.first() {
            Some(first) => format!(
                "{what}; namespace `{}`: {}: {}",
                first.namespace, first.reason, first.message
            ),
            None => what.to_owned(),
        }),
    }
}

/// Removes references and Secrets that no controller removed. One that this user may not see or remove is named.
pub(super) async fn sweep(cluster: &Cluster<'_>, name: &str) -> Result<(), Failure> {
    let by_hand = |what: &str, failure: &Failure| {
        let printer = cluster.printer();
        printer.warning(&failure.message);
        printer.hint(format!(
            "this finds {what} that are left: {}",
            command(what, name)
        ));
    };
    for (what, swept) in [
        ("references", references(cluster).await),
        ("Secrets", left_secrets(cluster, name).await),
    ] {
        match swept {
            Err(failure) if failure.is(403) => by_hand(what, &failure),
            swept => swept?,
        }
    }
    Ok(())
}

fn command(what: &str, name: &str) -> String {
    let label = names::IMAGE_PULL_SECRET_LABEL;
    let annotation = names::ATTACHED_ANNOTATION.replace('.', "\\.");
    match what {
        "Secrets" => format!(
            "`kubectl get secrets -A --field-selector metadata.name={name} -l {label}=true`"
        ),
        _ => format!(
            "`kubectl get serviceaccounts -A -o custom-columns='NAMESPACE:.metadata.namespace,NAME:.metadata.name,\
             ATTACHED:.metadata.annotations.{annotation}'`"
        ),
    }
}

async fn references(cluster: &Cluster<'_>) -> Result<(), Failure> {
    let everywhere: Api<ServiceAccount> = Api::all(cluster.client.clone());
    let doing = "list the ServiceAccounts";
    let accounts = all_metadata(cluster, &everywhere, ListParams::default(), doing).await?;
    let attached = |account: &&PartialObjectMeta<ServiceAccount>| {
        account
            .annotations()
            .contains_key(names::ATTACHED_ANNOTATION)
    };
    for account in accounts.iter().filter(attached) {
        let (namespace, name) = (account.namespace().unwrap_or_default(), account.name_any());
        let api: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), &namespace);
        let title = format!("ServiceAccount `{namespace}/{name}`");
        let call = api.get_opt(&name);
        let Some(account) = cluster.call(&format!("get {title}"), call).await? else {
            continue;
        };
        let Some(patch) = detach(&account) else {
            continue;
        };
        let params = PatchParams {
            field_manager: Some(names::PLUGIN_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = json_patch(patch)?;
        let doing = format!("remove the reference from {title}");
        match cluster
            .call(&doing, api.patch(&name, &params, &patch))
            .await
        {
            Err(failure) if failure.is(404) => {}
            done => {
                done?;
                let line = format!("serviceaccount/{name} of namespace {namespace} detached");
                cluster.printer().data(&line);
            }
        }
    }
    Ok(())
}

async fn left_secrets(cluster: &Cluster<'_>, name: &str) -> Result<(), Failure> {
    for secret in secrets(cluster, name)
        .await?
        .iter()
        .filter(|s| is_labelled(*s))
    {
        let namespace = secret.namespace().unwrap_or_default();
        let api: Api<Secret> = Api::namespaced(cluster.client.clone(), &namespace);
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                resource_version: secret.resource_version(),
                uid: secret.uid(),
            }),
            ..DeleteParams::default()
        };
        let doing = format!("delete Secret `{namespace}/{name}`");
        match cluster.call(&doing, api.delete(name, &params)).await {
            Err(failure) if failure.is(404) => {}
            done => {
                done?;
                let line = format!("secret/{name} of namespace {namespace} deleted");
                cluster.printer().data(&line);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_controller_is_done_when_its_status_names_no_namespaces_any_more() {
        for (status, expected) in [
            (json!(null), None),
            (json!({"observedGeneration": 2}), None),
            (
                json!({"observedGeneration": 1}),
                Some("the pull secrets of namespaces are still being removed"),
            ),
            (
                json!({"observedGeneration": 2, "imagePullSecrets": {"secretName": "s"}}),
                Some("the pull secrets of namespaces are still being removed"),
            ),
            (
                json!({"observedGeneration": 2, "imagePullSecrets": {"failures": [
                    {"namespace": "a", "reason": "Rejected", "message": "why"}]}}),
                Some(
                    "the pull secrets of namespaces are still being removed; namespace `a`: Rejected: why",
                ),
            ),
        ] {
            let gps = json!({"apiVersion": "globalps.io/v1alpha1", "kind": "GlobalPullSecret",
                "metadata": {"name": "g", "generation": 2}, "spec": {}, "status": status});
            let gps: GlobalPullSecret = serde_json::from_value(gps).expect("an object");
            assert_eq!(open(&gps).as_deref(), expected, "{status}");
        }
    }

    #[test]
    fn the_permission_names_the_secret_where_there_is_no_configuration() {
        let role = json!({"metadata": {"name": "r"}, "rules": [
            {"verbs": ["get"], "resources": ["mutatingadmissionpolicies"], "resourceNames": ["p"]},
            {"verbs": ["list"], "resources": ["secrets"], "resourceNames": ["own"]},
        ]});
        let role: ClusterRole = serde_json::from_value(role).expect("a ClusterRole");
        assert_eq!(named_by(&role).as_deref(), Some("own"));
        assert_eq!(named_by(&ClusterRole::default()), None);
    }

    #[test]
    fn what_is_left_is_found_by_the_command_that_is_named() {
        let found = command("Secrets", "s");
        assert!(
            found.contains("metadata.name=s -l globalps.io/image-pull-secret=true"),
            "{found}"
        );
        let found = command("references", "s");
        assert!(
            found.contains(r"annotations.globalps\.io/attached"),
            "{found}"
        );
    }
}
