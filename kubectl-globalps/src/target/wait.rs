//! Waiting for a rollout: `--wait`.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::pull_secret::configuration;
use crate::cli::{DryRun, Span, Wait};
use crate::cluster::{Cluster, Facts, Program};
use crate::error::{Exit, Failure, Result};
use crate::follow::live::Follow;
use crate::follow::nodes::follow;
use crate::follow::running::Running;
use crate::terminal::printer::Stream;
use crate::view::status::{NodesGoal, PAUSED, is_restoring};

/// A wait after a dry run would never end.
pub(crate) fn may_wait(wait: bool, dry_run: DryRun) -> Result<()> {
    if wait && dry_run != DryRun::None {
        return Err(Failure::new(
            "a dry run changes nothing, so there is nothing to wait for",
            "leave out `--wait` or `--dry-run`",
        ));
    }
    Ok(())
}

/// Longer than another replica takes to lead.
const TAKE_UP: Duration = Duration::from_mins(1);
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Waits until the program has reported a change of this Secret, as `look` says, which a rollout that is over says nothing of.
pub(crate) async fn until_reported(
    cluster: &Cluster<'_>,
    program: Program,
    name: &str,
    timeout: Span,
    look: impl AsyncFn() -> Result<bool>,
) -> Result<()> {
    let within = timeout.0.min(TAKE_UP);
    let deadline = Instant::now() + within;
    let mut running = Running::of(program);
    loop {
        match look().await {
            Ok(true) => return Ok(()),
            Err(failure) if !failure.may_pass() => return Err(failure),
            // What follows names an outage that lasts.
            Err(_) if Instant::now() >= deadline => return Ok(()),
            Ok(false) => running.check(cluster, true, cluster.now()).await?,
            Err(_) => {}
        }
        if Instant::now() >= deadline {
            return Err(Failure::no(
                format!(
                    "the {} has not reported the change of Secret `{name}` within {}",
                    program.word(),
                    Span(within)
                ),
                "the change is written; `kubectl globalps check` shows what delays it",
            ));
        }
        sleep(LOOK_AGAIN).await;
    }
}

/// As [`follow_if`], what nodes continue with: their restoration, where one is in progress, otherwise the rollout.
pub(crate) async fn follow_nodes_if(cluster: &Cluster<'_>, wait: &Wait) -> Result<Exit> {
    let is_restoration = wait.wait && {
        let facts = Facts::observe(cluster).await?;
        is_restoring(&facts) && facts.is_in_force()
    };
    let goal = if is_restoration {
        NodesGoal::Restored {
            skip_unreachable: false,
        }
    } else {
        NodesGoal::Synced
    };
    follow_if(cluster, goal, wait).await
}

/// Follows the rollout where that was asked for, and else says how to.
pub(crate) async fn follow_if(cluster: &Cluster<'_>, goal: NodesGoal, wait: &Wait) -> Result<Exit> {
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

/// On a terminal the last frame of a wait is the result; elsewhere it is still to be printed, whatever came of the wait.
pub(crate) async fn after(
    stream: Stream,
    waited: Result<Exit>,
    print: impl AsyncFnOnce() -> Result<()>,
) -> Result<Exit> {
    if stream == Stream::Err && !matches!(waited, Ok(Exit::Interrupted)) {
        match print().await {
            // The wait has named the outage.
            Err(failure) if waited.is_err() && failure.may_pass() => {}
            printed => printed?,
        }
    }
    waited
}
