//! Columns as kubectl prints them: a header, and columns as wide as their widest cell, separated by three spaces. Pure.

use comfy_table::{Cell, Color, Table, presets};

use crate::terminal::escapes::line;

/// Spaces between two columns.
const GAP: usize = 3;
/// Minimum width of a truncated column.
const LEAST: usize = 8;

/// One line for the header and one per row, without a final newline.
///
/// `width`: maximum length of a line in characters; longer cells are truncated. `color`: the color of a cell, by row
/// and column.
pub(crate) fn columns(
    header: &[&str],
    rows: &[Vec<String>],
    width: Option<usize>,
    color: impl Fn(usize, usize) -> Option<Color>,
) -> String {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|text| line(text).into_owned()).collect())
        .collect();
    let mut widths = natural(header, &rows);
    while let Some(width) = width
        && total(&widths) > width
    {
        let Some(widest) = widths.iter_mut().max() else {
            break;
        };
        if *widest <= LEAST {
            break;
        }
        *widest -= 1;
    }
    let fitting = |at: usize, text: &str| cut(text, widths.get(at).copied().unwrap_or(LEAST));
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .force_no_tty()
        .enforce_styling();
    let titles = header.iter().enumerate();
    table.set_header(titles.map(|(at, title)| fitting(at, title)));
    for (number, row) in rows.iter().enumerate() {
        let cells = row.iter().enumerate().map(|(at, text)| {
            let cell = Cell::new(fitting(at, text));
            match color(number, at) {
                Some(color) => cell.fg(color),
                None => cell,
            }
        });
        table.add_row(cells);
    }
    let gap = u16::try_from(GAP).unwrap_or_default();
    for column in table.column_iter_mut() {
        column.set_padding((0, gap));
    }
    // If not even the minimum widths fit, truncates the whole line.
    let room = width.unwrap_or(usize::MAX);
    let lines = table.lines().map(|line| {
        let line = line.trim_end();
        if line.contains('\x1b') {
            line.to_owned()
        } else {
            cut(line, room)
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Length in characters of a line without truncation.
pub(crate) fn natural_width(header: &[&str], rows: &[Vec<String>]) -> usize {
    total(&natural(header, rows))
}

fn natural(header: &[&str], rows: &[Vec<String>]) -> Vec<usize> {
    let widest = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    header
        .iter()
        .enumerate()
        .map(|(at, title)| widest(at).max(title.len()))
        .collect()
}

fn total(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
}

/// Truncates the text to this many characters; a truncated text ends with `…`.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept = text.chars().take(width.saturating_sub(1));
    kept.chain(['…']).collect()
}

/// Wraps words in lines of at most this many characters; breaks longer words.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines = Vec::new();
    for line in fill(text, text.split_whitespace(), width) {
        let mut line: Vec<char> = line.chars().collect();
        while line.len() > width {
            let rest = line.split_off(width);
            lines.push(String::from_iter(line));
            line = rest;
        }
        lines.push(String::from_iter(line));
    }
    lines
}

/// Wraps sentences into lines of at most this many characters. Quoted text is never broken, so that a command can be copied.
pub(crate) fn wrap_sentences(text: &str, width: usize) -> Vec<String> {
    let mut is_quoted = false;
    let words = text.split(|character| {
        is_quoted ^= character == '`';
        character == ' ' && !is_quoted
    });
    fill(text, words.filter(|word| !word.is_empty()), width)
}

/// Wraps words into lines of at most this many characters. A longer word gets its own line. Text that fits stays unchanged.
fn fill<'a>(text: &str, words: impl Iterator<Item = &'a str>, width: usize) -> Vec<String> {
    if text.chars().count() <= width {
        return vec![text.to_owned()];
    }
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[[&str; 2]]) -> Vec<Vec<String>> {
        rows.iter()
            .map(|row| row.iter().map(|cell| (*cell).to_owned()).collect())
            .collect()
    }

    fn plain(_: usize, _: usize) -> Option<Color> {
        None
    }

    #[test]
    fn a_cell_can_neither_steer_the_terminal_nor_add_a_row() {
        let rows = rows(&[["a", "\x1b[2J\nb   Ready"]]);
        assert_eq!(
            columns(&["NODE", "MESSAGE"], &rows, None, plain),
            "NODE   MESSAGE\na      \\x1b[2J\\x0ab   Ready"
        );
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_up_to_a_limit() {
        let rows = rows(&[["a", "x"], ["a-rather-long-name", ""]]);
        for (width, expected) in [
            (
                None,
                "NODE                 WHY\na                    x\na-rather-long-name",
            ),
            (Some(16), "NODE         WHY\na            x\na-rather-…"),
        ] {
            let text = columns(&["NODE", "WHY"], &rows, width, plain);
            assert_eq!(text, expected, "{width:?}");
        }
        let narrow = columns(&["NODE", "WHY"], &rows, Some(5), plain);
        assert!(
            narrow.lines().all(|line| line.chars().count() <= 5),
            "{narrow}"
        );
        assert_eq!(natural_width(&["NODE", "WHY"], &rows), 24);
    }

    #[test]
    fn words_are_wrapped_and_long_ones_broken() {
        for (text, expected) in [
            ("", vec![""]),
            ("a bc d", vec!["a bc", "d"]),
            ("abcdefg h", vec!["abcd", "efg", "h"]),
            ("a bcdefg", vec!["a", "bcde", "fg"]),
            ("a  b", vec!["a  b"]),
        ] {
            assert_eq!(wrap(text, 4), expected, "{text:?}");
        }
    }

    #[test]
    fn a_command_in_a_sentence_stays_in_one_piece() {
        for (text, expected) in [
            ("one two three", vec!["one two", "three"]),
            (
                "go on with `kubectl globalps resume`, or wait",
                vec!["go on", "with", "`kubectl globalps resume`,", "or wait"],
            ),
            ("run `a b` now", vec!["run `a b`", "now"]),
            ("no  room here", vec!["no room", "here"]),
            ("a  b", vec!["a  b"]),
            ("an odd `one of them", vec!["an odd", "`one of them"]),
        ] {
            let width = 9;
            let text = wrap_sentences(text, width);
            assert_eq!(text, expected);
        }
    }
}
