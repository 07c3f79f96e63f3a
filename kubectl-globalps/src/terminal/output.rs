//! How and where a command prints its result.

use std::fmt::Display;

use crate::cli::{DryRun, Form};
use crate::error::{Failure, Result};
use crate::terminal::{Layout, Printer, Stream, is_terminal, terminal_width};

/// How to print a table, or data in its place.
#[derive(Clone, Copy)]
pub(crate) struct Output<'a> {
    pub(crate) format: &'a Form,
    no_headers: bool,
}

impl<'a> Output<'a> {
    pub(crate) fn new(format: &'a Form, no_headers: bool) -> Self {
        Self { format, no_headers }
    }

    pub(crate) fn is_table(self) -> bool {
        self.format.is_text()
    }

    pub(crate) fn layout(self, printer: &Printer) -> Layout {
        Layout {
            width: terminal_width(Stream::Out),
            wide: *self.format == Form::Wide,
            no_headers: self.no_headers,
            color: printer.has_color(Stream::Out),
            ..Layout::default()
        }
    }

    /// The stream for the progress of a wait. On a terminal, its table is the result too.
    pub(crate) fn of_wait(self) -> Stream {
        if *self.format == Form::Text && is_terminal(Stream::Out) {
            Stream::Out
        } else {
            Stream::Err
        }
    }
}

/// `--watch` redraws a table and supports no other format.
pub(crate) fn may_watch(watch: bool, format: &Form) -> Result<()> {
    if watch && *format != Form::Text {
        return Err(Failure::new(
            "`--watch` shows a table only",
            "leave out `-o`, or wait for the end with `--wait`",
        ));
    }
    Ok(())
}

/// Shows what a command changes: the result of a dry run, otherwise a note before the question.
pub(crate) fn show_change(printer: &Printer, text: &str, dry_run: DryRun) {
    if dry_run == DryRun::None {
        printer.note(text.trim_end());
    } else {
        printer.data(text);
    }
}

/// Shows what a command has done. A dry run has another result.
pub(crate) fn show_done(printer: &Printer, line: impl Display, dry_run: DryRun) {
    if dry_run == DryRun::None {
        printer.data(&line.to_string());
    } else {
        printer.note(format_args!("{line}{}", dry_run.suffix()));
    }
}
