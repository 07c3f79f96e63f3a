//! Delivery by the credential provider: the kubelets' features, and their permission to request tokens.

use std::collections::BTreeMap;

use globalps_core::api::{DeliveryType, GlobalPullSecret, SourceScope};
use globalps_core::names;
use globalps_provider::{MIN_KUBELET, MIN_KUBELET_FOR_SCOPES, kubelet_version};

use super::{Check, Sight, well};
use crate::terminal::layout::nodes;

const DELIVERY: &str = "delivery";
/// The first version whose kubelets check, for each pod, who pulled an image that is on the node
/// (`KubeletEnsureSecretPulledImages`).
const ENSURES_PULLED_IMAGES: (u32, u32) = (1, 35);

/// Whether a source has a scope.
pub(crate) fn has_scopes(gps: &GlobalPullSecret) -> bool {
    gps.spec.sources.iter().any(|source| source.scope.is_some())
}

/// `versions`: of each node's kubelet, such as `v1.36.3`; empty if unknown. `audience`: the `ClusterRole` and its
/// binding.
pub(crate) fn provider<'a>(
    gps: &GlobalPullSecret,
    versions: impl Iterator<Item = &'a str>,
    audience: &Sight<()>,
) -> Vec<Check> {
    let has_scopes = has_scopes(gps);
    if gps.spec.kubelet.delivery != DeliveryType::CredentialProvider {
        return scopes_not_delivered(gps).into_iter().collect();
    }
    let mut kinds: BTreeMap<KubeletSupport, BTreeMap<&str, u32>> = BTreeMap::new();
    for version in versions {
        if let Some(number) = kubelet_version(version) {
            let counts = kinds
                .entry(KubeletSupport::of(number, has_scopes))
                .or_default();
            *counts.entry(version).or_default() += 1;
        }
    }
    let mut checks: Vec<Check> = kinds
        .iter()
        .map(|(kind, counts)| kind.check(counts, has_scopes))
        .collect();
    if has_scopes {
        checks.push(audience_rule(audience));
    }
    checks
}

/// Without the credential provider, credentials of a source with a scope reach only namespaces.
fn scopes_not_delivered(gps: &GlobalPullSecret) -> Option<Check> {
    let delivery = gps.spec.kubelet.delivery.as_str();
    let to_namespaces = gps.spec.image_pull_secrets.enabled;
    let is_left_out = |scope: &SourceScope| !to_namespaces || !scope.service_accounts.is_empty();
    let sources = gps.spec.sources.iter();
    let left_out: Vec<&str> = sources
        .filter(|source| source.scope.as_ref().is_some_and(is_left_out))
        .map(|source| source.name.as_str())
        .collect();
    if left_out.is_empty() {
        return None;
    }
    let message = if to_namespaces {
        format!(
            "no pod gets the credentials of `{}`: its scope has service accounts, and a Secret is for every pod of its namespace",
            left_out.join("`, `")
        )
    } else {
        format!("sources with a scope reach no node: `spec.kubelet.delivery` is {delivery}")
    };
    let check = well(DELIVERY, "scopes-not-delivered", message);
    Some(check.warn("`kubectl globalps install --delivery CredentialProvider`"))
}

fn audience_rule(audience: &Sight<()>) -> Check {
    let rule = |message: String| well(DELIVERY, "audience-rule", message);
    let name = names::AUDIENCE_ROLE;
    match audience {
        Sight::Here(()) => rule("kubelets may request tokens for the credential provider".to_owned()),
        Sight::Absent => rule(format!(
            "kubelets may not request tokens for the credential provider: ClusterRole `{name}` or its binding does not exist, so no pod gets credentials of a source with a scope"
        ))
        .fail("`kubectl globalps install` creates them"),
        Sight::Hidden => rule(format!("ClusterRole `{name}` can't be seen"))
            .warn("ask a user who may read ClusterRoles and ClusterRoleBindings"),
    }
}

/// The features of a kubelet version, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum KubeletSupport {
    NoProvider,
    NoScopes,
    PullsOnly,
    All,
}

impl KubeletSupport {
    fn of(version: (u32, u32), has_scopes: bool) -> Self {
        if version < MIN_KUBELET {
            Self::NoProvider
        } else if !has_scopes {
            Self::All
        } else if version < MIN_KUBELET_FOR_SCOPES {
            Self::NoScopes
        } else if version < ENSURES_PULLED_IMAGES {
            Self::PullsOnly
        } else {
            Self::All
        }
    }

