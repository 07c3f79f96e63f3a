//! Columns as kubectl writes them: a header, the widest cell of each column, three spaces between. Pure.

use comfy_table::{Cell, Color, Table, presets};

/// Spaces between two columns.
const GAP: usize = 3;
/// A column that is cut keeps so many characters.
const LEAST: usize = 8;

/// One line for the header and one a row, without the last line ending.
///
/// `width`: no line is longer, in characters; what does not fit is cut. `color` is that of a cell of a row, by the
/// number of its row and column.
pub(crate) fn columns(
    header: &[&str],
    rows: &[Vec<String>],
    width: Option<usize>,
    color: impl Fn(usize, usize) -> Option<Color>,
) -> String {
    let mut widths = natural(header, rows);
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
    // Where even the least of each column is too much, the whole line is cut.
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

/// Characters of a line that has everything.
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

/// At most so many characters, the last one `…` where some are missing.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept = text.chars().take(width.saturating_sub(1));
    kept.chain(['…']).collect()
}

/// Words in lines of at most so many characters; a word that is longer than that is broken.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let mut word: Vec<char> = word.chars().collect();
        let used = lines.last().map_or(0, |line| line.chars().count());
        if used > 0 && used + 1 + word.len() <= width {
            if let Some(line) = lines.last_mut() {
                line.push(' ');
                line.extend(word);
            }
            continue;
        }
        if used > 0 {
            lines.push(String::new());
        }
        while word.len() > width {
            let rest = word.split_off(width);
            if let Some(line) = lines.last_mut() {
                line.extend(word);
            }
            lines.push(String::new());
            word = rest;
        }
        if let Some(line) = lines.last_mut() {
            line.extend(word);
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
    fn columns_are_as_wide_as_their_widest_cell_unless_that_is_too_wide() {
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
        ] {
            assert_eq!(wrap(text, 4), expected, "{text:?}");
        }
    }
}
