//! What `install` grants for operators: the catalogs' pull secrets that the controller may read and copy.

use std::collections::BTreeSet;

use globalps_core::names;
use globalps_manifests::OperatorAccess;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;

use crate::cli::{CatalogSecret, Install};
use crate::cluster::Cluster;
use crate::cluster::namespaces::namespaces;
use crate::error::{Failure, Result};

/// Namespace and name of each Secret.
type Secrets = BTreeSet<(String, String)>;

/// From the flags alone, without a cluster.
pub(crate) fn printed(args: &Install) -> Option<OperatorAccess> {
    let secrets = asked(args);
    (!secrets.is_empty()).then_some(OperatorAccess { secrets })
}

/// Combines the flags with the existing grants. `is_enabled`: from the configuration. `None`: operators get nothing.
pub(crate) async fn chosen(
    args: &Install,
    is_enabled: bool,
    cluster: &Cluster<'_>,
) -> Result<Option<OperatorAccess>> {
    let asked = asked(args);
    if asked.is_empty() && !is_enabled {
        return Ok(None);
    }
    let granted = granted(cluster).await?;
    let present = namespaces(cluster).await?.into_iter();
    let present = present.filter(|(_, namespace)| !namespace.is_terminating);
    let present = present.map(|(name, _)| name).collect();
    let (secrets, note) = choose(asked, granted, &present)?;
    if let Some(note) = note {
        cluster.printer().note(note);
    }
    Ok(Some(OperatorAccess { secrets }))
}

fn asked(args: &Install) -> Secrets {
    let secrets = args.operators.iter();
    secrets.map(|CatalogSecret(id)| id.clone()).collect()
}

/// The pull secrets that the controller may copy; empty without such a permission.
pub(crate) async fn granted(cluster: &Cluster<'_>) -> Result<Secrets> {
    let roles: Api<ClusterRole> = Api::all(cluster.client.clone());
    let name = names::OPERATORS;
    let doing = format!("get ClusterRole `{name}`");
    let role = cluster.call(&doing, roles.get_opt(name)).await?;
    Ok(role.as_ref().map(named_by).unwrap_or_default())
}

/// Derived from the names of the copies. Other names are skipped, because these names become part of admission policies.
fn named_by(role: &ClusterRole) -> Secrets {
    let rules = role.rules.iter().flatten();
    let names = rules.filter_map(|rule| rule.resource_names.as_ref());
    let secrets = names
        .flatten()
        .filter_map(|name| CatalogSecret::of_copy(name));
    secrets.map(|CatalogSecret(id)| id).collect()
}

/// Both sets, without Secrets of deleted namespaces, where no Role can exist. Also returns a note for the user.
fn choose(
    asked: Secrets,
    mut granted: Secrets,
    present: &BTreeSet<String>,
) -> Result<(Secrets, Option<String>)> {
    if let Some((namespace, name)) = asked
        .iter()
        .find(|(namespace, _)| !present.contains(namespace))
    {
        return Err(Failure::new(
            format!(
                "there is no namespace `{namespace}`, so nobody can be allowed to read Secret `{namespace}/{name}`"
            ),
            "`kubectl get catalogsources -A` shows the catalogs with their namespaces",
        ));
    }
    granted.retain(|(namespace, _)| present.contains(namespace));
    let others: Vec<String> = granted
        .difference(&asked)
        .map(|(namespace, name)| format!("`{namespace}/{name}`"))
        .collect();
    let note = (!asked.is_empty() && !others.is_empty()).then(|| {
        format!(
            "the controller may still copy, as before: {}",
            others.join(", ")
        )
    });
    granted.extend(asked);
    if granted.is_empty() {
        return Err(Failure::new(
            format!(
                "`spec.operators` is enabled, but ClusterRole `{}` names no Secret in an existing namespace",
                names::OPERATORS
            ),
            "name one with `--operators NAMESPACE/SECRET`, or set `spec.operators.enabled: false` first",
        ));
    }
    Ok((granted, note))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn secrets(texts: &[&str]) -> Secrets {
        let parsed = texts.iter().map(|text| text.parse::<CatalogSecret>());
        parsed.map(|secret| secret.expect("a secret").0).collect()
    }

    #[test]
    fn what_is_granted_stays_and_a_namespace_has_to_be_there() {
        let present = ["olm", "other"].map(str::to_owned).into();
        for (asked, granted, expected) in [
            (&["olm/a"][..], &[][..], Ok((&["olm/a"][..], ""))),
            (&["olm/a"], &["olm/a"], Ok((&["olm/a"], ""))),
            (
                &["olm/a"],
                &["olm/b", "other/c"],
                Ok((&["olm/a", "olm/b", "other/c"], "`olm/b`, `other/c`")),
            ),
            (&[], &["olm/b"], Ok((&["olm/b"], ""))),
            (&["olm/a"], &["gone/b"], Ok((&["olm/a"], ""))),
            (&["gone/a"], &["olm/b"], Err("no namespace `gone`")),
            (&[], &["gone/b"], Err("names no Secret")),
            (&[], &[], Err("names no Secret")),
        ] {
            let case = format!("{asked:?} {granted:?}");
            let found = choose(secrets(asked), secrets(granted), &present);
            match expected {
                Ok((expected, note)) => {
                    let (found, said) = found.expect(&case);
                    assert_eq!(found, secrets(expected), "{case}");
                    let said = said.unwrap_or_default();
                    assert!(said.ends_with(note), "{case}: {said}");
                    assert_eq!(said.is_empty(), note.is_empty(), "{case}: {said}");
                }
                Err(expected) => {
                    let failure = found.expect_err(&case);
                    assert!(failure.message.contains(expected), "{case}: {failure:?}");
                }
            }
        }
    }

    #[test]
    fn the_permission_names_the_copies() {
        let role = json!({"metadata": {"name": "r"}, "rules": [
            {"verbs": ["list"], "resources": ["subscriptions"]},
            {"verbs": ["patch"], "resources": ["secrets"],
                "resourceNames": ["globalps-olm.pull", "globalps-a-b.c.d", "own", "globalps-a.it's"]},
        ]});
        let role: ClusterRole = serde_json::from_value(role).expect("a ClusterRole");
        assert_eq!(named_by(&role), secrets(&["olm/pull", "a-b/c.d"]));
        assert!(named_by(&ClusterRole::default()).is_empty());
    }
}
