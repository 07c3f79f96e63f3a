//! What became of the namespaces, for the status. Pure.

use globalps_core::api::{Attach, MESSAGE_LIMIT, NamespaceFailure, STATUS_NAMESPACES};

/// Namespaces by state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    /// Namespaces that should have the Secret.
    pub(crate) total: usize,
    /// Those that have it with its present content, and their references.
    pub(crate) synced: usize,
    pub(crate) failed: usize,
    pub(crate) excluded: usize,
    /// Service accounts with a reference of the controller.
    pub(crate) accounts: usize,
    /// The first of those that failed.
    pub(crate) failures: Vec<NamespaceFailure>,
    /// Why no canary has the new content; `None`: one has, or gets it.
    pub(crate) canary: Option<String>,
    /// No namespace has anything of the controller.
    pub(crate) is_clean: bool,
}

/// What the status says about namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamespacesReport {
    /// Of the Secret in each namespace.
    pub(crate) secret_name: String,
    pub(crate) attach: Attach,
    /// Why Secrets are attached in another way than the spec says, or not at all.
    pub(crate) note: Option<&'static str>,
    /// The controller may not list Secrets or service accounts.
    pub(crate) is_forbidden: bool,
    /// Why the settings can't be used.
    pub(crate) problem: Option<String>,
    /// `None`: not known yet.
    pub(crate) summary: Option<Summary>,
}

impl NamespacesReport {
    pub(crate) fn is_clean(&self) -> bool {
        let summary = self.summary.as_ref();
        summary.is_some_and(|summary| summary.is_clean)
    }
}

impl Summary {
    pub(crate) fn waiting(&self) -> usize {
        self.total.saturating_sub(self.synced + self.failed)
    }

    pub(super) fn fail(&mut self, namespace: &str, reason: &str, message: &str) {
        self.failed += 1;
        if self.failures.len() < STATUS_NAMESPACES {
            self.failures.push(NamespaceFailure {
                namespace: namespace.to_owned(),
                reason: reason.to_owned(),
                message: message.chars().take(MESSAGE_LIMIT).collect(),
            });
        }
    }
}
