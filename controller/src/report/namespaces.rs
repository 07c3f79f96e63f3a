//! The namespaces in the status. Pure.

use globalps_core::api::{Attach, ImagePullSecretsStatus, condition};
use globalps_core::reasons::Reason;
use globalps_planner::namespaces::summary::{NamespacesReport, Problem};

use super::statement::{Statement, statement};

/// Reports `ServiceAccounts` from before the first service account has a reference until the last one has none, so that a new
/// leader knows whether to look for references. `before`: the previous status, which is kept while nothing else is known.
pub(super) fn namespaces_status(
    report: &NamespacesReport,
    before: Option<&ImagePullSecretsStatus>,
) -> ImagePullSecretsStatus {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
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
        failures: summary.failures.clone(),
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
        message = format!("{message}; {}: {}", first.namespace, first.message);
        if summary.failed > 1 {
            message = format!("{message}; {} more failed", summary.failed - 1);
        }
        return new("False", reason(&first.reason), message);
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
fn reason(failure: &str) -> Reason {
    match Reason::parse(failure) {
        Some(Reason::ForeignSecret) => Reason::ForeignSecret,
        Some(Reason::Conflict) => Reason::Conflict,
        _ => Reason::NamespacesFailed,
    }
}

#[cfg(test)]
mod tests {
    use globalps_planner::namespaces::summary::Summary;

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
