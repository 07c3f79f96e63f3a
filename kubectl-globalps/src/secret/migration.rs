//! Migration from imagepullsecret-patcher to globalps: what the patcher left, what is in force instead, and what can be
//! deleted. Pure.

use std::collections::{BTreeMap, BTreeSet};

use globalps_core::api::Attach;
use globalps_dockerconfig::{DockerConfig, shown_key};
use json_patch::jsonptr::PointerBuf;
use json_patch::{Patch, PatchOperation, RemoveOperation, TestOperation};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;

use crate::error::Failure;
use crate::terminal::{few, number};

/// Part of the image's name that identifies the patcher's Deployment, and value of the annotation on its Secrets.
pub(crate) const PATCHER: &str = "imagepullsecret-patcher";
pub(crate) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Default name of the patcher's Secrets, unless its Deployment or the user names another.
pub(crate) const SECRET_NAME: &str = "image-pull-secret";
/// Maximum number of names in a sentence.
pub(crate) const MOST: usize = 5;

/// A Secret of the patcher.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Old {
    /// Only resource version and uid: annotations can contain credentials.
    pub metadata: ObjectMeta,
    /// Registries that globalps does not deliver to the namespace.
    pub missing: Vec<String>,
    /// Registries for which globalps has other credentials.
    pub different: Vec<String>,
}

/// A service account with a reference to the patcher's Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub name: String,
    /// It also refers to globalps' Secret.
    pub has_ours: bool,
}

/// The state of one namespace.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NamespaceFacts {
    /// `None` if the Secret is gone and only references to it remain.
    pub old: Option<Old>,
    pub accounts: Vec<Account>,
    /// globalps delivers a Secret to this namespace.
    pub is_selected: bool,
    /// globalps' Secret is here, with the current content.
    pub is_synced: bool,
    /// Running pods that refer to the patcher's Secret but not to globalps'.
    pub pods: Vec<String>,
}

/// The migration of one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MigrationStep {
    /// Service accounts whose reference is removed.
    pub accounts: Vec<String>,
    pub deletes: bool,
    /// Why something is kept; empty if nothing is.
    pub stays: String,
}

/// `attach`: how pods refer to globalps' Secret; with `Admission`, the policy is in force. `ignore_pods`: delete
/// Secrets even if running pods need them.
pub(crate) fn step(place: &NamespaceFacts, attach: Attach, ignore_pods: bool) -> MigrationStep {
    if !place.is_selected {
        return MigrationStep {
            stays: "globalps does not select the namespace".to_owned(),
            ..MigrationStep::default()
        };
    }
    let is_in_force = |account: &&Account| attach == Attach::Admission || account.has_ours;
    let accounts: Vec<String> = place
        .accounts
        .iter()
        .filter(is_in_force)
        .map(|account| account.name.clone())
        .collect();
    let kept: Vec<&str> = place
        .accounts
        .iter()
        .filter(|account| !is_in_force(account))
        .map(|account| account.name.as_str())
        .collect();
    let mut stays = Vec::new();
    if !kept.is_empty() {
        stays.push(format!(
            "service accounts without the reference of globalps: {}",
            few(&kept, MOST)
        ));
    }
    if !place.pods.is_empty() && !ignore_pods && place.old.is_some() {
        let pods: Vec<&str> = place.pods.iter().map(String::as_str).collect();
        stays.push(format!(
            "running pods refer to the Secret only: {}",
            few(&pods, MOST)
        ));
    }
    MigrationStep {
        deletes: place.old.is_some() && stays.is_empty(),
        accounts,
        stays: stays.join("; "),
    }
}

