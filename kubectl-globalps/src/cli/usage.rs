//! Errors of the command line in the format of all other errors: one sentence and a hint. Pure.

use std::error::Error as _;
use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

use crate::error::{Failure, without_user};

/// The command that doesn't use `-n`, in the error's context.
pub(super) const WITHOUT_NAMESPACE: ContextKind = ContextKind::Custom;

/// `None` for help and version, which are not errors.
pub(crate) fn failure(error: &Error) -> Option<Failure> {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return None;
    }
    let help = match error.get(ContextKind::Usage) {
        Some(ContextValue::StyledStr(usage)) => command(&usage.to_string()),
        _ => "kubectl globalps".to_owned(),
    };
    let is_surplus = error.kind() == ErrorKind::UnknownArgument
        && !is_flag(text(error, ContextKind::InvalidArg));
    if let Some(ContextValue::String(name)) = error.get(WITHOUT_NAMESPACE) {
        return Some(Failure::new(
            format!(
                "`-n` is the namespace of pods and FleetPullSecrets, and says nothing to `{name}`"
            ),
            "leave it out; another namespace of the pull secrets is `--pull-secret-namespace NAME`",
        ));
    }
    let hint = match similar(error).filter(|_| !is_surplus) {
        Some(similar) => format!("did you mean `{similar}`? See `{help} --help`"),
        None if is_surplus && help.ends_with(" fleet add") => {
            format!("pass registries with `--registry`; see `{help} --help`")
        }
        None if is_surplus && help.ends_with(" why") => {
            format!("name a pod as NAMESPACE/NAME; see `{help} --help`")
        }
        None => format!("see `{help} --help`"),
    };
    Some(Failure::new(message(error), hint))
}

