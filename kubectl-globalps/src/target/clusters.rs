//! Clusters of a hub that were named.

use crate::cluster::client::Cluster;
use crate::cluster::fleet::{FleetFacts, FleetFilter};
use crate::error::{Failure, Result};
use crate::view::fleet::{FleetStatus, is_named};

/// The status of the fleet with these clusters, or with all of them. `None`: there is no fleet.
pub(crate) async fn of_clusters(
    cluster: &Cluster<'_>,
    fleet: &str,
    clusters: &[String],
) -> Result<Option<FleetStatus>> {
    let scope = FleetFilter {
        clusters: clusters.to_owned(),
        ..FleetFilter::of(fleet)
    };
    let facts = FleetFacts::observe(cluster, scope).await?;
    let Some(status) = facts.statuses().into_iter().next() else {
        return Ok(None);
    };
    missing(clusters, &status)?;
    Ok(Some(status))
}

pub(crate) fn missing(named: &[String], status: &FleetStatus) -> Result<()> {
    let is_there = |name: &&String| {
        let one = std::slice::from_ref(*name);
        status.clusters.iter().any(|row| is_named(&row.name, one))
    };
    let missing: Vec<&str> = named
        .iter()
        .filter(|name| !is_there(name))
        .map(String::as_str)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::new(
        format!(
            "FleetPullSecret `{}` has no cluster `{}`",
            status.fleet.name,
            missing.join("`, `")
        ),
        "`kubectl globalps fleet status NAME` shows its clusters; labels select them",
    ))
}
