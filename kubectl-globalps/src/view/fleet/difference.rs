//! What a source Secret changes in clusters, as JSON and as text. Pure.

use serde::Serialize;

use crate::secret::changes::{RegistryChange, text};

/// `fleet diff -o json`: scripts rely on its shape.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FleetDifference {
    /// `NAMESPACE/NAME` of the `FleetPullSecret`.
    pub name: String,
    /// The revision that the hub rolls out; 0: none.
    pub revision: i64,
    /// Against that revision.
    pub changes: Vec<RegistryChange>,
    pub lagging_clusters: Vec<String>,
    /// Those that were named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<ClusterDifference>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ClusterDifference {
    /// `NAMESPACE/NAME`.
    pub name: String,
    pub phase: String,
    /// In force in the cluster; 0: none.
    pub revision: i64,
    /// Against that revision.
    pub changes: Vec<RegistryChange>,
}

impl FleetDifference {
    /// Whether there is nothing to say. `has_file`: clusters that lag are no fault of a proposal.
    pub(crate) fn is_empty(&self, has_file: bool) -> bool {
        self.changes.is_empty()
            && self.clusters.iter().all(|it| it.changes.is_empty())
            && (has_file || self.lagging_clusters.is_empty())
    }

    /// Of the clusters that were named: a line for each, and signed lines below it, with every credential masked.
    pub(crate) fn of_clusters(&self) -> String {
        let of_one = |it: &ClusterDifference| {
            let title = format!("{}: {}, revision {}\n", it.name, it.phase, it.revision);
            title + &text(&it.changes)
        };
        self.clusters.iter().map(of_one).collect()
    }

    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = vec![match self.revision {
            0 => "the hub rolls out no revision yet".to_owned(),
            revision => format!("compared with revision {revision}, which the hub rolls out"),
        }];
        if !self.lagging_clusters.is_empty() {
            let clusters = self.lagging_clusters.join(", ");
            notes.push(format!("clusters that lag: {clusters}"));
        }
        notes
    }
}
