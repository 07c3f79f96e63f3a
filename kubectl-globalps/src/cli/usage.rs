//! Errors of the command line are clap's, without what can be a password, and with what users of other programs mean. Pure.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Error};

use super::Cli;
use crate::error::without_user;

/// Stands for a value that can be a password.
const HIDDEN: &str = "***";

/// The error as users may read it.
pub(super) fn readable(mut error: Error) -> Error {
    let arg = text(&error, ContextKind::InvalidArg);
    match error.kind() {
        ErrorKind::UnknownArgument => {
            // clap's tips repeat the argument.
            error.remove(ContextKind::Suggested);
            if !is_flag(&arg) {
                set(&mut error, ContextKind::InvalidArg, HIDDEN);
                error.remove(ContextKind::SuggestedArg);
                if let Some(tip) = tip(&text(&error, ContextKind::Usage)) {
                    let tips = ContextValue::StyledStrs(vec![tip.into()]);
                    error.insert(ContextKind::Suggested, tips);
                }
            } else if text(&error, ContextKind::Usage).contains(" install ")
                && let Some(flag) = meant(&PULL_SECRETS, &arg)
            {
                set(&mut error, ContextKind::SuggestedArg, flag);
            }
        }
        ErrorKind::TooManyValues => set(&mut error, ContextKind::InvalidValue, HIDDEN),
        ErrorKind::ValueValidation => {
            let value = text(&error, ContextKind::InvalidValue);
            set(&mut error, ContextKind::InvalidValue, without_user(&value));
        }
        ErrorKind::InvalidSubcommand => {
            let written = text(&error, ContextKind::InvalidSubcommand);
            if let Some(command) = meant(&COMMANDS, &written)
                && has_command(&text(&error, ContextKind::Usage), command)
            {
                set(&mut error, ContextKind::SuggestedSubcommand, command);
            }
        }
        _ => {}
    }
    error
}

/// Whether the command with this usage has that subcommand.
fn has_command(usage: &str, name: &str) -> bool {
    let cli = Cli::command();
    let of = if usage.contains(" fleet ") {
        cli.find_subcommand("fleet")
    } else {
        Some(&cli)
    };
    of.is_some_and(|of| of.find_subcommand(name).is_some())
}

/// The text of an error; `None` for what clap reports as an error, but is none: help and version.
pub(crate) fn message(error: &Error) -> Option<String> {
    let text = error.to_string();
    text.strip_prefix("error: ")
        .map(|text| text.trim_end().to_owned())
}

/// Empty if the error has no such text.
fn text(error: &Error, kind: ContextKind) -> String {
    let text = error.get(kind).map(ToString::to_string);
    text.unwrap_or_default()
}

fn set(error: &mut Error, kind: ContextKind, text: impl Into<String>) {
    error.insert(kind, ContextValue::String(text.into()));
}

/// How a command takes what was written as one argument too many.
fn tip(usage: &str) -> Option<&'static str> {
    if usage.contains(" fleet add ") {
        Some("pass registries with `--registry`")
    } else if usage.contains(" why ") {
        Some("name a pod as NAMESPACE/NAME")
    } else {
        None
    }
}

/// Whether the argument looks like a flag. A password after `-p` or `--` can begin with `-`, too.
fn is_flag(arg: &str) -> bool {
    let is_of_a_name = |c: char| c.is_ascii_lowercase() || c == '-';
    match arg.strip_prefix("--") {
        Some(name) => name.chars().all(is_of_a_name),
        None => arg.starts_with('-') && arg.chars().count() == 2,
    }
}

/// Names that other programs use for a command.
const COMMANDS: [(&[&str], &str); 11] = [
    (
        &["create", "set", "update", "login", "put", "rotate"],
        "add",
    ),
    (&["logout", "unset", "drop", "del"], "remove"),
    (&["describe", "show", "watch", "nodes"], "status"),
    (&["registries"], "list"),
    (&["log", "revisions"], "history"),
    (&["revert", "rollout"], "undo"),
    (&["stop", "halt"], "pause"),
    (&["unpause", "start"], "resume"),
    (&["debug", "diagnose", "events", "trace"], "why"),
    (&["logs", "support", "dump", "must-gather"], "bundle"),
    (&["apply", "deploy", "upgrade", "init"], "install"),
];

/// Misspelled flags of `install`, and the flag that is meant.
const PULL_SECRETS: [(&[&str], &str); 2] = [
    (
        &[
            "--images-pull-secret",
            "--image-pull-secret",
            "--imagepullsecret",
            "--pull-secrets",
            "--pullsecret",
        ],
        "--pull-secret",
    ),
    (
        &["--image-pull-secrets", "--imagepullsecrets", "--namespaces"],
        "--deliver-to-namespaces",
    ),
];

fn meant(meanings: &[(&[&str], &'static str)], written: &str) -> Option<&'static str> {
    let written = written.to_lowercase();
    let mut all = meanings.iter();
    let found = all.find(|(words, _)| words.contains(&written.as_str()));
    found.map(|(_, meant)| *meant)
}

#[cfg(test)]
mod tests;
