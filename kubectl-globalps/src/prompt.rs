//! Questions to whoever sits at the terminal, on stderr. Off a terminal nothing is asked.

use std::io::IsTerminal as _;

use dialoguer::{Confirm, Input, Password};
use globalps_core::dockerconfig::Secret;

use crate::error::Failure;
use crate::escapes::plain;

fn can_ask() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// `otherwise`: what it means that there is nobody to ask.
pub(crate) fn text(question: &str, otherwise: &Failure) -> Result<String, Failure> {
    if !can_ask() {
        return Err(otherwise.clone());
    }
    Input::<String>::new()
        .with_prompt(question)
        .interact_text()
        .map_err(|_| otherwise.clone())
}

/// Nothing of the answer is shown.
pub(crate) fn password(question: &str, otherwise: &Failure) -> Result<Secret, Failure> {
    if !can_ask() {
        return Err(otherwise.clone());
    }
    Password::new()
        .with_prompt(question)
        .allow_empty_password(true)
        .interact()
        .map(Secret::new)
        .map_err(|_| otherwise.clone())
}

/// Refuses at once what could not be confirmed later.
pub(crate) fn can_confirm(yes: bool) -> Result<(), Failure> {
    if yes || can_ask() {
        return Ok(());
    }
    Err(Failure::new(
        "there is no terminal to ask for confirmation on",
        "`--yes` goes on without a question",
    ))
}

/// Whether to go on with `what`.
pub(crate) fn confirm(what: &str, yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    let answer = Confirm::new()
        .with_prompt(plain(what))
        .default(false)
        .interact()
        .unwrap_or(false);
    if answer {
        Ok(())
    } else {
        Err(Failure::no(
            "nothing was changed",
            "`--yes` goes on without a question",
        ))
    }
}
