//! The command line: clap's flags, and kubectl's.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{CommandFactory as _, FromArgMatches as _};

use super::explain::names_without_namespace;
use super::usage::of_command;
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
        let mut command = Self::command();
        let matches = command
            .try_get_matches_from_mut(&joined)
            .map_err(|error| of_command(error, &command, &joined))?;
        let mut cli =
            Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
        let flags = matches.subcommand().map(|(_, flags)| flags);
        let source = flags.and_then(|flags| flags.value_source("namespace"));
        let is_given = source == Some(ValueSource::CommandLine);
        match &mut cli.command {
            Command::Why(why) => {
                why.namespace = is_given.then(|| cli.connection.namespace.clone());
            }
            Command::Explain(_) if is_given && flags.is_some_and(names_without_namespace) => {
                return Err(command.error(
                    ErrorKind::ArgumentConflict,
                    "`-n` is the namespace of the pull secrets here; name the pod or the service account as NAMESPACE/NAME",
                ));
            }
            Command::Add(add) => add.from.registry.append(&mut add.registries),
            Command::Remove(remove) => remove.registry.append(&mut remove.registries),
            _ => {}
        }
        Ok(cli)
    }
}
