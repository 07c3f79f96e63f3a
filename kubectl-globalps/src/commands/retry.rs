//! `retry`: failed nodes, or failed and blocked clusters, try the same revision again.

use globalps_core::api::{ClusterPhase, ClusterPullSecret, NodePullSecret, Phase};
use globalps_core::names;
use jiff::Timestamp;
use kube::Resource;

use crate::cli::{Connection, FleetRetry, Retry};
use crate::cluster::annotate::annotate_and_print;
use crate::cluster::{Cluster, must_watch, node_secrets, or_not_installed};
use crate::error::{Exit, Failure, Result};
use crate::target::clusters::of_clusters;
use crate::target::wait::follow_nodes_if;
use crate::target::wait_clusters::follow_clusters_if;
use crate::terminal::printer::Printer;
use crate::view::fleet::verdict::FleetGoal;
use crate::view::fleet::{ClusterRow, FleetStatus};
use crate::view::status::has_failed;

pub(super) async fn run(args: &Retry, flags: &Connection, printer: &Printer) -> Result<Exit> {
    let cluster = Cluster::connect(flags, printer)?;
    must_watch(&cluster).await?;
    let objects = node_secrets(&cluster).await;
    let objects = objects.map_err(|failure| or_not_installed(&cluster, failure))?;
    let phases: Vec<(String, Phase)> = objects
        .iter()
        .map(|(name, object)| {
            let phase = object.status.as_ref().map(|status| status.phase.clone());
            (name.clone(), phase.unwrap_or_default())
        })
        .collect();
    let choice = choose(&cluster.namespace, &phases, &args.nodes)?;
    if !retry::<NodePullSecret>(&cluster, &choice, "no node has failed").await? {
        return Ok(Exit::Done);
    }
    follow_nodes_if(&cluster, &args.wait).await
}

pub(super) async fn retry_clusters(
    args: &FleetRetry,
    flags: &Connection,
    printer: &Printer,
) -> Result<Exit> {
    let cluster = Cluster::connect(flags, printer)?;
    let Some(status) = of_clusters(&cluster, &args.fleet, &args.clusters).await? else {
        return Ok(Exit::Done);
    };
    let none = "no cluster has failed or is blocked";
    if !retry::<ClusterPullSecret>(&cluster, &choose_clusters(&status), none).await? {
        return Ok(Exit::Done);
    }
    follow_clusters_if(&cluster, &args.fleet, FleetGoal::Synced, &args.wait).await
}

/// What tries its revision again, and what doesn't.
#[derive(Debug, Default)]
struct Choice<'a> {
    /// Namespaces and names of the failed objects.
    failed: Vec<(&'a str, &'a str)>,
    /// Why others that were named have nothing to retry.
    others: Vec<String>,
}

/// Makes the failed objects try again. `none`: the message where nothing has failed. `false`: none tries again.
async fn retry<K: Resource<DynamicType = ()>>(
    cluster: &Cluster<'_>,
    choice: &Choice<'_>,
    none: &str,
) -> Result<bool> {
    let printer = cluster.printer();
    for sentence in &choice.others {
        printer.warning(sentence);
    }
    if choice.failed.is_empty() {
        if choice.others.is_empty() {
            printer.note(none);
        }
        return Ok(false);
    }
    let now = Timestamp::now().to_string();
    let annotation = (names::RETRY_ANNOTATION, now.as_str());
    annotate_and_print::<K>(cluster, &choice.failed, annotation, "will be retried").await?;
    Ok(true)
}

/// The failed nodes, optionally only the named ones. An unknown name is an error.
fn choose<'a>(
    namespace: &'a str,
    phases: &'a [(String, Phase)],
    named: &[String],
) -> Result<Choice<'a>> {
    let find = |name: &String| phases.iter().find(|(node, _)| node == name);
    let unknown: Vec<&str> = named
        .iter()
        .filter(|name| find(name).is_none())
        .map(String::as_str)
        .collect();
    if !unknown.is_empty() {
        return Err(Failure::new(
            format!("globalps has no node `{}`", unknown.join("`, `")),
            "`kubectl globalps status` shows the nodes",
        ));
    }
    let chosen = phases
        .iter()
        .filter(|(node, _)| named.is_empty() || named.contains(node));
    let mut choice = Choice::default();
    for (node, phase) in chosen {
        if has_failed(phase) {
            choice.failed.push((namespace, node.as_str()));
        } else if !named.is_empty() {
            let sentence = format!("node `{node}` is {phase}: nothing to retry");
            choice.others.push(sentence);
        }
    }
    Ok(choice)
}

