//! The operators in the status. Pure.

use globalps_core::api::{OperatorsStatus, condition};
use globalps_core::reasons::Reason;
use globalps_planner::operators::summary::OperatorsReport;

use super::statement::{Statement, statement};

/// `before`: the previous status, which is kept while nothing else is known.
pub(super) fn operators_status(
    report: &OperatorsReport,
    before: Option<&OperatorsStatus>,
) -> OperatorsStatus {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let Some(summary) = &report.summary else {
        return before.cloned().unwrap_or_default();
    };
    OperatorsStatus {
        total: count(summary.total),
        synced: count(summary.synced),
        failed: count(summary.failed),
        service_accounts: count(summary.accounts),
        failures: summary.failures.clone(),
    }
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
        let mut message = format!(
            "{message}; Subscription {}/{}: {}",
            first.namespace, first.name, first.message
        );
        if summary.failed > 1 {
            message = format!("{message}; {} more failed", summary.failed - 1);
        }
        return new("False", Reason::OperatorsFailed, message);
    }
    if summary.synced < summary.total {
        return new("False", Reason::RollingOut, message);
    }
    new("True", Reason::Synced, message)
}
