//! The results of a delivery, for the status. Pure.

use globalps_core::api::MESSAGE_LIMIT;
use globalps_core::reasons::{Reason, ReasonAndMessage};

/// Maximum number of failures that a status names.
const NAMED: usize = 20;

/// Namespaces, or Subscriptions of operators, by state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Those that should have the Secrets: of the Subscriptions, those of installed operators to catalogs with pull secrets.
    pub total: usize,
    /// Those that have them with the current content, and their references.
    pub synced: usize,
    /// Those with a failure that the status names.
    pub failed: usize,
    /// Those that should have them, and neither have them nor failed.
    pub waiting: usize,
    /// Namespaces that the selection does not cover.
    pub excluded: usize,
    /// Service accounts with a reference of the controller.
    pub accounts: usize,
    /// The first failures.
    pub failures: Vec<Failed>,
    /// Why no canary has the new content; `None`: one has it, or gets it now.
    pub canary: Option<String>,
    /// Nothing that the controller created is left.
    pub is_clean: bool,
    /// Nothing is left in namespaces, but what could not be removed for long and is among the failures.
    pub is_over: bool,
}

/// Why a namespace or an operator is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Its name, or the namespace of the Subscription.
    pub namespace: String,
    /// Of the Subscription; empty: it is the namespace itself.
    pub name: String,
    /// CamelCase word for programs.
    pub reason: Reason,
    /// Message for humans.
    pub message: String,
}

impl Summary {
    pub(crate) fn fail(
        &mut self,
        namespace: &str,
        name: &str,
        (reason, message): &ReasonAndMessage,
    ) {
        self.failed += 1;
        if self.failures.len() < NAMED {
            self.failures.push(Failed {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                reason: *reason,
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
        let because = |message: &str| (Reason::Rejected, message.to_owned());
        for number in 0..=NAMED {
            summary.fail(&format!("n{number}"), "", &because("no"));
        }
        assert_eq!(summary.failed, NAMED + 1);
        assert_eq!(summary.failures.len(), NAMED);
        assert_eq!(summary.failures[0].namespace, "n0");
        summary.failures.clear();
        summary.fail("long", "", &because(&"é".repeat(MESSAGE_LIMIT + 1)));
        assert_eq!(summary.failures[0].message.chars().count(), MESSAGE_LIMIT);
    }
}
