//! The namespaces in the status. Pure.

use globalps_core::api::{ImagePullSecretsStatus, condition};

use super::statement::{Statement, statement};
use crate::namespaces::summary::{NamespacesReport, Summary};

pub(super) fn namespaces_status(report: &NamespacesReport) -> ImagePullSecretsStatus {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let unknown = Summary::default();
    let summary = report.summary.as_ref().unwrap_or(&unknown);
    ImagePullSecretsStatus {
        secret_name: report.secret_name.clone(),
        attach: report.attach.as_str().to_owned(),
        total: count(summary.total),
        synced: count(summary.synced),
        failed: count(summary.failed),
        excluded: count(summary.excluded),
        service_accounts: count(summary.accounts),
        failures: summary.failures.clone(),
    }
}

/// Whether every namespace has what it should have.
pub(super) fn namespaces_synced(report: &NamespacesReport) -> Statement {
    let new =
        |status, reason, message| statement(condition::NAMESPACES_SYNCED, status, reason, message);
    if let Some(problem) = &report.problem {
        return new("False", "InvalidSettings", problem.clone());
    }
    if report.is_forbidden {
        let message = "the controller may not list the Secrets or service accounts of namespaces: \
            `kubectl globalps install --image-pull-secrets --apply` allows it";
        return new("False", "Forbidden", message.to_owned());
    }
    let Some(summary) = &report.summary else {
        return new(
            "Unknown",
            "Listing",
            "the namespaces are being listed".to_owned(),
        );
    };
    let mut message = format!(
        "{} of {} namespaces have the Secret `{}`",
        summary.synced, summary.total, report.secret_name
    );
    if let Some(first) = summary.failures.first() {
        message = format!("{message}; {}: {}", first.namespace, first.message);
        if summary.failed > 1 {
            message = format!("{message}; and {} more", summary.failed - 1);
        }
        return new("False", reason(&first.reason), message);
    }
    if let Some(canary) = &summary.canary {
        return new("False", "WaitingForCanary", format!("{message}; {canary}"));
    }
    if summary.waiting() > 0 {
        return new("False", "RollingOut", message);
    }
    if let Some(note) = report.note {
        message = format!("{message}; attached by {}: {note}", report.attach.as_str());
    }
    new("True", "Synced", message)
}

/// Reasons of conditions are a fixed set.
fn reason(failure: &str) -> &'static str {
    match failure {
        "ForeignSecret" => "ForeignSecret",
        "Conflict" => "Conflict",
        _ => "NamespacesFailed",
    }
}
