//! What gets credentials: nodes, namespaces, operators, and how many of them have the present ones. Pure.

use globalps_core::api::{Counts, ImagePullSecretsStatus, OperatorsStatus};
use serde::Serialize;

use crate::terminal::number;

/// [`DeliveryRow::kind`] of the nodes.
pub(crate) const NODES: &str = "Nodes";

/// How far one form of delivery is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct DeliveryRow {
    /// `Nodes`, `Namespaces` or `Operators`.
    pub kind: &'static str,
    pub total: u32,
    pub synced: u32,
    pub failed: u32,
}

/// Namespaces or operators, as the controller reports them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct DeliveryStatus<S> {
    #[serde(flatten)]
    pub status: S,
    /// false: what is left there is being removed.
    #[serde(skip)]
    pub is_enabled: bool,
}

pub(crate) type NamespacesRow = DeliveryStatus<ImagePullSecretsStatus>;
pub(crate) type OperatorsRow = DeliveryStatus<OperatorsStatus>;

impl NamespacesRow {
    /// `None`: the controller has not counted them yet.
    pub(super) fn of(is_enabled: bool, status: &ImagePullSecretsStatus) -> Option<Self> {
        let has_counts = !status.secret_name.is_empty();
        has_counts.then(|| Self {
            status: status.clone(),
            is_enabled,
        })
    }

    /// One line about all of them.
    pub(crate) fn line(&self) -> String {
        let found = &self.status;
        let others = [(found.failed, "failed"), (found.excluded, "excluded")];
        let mut parts = parts(found.synced, found.total, &others);
        if !found.attach.is_empty() {
            parts.push(format!("attached by {}", found.attach));
        }
        self.line_of("Namespaces   ", parts, found.service_accounts)
    }
}

impl OperatorsRow {
    /// One line about all of them.
    pub(crate) fn line(&self) -> String {
        let found = &self.status;
        let parts = parts(found.synced, found.total, &[(found.failed, "failed")]);
        self.line_of("Operators    ", parts, found.service_accounts)
    }
}

impl<S> DeliveryStatus<S> {
    fn line_of(&self, kind: &str, mut parts: Vec<String>, accounts: u32) -> String {
        if !self.is_enabled {
            return format!("{kind}their pull secrets are being removed");
        }
        if accounts > 0 {
            parts.push(number(accounts, "service account"));
        }
        kind.to_owned() + &parts.join(", ")
    }
}

fn parts(synced: u32, total: u32, others: &[(u32, &str)]) -> Vec<String> {
    let others = others.iter().filter(|(number, _)| *number > 0);
    let others = others.map(|(number, word)| format!("{number} {word}"));
    let synced = format!("{synced} of {total} synced");
    std::iter::once(synced).chain(others).collect()
}

/// `has_nodes`: nodes get credentials at all.
pub(super) fn deliveries(
    counts: &Counts,
    has_nodes: bool,
    namespaces: Option<&NamespacesRow>,
    operators: Option<&OperatorsRow>,
) -> Vec<DeliveryRow> {
    let row = |kind, [total, synced, failed]: [u32; 3]| DeliveryRow {
        kind,
        total,
        synced,
        failed,
    };
    let nodes = [counts.total, counts.synced, counts.failed];
    let nodes = has_nodes.then(|| row(NODES, nodes));
    let namespaces = namespaces.map(|it| &it.status);
    let namespaces = namespaces.map(|it| row("Namespaces", [it.total, it.synced, it.failed]));
    let operators = operators.map(|it| &it.status);
    let operators = operators.map(|it| row("Operators", [it.total, it.synced, it.failed]));
    [nodes, namespaces, operators]
        .into_iter()
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_counts_namespaces_and_says_how_pods_refer_to_it() {
        let status =
            |synced, failed, excluded, attach: &str, service_accounts| ImagePullSecretsStatus {
                secret_name: "s".to_owned(),
                attach: attach.to_owned(),
                total: 212,
                synced,
                failed,
                excluded,
                service_accounts,
                ..ImagePullSecretsStatus::default()
            };
        for (status, is_enabled, expected) in [
            (
                status(212, 0, 3, "Admission", 0),
                true,
                "Namespaces   212 of 212 synced, 3 excluded, attached by Admission",
            ),
            (
                status(210, 2, 0, "ServiceAccounts", 210),
                true,
                "Namespaces   210 of 212 synced, 2 failed, attached by ServiceAccounts, 210 service accounts",
            ),
            (
                status(0, 0, 0, "Admission", 0),
                false,
                "Namespaces   their pull secrets are being removed",
            ),
        ] {
            let row = NamespacesRow::of(is_enabled, &status).expect("counts");
            assert_eq!(row.line(), expected);
        }
        assert_eq!(
            NamespacesRow::of(true, &ImagePullSecretsStatus::default()),
            None
        );
    }

    #[test]
    fn the_line_counts_operators_and_their_service_accounts() {
        for (failed, service_accounts, is_enabled, expected) in [
            (0, 0, true, "Operators    2 of 3 synced"),
            (
                1,
                4,
                true,
                "Operators    2 of 3 synced, 1 failed, 4 service accounts",
            ),
            (
                0,
                1,
                false,
                "Operators    their pull secrets are being removed",
            ),
        ] {
            let row = OperatorsRow {
                status: OperatorsStatus {
                    total: 3,
                    synced: 2,
                    failed,
                    service_accounts,
                    ..OperatorsStatus::default()
                },
                is_enabled,
            };
            assert_eq!(row.line(), expected);
        }
    }
}
