//! The results in the namespaces, for the status. Pure.

use globalps_core::api::{Attach, MESSAGE_LIMIT, NamespaceFailure, STATUS_NAMESPACES};
use globalps_core::reasons::Reason;

/// Namespaces by state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Namespaces that should have the Secret.
    pub total: usize,
    /// Those that have it with the current content, and their references.
    pub synced: usize,
    /// Those with a failure that the status names.
    pub failed: usize,
    /// Those that should have it, and neither have it nor failed.
    pub waiting: usize,
    /// Those that the selection does not cover.
    pub excluded: usize,
    /// Service accounts with a reference of the controller.
    pub accounts: usize,
    /// The first failures.
    pub failures: Vec<NamespaceFailure>,
    /// Why no canary has the new content; `None`: one has it, or gets it now.
    pub canary: Option<String>,
    /// Nothing that the controller created is left in any namespace.
    pub is_clean: bool,
    /// Nothing is left, but what could not be removed for long and is among the failures.
    pub is_over: bool,
}

/// Why nothing is planned, with a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The selector or a pattern is invalid.
    Settings(String),
    /// The controller's own state can't be stored.
    NotRemembered(String),
}

/// The state of namespaces for the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespacesReport {
    /// Name of the Secret in each namespace.
    pub secret_name: String,
    /// How pods get the reference.
    pub attach: Attach,
    /// Why Secrets are attached in another way than specified, or not at all.
    pub note: Option<&'static str>,
    /// The controller may not list Secrets or service accounts.
    pub is_forbidden: bool,
    /// Why nothing is planned.
    pub problem: Option<Problem>,
    /// `None`: not known yet.
    pub summary: Option<Summary>,
    /// It has not been known for long, or not of service accounts: nothing else waits for it.
    pub is_stuck: bool,
}

impl NamespacesReport {
    /// Nothing that the controller created is left.
    pub fn is_clean(&self) -> bool {
        let summary = self.summary.as_ref();
        summary.is_some_and(|summary| summary.is_clean)
    }

    /// Nothing waits for the namespaces any more.
    pub fn is_over(&self) -> bool {
        let summary = self.summary.as_ref();
        summary.map_or(self.is_stuck, |summary| summary.is_over)
    }
}

impl Summary {
    pub(super) fn fail(&mut self, namespace: &str, reason: Reason, message: &str) {
        self.failed += 1;
        if self.failures.len() < STATUS_NAMESPACES {
            self.failures.push(NamespaceFailure {
                namespace: namespace.to_owned(),
                reason: reason.into(),
                message: message.chars().take(MESSAGE_LIMIT).collect(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_counts_every_failure_and_lists_the_first() {
        let mut summary = Summary::default();
        for number in 0..=STATUS_NAMESPACES {
            summary.fail(&format!("n{number}"), Reason::Rejected, "no");
        }
        assert_eq!(summary.failed, STATUS_NAMESPACES + 1);
        assert_eq!(summary.failures.len(), STATUS_NAMESPACES);
        assert_eq!(summary.failures[0].namespace, "n0");
        summary.failures.clear();
        summary.fail("long", Reason::Rejected, &"é".repeat(MESSAGE_LIMIT + 1));
        assert_eq!(summary.failures[0].message.chars().count(), MESSAGE_LIMIT);
    }

    #[test]
    fn an_unknown_state_is_not_clean() {
        let mut report = NamespacesReport {
            secret_name: String::new(),
            attach: Attach::Admission,
            note: None,
            is_forbidden: false,
            problem: None,
            summary: None,
            is_stuck: false,
        };
        assert!(!report.is_clean() && !report.is_over());
        report.is_stuck = true;
        assert!(!report.is_clean() && report.is_over());
        for is_clean in [false, true] {
            report.summary = Some(Summary {
                is_clean,
                ..Summary::default()
            });
            assert_eq!(report.is_clean(), is_clean);
        }
    }
}
