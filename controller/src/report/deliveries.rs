//! The deliveries into namespaces and to operators in the status. Pure.

use globalps_core::api::{
    Attach, ImagePullSecretsStatus, NamespaceFailure, OperatorFailure, OperatorsStatus, condition,
};
use globalps_core::reasons::Reason;
use globalps_planner::namespaces::report::{NamespacesReport, Problem};
use globalps_planner::openshift::report::PullSecretReport;
use globalps_planner::operators::report::OperatorsReport;
use globalps_planner::targets::summary::{Failed, Summary};

use super::statement::{Statement, statement};

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Reports `ServiceAccounts` from before the first service account has a reference until the last one has none, so that a new
/// leader knows whether to look for references. `before`: the previous status, which is kept while nothing else is known.
pub(super) fn namespaces_status(
    report: &NamespacesReport,
    before: Option<&ImagePullSecretsStatus>,
) -> ImagePullSecretsStatus {
    let accounts = Attach::ServiceAccounts.as_str();
    let said = before.filter(|before| before.attach == accounts);
    let Some(summary) = &report.summary else {
        return ImagePullSecretsStatus {
            secret_name: report.secret_name.clone(),
            attach: said.map_or(report.attach.as_str(), |_| accounts).to_owned(),
            ..before.cloned().unwrap_or_default()
        };
    };
    // The last count while they can't be listed.
    let known = before.filter(|_| report.is_stuck);
    let service_accounts = known.map_or(count(summary.accounts), |known| known.service_accounts);
    let attach = match service_accounts {
        0 => report.attach.as_str(),
        _ => accounts,
    };
    ImagePullSecretsStatus {
        secret_name: report.secret_name.clone(),
        attach: attach.to_owned(),
        total: count(summary.total),
        synced: count(summary.synced),
        failed: count(summary.failed),
        excluded: count(summary.excluded),
        service_accounts,
        failures: summary
            .failures
            .iter()
            .map(|failed| NamespaceFailure {
                namespace: failed.namespace.clone(),
                reason: failed.reason.into(),
                message: failed.message.clone(),
            })
            .collect(),
    }
}

/// Whether every namespace is in the desired state.
pub(super) fn namespaces_synced(report: &NamespacesReport) -> Statement {
    let new =
        |status, reason, message| statement(condition::NAMESPACES_SYNCED, status, reason, message);
    match &report.problem {
        Some(Problem::Settings(message)) => {
            return new("False", Reason::InvalidSettings, message.clone());
        }
        Some(Problem::NotRemembered(message)) => {
            return new("False", Reason::NamespacesFailed, message.clone());
        }
        None => {}
    }
    if report.is_forbidden {
        let message = "the controller may not list Secrets or ServiceAccounts in namespaces: \
            `kubectl globalps install --deliver-to-namespaces` allows it";
        return new("False", Reason::Forbidden, message.to_owned());
    }
    let Some(summary) = &report.summary else {
        if report.is_stuck {
            let message = "namespaces, or Secrets or ServiceAccounts in them, can't be listed: what is in them stays as it is";
            return new("False", Reason::NamespacesFailed, message.to_owned());
        }
        return new("Unknown", Reason::Listing, "listing namespaces".to_owned());
    };
    let mut message = format!(
        "{} of {} namespaces have the Secret `{}`",
        summary.synced, summary.total, report.secret_name
    );
    if let Some(first) = summary.failures.first() {
        let message = with_failures(&message, &first.namespace, first, summary);
        return new("False", reason(first.reason), message);
    }
    if let Some(canary) = &summary.canary {
        return new(
            "False",
            Reason::WaitingForCanary,
            format!("{message}; {canary}"),
        );
    }
    if report.is_stuck {
        let message = format!(
            "{message}; ServiceAccounts can't be listed: their references stay as they are"
        );
        return new("False", Reason::NamespacesFailed, message);
    }
    if summary.waiting > 0 {
        return new("False", Reason::RollingOut, message);
    }
    if let Some(note) = report.note {
        message = format!("{message}; attached by {}: {note}", report.attach.as_str());
    }
    new("True", Reason::Synced, message)
}

/// Reasons of conditions are a fixed set.
fn reason(failure: Reason) -> Reason {
    match failure {
        Reason::ForeignSecret | Reason::Conflict => failure,
        _ => Reason::NamespacesFailed,
    }
}

/// `before`: the previous status, which is kept while nothing else is known.
pub(super) fn operators_status(
    report: &OperatorsReport,
    before: Option<&OperatorsStatus>,
) -> OperatorsStatus {
    let Some(summary) = &report.summary else {
        return before.cloned().unwrap_or_default();
    };
    OperatorsStatus {
        total: count(summary.total),
        synced: count(summary.synced),
        failed: count(summary.failed),
        service_accounts: count(summary.accounts),
        failures: summary
            .failures
            .iter()
            .map(|failed| OperatorFailure {
                namespace: failed.namespace.clone(),
                name: failed.name.clone(),
                reason: failed.reason.into(),
                message: failed.message.clone(),
            })
            .collect(),
    }
}

