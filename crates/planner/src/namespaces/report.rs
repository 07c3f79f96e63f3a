//! The state of the namespaces, for the status. Pure.

use globalps_core::api::Attach;

use crate::targets::summary::Summary;

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

#[cfg(test)]
mod tests {
    use super::*;

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
