//! Pull secrets of operators: the permission, and Subscriptions with errors. Pure.

use std::collections::BTreeMap;

use globalps_core::api::GlobalPullSecret;
use globalps_core::names;
use globalps_core::reasons::{OPERATORS_INSTALL, of_operator};

use super::{Check, Sight, found, well};
use crate::secret::migration::MOST;
use crate::terminal::{few, number};

const OPERATORS: &str = "operators";

/// No checks if operators get no pull secrets. `role`: the controller's `ClusterRole` and its binding.
pub(crate) fn operators(gps: &GlobalPullSecret, role: &Sight<()>) -> Vec<Check> {
    let permission = |message: String| well(OPERATORS, "operators-permission", message);
    let mut checks = Vec::new();
    if gps.spec.operators.enabled {
        checks.push(match role {
            Sight::Here(()) => permission("the controller may copy pull secrets of catalogs".to_owned()),
            Sight::Absent => permission(format!(
                "the controller may not copy pull secrets of catalogs: ClusterRole `{}` or its binding does not exist",
                names::OPERATORS
            ))
            .fail(OPERATORS_INSTALL),
            Sight::Hidden => permission("the controller's permission for operators can't be seen".to_owned())
                .warn("ask a user who may read ClusterRoles"),
        });
    }
    let status = gps.status.as_ref();
    let status = status.and_then(|status| status.operators.as_ref());
    // An error of a catalog affects all its operators, so it is reported once.
    let mut errors: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for found in status.iter().flat_map(|status| &status.failures) {
        let error = (found.reason.as_str(), found.message.as_str());
        let subscription = format!("{}/{}", found.namespace, found.name);
        errors.entry(error).or_default().push(subscription);
    }
    checks.extend(errors.into_iter().map(|((reason, message), names)| {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let whose = format!(
            "{} {}",
            number(names.len(), "Subscription"),
            few(&names, MOST)
        );
        let message = format!("{whose}: {reason}: {message}");
        found(OPERATORS, &of_operator(reason), message)
    }));
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::check::CheckResult;
    use globalps_core::api::{
        GlobalPullSecretSpec, GlobalPullSecretStatus, OperatorFailure, OperatorsStatus,
    };

    fn gps(is_enabled: bool, failures: &[(&str, &str, &str)]) -> GlobalPullSecret {
        let mut gps = GlobalPullSecret::new("g", GlobalPullSecretSpec::default());
        gps.spec.operators.enabled = is_enabled;
        let failures = failures
            .iter()
            .map(|(name, reason, message)| OperatorFailure {
                namespace: "a".to_owned(),
                name: (*name).to_owned(),
                reason: (*reason).to_owned(),
                message: (*message).to_owned(),
            });
        gps.status = Some(GlobalPullSecretStatus {
            operators: Some(OperatorsStatus {
                failures: failures.collect(),
                ..OperatorsStatus::default()
            }),
            ..GlobalPullSecretStatus::default()
        });
        gps
    }

    #[test]
    fn the_permission_is_needed_while_operators_get_pull_secrets() {
        for (is_enabled, role, expected) in [
            (false, Sight::Absent, None),
            (true, Sight::Here(()), Some(CheckResult::Ok)),
            (true, Sight::Absent, Some(CheckResult::Failure)),
            (true, Sight::Hidden, Some(CheckResult::Warning)),
        ] {
            let checks = operators(&gps(is_enabled, &[]), &role);
            let found: Vec<CheckResult> = checks.iter().map(|check| check.result).collect();
            assert_eq!(found, Vec::from_iter(expected), "{is_enabled} {role:?}");
            assert!(
                checks
                    .iter()
                    .all(|check| check.hint.is_empty() == (check.result == CheckResult::Ok))
            );
        }
    }

    #[test]
    fn each_error_appears_once_with_its_subscriptions_and_a_hint() {
        let gps = gps(
            true,
            &[
                ("x", "SourceMissing", "there is no Secret `olm/pull`"),
                ("y", "Conflict", "why"),
                ("z", "SourceMissing", "there is no Secret `olm/pull`"),
            ],
        );
        let checks = operators(&gps, &Sight::Here(()));
        let found: Vec<(&str, CheckResult)> = checks
            .iter()
            .skip(1)
            .map(|check| (check.message.as_str(), check.result))
            .collect();
        assert_eq!(
            found,
            [
                ("1 Subscription a/y: Conflict: why", CheckResult::Warning),
                (
                    "2 Subscriptions a/x, a/z: SourceMissing: there is no Secret `olm/pull`",
                    CheckResult::Failure
                ),
            ]
        );
    }

    #[test]
    fn every_reason_has_a_hint() {
        use CheckResult::{Failure, Warning};
        for (reason, expected, hint) in [
            ("SourceMissing", Failure, "create that Secret"),
            ("SourceForbidden", Failure, "install --operators"),
            ("SourceInvalid", Failure, "repair that Secret"),
            ("SourceUnreadable", Failure, "tries again"),
            ("ForeignSecret", Failure, "delete that Secret"),
            ("Conflict", Warning, "managedFields"),
            ("ServiceAccountMissing", Failure, "kubectl get csv"),
            ("QuotaExceeded", Failure, "quota"),
            ("Terminating", Warning, "no action"),
            ("Rejected", Failure, "the message has the reason"),
        ] {
            let check = found(OPERATORS, &of_operator(reason), "why");
            assert_eq!(check.result, expected, "{reason}");
            assert!(check.hint.contains(hint), "{reason}: {}", check.hint);
        }
    }
}
