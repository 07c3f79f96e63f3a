//! One file per command.

mod add;
mod attempts;
mod bundle;
mod check;
mod check_namespaces;
mod check_registries;
pub(crate) mod completion;
mod diff;
#[cfg(test)]
mod examples;
mod explain;
mod explain_namespace;
mod explain_reason;
mod external_diff;
#[cfg(test)]
mod fake_api;
#[cfg(test)]
mod fake_objects;
#[cfg(test)]
mod fake_registry;
mod fleet;
mod forget;
mod history;
mod images;
mod install;
mod installer;
mod keyrings;
mod leftovers;
mod list;
mod list_old;
mod live_check;
mod migrate;
mod migrate_facts;
mod namespace_access;
mod object_changes;
mod objects;
mod operator_access;
mod output;
mod pause;
mod preview;
#[cfg(test)]
mod printed;
mod pull_secret;
#[cfg(test)]
mod reference;
mod remove;
mod restarts;
mod restore_configuration;
mod restore_intent;
mod retry;
mod runtime;
mod settings;
mod source;
mod source_state;
mod status;
mod status_namespaces;
#[cfg(test)]
mod tests;
mod undo;
mod uninstall;
mod uninstall_preview;
mod unreadable_configuration;
mod validate;
mod version;
mod wait;
mod waiting_pods;
mod why;
mod why_all;
mod why_facts;

use crate::cli::{Cli, Command, help};
use crate::error::{Exit, Result};
use crate::terminal::printer::Printer;

use runtime::block_on;

pub(crate) fn run(cli: &Cli, printer: &Printer) -> Result<Exit> {
    let flags = &cli.connection;
    block_on(async {
        match &cli.command {
            Command::Add(args) => add::run(args, flags, printer).await,
            Command::Status(args) => status::run(args, flags, printer).await,
            Command::List(args) => list::run(args, flags, printer).await,
            Command::Diff(args) => diff::run(args, flags, printer).await,
            Command::Remove(args) => remove::run(args, flags, printer).await,
            Command::Retry(args) => retry::run(args, flags, printer).await,
            Command::Pause(_) => pause::pause(flags, printer).await,
            Command::Resume(args) => pause::resume(args, flags, printer).await,
            Command::History(args) => history::run(args, flags, printer).await,
            Command::Undo(args) => Box::pin(undo::run(args, flags, printer)).await,
            Command::Fleet(args) => fleet::run(args, flags, printer).await,
            Command::Images(args) => Box::pin(images::run(args, printer)).await,
            Command::Install(args) => install::run(args, flags, printer).await,
            Command::Uninstall(args) => uninstall::run(args, flags, printer).await,
            Command::Migrate(args) => migrate::run(args, flags, printer).await,
            Command::Validate(args) => validate::run(args, printer),
            Command::Explain(args) => explain::run(args, flags, printer).await,
            Command::Why(args) => match &args.pod {
                _ if let Some(args) = args.explain() => explain::run(&args, flags, printer).await,
                Some(pod) => Box::pin(why::run(args, pod, flags, printer)).await,
                None => Box::pin(why_all::run(args, flags, printer)).await,
            },
            Command::Version(args) => version::run(args, flags, printer).await,
            Command::Bundle(args) => bundle::run(args, flags, printer).await,
            Command::Check(args) => match &args.explain {
                Some(reason) => explain_reason::run(reason, printer),
                None => check::run(args, flags, printer).await,
            },
            Command::Options(_) => {
                printer.data(help::options().trim_end());
                Ok(Exit::Done)
            }
            Command::Completion(args) => Ok(completion::run(args, printer)),
        }
    })
}
