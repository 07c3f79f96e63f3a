//! All output: data on stdout, messages on stderr. A closed stdout is not an error.

use std::cell::Cell;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use console::Term;
use serde::Serialize;

use crate::cli::{Color, Form};
use crate::error::{Failure, Result};
use crate::format::kyaml;
use crate::format::numbers::plain_numbers;
use crate::terminal::columns::wrap_sentences;
use crate::terminal::escapes::{self, painted, plain};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Out,
    Err,
}

pub(crate) struct Printer {
    color: Color,
    verbose: bool,
    silent: bool,
    closed: Cell<bool>,
    /// Output of both streams, captured instead of printed.
    #[cfg(test)]
    captured: Option<std::cell::RefCell<[String; 2]>>,
}

impl Printer {
    pub(crate) fn new(color: Color, verbosity: u8) -> Self {
        Self {
            color,
            verbose: verbosity > 0,
            silent: false,
            closed: Cell::new(false),
            #[cfg(test)]
            captured: None,
        }
    }

    /// Captures the output instead of printing it.
    #[cfg(test)]
    pub(crate) fn capturing() -> Self {
        Self {
            captured: Some(std::cell::RefCell::default()),
            ..Self::new(Color::Never, 0)
        }
    }

    /// Takes the captured stdout and stderr.
    #[cfg(test)]
    pub(crate) fn captured(&self) -> [String; 2] {
        let captured = self.captured.as_ref();
        captured.map(std::cell::RefCell::take).unwrap_or_default()
    }

    /// Prints data, but no messages.
    pub(crate) fn silent() -> Self {
        Self {
            silent: true,
            ..Self::new(Color::Never, 0)
        }
    }

    /// Prints data with exactly one newline at its end.
    pub(crate) fn data(&self, text: &str) {
        let end = if text.ends_with('\n') { "" } else { "\n" };
        self.write(Stream::Out, &format!("{}{end}", plain(text)));
    }

    /// Like [`Self::data`], but keeps this program's own colors.
    pub(crate) fn painted(&self, text: &str) {
        let end = if text.ends_with('\n') { "" } else { "\n" };
        self.write(Stream::Out, &format!("{}{end}", painted(text)));
    }

