//! Secrets and references in namespaces, for `uninstall`: the controller removes them, and the plugin removes what remains.

use std::collections::BTreeSet;
use std::time::Duration;

use globalps_core::api::{GlobalPullSecret, condition};
use globalps_core::names;
use globalps_core::references::References;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{ListParams, PartialObjectMeta, Patch};
use kube::{Api, ResourceExt as _};
use tokio::time::Instant;

use crate::cluster::namespaces::all_metadata;
use crate::cluster::{Cluster, Facts, params};
use crate::error::{Failure, Result, allowed};
use crate::target::pull_secret;

const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// The marks on the objects of one form of delivery.
pub(crate) struct Marks<'a> {
    /// Name of its Secrets, if all have the same: a user who may not list other Secrets can list these.
    name: Option<&'a str>,
    /// Label with value `true` on its Secrets.
    label: &'static str,
    /// Annotation on service accounts with the references that the controller added.
    annotation: &'static str,
}

impl<'a> Marks<'a> {
    pub(crate) const OF_OPERATORS: Self = Self {
        name: None,
        label: names::OPERATOR_SECRET_LABEL,
        annotation: names::OPERATOR_SECRETS_ANNOTATION,
    };

    pub(crate) fn of_namespaces(name: &'a str) -> Self {
        Self {
            name: Some(name),
            label: names::IMAGE_PULL_SECRET_LABEL,
            annotation: names::ATTACHED_ANNOTATION,
        }
    }

    /// Whether the annotation can contain this name.
    fn may_name(&self, name: &str) -> bool {
        match self.name {
            Some(own) => own == name,
            None => names::is_operator_secret(name),
        }
    }

    fn selector(&self) -> String {
        format!("{}=true", self.label)
    }

    /// The commands that find the Secrets and the references.
    fn commands(&self) -> [String; 2] {
        let name = self
            .name
            .map(|name| format!(" --field-selector metadata.name={name}"));
        let annotation = self.annotation.replace('.', "\\.");
        [
            format!(
                "`kubectl get secrets -A{} -l {}`",
                name.unwrap_or_default(),
                self.selector()
            ),
            format!(
                "`kubectl get serviceaccounts -A -o custom-columns='NAMESPACE:.metadata.namespace,NAME:.metadata.name,\
                 ATTACHED:.metadata.annotations.{annotation}'`"
            ),
        ]
    }
}

/// Name of the Secret that namespaces have, or may have; `None` if they never had one.
pub(crate) async fn secret_name(cluster: &Cluster<'_>, facts: &Facts) -> Result<Option<String>> {
    if let Some(gps) = facts.gps() {
        let settings = &gps.spec.image_pull_secrets;
        let status = gps.status.as_ref();
        let status = status.and_then(|status| status.image_pull_secrets.as_ref());
        let known = status.map(|status| status.secret_name.clone());
        let wanted = settings.enabled.then(|| settings.secret_name.clone());
        return Ok(known.filter(|name| !name.is_empty()).or(wanted));
    }
    // Without a `GlobalPullSecret`, the permission contains the name.
    let roles: Api<ClusterRole> = Api::all(cluster.client.clone());
    let name = names::IMAGE_PULL_SECRETS;
    let call = roles.get_opt(name);
    let doing = format!("get ClusterRole `{name}`");
    let found = allowed(cluster.call(&doing, call).await)?.flatten();
    Ok(found.as_ref().and_then(named_by))
}

/// The Secret in the role's rules.
fn named_by(role: &ClusterRole) -> Option<String> {
    let mut rules = role.rules.iter().flatten();
    let of_secrets = rules.find(|rule| {
        let resources = rule.resources.as_deref().unwrap_or_default();
        resources.iter().any(|resource| resource == "secrets")
    })?;
    of_secrets.resource_names.as_ref()?.first().cloned()
}