    /// `counts`: number of nodes by kubelet version.
    fn check(self, counts: &BTreeMap<&str, u32>, has_scopes: bool) -> Check {
        let number: u32 = counts.values().sum();
        let versions: Vec<String> = match counts.keys().collect::<Vec<_>>().as_slice() {
            [version] => vec![(**version).to_owned()],
            _ => counts
                .iter()
                .map(|(version, number)| format!("{number} {version}"))
                .collect(),
        };
        let who = format!("{} ({})", nodes(number), versions.join(", "));
        let shown = |(major, minor)| format!("{major}.{minor}");
        let line = |name, what: String| well(DELIVERY, name, format!("{who}: {what}"));
        match self {
            Self::NoProvider => line(
                "kubelet-no-provider",
                format!(
                    "no support for credential providers before {}, so the credentials file stays in use",
                    shown(MIN_KUBELET)
                ),
            )
            .warn("upgrade their kubelets; until then each change restarts them"),
            Self::NoScopes => line(
                "kubelet-no-scopes",
                format!(
                    "no support for scopes before {}, so pods there get no credentials of sources with a scope",
                    shown(MIN_KUBELET_FOR_SCOPES)
                ),
            )
            .warn("upgrade their kubelets"),
            Self::PullsOnly => line(
                "scope-for-pulls-only",
                format!(
                    "before {} a scope limits pulls, but not images that are already on the node",
                    shown(ENSURES_PULLED_IMAGES)
                ),
            )
            .warn("upgrade their kubelets, or enable the admission plugin AlwaysPullImages"),
            Self::All if has_scopes => line(
                "kubelets",
                "a scope limits pulls and images that are already on the node".to_owned(),
            ),
            Self::All => line("kubelets", "they run the credential provider".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::check::CheckResult;
    use globalps_core::api::{GlobalPullSecretSpec, SourceRef, SourceScope};

    fn gps(delivery: DeliveryType, has_scope: bool) -> GlobalPullSecret {
        let mut gps = GlobalPullSecret::new("g", GlobalPullSecretSpec::default());
        gps.spec.kubelet.delivery = delivery;
        gps.spec.sources = vec![SourceRef {
            name: "s".to_owned(),
            scope: has_scope.then(SourceScope::default),
        }];
        gps
    }

    fn findings(
        gps: &GlobalPullSecret,
        versions: &[&str],
        audience: &Sight<()>,
    ) -> Vec<(&'static str, CheckResult, String)> {
        let checks = provider(gps, versions.iter().copied(), audience);
        checks
            .into_iter()
            .map(|c| (c.name, c.result, c.message))
            .collect()
    }

    #[test]
    fn versions_are_counted_by_what_they_can_do() {
        const VERSIONS: [&str; 7] = [
            "v1.25.9", "v1.26.0", "v1.34.1", "v1.35.2", "v1.36.3", "v1.36.3", "",
        ];
        let found = findings(
            &gps(DeliveryType::CredentialProvider, true),
            &VERSIONS,
            &Sight::Here(()),
        );
        let found: Vec<(&str, CheckResult, &str)> = found
            .iter()
            .map(|(name, result, message)| (*name, *result, message.as_str()))
            .collect();
        assert_eq!(
            found,
            [
                (
                    "kubelet-no-provider",
                    CheckResult::Warning,
                    "1 node (v1.25.9): no support for credential providers before 1.26, so the credentials file stays in use",
                ),
                (
                    "kubelet-no-scopes",
                    CheckResult::Warning,
                    "1 node (v1.26.0): no support for scopes before 1.34, so pods there get no credentials of sources with a scope",
                ),
                (
                    "scope-for-pulls-only",
                    CheckResult::Warning,
                    "1 node (v1.34.1): before 1.35 a scope limits pulls, but not images that are already on the node",
                ),
                (
                    "kubelets",
                    CheckResult::Ok,
                    "3 nodes (1 v1.35.2, 2 v1.36.3): a scope limits pulls and images that are already on the node",
                ),
                (
                    "audience-rule",
                    CheckResult::Ok,
                    "kubelets may request tokens for the credential provider",
                ),
            ]
        );
    }

    #[test]
    fn what_needs_no_scope_is_not_asked_about_scopes() {
        for (delivery, has_scope, audience, expected) in [
            (DeliveryType::ConfigFile, false, Sight::Absent, vec![]),
            (
                DeliveryType::ConfigFile,
                true,
                Sight::Absent,
                vec![("scopes-not-delivered", CheckResult::Warning)],
            ),
            (
                DeliveryType::CredentialProvider,
                false,
                Sight::Absent,
                vec![("kubelets", CheckResult::Ok)],
            ),
            (
                DeliveryType::CredentialProvider,
                true,
                Sight::Absent,
                vec![
                    ("kubelet-no-scopes", CheckResult::Warning),
                    ("audience-rule", CheckResult::Failure),
                ],
            ),
            (
                DeliveryType::CredentialProvider,
                true,
                Sight::Hidden,
                vec![
                    ("kubelet-no-scopes", CheckResult::Warning),
                    ("audience-rule", CheckResult::Warning),
                ],
            ),
        ] {
            let found = findings(&gps(delivery, has_scope), &["v1.30.0"], &audience);
            let found: Vec<_> = found
                .iter()
                .map(|(name, result, _)| (*name, *result))
                .collect();
            assert_eq!(found, expected, "{delivery:?} {has_scope}");
        }
    }
}
