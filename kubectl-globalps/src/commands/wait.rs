//! Waiting for a rollout: `--wait`.

use super::pull_secret::configuration;
use crate::cli::{DryRun, Wait};
use crate::cluster::client::Cluster;
use crate::error::{Exit, Failure};
use crate::terminal::printer::Stream;
use crate::view::follow::follow;
use crate::view::following::Follow;
use crate::view::status::{Goal, PAUSED};

/// A wait after a dry run would never end.
pub(super) fn may_wait(wait: bool, dry_run: DryRun) -> Result<(), Failure> {
    if wait && dry_run != DryRun::None {
        return Err(Failure::new(
            "a dry run changes nothing, so there is nothing to wait for",
            "leave out `--wait` or `--dry-run`",
        ));
    }
    Ok(())
}

/// Follows the rollout where that was asked for, and else says how to.
pub(super) async fn follow_if(
    cluster: &Cluster<'_>,
    goal: Goal,
    wait: &Wait,
) -> Result<Exit, Failure> {
    if !wait.wait {
        let printer = cluster.printer();
        match configuration(cluster).await {
            Ok(Some(gps)) if gps.spec.rollout.paused => {
                printer.warning(format_args!("{}, so no further node changes", PAUSED.0));
                printer.hint(PAUSED.1);
            }
            Err(failure) if failure.is(404) => {
                printer
                    .warning("globalps is not installed in this cluster, so this reaches no node");
                printer.hint("`kubectl globalps install --help` shows how to install it");
            }
            // Also where this user may not read it.
            _ => printer.note("follow the rollout with `kubectl globalps status --watch`"),
        }
        return Ok(Exit::Done);
    }
    let how = Follow::until(goal, wait.timeout, Stream::Err);
    follow(cluster, how).await
}