/// Whether `OpenShift`'s own pull secret is in the desired state.
pub(super) fn pull_secret_synced(report: &PullSecretReport) -> Statement {
    let (is_synced, reason, message) = report.verdict();
    let status = match (is_synced, reason) {
        (true, _) => "True",
        (false, Reason::Listing) => "Unknown",
        (false, _) => "False",
    };
    statement(condition::PULL_SECRET_SYNCED, status, reason, message)
}

/// Whether every operator is in the desired state.
pub(super) fn operators_synced(report: &OperatorsReport) -> Statement {
    let new =
        |status, reason, message| statement(condition::OPERATORS_SYNCED, status, reason, message);
    if report.is_forbidden {
        let message = "the controller may not list Subscriptions, CatalogSources, ClusterServiceVersions or ServiceAccounts: \
            `kubectl globalps install --operators NAMESPACE/SECRET` allows it";
        return new("False", Reason::Forbidden, message.to_owned());
    }
    let Some(summary) = &report.summary else {
        let message = "listing operators".to_owned();
        return new("Unknown", Reason::Listing, message);
    };
    if !report.is_served {
        let message =
            "the Operator Lifecycle Manager (operators.coreos.com/v1alpha1) is not installed";
        return new("True", Reason::NotInstalled, message.to_owned());
    }
    let message = format!(
        "{} of {} operators have the pull secrets of their catalogs",
        summary.synced, summary.total
    );
    if let Some(first) = summary.failures.first() {
        let of = format!("Subscription {}/{}", first.namespace, first.name);
        let message = with_failures(&message, &of, first, summary);
        return new("False", Reason::OperatorsFailed, message);
    }
    if summary.synced < summary.total {
        return new("False", Reason::RollingOut, message);
    }
    new("True", Reason::Synced, message)
}

/// The message, with the first failure, which is of this namespace or operator, and the number of others.
fn with_failures(message: &str, of: &str, first: &Failed, summary: &Summary) -> String {
    let message = format!("{message}; {of}: {}", first.message);
    match summary.failed {
        0 | 1 => message,
        failed => format!("{message}; {} more failed", failed - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_accounts_are_reported_while_references_may_exist() {
        let (admission, accounts) = (Attach::Admission, Attach::ServiceAccounts);
        for (case, before, attach, left, expected) in [
            ("the first time", None, accounts, None, accounts),
            ("with admission", None, admission, None, admission),
            (
                "switched, not listed yet",
                Some(accounts),
                admission,
                None,
                accounts,
            ),
            (
                "switched, some left",
                Some(accounts),
                admission,
                Some(2),
                accounts,
            ),
            (
                "switched, none left",
                Some(accounts),
                admission,
                Some(0),
                admission,
            ),
            ("switched back", Some(admission), accounts, None, accounts),
        ] {
            let report = NamespacesReport {
                secret_name: "s".to_owned(),
                attach,
                note: None,
                is_forbidden: false,
                problem: None,
                summary: left.map(|accounts| Summary {
                    accounts,
                    ..Summary::default()
                }),
                is_stuck: false,
            };
            let before = before.map(|attach| ImagePullSecretsStatus {
                attach: attach.as_str().to_owned(),
                total: 7,
                ..ImagePullSecretsStatus::default()
            });
            let status = namespaces_status(&report, before.as_ref());
            assert_eq!(status.attach, expected.as_str(), "{case}");
            let kept = before
                .filter(|_| left.is_none())
                .map_or(0, |before| before.total);
            assert_eq!(status.total, kept, "{case}");
        }
    }
    #[test]
    fn namespaces_that_cant_be_listed_are_named_after_a_while() {
        let some = || Some(Summary::default());
        for (is_stuck, is_forbidden, summary, expected) in [
            (false, false, None, "Unknown Listing"),
            (true, false, None, "False NamespacesFailed"),
            (true, true, None, "False Forbidden"),
            (false, false, some(), "True Synced"),
            (true, false, some(), "False NamespacesFailed"),
            (true, true, some(), "False Forbidden"),
        ] {
            let report = NamespacesReport {
                secret_name: "s".to_owned(),
                attach: Attach::Admission,
                note: None,
                is_forbidden,
                problem: None,
                summary,
                is_stuck,
            };
            let found = namespaces_synced(&report);
            assert_eq!(format!("{} {}", found.status, found.reason), expected);
        }
    }
}
