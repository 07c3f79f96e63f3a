//! Delivery to namespaces: the permission, the admission policy, foreign Secrets, and pods without the reference. Pure.

use std::collections::BTreeSet;

use globalps_core::api::{Attach, GlobalPullSecret, ImagePullSecrets};
use globalps_core::names;
use globalps_provider::Pattern;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};

use super::{Check, Sight, well};
use crate::diagnose::why::{PodSeen, failing};
use crate::terminal::{few, number};

const NAMESPACES: &str = "namespaces";
/// The command that installs what delivery to namespaces needs, with this Secret's name.
pub(crate) fn install_delivery(secret_name: &str) -> String {
    let command = "kubectl globalps install --deliver-to-namespaces";
    if secret_name == ImagePullSecrets::default().secret_name {
        command.to_owned()
    } else {
        format!("{command}={secret_name}")
    }
}

/// That command as a hint.
pub(crate) fn restore_delivery(secret_name: &str) -> String {
    format!(
        "`{}` restores it{WITHOUT_POLICIES}",
        install_delivery(secret_name)
    )
}

pub(crate) const WITHOUT_POLICIES: &str = "; where the API server does not serve MutatingAdmissionPolicy v1, add `--attach service-accounts`";
/// Maximum number of names in a message, and of commands in a hint.
const MOST: usize = 5;
const BY_HAND: &str = "no controller is known to recreate them, or their Job would count them as failed: create them again as they were created";

/// The observed state of delivery to namespaces.
#[derive(Debug)]
pub(crate) struct Delivering {
    /// The controller's `ClusterRole` and its binding.
    pub role: Sight<RoleSeen>,
    /// `MutatingAdmissionPolicy` and its binding.
    pub policy: Sight<()>,
    /// Selected namespaces whose Secret of that name does not belong to globalps.
    pub foreign: Sight<Vec<String>>,
    /// Pods in selected namespaces that can't pull and lack the reference.
    pub early: Sight<Vec<EarlyPod>>,
}

/// The permissions of the `ClusterRole`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RoleSeen {
    /// Permission to write the Secret with the name in the spec.
    pub secret: bool,
    pub service_accounts: bool,
}

impl RoleSeen {
    pub(crate) fn of(role: &ClusterRole, secret_name: &str) -> Self {
        let rules = || role.rules.iter().flatten();
        let is_for = |rule: &&PolicyRule, resource: &str| {
            let mut resources = rule.resources.iter().flatten();
            resources.any(|found| found == resource)
        };
        let names = |rule: &PolicyRule| {
            let mut names = rule.resource_names.iter().flatten();
            names.any(|name| name == secret_name)
        };
        Self {
            secret: rules().filter(|rule| is_for(rule, "secrets")).any(names),
            service_accounts: rules().any(|rule| is_for(&rule, "serviceaccounts")),
        }
    }
}

/// A pod that was created before the reference existed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EarlyPod {
    pub namespace: String,
    pub name: String,
    /// The command that replaces the pod; `None` if nothing would recreate it.
    pub restart: Option<String>,
}

/// Whether the references of this service account are those of globalps, if it attaches Secrets to service accounts.
pub(crate) fn names_account(settings: &ImagePullSecrets, account: &str) -> bool {
    let mut accounts = settings.service_accounts.iter().cloned();
    accounts.any(|text| Pattern::try_from(text).is_ok_and(|it| it.matches(account)))
}

/// `None` if the pod has the reference, lacks no credential, or can't get the reference. `attach`: what the controller does.
/// `has`: whether the Secret of a namespace has a credential for an image.
pub(crate) fn early_pod(
    pod: &Pod,
    settings: &ImagePullSecrets,
    attach: Attach,
    mut has: impl FnMut(&str, &str) -> bool,
) -> Option<EarlyPod> {
    let mut references = pod.spec.as_ref()?.image_pull_secrets.iter().flatten();
    let (found, seen) = (failing(pod, &[]), PodSeen::of(pod));
    if references.any(|reference| reference.name == settings.secret_name)
        || seen.is_static
        || pod.metadata.deletion_timestamp.is_some()
        || attach == Attach::ServiceAccounts && !names_account(settings, &seen.service_account)
        || !found
            .iter()
            .any(|it| it.may_lack_credentials() && has(&seen.namespace, &it.image))
    {
        return None;
    }
    Some(EarlyPod {
        restart: seen.restart(),
        namespace: seen.namespace,
        name: seen.name,
    })
}

/// No checks if namespaces get no Secrets.
pub(crate) fn namespaces(gps: &GlobalPullSecret, seen: &Delivering) -> Vec<Check> {
    let settings = &gps.spec.image_pull_secrets;
    if !settings.enabled {
        return Vec::new();
    }
    let name = &settings.secret_name;
    let status = gps.status.as_ref();
    let status = status.and_then(|status| status.image_pull_secrets.as_ref());
    let by_accounts = settings.attach == Some(Attach::ServiceAccounts)
        || status.is_some_and(|status| status.attach == Attach::ServiceAccounts.as_str());
    let mut checks = vec![permission(&seen.role, name, by_accounts)];
    checks.extend(policy(&seen.policy, settings.attach, name));
    checks.push(foreign(&seen.foreign, name));
    let lacks_policy = seen.policy == Sight::Absent && settings.attach == Some(Attach::Admission);
    checks.push(early(&seen.early, name, lacks_policy));
    checks
}

