//! The table of nodes, as text. Pure.

use comfy_table::{Cell, Color, ContentArrangement, Table, presets};
use globalps_core::api::Phase;
use jiff::Timestamp;

use crate::status::{Row, Status};

/// How much room there is, and what to show.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Layout {
    /// Columns and lines of the terminal; `None`: no limit.
    pub width: Option<u16>,
    pub height: Option<u16>,
    pub wide: bool,
    pub color: bool,
}

/// `1 node`, `2 nodes`.
pub(crate) fn nodes(number: impl Into<u64>) -> String {
    match number.into() {
        1 => "1 node".to_owned(),
        number => format!("{number} nodes"),
    }
}

/// One line about the whole fleet.
pub(crate) fn headline(status: &Status) -> String {
    let counts = &status.counts;
    let left = status
        .nodes
        .iter()
        .filter(|row| matches!(row.phase, Phase::Restoring | Phase::Restored))
        .count();
    let mut line = if left > 0 {
        format!("restoring  {} left", nodes(counts.total))
    } else {
        format!(
            "revision {}  {}/{} synced",
            status.revision,
            counts.synced,
            nodes(counts.total)
        )
    };
    for (number, word) in [
        (counts.failed, "failed"),
        (counts.unreachable, "unreachable"),
    ] {
        if number > 0 {
            line.extend(["  ", &number.to_string(), " ", word]);
        }
    }
    if status.paused {
        line.push_str("  paused");
    }
    line
}

/// Headline and rows. Where there is not room for all rows, those that need a look come first.
pub(crate) fn render(status: &Status, now: Timestamp, layout: Layout) -> String {
    let mut text = headline(status);
    text.push('\n');
    if status.nodes.is_empty() {
        return text;
    }
    // Headline, the table's own header, and the line under it that says what is missing.
    let room = layout.height.map_or(usize::MAX, |height| {
        usize::from(height).saturating_sub(4).max(1)
    });
    let mut rows: Vec<&Row> = status.nodes.iter().collect();
    let hidden = rows.len().saturating_sub(room);
    if hidden > 0 {
        rows.sort_by_key(|row| urgency(row.phase));
        rows.truncate(room);
    }
    text.push_str(&table(&rows, now, layout));
    if hidden > 0 {
        text.extend(["... and ", &hidden.to_string(), " more\n"]);
    }
    text
}

fn urgency(phase: Phase) -> u8 {
    match phase {
        Phase::Failed | Phase::RolledBack | Phase::ForeignOwner => 0,
        Phase::Syncing | Phase::Restoring => 1,
        Phase::Unreachable => 2,
        Phase::Pending => 3,
        Phase::Synced | Phase::Restored | Phase::Excluded => 4,
    }
}

fn table(rows: &[&Row], now: Timestamp, layout: Layout) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).force_no_tty();
    if layout.color {
        table.enforce_styling();
    }
    if let Some(width) = layout.width {
        table
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(width);
    }
    let mut header = vec!["NODE", "PHASE", "REVISION", "AGE", "REASON"];
    if layout.wide {
        header.push("MESSAGE");
    }
    table.set_header(header);
    for row in rows {
        let mut cells = vec![
            Cell::new(&row.name),
            Cell::new(row.phase).fg(color(row.phase)),
            Cell::new(row.revision),
            Cell::new(
                row.since_time
                    .map_or(String::new(), |since| age(since, now)),
            ),
            Cell::new(&row.reason),
        ];
        if layout.wide {
            cells.push(Cell::new(&row.message));
        }
        table.add_row(cells);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 3));
    }
    let lines: Vec<String> = table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    lines.join("\n") + "\n"
}

