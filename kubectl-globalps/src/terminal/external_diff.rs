//! A difference as JSON, as text, or in the program of `$KUBECTL_EXTERNAL_DIFF`.

use std::process::Command;

use serde::Serialize;

use crate::cli::Form;
use crate::error::{Failure, Result};
use crate::platform;
use crate::terminal::{Printer, plain};

/// A difference as text, without credentials.
pub(crate) struct Text<'a, F: Fn() -> (String, String)> {
    /// The differing lines.
    pub lines: &'a str,
    /// The file name for the program.
    pub file: &'a str,
    /// Both sides in full.
    pub sides: F,
}

pub(crate) fn show(
    printer: &Printer,
    format: &Form,
    difference: &impl Serialize,
    text: &Text<'_, impl Fn() -> (String, String)>,
) -> Result<()> {
    match external() {
        Some(words) if format.is_text() => {
            let (before, after) = (text.sides)();
            compare(&words, &[(text.file.to_owned(), before, after)])
        }
        _ => printer.print(format, ("the difference", difference), [], || {
            if !text.lines.is_empty() {
                printer.data(text.lines);
            }
        }),
    }
}

/// Shows the files in the program, if one is set. Each has a name and two sides. Returns `false` if none is set.
pub(crate) fn show_files(files: &[(String, String, String)]) -> Result<bool> {
    let Some(words) = external() else {
        return Ok(false);
    };
    compare(&words, files)?;
    Ok(true)
}

/// The program of `$KUBECTL_EXTERNAL_DIFF`, with its arguments.
fn external() -> Option<Vec<String>> {
    let words = std::env::var("KUBECTL_EXTERNAL_DIFF").ok()?;
    let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    (!words.is_empty()).then_some(words)
}

/// Passes two directories with the files to the program, like kubectl.
fn compare(words: &[String], files: &[(String, String, String)]) -> Result<()> {
    const HINT: &str = "`$KUBECTL_EXTERNAL_DIFF` names it; unset it for the difference as text";
    let failed = |error: std::io::Error| {
        Failure::new(
            format!("the files to compare could not be written: {error}"),
            "is there room in `$TMPDIR`?",
        )
    };
    let directory = |prefix: &str| tempfile::Builder::new().prefix(prefix).tempdir();
    let live = directory("LIVE-").map_err(failed)?;
    let merged = directory("MERGED-").map_err(failed)?;
    for (file, before, after) in files {
        for (directory, content) in [(&live, before), (&merged, after)] {
            let path = directory.path().join(file);
            #[expect(
                clippy::disallowed_methods,
                reason = "only the user may enter the directory"
            )]
            std::fs::write(path, plain(content).as_bytes()).map_err(failed)?;
        }
    }
    let Some((program, args)) = words.split_first() else {
        return Ok(());
    };
    let status = Command::new(platform::program(program))
        .args(args)
        .args([live.path(), merged.path()])
        .status()
        .map_err(|error| Failure::new(format!("`{program}` could not be run: {error}"), HINT))?;
    // Like diff: status 1 means differences, a higher one failure.
    match status.code() {
        Some(0 | 1) => Ok(()),
        _ => Err(Failure::new(format!("`{program}` failed ({status})"), HINT)),
    }
}
