//! `retry`: makes failed nodes try their revision again.

use globalps_core::api::Phase;
use globalps_core::names;
use jiff::Timestamp;

use super::wait::{follow_if, goal_of_nodes};
use crate::cli::{Connection, Retry};
use crate::cluster::annotate::annotate;
use crate::cluster::{Cluster, must_watch, node_secrets, or_not_installed};
use crate::error::{Exit, Failure, Result};
use crate::terminal::printer::Printer;
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
    let choice = choose(&phases, &args.nodes)?;
    for (node, phase) in &choice.others {
        printer.warning(format_args!("node `{node}` is {phase}: nothing to retry"));
    }
    if choice.failed.is_empty() {
        if choice.others.is_empty() {
            printer.note("no node has failed");
        }
        return Ok(Exit::Done);
    }
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let annotation = (names::RETRY_ANNOTATION, now.as_str());
    annotate(&cluster, &choice.failed, annotation, |node, result| {
        result?;
        printer.data(&format!(
            "nodepullsecret.globalps.io/{node} will be retried"
        ));
        Ok(())
    })
    .await?;
    let goal = goal_of_nodes(&cluster, &args.wait).await?;
    follow_if(&cluster, goal, &args.wait).await
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Choice {
    failed: Vec<String>,
    /// Named, but not failed.
    others: Vec<(String, Phase)>,
}

/// The failed nodes, optionally only the named ones. An unknown name is an error.
fn choose(phases: &[(String, Phase)], named: &[String]) -> Result<Choice> {
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
            choice.failed.push(node.clone());
        } else if !named.is_empty() {
            choice.others.push((node.clone(), phase.clone()));
        }
    }
    Ok(choice)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            (vec!["a", "c", "c"], Ok((vec!["c"], vec!["a"]))),
            (
                vec!["a", "x", "y"],
                Err("globalps has no node `x`, `y`".to_owned()),
            ),
        ] {
            let named: Vec<String> = named.into_iter().map(str::to_owned).collect();
            let found = choose(&phases, &named);
            let found = found
                .as_ref()
                .map(|choice| {
                    let others = choice.others.iter().map(|(node, _)| node.as_str());
                    let failed = choice.failed.iter().map(String::as_str);
                    (failed.collect::<Vec<_>>(), others.collect::<Vec<_>>())
                })
                .map_err(|failure| failure.message.clone());
            assert_eq!(found, expected, "{named:?}");
        }
    }
}