fn permission(role: &Sight<RoleSeen>, name: &str, by_accounts: bool) -> Check {
    let permission = |message: String| well(NAMESPACES, "namespaces-permission", message);
    let role_name = names::IMAGE_PULL_SECRETS;
    match role {
        Sight::Here(role) if !role.secret => permission(format!(
            "the controller may not write Secrets `{name}` in namespaces: ClusterRole `{role_name}` allows another name"
        ))
        .fail(format!(
            "`kubectl globalps install --deliver-to-namespaces={name}` allows it"
        )),
        Sight::Here(role) if by_accounts && !role.service_accounts => permission(format!(
            "the controller may not change service accounts: ClusterRole `{role_name}` has no rule for them"
        ))
        .fail(format!(
            "`kubectl globalps install --deliver-to-namespaces={name} --attach service-accounts` allows it"
        )),
        Sight::Here(_) => permission("the controller may write the pull secrets of namespaces".to_owned()),
        Sight::Absent => permission(format!(
            "the controller may not write in namespaces: ClusterRole `{role_name}` or its binding does not exist"
        ))
        .fail(restore_delivery(name)),
        Sight::Hidden => permission("the controller's permission in namespaces can't be seen".to_owned())
            .warn("ask a user who may read ClusterRoles"),
    }
}

/// `attach`: from the spec. No policy is needed if the controller changes service accounts.
fn policy(policy: &Sight<()>, attach: Option<Attach>, secret_name: &str) -> Option<Check> {
    if attach == Some(Attach::ServiceAccounts) {
        return None;
    }
    let check = |message: &str| well(NAMESPACES, "admission-policy", message);
    let name = names::IMAGE_PULL_SECRETS;
    Some(match (policy, attach) {
        (Sight::Here(()), _) => check("the admission policy attaches the pull secret to new pods"),
        (Sight::Absent, Some(_)) => check(&format!(
            "new pods get no reference to their pull secret: MutatingAdmissionPolicy `{name}` or its binding does not exist"
        ))
        .fail(restore_delivery(secret_name)),
        (Sight::Absent, None) => check(&format!(
            "the controller changes service accounts instead: MutatingAdmissionPolicy `{name}` or its binding does not exist"
        ))
        .warn("`kubectl globalps install --deliver-to-namespaces --attach admission` installs it; `--attach service-accounts` keeps it this way on purpose"),
        (Sight::Hidden, _) => check("the admission policy can't be seen")
            .warn("ask a user who may read MutatingAdmissionPolicies"),
    })
}

fn foreign(foreign: &Sight<Vec<String>>, name: &str) -> Check {
    let check = |message: String| well(NAMESPACES, "namespace-foreign-secret", message);
    match foreign {
        Sight::Here(found) if !found.is_empty() => check(format!(
            "Secret `{name}` does not belong to globalps in {}: {}",
            number(found.len(), "namespace"),
            few(found, MOST)
        ))
        .fail(format!(
            "delete it if nothing needs it, `kubectl -n NAMESPACE delete secret {name}`, or exclude the namespace: `kubectl label namespace NAMESPACE globalps.io/exclude=true`"
        )),
        Sight::Hidden => check(format!("the Secrets `{name}` of namespaces can't be seen"))
            .warn("ask a user who may list Secrets of that name in all namespaces"),
        _ => check(format!("no other Secret has the name `{name}`")),
    }
}

/// `lacks_policy`: new pods get no reference either.
fn early(early: &Sight<Vec<EarlyPod>>, name: &str, lacks_policy: bool) -> Check {
    let check = |message: String| well(NAMESPACES, "pod-without-reference", message);
    match early {
        Sight::Here(found) if !found.is_empty() => {
            let pods: Vec<String> = found
                .iter()
                .map(|pod| format!("{}/{}", pod.namespace, pod.name))
                .collect();
            let commands = found.iter().filter_map(|pod| pod.restart.as_deref());
            let commands: BTreeSet<&str> = commands.collect();
            let shown: Vec<String> = commands
                .iter()
                .take(MOST)
                .map(|c| format!("`{c}`"))
                .collect();
            let more = match commands.len().saturating_sub(MOST) {
                0 => "",
                _ => "; likewise for the others",
            };
            let first = if lacks_policy {
                "restore the admission policy first; "
            } else {
                ""
            };
            check(format!(
                "{} without a reference to Secret `{name}` can't pull: {}",
                number(found.len(), "pod"),
                few(&pods, MOST)
            ))
            .warn(
                match (
                    shown.is_empty(),
                    found.iter().any(|pod| pod.restart.is_none()),
                ) {
                    (true, _) => format!("{first}{BY_HAND}"),
                    (false, false) => {
                        format!("{first}create them again: {}{more}", shown.join("; "))
                    }
                    (false, true) => format!(
                        "{first}create them again: {}{more}. Of the others: {BY_HAND}",
                        shown.join("; ")
                    ),
                },
            )
        }
        Sight::Hidden => check("pods can't be seen".to_owned())
            .warn("ask a user who may list pods in all namespaces"),
        _ => check(format!(
            "no pod fails to pull because of a missing reference to `{name}`"
        )),
    }
}

#[cfg(test)]
mod tests;