/// Whether it has failed or is blocked, and has an object that a retry can be requested of.
pub(super) fn may_retry(row: &ClusterRow) -> bool {
    let phase = row.phase;
    matches!(phase, ClusterPhase::Failed | ClusterPhase::Blocked) && !row.object.is_empty()
}

fn choose_clusters(status: &FleetStatus) -> Choice<'_> {
    let (failed, others): (Vec<_>, Vec<_>) = status.clusters.iter().partition(|row| may_retry(row));
    let failed = failed
        .iter()
        .map(|row| (row.namespace(), row.object.as_str()));
    let others = others.iter().filter(|_| status.is_part);
    Choice {
        failed: failed.collect(),
        others: others.map(|row| why_not(row)).collect(),
    }
}

fn why_not(row: &ClusterRow) -> String {
    let why = match row.phase {
        ClusterPhase::Unreachable => "the hub connects again by itself",
        ClusterPhase::Blocked => "the hub continues when the cause is fixed",
        _ => "nothing to retry",
    };
    format!("cluster `{}` is {}: {why}", row.name, row.phase)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::clusters::missing;
    use crate::view::fleet::tests::{fleet, object};

    #[test]
    fn failed_nodes_are_retried_and_no_others() {
        let phases: Vec<(String, Phase)> = [
            ("a", Phase::Synced),
            ("b", Phase::RolledBack),
            ("c", Phase::Failed),
            ("d", Phase::ForeignOwner),
        ]
        .map(|(name, phase)| (name.to_owned(), phase))
        .into();
        for (named, expected) in [
            (vec![], Ok((vec!["b", "c", "d"], vec![]))),
            (vec!["b"], Ok((vec!["b"], vec![]))),
            (
                vec!["a", "c", "c"],
                Ok((vec!["c"], vec!["node `a` is Synced: nothing to retry"])),
            ),
            (
                vec!["a", "x", "y"],
                Err("globalps has no node `x`, `y`".to_owned()),
            ),
        ] {
            let named: Vec<String> = named.into_iter().map(str::to_owned).collect();
            let found = choose("ns", &phases, &named);
            let found = found
                .as_ref()
                .map(|choice| {
                    let failed = choice.failed.iter().map(|(_, node)| *node);
                    let others = choice.others.iter().map(String::as_str);
                    (failed.collect::<Vec<_>>(), others.collect::<Vec<_>>())
                })
                .map_err(|failure| failure.message.clone());
            assert_eq!(found, expected, "{named:?}");
        }
    }

    #[test]
    fn failed_and_blocked_clusters_are_retried_and_no_others() {
        let objects = [
            object("m1", ClusterPhase::Synced, 3),
            object("m2", ClusterPhase::Failed, 2),
            object("m3", ClusterPhase::Blocked, 2),
            object("m4", ClusterPhase::Unreachable, 2),
        ];
        for (named, failed, others) in [
            (
                &[][..],
                &["m2.clusters.team-a", "m3.clusters.team-a"][..],
                &[][..],
            ),
            (&["m3"], &["m3.clusters.team-a"], &[]),
            (
                &["clusters/m2", "m1", "m4"],
                &["m2.clusters.team-a"],
                &[
                    "cluster `clusters/m1` is Synced: nothing to retry",
                    "cluster `clusters/m4` is Unreachable: the hub connects again by itself",
                ],
            ),
        ] {
            let named: Vec<String> = named.iter().map(ToString::to_string).collect();
            let status = FleetStatus::of(&fleet("ClustersFailed", 3), &objects, &named);
            let choice = choose_clusters(&status);
            let objects: Vec<&str> = choice.failed.iter().map(|(_, name)| *name).collect();
            assert_eq!(objects, failed, "{named:?}");
            assert_eq!(choice.others, others, "{named:?}");
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