    /// Prints a value in the format of `-o`. `what`: its name in the error. `names`: of the objects in it. `text`:
    /// prints it as text.
    pub(crate) fn print<'f, T: Serialize>(
        &self,
        form: impl Into<Option<&'f Form>>,
        (what, value): (&str, &T),
        names: impl IntoIterator<Item = String>,
        text: impl FnOnce(),
    ) -> Result<()> {
        let unprintable = || {
            let message = format!("{what} could not be written in that format");
            Failure::new(message, "leave out `-o`")
        };
        let tree = || {
            let tree = serde_json::to_value(value).map_err(|_| unprintable());
            tree.map(plain_numbers)
        };
        let inapplicable = |reason: String| {
            let message = format!("the JSONPath template does not fit {what}: {reason}");
            Failure::new(message, "`-o json` prints what it is applied to")
        };
        match form.into().unwrap_or(&Form::Text) {
            Form::Text | Form::Wide => text(),
            Form::Name => names.into_iter().for_each(|name| self.data(&name)),
            Form::Json => self.data(&json(value).ok_or_else(unprintable)?),
            Form::Yaml => self.data(yaml(value).ok_or_else(unprintable)?.trim_end()),
            Form::Kyaml => self.data(&kyaml::document(&tree()?)),
            Form::JsonPath(path) => self.exactly(&path.text(&tree()?).map_err(inapplicable)?),
            Form::JsonPathAsJson(path) => {
                let lists = path.lists(&tree()?).map_err(inapplicable)?;
                self.exactly(&escapes::json(&lists));
            }
            Form::GoTemplate(template) => self.exactly(&template.text(&tree()?)?),
        }
        Ok(())
    }

    /// Prints a template's output. Adds no newline.
    fn exactly(&self, text: &str) {
        self.write(Stream::Out, &plain(text));
    }

    pub(crate) fn line(&self, stream: Stream, text: &str) {
        self.write(stream, &format!("{}\n", plain(text)));
    }

    pub(crate) fn note(&self, text: impl Display) {
        self.message(None, text);
    }

    pub(crate) fn warning(&self, text: impl Display) {
        self.message(Some(("33", "warning:")), text);
    }

    pub(crate) fn hint(&self, text: impl Display) {
        self.write(Stream::Err, "\n");
        self.message(Some(("36", "hint:")), text);
    }

    pub(crate) fn error(&self, text: &str) {
        self.message(Some(("31", "error:")), text);
    }

    pub(crate) fn failure(&self, failure: &Failure) {
        if failure.is_aborted {
            return self.note(&failure.message);
        }
        self.error(&failure.message);
        self.hint(&failure.hint);
    }

    /// Prints lines on stderr, after a colored label. Wraps them, because a terminal would break them inside a word.
    fn message(&self, label: Option<(&str, &str)>, text: impl Display) {
        let text = match label {
            Some((_, label)) => format!("{label} {text}"),
            None => text.to_string(),
        };
        let text = plain(&text).into_owned();
        let mut lines = match terminal_size(Stream::Err) {
            Some((_, width)) => text
                .split('\n')
                .flat_map(|line| wrap_sentences(line, width.into()))
                .collect::<Vec<_>>()
                .join("\n"),
            None => text,
        };
        if let Some((code, label)) = label {
            lines = lines.replacen(label, &self.paint(Stream::Err, code, label), 1);
        }
        self.write(Stream::Err, &format!("{lines}\n"));
    }

    /// Printed only with `-v`.
    pub(crate) fn detail(&self, text: impl Display) {
        if self.verbose {
            self.line(Stream::Err, &text.to_string());
        }
    }

    /// Whether the reader of stdout is gone, so that further output is pointless.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Untrusted parts of the text must be escaped already.
    fn write(&self, stream: Stream, text: &str) {
        #[cfg(test)]
        if let Some(captured) = &self.captured {
            captured.borrow_mut()[usize::from(stream == Stream::Err)].push_str(text);
            return;
        }
        let written = match stream {
            Stream::Out => {
                let mut out = io::stdout().lock();
                out.write_all(text.as_bytes()).and_then(|()| out.flush())
            }
            Stream::Err if self.silent => Ok(()),
            Stream::Err => io::stderr().lock().write_all(text.as_bytes()),
        };
        if written.is_err() && stream == Stream::Out {
            self.closed.set(true);
        }
    }

    pub(crate) fn has_color(&self, stream: Stream) -> bool {
        match self.color {
            Color::Always => {
                let _ = has_escapes(stream);
                true
            }
            Color::Never => false,
            Color::Auto => {
                is_terminal(stream)
                    && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
                    && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
            }
        }
    }

    /// `code`: the color's ANSI code.
    pub(crate) fn paint(&self, stream: Stream, code: &str, text: &str) -> String {
        if self.has_color(stream) {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// Whether the stream is a terminal that supports escape sequences. Other streams get plain lines.
pub(crate) fn is_terminal(stream: Stream) -> bool {
    let is_terminal = match stream {
        Stream::Out => io::stdout().is_terminal(),
        Stream::Err => io::stderr().is_terminal(),
    };
    is_terminal && has_escapes(stream)
}

/// A Windows console interprets escape sequences only if the program enables this. The `console` crate does so when it
/// detects color support, which `NO_COLOR` disables; consoles before Windows 10 don't support it.
fn has_escapes(stream: Stream) -> bool {
    !cfg!(windows) || term(stream).features().colors_supported()
}

fn term(stream: Stream) -> Term {
    match stream {
        Stream::Out => Term::stdout(),
        Stream::Err => Term::stderr(),
    }
}

/// `None` if the stream is not a terminal.
pub(crate) fn terminal_width(stream: Stream) -> Option<u16> {
    terminal_size(stream).map(|(_, width)| width)
}

/// Rows and columns; `None` if the stream is not a terminal.
pub(crate) fn terminal_size(stream: Stream) -> Option<(u16, u16)> {
    if is_terminal(stream) {
        term(stream).size_checked()
    } else {
        None
    }
}

/// Indented JSON, escaped for a terminal; `None` if the value can't be serialized.
pub(crate) fn json(value: &impl Serialize) -> Option<String> {
    let text = serde_json::to_string_pretty(value).ok()?;
    Some(escapes::json(&text))
}

/// YAML with one line per value, however long, as kubectl prints it.
fn yaml(value: &impl Serialize) -> Option<String> {
    let options = serde_saphyr::ser_options! { folded_wrap_chars: usize::MAX };
    serde_saphyr::to_string_with_options(value, options).ok()
}

/// Text that is redrawn in place on a terminal.
pub(crate) struct Frame<'a> {
    printer: &'a Printer,
    stream: Stream,
    lines: usize,
}

impl<'a> Frame<'a> {
    pub(crate) fn new(printer: &'a Printer, stream: Stream) -> Self {
        Self {
            printer,
            stream,
            lines: 0,
        }
    }

    /// Every line of `text` must fit the terminal's width; otherwise the next frame is drawn in the wrong place.
    pub(crate) fn draw(&mut self, text: &str) {
        let back = match self.lines {
            0 => String::new(),
            lines => format!("\x1b[{lines}A\r\x1b[J"),
        };
        self.lines = text.lines().count();
        let end = if text.ends_with('\n') { "" } else { "\n" };
        let text = painted(text);
        self.printer
            .write(self.stream, &format!("{back}{text}{end}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::jsonpath::JsonPath;
    use serde_json::json;

    #[test]
    fn a_template_prints_nothing_but_itself_and_steers_no_terminal() {
        let value = json!({"a": "x\u{1b}[2J", "b": ["y\u{9b}\t\n"], "c": 10.0});
        let path = |text: &str| text.parse::<JsonPath>().expect("a template");
        for (form, expected) in [
            (Form::JsonPath(path("{.a} {.none}{.c} ")), "x\\x1b[2J 10 "),
            (
                Form::JsonPath(path("{.b}{\"\\n\"}")),
                "[\"y\\x9b\\t\\n\"]\n",
            ),
            (
                Form::JsonPathAsJson(path("{.b[*]}")),
                "[\n    \"y\\u009b\\t\\n\"\n]\n",
            ),
            (
                Form::Kyaml,
                "---\n{\n  a: \"x\\e[2J\",\n  b: [\n    \"\\\n       y\\u009b\t\\n\\\n      \",\n  ],\n  c: 10,\n}\n",
            ),
        ] {
            let printer = Printer::capturing();
            let result = printer.print(&form, ("the value", &value), [], || {});
            assert_eq!(result, Ok(()));
            assert_eq!(
                printer.captured(),
                [expected.to_owned(), String::new()],
                "{form:?}"
            );
        }
        let printer = Printer::capturing();
        let form = Form::JsonPath(path("{.b[1]}"));
        let failure = printer.print(&form, ("the value", &value), [], || {});
        assert_eq!(
            failure.map_err(|failure| failure.message),
            Err("the JSONPath template does not fit the value: index 1 is out of bounds of a list of 1".to_owned())
        );
    }
}
