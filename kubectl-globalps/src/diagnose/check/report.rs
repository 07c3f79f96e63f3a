//! All findings as text and as JSON. Pure.

use serde::Serialize;

use super::permissions::{granted, is_granted, is_missing, missing};
use super::{Check, CheckResult};
use crate::terminal::{line, number, wrap_sentences};

/// `check -o json`.
#[derive(Debug, Serialize)]
pub(crate) struct CheckReport {
    pub healthy: bool,
    pub checks: Vec<Check>,
}

impl CheckReport {
    pub(crate) fn of(checks: Vec<Check>) -> Self {
        Self {
            healthy: checks
                .iter()
                .all(|check| check.result != CheckResult::Failure),
            checks,
        }
    }

    /// `paint`: colors a text by an ANSI code. `width`: of the terminal, if there is one.
    pub(crate) fn text(
        &self,
        width: Option<usize>,
        paint: impl Fn(&str, &str) -> String,
    ) -> String {
        let mut lines = Vec::new();
        let mut group = "";
        let mut granted = Some(granted(&self.checks));
        let missing = missing(&self.checks);
        let mut is_listed = false;
        for check in &self.checks {
            let check = match &missing {
                Some(one) if is_missing(check) => {
                    if std::mem::replace(&mut is_listed, true) {
                        continue;
                    }
                    one
                }
                _ => check,
            };
            if check.group != group {
                if !group.is_empty() {
                    lines.push(String::new());
                }
                lines.push(check.group.to_owned());
                group = check.group;
            }
            let message = if is_granted(check) {
                let Some(all) = granted.take() else {
                    continue;
                };
                all
            } else {
                check.message.clone()
            };
            let sign = match check.result {
                CheckResult::Ok => paint("32", "√"),
                CheckResult::Warning => paint("33", "‼"),
                CheckResult::Failure => paint("31", "×"),
            };
            lines.push(format!("  {sign} {}", indented(&message, width)));
            if check.result != CheckResult::Ok {
                let hint = indented(&format!("hint: {}", check.hint), width);
                lines.push(format!("    {hint}"));
                lines.push(format!("    see {}", check.see));
            }
        }
        lines.push(String::new());
        let all = number(self.checks.len(), "check");
        let number = |wanted| self.checks.iter().filter(|c| c.result == wanted).count();
        lines.push(
            match (number(CheckResult::Failure), number(CheckResult::Warning)) {
                (0, 0) => format!("{all} passed"),
                (failures, warnings) => {
                    format!("{all}: {failures} failed, {warnings} with warnings")
                }
            },
        );
        lines.join("\n")
    }
}

/// Wraps the text; further lines are indented like the first one.
fn indented(text: &str, width: Option<usize>) -> String {
    const INDENT: &str = "    ";
    let text = line(text);
    match width {
        Some(width) => {
            let room = width.saturating_sub(INDENT.len());
            wrap_sentences(&text, room).join(&format!("\n{INDENT}"))
        }
        None => text.into_owned(),
    }
}
