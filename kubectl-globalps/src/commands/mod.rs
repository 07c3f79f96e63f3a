//! One file per command.

mod add;
mod bundle;
mod check;
pub(crate) mod completion;
mod diff;
mod explain;
mod fleet;
mod history;
mod images;
mod install;
mod list;
mod migrate;
mod pause;
mod remove;
mod retry;
mod status;
#[cfg(test)]
mod tests;
mod undo;
mod uninstall;
mod validate;
mod version;
mod why;

use crate::cli::{Cli, Command, help};
use crate::error::{Exit, Result};
use crate::terminal::printer::Printer;

use crate::cluster::runtime::block_on;

pub(crate) fn run(cli: &Cli, printer: &Printer) -> Result<Exit> {
    let flags = &cli.connection;
    block_on(async {
        match &cli.command {
            Command::Add(args) => Box::pin(add::run(args, flags, printer)).await,
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
            Command::Uninstall(args) => Box::pin(uninstall::run(args, flags, printer)).await,
            Command::Migrate(args) => migrate::run(args, flags, printer).await,
            Command::Validate(args) => validate::run(args, printer),
            Command::Explain(args) => explain::run(args, flags, printer).await,
            Command::Why(args) => match &args.pod {
                _ if let Some(args) = args.explain() => explain::run(&args, flags, printer).await,
                Some(pod) => Box::pin(why::run(args, pod, flags, printer)).await,
                None => Box::pin(why::all::run(args, flags, printer)).await,
            },
            Command::Version(args) => version::run(args, flags, printer).await,
            Command::Bundle(args) => bundle::run(args, flags, printer).await,
            Command::Check(args) => match &args.explain {
                Some(reason) => check::reason::run(reason, printer),
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
