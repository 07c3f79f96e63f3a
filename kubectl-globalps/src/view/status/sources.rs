//! Further sources, as the controller reports them.

use globalps_core::api::{GlobalPullSecretStatus, SourceStatus};
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct SourceRow {
    pub name: String,
    pub valid: bool,
    /// Who may pull with it: namespaces and service accounts; `null`: every pod.
    pub scope: Option<String>,
    /// `Nodes`, `Namespaces`, `NodesAndNamespaces` or `NotDeliverable`; empty: of an older controller.
    pub delivery: String,
    pub message: String,
}

pub(super) fn source_row(source: &SourceStatus) -> SourceRow {
    SourceRow {
        name: source.name.clone(),
        valid: source.valid,
        scope: source.scope.clone(),
        delivery: source.delivery.clone(),
        message: source.message.clone(),
    }
}

/// Further Secrets whose credentials nodes have, or get.
pub(crate) fn sources_that_give(
    status: &GlobalPullSecretStatus,
) -> impl Iterator<Item = &SourceStatus> {
    // A valid one without a registry of its own has others win over it, for now.
    status
        .sources
        .iter()
        .filter(|source| source.valid || source.total > 0)
}
