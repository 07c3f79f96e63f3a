//! `fleet remove`: deletes a `FleetPullSecret`, and with it the Secret in its clusters.

use globalps_core::api::{ClusterPhase, DeletionPolicy, FleetPullSecret};
use kube::ResourceExt as _;

use crate::cli::{Connection, FleetRemove};
use crate::cluster::attempts::until_written;
use crate::cluster::fleet::{FleetFacts, FleetFilter, find};
use crate::cluster::{Cluster, params};
use crate::error::{Exit, Failure, Result};
use crate::target::wait_clusters::follow_clusters_if;
use crate::terminal::{Printer, confirm};
use crate::view::fleet::verdict::{FleetGoal, clusters, command};
use crate::view::fleet::{FleetStatus, title};

pub(super) async fn run(args: &FleetRemove, flags: &Connection, printer: &Printer) -> Result<Exit> {
    let cluster = Cluster::connect(flags, printer)?;
    let name = &args.fleet;
    let facts = match FleetFacts::observe(&cluster, FleetFilter::of(name)).await {
        Err(failure) if failure.is(404) && args.ignore_not_found => {
            printer.note("there is nothing to remove");
            return Ok(Exit::Done);
        }
        facts => facts?,
    };
    let statuses = facts.statuses();
    let fleet = facts.fleets.iter().map(|(_, fleet)| fleet).next();
    let (Some(fleet), Some(status)) = (fleet, statuses.first()) else {
        return Ok(Exit::Done);
    };
    if fleet.metadata.deletion_timestamp.is_some() {
        printer.note(format_args!(
            "FleetPullSecret `{}` is being deleted already",
            title(fleet)
        ));
        return follow_clusters_if(&cluster, name, FleetGoal::Removed, &args.wait).await;
    }
    for line in effects(fleet, status) {
        printer.note(line);
    }
    confirm(&cluster.title(), &question(fleet, status), args.yes)?;
    delete(&cluster, fleet).await?;
    printer.data(&format!("fleetpullsecret.globalps.io/{name} deleted"));
    follow_clusters_if(&cluster, name, FleetGoal::Removed, &args.wait).await
}

/// What happens to the Secret in the clusters, a sentence each.
fn effects(fleet: &FleetPullSecret, status: &FleetStatus) -> Vec<String> {
    let target = &fleet.spec.target;
    let secret = format!("Secret `{}/{}`", target.namespace, target.name);
    let number = clusters(status.managed().count());
    let mut lines = match fleet.spec.deletion_policy {
        DeletionPolicy::Remove => vec![format!(
            "`spec.deletionPolicy` is Remove: the hub removes {secret} from {number}, a few at a time, and their nodes lose its credentials"
        )],
        DeletionPolicy::Orphan => vec![format!(
            "`spec.deletionPolicy` is Orphan: {secret} stays in {number}, and nothing manages it any more"
        )],
    };
    let removes = fleet.spec.deletion_policy == DeletionPolicy::Remove;
    if removes && fleet.spec.rollout.paused {
        lines.push(format!(
            "the rollout is paused: nothing is removed before {}",
            command("resume", &title(fleet))
        ));
    }
    let away: Vec<&str> = status
        .in_phase(ClusterPhase::Unreachable)
        .map(|row| row.name.as_str())
        .collect();
    if removes && !away.is_empty() {
        lines.push(format!(
            "the FleetPullSecret stays until unreachable clusters are back or deleted: `{}`",
            away.join("`, `")
        ));
    }
    lines.push(format!("source Secret `{}` stays", status.source));
    lines
}

fn question(fleet: &FleetPullSecret, status: &FleetStatus) -> String {
    let number = clusters(status.managed().count());
    let title = title(fleet);
    match fleet.spec.deletion_policy {
        DeletionPolicy::Remove => {
            format!("Delete FleetPullSecret `{title}`, and its Secret in {number}?")
        }
        DeletionPolicy::Orphan => {
            format!("Delete FleetPullSecret `{title}`, and leave its Secret in {number}?")
        }
    }
}

/// Deletes the object that was shown. The hub writes its status all the time, so that another version is no reason to stop,
/// but another policy is.
async fn delete(cluster: &Cluster<'_>, shown: &FleetPullSecret) -> Result<()> {
    let api = cluster.api::<FleetPullSecret>();
    let title = title(shown);
    let name = shown.name_any();
    until_written(async |attempt| {
        let fleet = match attempt {
            1 => shown.clone(),
            _ => find(cluster, &name).await?,
        };
        let is_same = fleet.metadata.uid == shown.metadata.uid
            && fleet.spec.deletion_policy == shown.spec.deletion_policy;
        if !is_same {
            return Err(Failure::new(
                format!("FleetPullSecret `{title}` was changed meanwhile"),
                "run the command again",
            ));
        }
        let params = params::delete(false, &fleet.metadata);
        let object = format!("FleetPullSecret `{title}`");
        let deleted = cluster.delete(&object, &api, &name, &params).await;
        deleted.map(drop)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::fleet::tests::{fleet, object};

    #[test]
    fn the_effect_on_the_secret_is_shown_before_the_question() {
        let objects = [
            object("m1", ClusterPhase::Synced, 3),
            object("m2", ClusterPhase::Unreachable, 3),
        ];
        let mut fleet = fleet("Synced", 3);
        let failure =
            serde_json::json!({"cluster": "clusters/hub", "reason": "IsHub", "message": "the hub"});
        let failure = serde_json::from_value(failure).expect("a failure");
        fleet.status.as_mut().expect("one").failures = vec![failure];
        let status = FleetStatus::of(&fleet, &objects, &[]);
        assert_eq!(
            status.clusters.len(),
            3,
            "nothing is written into one of them"
        );
        assert_eq!(
            effects(&fleet, &status),
            [
                "`spec.deletionPolicy` is Remove: the hub removes Secret `kube-system/additional-pull-secret` from 2 clusters, a few at a time, and their nodes lose its credentials",
                "the FleetPullSecret stays until unreachable clusters are back or deleted: `clusters/m2`",
                "source Secret `team-a-source` stays",
            ]
        );
        assert_eq!(
            question(&fleet, &status),
            "Delete FleetPullSecret `clusters/team-a`, and its Secret in 2 clusters?"
        );
        fleet.spec.rollout.paused = true;
        assert_eq!(
            effects(&fleet, &status)[1],
            "the rollout is paused: nothing is removed before `kubectl globalps fleet resume team-a -n clusters`"
        );
        fleet.spec.deletion_policy = DeletionPolicy::Orphan;
        assert_eq!(
            effects(&fleet, &status),
            [
                "`spec.deletionPolicy` is Orphan: Secret `kube-system/additional-pull-secret` stays in 2 clusters, and nothing manages it any more",
                "source Secret `team-a-source` stays",
            ]
        );
        assert_eq!(
            question(&fleet, &status),
            "Delete FleetPullSecret `clusters/team-a`, and leave its Secret in 2 clusters?"
        );
    }
}
