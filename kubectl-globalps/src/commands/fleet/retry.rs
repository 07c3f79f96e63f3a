//! `fleet retry`: failed and blocked clusters try the same revision again.

use globalps_core::api::{ClusterPhase, ClusterPullSecret};
use globalps_core::names;
use jiff::Timestamp;

use super::status::of_clusters;
use super::wait::follow_if;
use crate::cli::{Connection, FleetRetry};
use crate::cluster::Cluster;
use crate::cluster::annotate::annotate_objects;
use crate::error::{Exit, Result};
use crate::terminal::printer::Printer;
use crate::view::fleet::verdict::Goal;
use crate::view::fleet::{ClusterRow, FleetStatus};

pub(super) async fn run(args: &FleetRetry, flags: &Connection, printer: &Printer) -> Result<Exit> {
    let cluster = Cluster::connect(flags, printer)?;
    let Some(status) = of_clusters(&cluster, &args.fleet, &args.clusters).await? else {
        return Ok(Exit::Done);
    };
    let choice = choose(&status);
    for row in &choice.others {
        printer.warning(format_args!(
            "cluster `{}` is {}: {}",
            row.name,
            row.phase,
            why_not(row)
        ));
    }
    if choice.failed.is_empty() {
        if choice.others.is_empty() {
            printer.note("no cluster has failed or is blocked");
        }
        return Ok(Exit::Done);
    }
    let now = Timestamp::now().to_string();
    let objects: Vec<(&str, &str)> = choice
        .failed
        .iter()
        .map(|row| (row.namespace(), row.object.as_str()))
        .collect();
    let annotation = (names::RETRY_ANNOTATION, now.as_str());
    let done = |(_, object): (&str, &str), result: Result<()>| {
        result?;
        printer.data(&format!(
            "clusterpullsecret.globalps.io/{object} will be retried"
        ));
        Ok(())
    };
    annotate_objects::<ClusterPullSecret>(&cluster, &objects, annotation, done).await?;
    follow_if(&cluster, &args.fleet, Goal::Synced, &args.wait).await
}

fn why_not(row: &ClusterRow) -> &'static str {
    match row.phase {
        ClusterPhase::Unreachable => "the hub connects again by itself",
        // It has no object that a retry could be asked of.
        ClusterPhase::Blocked => "the hub continues when the cause is fixed",
        _ => "nothing to retry",
    }
}

#[derive(Debug, Default)]
struct Choice<'a> {
    failed: Vec<&'a ClusterRow>,
    /// Named, but neither failed nor blocked.
    others: Vec<&'a ClusterRow>,
}

fn choose(status: &FleetStatus) -> Choice<'_> {
    let is_failed = |row: &&ClusterRow| {
        let phase = row.phase;
        matches!(phase, ClusterPhase::Failed | ClusterPhase::Blocked) && !row.object.is_empty()
    };
    let (failed, others): (Vec<_>, Vec<_>) = status.clusters.iter().partition(is_failed);
    Choice {
        failed,
        others: if status.is_part { others } else { Vec::new() },
    }
}

#[cfg(test)]
mod tests {
    use super::super::status::missing;
    use super::*;
    use crate::view::fleet::tests::{fleet, object};

    #[test]
    fn failed_and_blocked_clusters_are_retried_and_no_others() {
        let objects = [
            object("m1", ClusterPhase::Synced, 3),
            object("m2", ClusterPhase::Failed, 2),
            object("m3", ClusterPhase::Blocked, 2),
            object("m4", ClusterPhase::Unreachable, 2),
        ];
        for (named, failed, others) in [
            (&[][..], &["clusters/m2", "clusters/m3"][..], &[][..]),
            (&["m3"], &["clusters/m3"], &[]),
            (
                &["clusters/m2", "m1", "m4"],
                &["clusters/m2"],
                &["clusters/m1", "clusters/m4"],
            ),
        ] {
            let named: Vec<String> = named.iter().map(ToString::to_string).collect();
            let status = FleetStatus::of(&fleet("ClustersFailed", 3), &objects, &named);
            let choice = choose(&status);
            let titles =
                |rows: &[&ClusterRow]| rows.iter().map(|it| it.name.clone()).collect::<Vec<_>>();
            assert_eq!(titles(&choice.failed), failed, "{named:?}");
            assert_eq!(titles(&choice.others), others, "{named:?}");
        }
        let named = ["m1".to_owned(), "m9".to_owned(), "other/m1".to_owned()];
        let status = FleetStatus::of(&fleet("Synced", 3), &objects, &named);
        let failure = missing(&named, &status).expect_err("two are unknown");
        assert_eq!(
            failure.message,
            "FleetPullSecret `clusters/team-a` has no cluster `m9`, `other/m1`"
        );
    }
}