fn color(phase: Phase) -> Color {
    match phase {
        Phase::Synced | Phase::Restored => Color::Green,
        Phase::Syncing | Phase::Restoring => Color::Yellow,
        Phase::RolledBack | Phase::Failed | Phase::ForeignOwner => Color::Red,
        Phase::Unreachable => Color::Magenta,
        Phase::Pending | Phase::Excluded => Color::Reset,
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

/// What changed between two looks, one line for each node, for where nothing can be redrawn.
pub(crate) fn changes(before: &[Row], after: &[Row]) -> Vec<String> {
    let mut lines: Vec<String> = after
        .iter()
        .filter(|row| {
            !before.iter().any(|old| {
                (&old.name, old.phase, old.revision, &old.reason)
                    == (&row.name, row.phase, row.revision, &row.reason)
            })
        })
        .map(|row| {
            let reason = match row.reason.as_str() {
                "" => String::new(),
                reason => format!("  {reason}"),
            };
            format!(
                "{}  {}  revision {}{reason}",
                row.name, row.phase, row.revision
            )
        })
        .collect();
    lines.extend(
        before
            .iter()
            .filter(|old| !after.iter().any(|row| row.name == old.name))
            .map(|old| format!("{}  gone", old.name)),
    );
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use globalps_core::api::Counts;

    fn now() -> Timestamp {
        "2026-01-01T00:10:00Z".parse().expect("a time")
    }

    fn row(name: &str, phase: Phase, revision: i64, reason: &str) -> Row {
        Row {
            name: name.to_owned(),
            phase,
            revision,
            reason: reason.to_owned(),
            message: "a sentence".to_owned(),
            since: "2026-01-01T00:00:00Z".to_owned(),
            since_time: "2026-01-01T00:00:00Z".parse().ok(),
        }
    }

    fn status() -> Status {
        Status {
            ready: false,
            revision: 3,
            paused: false,
            counts: Counts {
                total: 3,
                synced: 1,
                failed: 1,
                ..Counts::default()
            },
            nodes: vec![
                row("node-1", Phase::Synced, 3, ""),
                row("node-2", Phase::RolledBack, 2, "KubeletDown"),
                row("node-3", Phase::Pending, 2, ""),
            ],
            conditions: Vec::new(),
        }
    }

    #[test]
    fn a_table_has_one_line_a_node_under_one_line_for_all() {
        assert_eq!(
            render(&status(), now(), Layout::default()),
            "\
revision 3  1/3 nodes synced  1 failed
NODE     PHASE        REVISION   AGE   REASON
node-1   Synced       3          10m
node-2   RolledBack   2          10m   KubeletDown
node-3   Pending      2          10m
"
        );
    }

    #[test]
    fn without_room_for_all_the_failed_ones_are_shown() {
        let layout = Layout {
            height: Some(5),
            ..Layout::default()
        };
        let text = render(&status(), now(), layout);
        assert!(text.contains("node-2") && !text.contains("node-1"));
        assert!(text.ends_with("... and 2 more\n"));
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let mut status = status();
        status.nodes[1].name = "a-node-with-a-very-long-name.of.some.example.com".to_owned();
        let layout = Layout {
            width: Some(60),
            wide: true,
            ..Layout::default()
        };
        for line in render(&status, now(), layout).lines() {
            assert!(line.chars().count() <= 60, "{line:?}");
        }
    }

    #[test]
    fn color_is_only_where_it_was_asked_for() {
        let colored = Layout {
            color: true,
            ..Layout::default()
        };
        assert!(render(&status(), now(), colored).contains("\x1b["));
        assert!(!render(&status(), now(), Layout::default()).contains('\x1b'));
    }

    #[test]
    fn ages_are_short() {
        for (seconds, expected) in [
            (-3, "0s"),
            (119, "119s"),
            (120, "2m"),
            (7200, "2h"),
            (172_800, "2d"),
        ] {
            let since = now() - jiff::SignedDuration::from_secs(seconds);
            assert_eq!(age(since, now()), expected);
        }
    }

    #[test]
    fn off_a_terminal_only_what_changed_is_said() {
        let before = status().nodes;
        let mut after = before.clone();
        after[2].phase = Phase::Syncing;
        after.remove(0);
        assert_eq!(
            changes(&before, &after),
            ["node-3  Syncing  revision 2", "node-1  gone"]
        );
        assert_eq!(changes(&[], &before).len(), 3);
    }
}
