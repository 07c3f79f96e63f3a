//! Tables and numbers for users: layout, ages, counts. Pure.

use std::fmt::Display;

use comfy_table::Color;
use jiff::Timestamp;

use crate::terminal::columns::columns;

/// The size of the terminal, and what to show.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each goes by itself")]
pub(crate) struct Layout {
    /// Columns and rows of the terminal; `None`: no limit.
    pub width: Option<u16>,
    pub height: Option<u16>,
    pub wide: bool,
    pub no_headers: bool,
    pub color: bool,
    /// The table is redrawn: it has a progress bar, and no line exceeds the terminal's width.
    pub live: bool,
}

/// `1 pod`, `2 pods`.
pub(crate) fn number(number: impl Copy + Display + PartialEq + From<u8>, what: &str) -> String {
    let plural = if number == 1.into() { "" } else { "s" };
    format!("{number} {what}{plural}")
}

/// `1 node`, `2 nodes`.
pub(crate) fn nodes(number: impl Into<u64>) -> String {
    self::number(number.into(), "node")
}

/// The first `most` names, and the number of the others.
pub(crate) fn few<S: AsRef<str>>(names: &[S], most: usize) -> String {
    let shown: Vec<&str> = names.iter().take(most).map(AsRef::as_ref).collect();
    let shown = shown.join(", ");
    match names.len().saturating_sub(most) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Truncates the columns if the table is redrawn; omits the header with `no_headers`.
fn laid_out(
    header: &[&str],
    rows: &[Vec<String>],
    layout: Layout,
    color: impl Fn(usize, usize) -> Option<Color>,
) -> String {
    let width = layout.width.filter(|_| layout.live).map(usize::from);
    let text = columns(header, rows, width, color);
    match text.split_once('\n') {
        Some((_, rows)) if layout.no_headers => rows.to_owned(),
        _ => text,
    }
}

/// Like [`laid_out`], without colors.
pub(crate) fn uncolored<const N: usize>(
    header: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
    layout: Layout,
) -> String {
    let rows: Vec<Vec<String>> = rows.into_iter().map(Vec::from).collect();
    laid_out(&header, &rows, layout, |_, _| None)
}

/// Like [`laid_out`]; `cell` returns the text for a row and a title.
pub(crate) fn laid_out_by<R>(
    header: &[&str],
    rows: &[R],
    layout: Layout,
    cell: impl Fn(&R, &str) -> String,
    color: impl Fn(&R, &str) -> Option<Color>,
) -> String {
    let cells = |row| header.iter().map(|title| cell(row, title)).collect();
    let cells: Vec<Vec<String>> = rows.iter().map(cells).collect();
    laid_out(header, &cells, layout, |row, column| {
        let row = rows.get(row).filter(|_| layout.color)?;
        color(row, header.get(column)?)
    })
}

/// An age as kubectl prints it: `45s`, `12m`, `5h`, `3d`.
pub(crate) fn age(since: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(since).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Empty where the time is unknown.
pub(crate) fn age_of(since: Option<Timestamp>, now: Timestamp) -> String {
    since.map_or(String::new(), |since| age(since, now))
}

/// In seconds, UTC; empty where the time is unknown.
pub(crate) fn rfc3339(time: Option<Timestamp>) -> String {
    time.map_or(String::new(), |time| {
        time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        for (seconds, expected) in [
            (-3, "0s"),
            (119, "119s"),
            (120, "2m"),
            (7200, "2h"),
            (172_800, "2d"),
        ] {
            let since = Timestamp::UNIX_EPOCH - jiff::SignedDuration::from_secs(seconds);
            assert_eq!(age(since, Timestamp::UNIX_EPOCH), expected);
        }
    }
}