/// One sentence. Never repeats a value that can be a password.
fn message(error: &Error) -> String {
    let arg = text(error, ContextKind::InvalidArg);
    let value = text(error, ContextKind::InvalidValue);
    let number = |kind| match error.get(kind) {
        Some(ContextValue::Number(number)) => *number,
        _ => 0,
    };
    let is_given = number(ContextKind::ActualNumValues);
    match error.kind() {
        ErrorKind::UnknownArgument if is_flag(arg) => format!("unexpected argument `{arg}` found"),
        ErrorKind::UnknownArgument => "there is an unexpected argument".to_owned(),
        ErrorKind::ArgumentConflict => conflict(arg, texts(error, ContextKind::PriorArg)),
        ErrorKind::InvalidValue if value.is_empty() => format!(
            "a value is required for `{arg}` but none was supplied{}",
            choices(error)
        ),
        ErrorKind::InvalidValue => {
            format!("invalid value `{value}` for `{arg}`{}", choices(error))
        }
        ErrorKind::ValueValidation => {
            let value = without_user(value);
            let reason = error.source().map_or(String::new(), |it| format!(": {it}"));
            format!("invalid value `{value}` for `{arg}`{reason}")
        }
        ErrorKind::InvalidSubcommand => {
            let name = text(error, ContextKind::InvalidSubcommand);
            format!("unrecognized subcommand `{name}`")
        }
        ErrorKind::MissingSubcommand => {
            let parent = text(error, ContextKind::InvalidSubcommand);
            let names = texts(error, ContextKind::ValidSubcommand).iter();
            let names: Vec<&str> = names
                .map(String::as_str)
                .filter(|it| *it != "help")
                .collect();
            format!("`{parent}` needs a subcommand: {}", names.join(", "))
        }
        ErrorKind::MissingRequiredArgument => missing(texts(error, ContextKind::InvalidArg)),
        ErrorKind::TooManyValues if arg.contains('<') => format!("`{arg}` takes no more values"),
        ErrorKind::TooManyValues => format!("`{arg}` takes no value"),
        ErrorKind::TooFewValues => {
            let least = number(ContextKind::MinValues);
            format!("`{arg}` needs at least {least} values; given: {is_given}")
        }
        ErrorKind::WrongNumberOfValues => {
            let expected = number(ContextKind::ExpectedNumValues);
            format!("`{arg}` needs {expected} values; given: {is_given}")
        }
        ErrorKind::NoEquals => format!("`{arg}` takes its value after `=`"),
        ErrorKind::InvalidUtf8 => "an argument is not valid UTF-8".to_owned(),
        // Other kinds are not errors of a command line; their text quotes none of its values.
        other => other.to_string(),
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

fn conflict(arg: &str, others: &[String]) -> String {
    match others {
        [other] if other == arg => format!("the argument `{arg}` cannot be used multiple times"),
        [] => format!("the argument `{arg}` cannot be used with the other arguments"),
        others => {
            let others = others.join("` or `");
            format!("the argument `{arg}` cannot be used with `{others}`")
        }
    }
}

/// ` [possible values: ...]`, or empty.
fn choices(error: &Error) -> String {
    match texts(error, ContextKind::ValidValue) {
        [] => String::new(),
        values => format!(" [possible values: {}]", values.join(", ")),
    }
}

/// Empty if the error has no such text.
fn text(error: &Error, kind: ContextKind) -> &str {
    texts(error, kind).first().map_or("", String::as_str)
}

fn texts(error: &Error, kind: ContextKind) -> &[String] {
    match error.get(kind) {
        Some(ContextValue::String(text)) => std::slice::from_ref(text),
        Some(ContextValue::Strings(texts)) => texts,
        _ => &[],
    }
}

/// `flags` in clap's syntax: `--a <A>`, or `<B|--a <A>|--c>` for alternatives.
fn missing(flags: &[String]) -> String {
    let one = |flag: &String| {
        let choices = flag
            .strip_prefix('<')
            .and_then(|rest| rest.strip_suffix('>'));
        let choices = choices.filter(|choices| choices.contains('|'));
        format!("`{}`", choices.unwrap_or(flag).replace('|', "` or `"))
    };
    let verb = if flags.len() > 1 { "are" } else { "is" };
    let flags: Vec<String> = flags.iter().map(one).collect();
    format!("{} {verb} missing", flags.join(" and "))
}

/// Adds the command to the error. clap names it only in some errors.
pub(super) fn of_command(mut error: Error, command: &Command, words: &[OsString]) -> Error {
    if error.get(ContextKind::Usage).is_none() {
        let mut name = "kubectl globalps".to_owned();
        let mut of = command;
        for word in words.iter().skip(1).filter_map(|word| word.to_str()) {
            if let Some(below) = of.find_subcommand(word) {
                name.extend([" ", word]);
                of = below;
            }
        }
        error.insert(ContextKind::Usage, ContextValue::StyledStr(name.into()));
    }
    error
}

/// The words of a usage line before its first flag or value.
fn command(usage: &str) -> String {
    let words = usage.trim_start_matches("Usage: ").split_whitespace();
    let is_name = |word: &&str| !word.starts_with(['-', '<', '[']);
    words.take_while(is_name).collect::<Vec<_>>().join(" ")
}

fn similar(error: &Error) -> Option<String> {
    let written = text(error, ContextKind::InvalidSubcommand);
    if let Some(command) = meant(written) {
        return Some(command.to_owned());
    }
    if error.get(ContextKind::SuggestedSubcommand).is_some() {
        return nearest(error);
    }
    let flag = text(error, ContextKind::InvalidArg).to_lowercase();
    let mut flags = PULL_SECRETS.iter();
    if error.kind() == ErrorKind::UnknownArgument
        && let Some((_, meant)) = flags.find(|(flags, _)| flags.contains(&flag.as_str()))
    {
        return Some((*meant).to_owned());
    }
    [ContextKind::SuggestedArg, ContextKind::SuggestedValue]
        .into_iter()
        .map(|kind| text(error, kind))
        .find(|text| !text.is_empty())
        .map(str::to_owned)
}

/// Names that other programs use for a command.
const MEANINGS: [(&[&str], &str); 11] = [
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

/// The command for a name that other programs use.
fn meant(word: &str) -> Option<&'static str> {
    let mut all = MEANINGS.iter();
    let found = all.find(|(words, _)| words.contains(&word));
    found.map(|(_, command)| *command)
}

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

/// Hidden aliases of commands.
const HIDDEN: [&str; 8] = [
    "delete", "rm", "get", "ls", "rollback", "doctor", "suspend", "explain",
];

/// Commands that change the cluster.
const WRITING: [&str; 11] = [
    "add",
    "install",
    "join",
    "migrate",
    "pause",
    "remove",
    "resume",
    "retry",
    "undo",
    "uninstall",
    "fleet",
];

/// The subcommand with the smallest edit distance. Prefers one that only reads, so that a typo doesn't suggest stopping
/// a rollout.
fn nearest(error: &Error) -> Option<String> {
    let written = text(error, ContextKind::InvalidSubcommand);
    // A short word resembles almost every name, so the distance is compared with both lengths.
    let is_near = |name: &&String| distance(written, name) * 2 <= written.len().min(name.len());
    let suggested = texts(error, ContextKind::SuggestedSubcommand).iter();
    let is_shown = |name: &&String| !HIDDEN.contains(&name.as_str());
    let suggested = suggested.filter(is_near).filter(is_shown);
    let rank = |name: &&String| (distance(written, name), WRITING.contains(&name.as_str()));
    suggested.min_by_key(rank).cloned()
}

/// Edit distance: insertions, deletions, replacements and swaps of neighbours (optimal string alignment).
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=to.len()).collect()];
    for i in 1..=from.len() {
        let mut row = vec![i];
        for j in 1..=to.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(from[i - 1] != to[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests;
