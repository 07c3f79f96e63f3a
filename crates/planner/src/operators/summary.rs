//! The results for the operators, for the status. Pure.

use globalps_core::api::{MESSAGE_LIMIT, OperatorFailure, STATUS_OPERATORS};
use globalps_core::reasons::Reason;

use super::views::Id;

/// Subscriptions by state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Subscriptions to catalogs with pull secrets, of operators that are installed.
    pub total: usize,
    /// Those with all copies and references.
    pub synced: usize,
    /// Those with a failure that the status names.
    pub failed: usize,
    /// Service accounts with a reference of the controller.
    pub accounts: usize,
    /// The first failures.
    pub failures: Vec<OperatorFailure>,
    /// Nothing that the controller created is left.
    pub is_clean: bool,
}

/// The state of operators for the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorsReport {
    /// The controller may not list what it needs.
    pub is_forbidden: bool,
    /// The cluster has the Operator Lifecycle Manager's resources.
    pub is_served: bool,
    /// `None`: not known yet.
    pub summary: Option<Summary>,
}

impl Summary {
    pub(super) fn fail(&mut self, (namespace, name): &Id, reason: Reason, message: &str) {
        self.failed += 1;
        if self.failures.len() < STATUS_OPERATORS {
            self.failures.push(OperatorFailure {
                namespace: namespace.clone(),
                name: name.clone(),
                reason: reason.into(),
                message: message.chars().take(MESSAGE_LIMIT).collect(),
            });
        }
    }
}
