//! Errors of the command line in the form of all other errors: one sentence and a hint. Pure.

use clap::Error;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::error::Failure;

/// `None` for the help and the version, which are no errors.
pub(crate) fn failure(error: &Error) -> Option<Failure> {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return None;
    }
    let text = error.render().to_string();
    let mut paragraphs = text.split("\n\n");
    let sentence = paragraphs.next().unwrap_or_default();
    let sentence = sentence.strip_prefix("error: ").unwrap_or(sentence);
    let help = paragraphs
        .find_map(|paragraph| paragraph.trim_start().strip_prefix("Usage: "))
        .map_or_else(|| "kubectl globalps".to_owned(), command);
    let hint = match similar(error) {
        Some(similar) => format!("did you mean `{similar}`? See `{help} --help`"),
        None if is_surplus(error) && help.ends_with(" fleet add") => {
            format!("pass registries with `--registry`; see `{help} --help`")
        }
        None => format!("see `{help} --help`"),
    };
    Some(Failure::new(message(error, sentence), hint))
}

/// Whether there is an unexpected positional argument.
fn is_surplus(error: &Error) -> bool {
    error.kind() == ErrorKind::UnknownArgument
        && matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(text)) if !text.starts_with('-'))
}

/// clap's words, on one line, with names in backticks.
fn message(error: &Error, sentence: &str) -> String {
    if is_surplus(error) {
        // Not repeated, because it can be a password.
        return "there is an unexpected argument".to_owned();
    }
    if error.kind() == ErrorKind::MissingRequiredArgument
        && let Some(ContextValue::Strings(flags)) = error.get(ContextKind::InvalidArg)
    {
        return missing(flags);
    }
    let lines: Vec<&str> = sentence.lines().map(str::trim).collect();
    let text = match lines.split_first() {
        Some((first, [])) => (*first).to_owned(),
        Some((first, rest)) if first.ends_with(':') => format!("{first} {}", rest.join(", ")),
        _ => lines.join(" "),
    };
    text.replace(" '", " `")
        .replace("' ", "` ")
        .replace("':", "`:")
        .trim_end_matches('\'')
        .to_owned()
        + if text.ends_with('\'') { "`" } else { "" }
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

/// The words of a usage before its first flag or value.
fn command(usage: &str) -> String {
    let words = usage.split_whitespace();
    let is_name = |word: &&str| !word.starts_with(['-', '<', '[']);
    words.take_while(is_name).collect::<Vec<_>>().join(" ")
}

fn similar(error: &Error) -> Option<String> {
    [
        ContextKind::SuggestedSubcommand,
        ContextKind::SuggestedArg,
        ContextKind::SuggestedValue,
    ]
    .into_iter()
    .find_map(|kind| match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) => texts.first().cloned(),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::Parser as _;

    fn told(line: &str) -> Option<String> {
        let words = std::iter::once("kubectl-globalps").chain(line.split_whitespace());
        let failure = failure(&Cli::try_parse_from(words).expect_err(line))?;
        Some(format!("{}\n{}", failure.message, failure.hint))
    }

    #[test]
    fn an_invalid_command_line_gets_one_sentence_and_a_hint() {
        for (line, expected) in [
            (
                "stats",
                "unrecognized subcommand `stats`\ndid you mean `status`? See `kubectl globalps --help`",
            ),
            (
                "status --wach",
                "unexpected argument `--wach` found\ndid you mean `--watch`? See `kubectl globalps status --help`",
            ),
            (
                "status --wait --watch",
                "the argument `--wait` cannot be used with `--watch`\nsee `kubectl globalps status --help`",
            ),
            (
                "status -o xml",
                "invalid value `xml` for `--output <FORMAT>` [possible values: table, wide, json, yaml, name]\ndid you mean `yaml`? See `kubectl globalps --help`",
            ),
            (
                "undo --to-revision last",
                "invalid value `last` for `--to-revision <REVISION>`: invalid digit found in string\nsee `kubectl globalps --help`",
            ),
            (
                "remove",
                "`REGISTRY` or `--registry <REGISTRY>` or `--all` is missing\nsee `kubectl globalps remove --help`",
            ),
            (
                "install",
                "`--controller-image <IMAGE>` and `--syncer-image <IMAGE>` are missing\nsee `kubectl globalps install --help`",
            ),
            (
                "add --registry quay.io --password-stdin",
                "`--username <USER>` is missing\nsee `kubectl globalps add --help`",
            ),
            (
                "fleet add team quay.io",
                "there is an unexpected argument\npass registries with `--registry`; see `kubectl globalps fleet add --help`",
            ),
            (
                "history hunter2",
                "there is an unexpected argument\nsee `kubectl globalps history --help`",
            ),
        ] {
            assert_eq!(told(line).as_deref(), Some(expected), "{line}");
        }
    }

    #[test]
    fn help_is_no_error() {
        for line in [
            "--help",
            "status --help",
            "help",
            "help status",
            "--version",
            "",
        ] {
            assert_eq!(told(line), None, "{line}");
        }
    }
}
