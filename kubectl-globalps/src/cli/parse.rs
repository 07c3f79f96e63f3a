//! Parses the command line: clap's flags and kubectl's.

use std::ffi::OsString;

use clap::FromArgMatches as _;
use clap::error::ErrorKind;

use super::usage::readable;
use super::{Cli, Command};

impl Cli {
    /// Parses with clap, but also accepts `-v 6` and `-v6` like kubectl. A bare `-v` takes only a number as its value.
    pub(crate) fn of(words: impl Iterator<Item = OsString>) -> Result<Self, clap::Error> {
        let is_level = |word: &OsString| {
            let text = word.to_str().unwrap_or_default();
            !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
        };
        let mut joined = Vec::new();
        let mut words = words.peekable();
        let mut are_flags = true;
        while let Some(word) = words.next() {
            let text = word.to_str().unwrap_or_default();
            are_flags &= text != "--";
            let attached = text.strip_prefix("-v").map(OsString::from);
            let level = match text {
                _ if !are_flags => None,
                "-v" | "--v" | "--verbosity" => words.next_if(is_level),
                _ => attached.filter(is_level),
            };
            joined.push(match level {
                Some(level) => format!("-v={}", level.to_string_lossy()).into(),
                None => word,
            });
        }
        let mut command = super::help::command();
        let matches = command
            .try_get_matches_from_mut(&joined)
            .map_err(readable)?;
        let mut cli =
            Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
        let secrets = &cli.connection.pull_secret_namespace;
        let is_other = |name: &String| name != secrets;
        let is_of_another = cli.connection.namespace.as_ref().is_some_and(is_other);
        match &mut cli.command {
            Command::Why(_) | Command::Explain(_) => {}
            Command::Fleet(_) => cli.connection.is_of_fleet = true,
            // The user may mean a scope, or the namespace of the pull secrets.
            _ if is_of_another => {
                let name = matches.subcommand_name().unwrap_or_default();
                return Err(clap::Error::raw(
                    ErrorKind::ArgumentConflict,
                    format!(
                        "`-n` is the namespace of pods and FleetPullSecrets, and says nothing to `{name}`\n\n\
                         hint: leave it out; another namespace of the pull secrets is `--pull-secret-namespace NAME`"
                    ),
                ));
            }
            _ => {}
        }
        match &mut cli.command {
            Command::Add(add) => {
                add.from.registry.append(&mut add.registries);
                add.to.name_source();
            }
            Command::Remove(remove) => remove.registry.append(&mut remove.registries),
            _ => {}
        }
        Ok(cli)
    }
}
