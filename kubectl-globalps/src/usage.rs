//! A command line that makes no sense, told as every other error: a sentence, and what to do. Pure.

use clap::error::{ContextKind, ErrorKind};

use crate::error::Failure;

/// `None`: it is no error, but help or a version that was asked for.
pub(crate) fn failure(error: &clap::Error) -> Option<Failure> {
    let asked_for = [
        ErrorKind::DisplayHelp,
        ErrorKind::DisplayVersion,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
    ];
    if asked_for.contains(&error.kind()) {
        return None;
    }
    let text = error.render().to_string();
    // What is wrong, then perhaps a tip, then the usage; an empty line between them.
    let mut parts = text.split("\n\n");
    let words = |part: &str| part.split_whitespace().collect::<Vec<_>>().join(" ");
    let message = parts.next().map(words).unwrap_or_default();
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    let tip = parts.next().map(words).unwrap_or_default();
    let hint = match tip.strip_prefix("tip: ") {
        Some(tip) => quoted(tip),
        None => format!("`{} --help` shows what there is", command(error)),
    };
    Some(Failure::new(quoted(message), hint))
}

/// Names in backticks, as everywhere. An apostrophe within a word stays.
fn quoted(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut open = false;
    let mut before = ' ';
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        let after = rest.peek().copied().unwrap_or(' ');
        let is_mark = character == '\''
            && if open {
                !after.is_alphanumeric()
            } else {
                !before.is_alphanumeric()
            };
        open ^= is_mark;
        shown.push(if is_mark { '`' } else { character });
        before = character;
    }
    shown
}

/// `kubectl globalps add`, of its usage.
fn command(error: &clap::Error) -> String {
    let usage = error
        .get(ContextKind::Usage)
        .map(ToString::to_string)
        .unwrap_or_default();
    let words: Vec<&str> = usage
        .split_whitespace()
        .skip_while(|word| *word != "kubectl")
        .take_while(|word| !word.starts_with(['-', '[', '<']) && *word != word.to_uppercase())
        .collect();
    if words.is_empty() {
        "kubectl globalps".to_owned()
    } else {
        words.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::Parser as _;

    #[test]
    fn what_goes_wrong_on_the_command_line_is_a_sentence_with_a_way_out() {
        for (line, message, hint) in [
            (
                "add --registry a --all",
                "the argument `--registry <REGISTRY>` cannot be used with `--all`",
                "`kubectl globalps add --help` shows what there is",
            ),
            (
                "add --authfile f -u u",
                "the argument `--authfile <FILE>` cannot be used with `--username <USER>`",
                "`kubectl globalps add --help` shows what there is",
            ),
            (
                "add --registry a --skip-check --insecure",
                "the argument `--skip-check` cannot be used with `--insecure`",
                "`kubectl globalps add --help` shows what there is",
            ),
            (
                "add --registry a --password-stdin",
                "the following required arguments were not provided: --username <USER>",
                "`kubectl globalps add --help` shows what there is",
            ),
            (
                "add --registry a --wait --timeout soon",
                "invalid value `soon` for `--timeout <DURATION>`: must be a time such as `90s`, `5m` or `1h30m`",
                "`kubectl globalps --help` shows what there is",
            ),
            (
                "add --registri a",
                "unexpected argument `--registri` found",
                "a similar argument exists: `--registry`",
            ),
            (
                "stats",
                "unrecognized subcommand `stats`",
                "a similar subcommand exists: `status`",
            ),
            (
                "status -o xml",
                "invalid value `xml` for `--output <FORMAT>` [possible values: table, wide, json, yaml, name]",
                "a similar value exists: `yaml`",
            ),
        ] {
            let words = std::iter::once("kubectl-globalps").chain(line.split_whitespace());
            let error = Cli::try_parse_from(words).expect_err(line);
            let found = failure(&error).expect(line);
            assert_eq!((&*found.message, &*found.hint), (message, hint), "{line}");
        }
        for line in ["--help", "add --help", "--version", ""] {
            let words = std::iter::once("kubectl-globalps").chain(line.split_whitespace());
            let error = Cli::try_parse_from(words).expect_err(line);
            assert_eq!(failure(&error), None, "{line}");
        }
    }
}
