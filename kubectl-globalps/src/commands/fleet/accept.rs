//! `fleet accept`: kubeconfigs may lead to the clusters that they lead to now.

use globalps_core::api::ClusterPullSecret;
use globalps_core::names;

use crate::cli::{Connection, FleetAccept};
use crate::cluster::Cluster;
use crate::cluster::annotate::annotate_and_print;
use crate::error::{Exit, Result};
use crate::target::clusters::of_clusters;
use crate::target::wait_clusters::follow_clusters_if;
use crate::terminal::printer::Printer;
use crate::view::fleet::verdict::FleetGoal;
use crate::view::fleet::{ClusterRow, FleetStatus};

pub(super) async fn run(args: &FleetAccept, flags: &Connection, printer: &Printer) -> Result<Exit> {
    let cluster = Cluster::connect(flags, printer)?;
    let Some(status) = of_clusters(&cluster, &args.fleet, &args.clusters).await? else {
        return Ok(Exit::Done);
    };
    let (changed, others) = by_identity(&status);
    for row in others {
        printer.warning(format_args!(
            "cluster `{}` has no other identity to accept",
            row.name
        ));
    }
    if changed.is_empty() {
        return Ok(Exit::Done);
    }
    for (row, identity) in changed {
        let object = [(row.namespace(), row.object.as_str())];
        let annotation = (names::ACCEPTED_IDENTITY_ANNOTATION, identity);
        let word = format!("accepts {identity}");
        annotate_and_print::<ClusterPullSecret>(&cluster, &object, annotation, &word).await?;
    }
    follow_clusters_if(&cluster, &args.fleet, FleetGoal::Synced, &args.wait).await
}

/// Clusters with the identity that the hub has found instead of theirs, and the others.
fn by_identity(status: &FleetStatus) -> (Vec<(&ClusterRow, &str)>, Vec<&ClusterRow>) {
    let (mut changed, mut others) = (Vec::new(), Vec::new());
    for row in &status.clusters {
        match &row.found_identity {
            Some(identity) => changed.push((row, identity.as_str())),
            None => others.push(row),
        }
    }
    (changed, others)
}

#[cfg(test)]
mod tests {
    use globalps_core::api::ClusterPhase;

    use super::*;
    use crate::view::fleet::tests::{fleet, object};

    #[test]
    fn exactly_the_identity_that_the_hub_has_found_is_accepted() {
        let mut changed = object("m2", ClusterPhase::Blocked, 3);
        if let Some(status) = &mut changed.status {
            status.identity = Some("1".to_owned());
            status.found_identity = Some("2".to_owned());
        }
        let objects = [
            object("m1", ClusterPhase::Synced, 3),
            changed,
            object("m3", ClusterPhase::Blocked, 3),
        ];
        let named = ["m1", "m2"].map(str::to_owned);
        let status = FleetStatus::of(&fleet("ClustersBlocked", 3), &objects, &named);
        let (changed, others) = by_identity(&status);
        let changed: Vec<(&str, &str)> = changed
            .iter()
            .map(|(row, identity)| (row.name.as_str(), *identity))
            .collect();
        assert_eq!(changed, [("clusters/m2", "2")]);
        let others: Vec<&str> = others.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(others, ["clusters/m1"]);
    }
}