/// Waits until the controller reports that everything is removed.
pub(crate) async fn until_reported(cluster: &Cluster<'_>, deadline: Instant) -> Result<()> {
    loop {
        let Some(gps) = pull_secret::configuration(cluster).await? else {
            return Ok(());
        };
        let Some(left) = open(&gps) else {
            return Ok(());
        };
        if Instant::now() >= deadline {
            return Err(Failure::no(
                left,
                "fix the named problem, or allow more time with `--timeout`; then uninstall again",
            ));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// What the controller still has to remove, as a sentence; `None` if nothing.
fn open(gps: &GlobalPullSecret) -> Option<String> {
    let status = gps.status.as_ref()?;
    let is_fresh = status.observed_generation >= gps.metadata.generation.unwrap_or_default();
    let of_condition = |type_: &str| {
        let mut conditions = status.conditions.iter();
        let found = conditions.find(|found| found.type_ == type_ && found.status == "False");
        found.map(|found| format!("; {}", found.message))
    };
    let (whose, first) = if let Some(found) = &status.image_pull_secrets {
        let first = found.failures.first();
        let first = first.map(|first| {
            let (namespace, reason) = (&first.namespace, &first.reason);
            format!("; namespace `{namespace}`: {reason}: {}", first.message)
        });
        let first = first.or_else(|| of_condition(condition::NAMESPACES_SYNCED));
        (" of namespaces", first)
    } else if status.operators.is_some() {
        // Operators no longer count as failed by then, so only the condition has the reason.
        (" of operators", of_condition(condition::OPERATORS_SYNCED))
    } else if is_fresh {
        return None;
    } else {
        ("", None)
    };
    let first = first.unwrap_or_default();
    Some(format!(
        "the pull secrets{whose} are still being removed{first}"
    ))
}

/// Removes references and Secrets that the controller left. Names those that this user may not read or remove.
pub(crate) async fn sweep(cluster: &Cluster<'_>, marks: &Marks<'_>) -> Result<()> {
    let references = references(cluster, marks).await;
    let secrets = left_secrets(cluster, marks).await;
    let [find_secrets, find_references] = marks.commands();
    for (what, swept, command) in [
        ("references", references, find_references),
        ("Secrets", secrets, find_secrets),
    ] {
        match swept {
            Err(failure) if failure.is(403) => {
                let printer = cluster.printer();
                printer.warning(&failure.message);
                printer.hint(format!("find the {what} that are left with {command}"));
            }
            swept => swept?,
        }
    }
    Ok(())
}

async fn references(cluster: &Cluster<'_>, marks: &Marks<'_>) -> Result<()> {
    let annotation = marks.annotation;
    let everywhere: Api<ServiceAccount> = Api::all(cluster.client.clone());
    let doing = "list the ServiceAccounts";
    let accounts = all_metadata(cluster, &everywhere, ListParams::default(), doing).await?;
    let attached = |account: &&PartialObjectMeta<ServiceAccount>| {
        account.annotations().contains_key(annotation)
    };
    for account in accounts.iter().filter(attached) {
        let (namespace, name) = (account.namespace().unwrap_or_default(), account.name_any());
        let api: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), &namespace);
        let title = format!("ServiceAccount `{namespace}/{name}`");
        let call = api.get_opt(&name);
        let Some(account) = cluster.call(&format!("get {title}"), call).await? else {
            continue;
        };
        let names = account.image_pull_secrets.iter().flatten();
        let names = names.map(|reference| reference.name.as_str());
        let mut references = References::of(&account, names, annotation);
        references.believe(|name| marks.may_name(name));
        let Some(change) = references.change(&BTreeSet::new(), |_| false) else {
            continue;
        };
        let params = params::patch(false);
        let patch: Patch<()> = Patch::Json(references.patch(&change, annotation));
        let doing = format!("remove the reference from {title}");
        let patched = cluster.call(&doing, api.patch(&name, &params, &patch));
        match patched.await {
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

async fn left_secrets(cluster: &Cluster<'_>, marks: &Marks<'_>) -> Result<()> {
    let everywhere: Api<Secret> = Api::all(cluster.client.clone());
    let mut params = ListParams::default().labels(&marks.selector());
    if let Some(name) = marks.name {
        params = params.fields(&format!("metadata.name={name}"));
    }
    let doing = "list the Secrets that are left";
    for secret in all_metadata(cluster, &everywhere, params, doing).await? {
        let (namespace, name) = (secret.namespace().unwrap_or_default(), secret.name_any());
        let api: Api<Secret> = Api::namespaced(cluster.client.clone(), &namespace);
        let params = params::delete(false, &secret.metadata);
        let title = format!("Secret `{namespace}/{name}`");
        if cluster.delete(&title, &api, &name, &params).await? {
            let line = format!("secret/{name} of namespace {namespace} deleted");
            cluster.printer().data(&line);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_controller_is_done_when_its_status_names_no_places() {
        for (status, expected) in [
            (json!(null), None),
            (json!({"observedGeneration": 2}), None),
            (
                json!({"observedGeneration": 1}),
                Some("the pull secrets are still being removed"),
            ),
            (
                json!({"observedGeneration": 2, "operators": {}}),
                Some("the pull secrets of operators are still being removed"),
            ),
            (
                json!({"observedGeneration": 2, "operators": {}, "conditions": [
                    {"type": "OperatorsSynced", "status": "False", "reason": "Forbidden", "message": "why",
                        "lastTransitionTime": "2026-01-01T00:00:00Z"}]}),
                Some("the pull secrets of operators are still being removed; why"),
            ),
            (
                json!({"observedGeneration": 2, "imagePullSecrets": {"secretName": "s"}}),
                Some("the pull secrets of namespaces are still being removed"),
            ),
            (
                json!({"observedGeneration": 2, "imagePullSecrets": {"secretName": "s"}, "conditions": [
                    {"type": "NamespacesSynced", "status": "False", "reason": "Forbidden", "message": "why",
                        "lastTransitionTime": "2026-01-01T00:00:00Z"}]}),
                Some("the pull secrets of namespaces are still being removed; why"),
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
    fn a_record_of_other_names_is_not_believed() {
        let (namespaces, operators) = (Marks::of_namespaces("s"), Marks::OF_OPERATORS);
        for (name, expected) in [
            ("s", [true, false]),
            ("own", [false, false]),
            ("globalps-olm.pull", [false, true]),
            ("globalps-own", [false, false]),
            ("own.pull", [false, false]),
        ] {
            let found = [&namespaces, &operators].map(|marks| marks.may_name(name));
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn without_a_configuration_the_permission_names_the_secret() {
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
        for (marks, secrets, references) in [
            (
                Marks::of_namespaces("s"),
                "-A --field-selector metadata.name=s -l globalps.io/image-pull-secret=true`",
                r"annotations.globalps\.io/attached'`",
            ),
            (
                Marks::OF_OPERATORS,
                "-A -l globalps.io/operator-secret=true`",
                r"annotations.globalps\.io/operator-secrets'`",
            ),
        ] {
            let found = marks.commands();
            assert!(found[0].ends_with(secrets), "{found:?}");
            assert!(found[1].ends_with(references), "{found:?}");
        }
    }
}
