//! One file a command.

mod add;
mod check;
mod check_namespaces;
mod check_registries;
pub(crate) mod completion;
mod diff;
mod explain;
mod explain_namespace;
mod external_diff;
mod fleet;
mod history;
mod install;
mod leftovers;
mod live_check;
mod migrate;
mod migrate_facts;
mod namespace_access;
mod objects;
mod operator_access;
mod pause;
mod pull_secret;
mod remove;
mod retry;
mod source;
mod status;
mod status_namespaces;
mod undo;
mod uninstall;
mod validate;
mod version;

use std::future::Future;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use globalps_core::api::NodePullSecret;
use globalps_core::names;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;

use crate::cli::{Cli, Command, DryRun, Wait};
use crate::client::Cluster;
use crate::error::{Exit, Failure};
use crate::follow::follow;
use crate::following::Follow;
use crate::printer::{Printer, Stream};
use crate::status::Goal;

/// Attempts to write a change on conflicts.
const ATTEMPTS: u32 = 5;

/// A wait after a dry run would never end.
fn may_wait(wait: bool, dry_run: DryRun) -> Result<(), Failure> {
    if wait && dry_run != DryRun::None {
        return Err(Failure::new(
            "a dry run changes nothing, so there is nothing to wait for",
            "leave out `--wait` or `--dry-run`",
        ));
    }
    Ok(())
}

fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| {
            Failure::new(
                format!("could not start: {error}"),
                "is this machine out of files or memory?",
            )
        })?;
    let done = runtime.block_on(work);
    // A name that is still being resolved would hold the end up, whatever the deadline.
    runtime.shutdown_background();
    done
}

/// Runs the command that was asked for.
pub(crate) fn run(cli: &Cli, printer: &Printer) -> Result<Exit, Failure> {
    let flags = &cli.connection;
    block_on(async {
        match &cli.command {
            Command::Add(args) => add::run(args, flags, printer).await,
            Command::Status(args) => status::run(args, flags, printer).await,
            Command::Diff(args) => diff::run(args, flags, printer).await,
            Command::Remove(args) => remove::run(args, flags, printer).await,
            Command::Retry(args) => retry::run(args, flags, printer).await,
            Command::Pause(_) => pause::pause(flags, printer).await,
            Command::Resume(args) => pause::resume(args, flags, printer).await,
            Command::History(args) => history::run(args, flags, printer).await,
            Command::Undo(args) => undo::run(args, flags, printer).await,
            Command::Fleet(args) => fleet::run(args, flags, printer).await,
            Command::Install(args) => install::run(args, flags, printer).await,
            Command::Uninstall(args) => uninstall::run(args, flags, printer).await,
            Command::Migrate(args) => migrate::run(args, flags, printer).await,
            Command::Validate(args) => validate::run(args, printer),
            Command::Explain(args) => explain::run(args, flags, printer).await,
            Command::Version(args) => version::run(args, flags, printer).await,
            Command::Check(args) => check::run(args, flags, printer).await,
            Command::Completion(args) => Ok(completion::run(args, printer)),
        }
    })
}

/// A file, or with `-` what is piped in.
fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let bytes = if path == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin()
            .lock()
            .read_to_end(&mut bytes)
            .map(|_| bytes)
    } else {
        std::fs::read(path)
    };
    bytes.map_err(|error| {
        Failure::new(
            format!("`{}` could not be read: {error}", path.display()),
            "name a Secret manifest or a config.json, or `-` for stdin",
        )
    })
}

/// The additional pull secret as it is now.
async fn additional(cluster: &Cluster<'_>) -> Result<Option<Secret>, Failure> {
    pull_secret::get(cluster, names::ADDITIONAL_SECRET).await
}

/// Follows the rollout where that was asked for, and else says how to.
async fn follow_if(cluster: &Cluster<'_>, goal: Goal, wait: &Wait) -> Result<Exit, Failure> {
    if !wait.wait {
        let printer = cluster.printer();
        if is_installed(cluster).await {
            printer.note("follow the rollout with `kubectl globalps status --watch`");
        } else {
            printer.warning("globalps is not installed in this cluster, so this reaches no node");
            printer.hint("`kubectl globalps install --help` shows how to install it");
        }
        return Ok(Exit::Done);
    }
    let how = Follow::until(goal, wait.timeout, Stream::Err);
    follow(cluster, how).await
}

/// Whether the custom resources exist. True if the user may not read them.
async fn is_installed(cluster: &Cluster<'_>) -> bool {
    let api = cluster.api::<NodePullSecret>();
    let answer = cluster
        .call(
            "see whether globalps is installed",
            api.list_metadata(&ListParams::default().limit(1)),
        )
        .await;
    !answer.is_err_and(|failure| failure.is(404))
}

/// A random delay before the next attempt, so that clients in conflict don't collide again.
async fn pause(attempt: u32) {
    let jitter = jiff::Timestamp::now().subsec_nanosecond().unsigned_abs() % 50;
    let millis = 50 * attempt + jitter;
    tokio::time::sleep(Duration::from_millis(millis.into())).await;
}