/// Why nothing may be changed yet; `None` if everything is in force. `secret_name`: name of the patcher's Secrets.
pub(crate) fn refusal(
    places: &BTreeMap<String, NamespaceFacts>,
    secret_name: &str,
) -> Option<Failure> {
    let selected = || places.iter().filter(|(_, place)| place.is_selected);
    let unsynced: Vec<&str> = selected()
        .filter(|(_, place)| !place.is_synced)
        .map(|(name, _)| name.as_str())
        .collect();
    if !unsynced.is_empty() {
        return Some(Failure::no(
            format!(
                "globalps' pull secret is not in force in {} yet: {}",
                number(unsynced.len(), "namespace"),
                few(&unsynced, MOST)
            ),
            "`kubectl globalps status --namespaces` shows the reasons; then migrate again",
        ));
    }
    let mut missing: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, place) in selected() {
        for registry in place.old.iter().flat_map(|old| &old.missing) {
            missing.entry(registry).or_default().push(name);
        }
    }
    let (_, namespaces) = missing.first_key_value()?;
    let first = namespaces.first().copied().unwrap_or_default();
    let sentences: Vec<String> = missing
        .iter()
        .map(|(registry, namespaces)| format!("`{registry}` in {}", few(namespaces, MOST)))
        .collect();
    Some(Failure::no(
        format!(
            "globalps does not deliver every registry of the Secrets `{secret_name}`: {}",
            sentences.join("; ")
        ),
        format!(
            "add them with `kubectl globalps add --from-secret {first}/{secret_name} --all`, or from a file with `kubectl globalps add --from-file FILE --all`; with `--source NAME --only-namespaces NAMESPACE` for some namespaces only"
        ),
    ))
}

/// Registries of the patcher's Secret that are missing in globalps', and those with other credentials. Returns no credentials.
pub(crate) fn compare(old: &DockerConfig, ours: &DockerConfig) -> (Vec<String>, Vec<String>) {
    let ours = ours.by_canonical_key();
    let (mut missing, mut different) = (BTreeSet::new(), BTreeSet::new());
    for (key, entry) in old.by_canonical_key() {
        match ours.get(&key) {
            None => missing.insert(shown_key(&key)),
            Some(found) if !found.means_the_same(entry) => different.insert(shown_key(&key)),
            Some(_) => false,
        };
    }
    (
        missing.into_iter().collect(),
        different.into_iter().collect(),
    )
}

/// Whether the Deployment runs the patcher.
pub(crate) fn is_patcher(deployment: &Deployment) -> bool {
    containers(deployment).any(|container| {
        let image = container.image.as_deref();
        image.is_some_and(|image| image.contains(PATCHER))
    })
}

/// The name of the patcher's Secrets, if the Deployment sets it.
pub(crate) fn named_by(deployment: &Deployment) -> Option<String> {
    let of_env = containers(deployment)
        .flat_map(|container| container.env.iter().flatten())
        .find(|variable| variable.name == "CONFIG_SECRETNAME")
        .and_then(|variable| variable.value.clone());
    let args = containers(deployment).flat_map(|container| container.args.iter().flatten());
    let of_args = args
        .filter_map(|arg| arg.trim_start_matches('-').strip_prefix("secretname="))
        .map(str::to_owned)
        .next();
    of_args.or(of_env)
}

fn containers(
    deployment: &Deployment,
) -> impl Iterator<Item = &k8s_openapi::api::core::v1::Container> {
    let spec = deployment.spec.as_ref();
    let pod = spec.and_then(|spec| spec.template.spec.as_ref());
    pod.into_iter().flat_map(|pod| &pod.containers)
}

/// The service account, if it refers to the patcher's Secret.
pub(crate) fn account(account: &ServiceAccount, old: &str, ours: &str) -> Option<Account> {
    let has = |name: &str| {
        let mut references = account.image_pull_secrets.iter().flatten();
        references.any(|reference| reference.name == name)
    };
    has(old).then(|| Account {
        name: account.name_any(),
        has_ours: has(ours),
    })
}

/// Removes the first reference to this Secret, unless the service account has changed since it was read: the
/// reference's owner is not recorded.
pub(crate) fn without_reference(account: &ServiceAccount, name: &str) -> Patch {
    let mut operations = vec![PatchOperation::Test(TestOperation {
        path: PointerBuf::from_tokens(["metadata", "resourceVersion"]),
        value: account.resource_version().into(),
    })];
    let mut references = account.image_pull_secrets.iter().flatten();
    if let Some(at) = references.position(|reference| reference.name == name) {
        let path = PointerBuf::from_tokens(["imagePullSecrets", &at.to_string()]);
        operations.push(PatchOperation::Remove(RemoveOperation { path }));
    }
    Patch(operations)
}

#[cfg(test)]
mod tests;
