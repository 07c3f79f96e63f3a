//! Prompts on a terminal, written to stderr. Input is line-based, so that cursor and Ctrl-C keep working. Without a terminal
//! there are no prompts.

use std::io::{self, BufRead, IsTerminal as _, Write};

use globalps_dockerconfig::Secret;

use crate::error::{Failure, Result};
use crate::terminal::escapes::plain;

#[cfg(unix)]
mod hidden;
/// Other platforms turn a terminal's echo off only while a key is read.
#[cfg(not(unix))]
mod hidden {
    pub(super) fn line(question: &str) -> std::io::Result<String> {
        let prompt = dialoguer::Password::new().with_prompt(question);
        let line = prompt.allow_empty_password(true).interact();
        line.map_err(std::io::Error::other)
    }
}

/// Whether a terminal is available for prompts.
pub(crate) fn can_ask() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// `otherwise`: the error if there is no terminal.
pub(crate) fn text(question: &str, otherwise: &Failure) -> Result<String> {
    if !can_ask() {
        return Err(otherwise.clone());
    }
    let question = format!("{question}: ");
    ask(&question, &mut io::stdin().lock(), &mut io::stderr())
        .ok()
        .filter(|answer| !answer.is_empty())
        .ok_or_else(|| otherwise.clone())
}

/// Reads one line and trims it; empty at end of input.
fn ask(question: &str, input: &mut impl BufRead, output: &mut impl Write) -> io::Result<String> {
    output.write_all(plain(question).as_bytes())?;
    output.flush()?;
    let mut answer = String::new();
    input.read_line(&mut answer)?;
    Ok(answer.trim().to_owned())
}

/// Reads a line without echo.
pub(crate) fn password(question: &str, otherwise: &Failure) -> Result<Secret> {
    if !can_ask() {
        return Err(otherwise.clone());
    }
    let line = hidden::line(question).map_err(|_| otherwise.clone())?;
    Ok(Secret::new(line))
}

/// Asks the user to confirm `what`. `cluster`: the cluster's title in the prompt.
pub(crate) fn confirm(cluster: &str, what: &str, yes: bool) -> Result<()> {
    if yes {
        return Ok(());
    }
    if !can_ask() {
        return Err(not_confirmed());
    }
    let question = question(cluster, what);
    let answer = ask(&question, &mut io::stdin().lock(), &mut io::stderr());
    if answer.is_ok_and(|answer| is_yes(&answer)) {
        Ok(())
    } else {
        Err(Failure::aborted())
    }
}

/// The error if there is no terminal to ask on.
pub(crate) fn not_confirmed() -> Failure {
    Failure::new(
        "confirmation needs a terminal",
        "`--yes` skips the confirmation prompt",
    )
}

fn question(cluster: &str, what: &str) -> String {
    format!("cluster {cluster}\n{what} [y/N] ")
}

fn is_yes(answer: &str) -> bool {
    ["y", "yes"].contains(&answer.to_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_names_the_cluster_and_waits_for_a_line() {
        for (typed, expected) in [
            ("y\nn\n", true),
            (" Yes \r\n", true),
            ("n\n", false),
            ("yn\n", false),
            ("\n", false),
            ("", false),
        ] {
            let mut shown = Vec::new();
            let question = question("`prod` (https://a:6443)", "Go on?");
            let answer = ask(&question, &mut typed.as_bytes(), &mut shown).expect("an answer");
            assert_eq!(is_yes(&answer), expected, "{typed:?}");
            // The output is only the question: no escape sequence hides the cursor.
            let expected = "cluster `prod` (https://a:6443)\nGo on? [y/N] ";
            assert_eq!(String::from_utf8_lossy(&shown), expected);
        }
    }
}
