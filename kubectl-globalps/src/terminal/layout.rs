//! Tables and figures as users see them: how much room there is, ages, counts. Pure.

use comfy_table::Color;
use jiff::Timestamp;

use crate::terminal::columns::columns;

/// How much room there is, and what to show.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each goes by itself")]
pub(crate) struct Layout {
    /// Columns and lines of the terminal; `None`: no limit.
    pub width: Option<u16>,
    pub height: Option<u16>,
    pub wide: bool,
    pub no_headers: bool,
    pub color: bool,
    /// A bar shows how far it is, and nothing is longer than a line.
    pub live: bool,
}

/// `1 node`, `2 nodes`.
pub(crate) fn nodes(number: impl Into<u64>) -> String {
    match number.into() {
        1 => "1 node".to_owned(),
        number => format!("{number} nodes"),
    }
}

/// `1 kubelet`, `2 kubelets`.
pub(crate) fn kubelets(number: impl Into<u64>) -> String {
    nodes(number).replace("node", "kubelet")
}

/// Columns that fit where they are redrawn, without their header where nobody wants it.
pub(crate) fn laid_out(
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

/// As kubectl shows ages: `45s`, `12m`, `5h`, `3d`.
pub(crate) fn age(since: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(since).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
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
