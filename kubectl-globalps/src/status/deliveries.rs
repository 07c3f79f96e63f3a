//! What gets credentials: nodes, namespaces, and how many of them have the present ones. Pure.

use globalps_core::api::{Counts, ImagePullSecretsStatus};
use serde::Serialize;

/// [`DeliveryRow::kind`] of the nodes.
pub(crate) const NODES: &str = "Nodes";

/// How far one form of delivery is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct DeliveryRow {
    /// `Nodes` or `Namespaces`.
    pub kind: &'static str,
    pub total: u32,
    pub synced: u32,
    pub failed: u32,
}

/// The namespaces, as the controller reports them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct NamespacesRow {
    #[serde(flatten)]
    pub status: ImagePullSecretsStatus,
    /// false: what is left in namespaces is being removed.
    #[serde(skip)]
    pub is_enabled: bool,
}

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
        let ImagePullSecretsStatus {
            attach,
            total,
            synced,
            failed,
            excluded,
            service_accounts,
            ..
        } = &self.status;
        if !self.is_enabled {
            return "Namespaces   their pull secrets are being removed".to_owned();
        }
        let mut parts = vec![format!("{synced} of {total} synced")];
        for (number, word) in [(failed, "failed"), (excluded, "excluded")] {
            if *number > 0 {
                parts.push(format!("{number} {word}"));
            }
        }
        if !attach.is_empty() {
            parts.push(format!("attached by {attach}"));
        }
        match service_accounts {
            0 => {}
            1 => parts.push("1 service account".to_owned()),
            number => parts.push(format!("{number} service accounts")),
        }
        format!("Namespaces   {}", parts.join(", "))
    }
}

/// `has_nodes`: nodes get credentials at all.
pub(super) fn deliveries(
    counts: &Counts,
    has_nodes: bool,
    namespaces: Option<&NamespacesRow>,
) -> Vec<DeliveryRow> {
    let nodes = has_nodes.then_some(DeliveryRow {
        kind: NODES,
        total: counts.total,
        synced: counts.synced,
        failed: counts.failed,
    });
    let namespaces = namespaces.map(|row| DeliveryRow {
        kind: "Namespaces",
        total: row.status.total,
        synced: row.status.synced,
        failed: row.status.failed,
    });
    nodes.into_iter().chain(namespaces).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_counts_namespaces_and_says_how_pods_refer_to_the_secret() {
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
}
