//! What nodes of a cluster and clusters of a hub have in common: members of a rollout, as rows, and whether a wait for them is
//! over. Pure.

use std::collections::BTreeMap;
use std::iter::once;

use comfy_table::Color;
use globalps_core::api::Counts;
use jiff::Timestamp;

use crate::terminal::layout::laid_out_by;
use crate::terminal::{Layout, cut, line, natural_width, wrap};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict<H = &'static str> {
    Going,
    Done,
    /// Can't reach the goal without intervention.
    Stuck {
        /// The cause, as text.
        reason: String,
        /// The next step.
        hint: H,
    },
}

/// A message, and what to do.
pub(crate) type Advice = (String, String);

/// How far a member is, whatever its phase is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Failed,
    /// Something else prevents the change.
    Blocked,
    Progressing,
    /// Another program updates it. It gets its content afterwards.
    Aside,
    /// A phase of a newer release.
    Unknown,
    Unreachable,
    Pending,
    Synced,
    /// It has nothing of globalps any more.
    Restored,
    /// It can't get anything.
    Unsupported,
    /// It is to get nothing.
    Excluded,
}

impl Stage {
    fn color(self) -> Option<Color> {
        match self {
            Self::Failed | Self::Blocked => Some(Color::Red),
            Self::Progressing | Self::Aside => Some(Color::Yellow),
            Self::Unreachable => Some(Color::Magenta),
            Self::Synced | Self::Restored => Some(Color::Green),
            Self::Unknown | Self::Pending | Self::Unsupported | Self::Excluded => None,
        }
    }

    /// Whether nobody waits for it.
    pub(crate) fn is_settled(self) -> bool {
        self == Self::Synced || self.is_out()
    }

    /// Whether it gets nothing, whatever happens.
    pub(crate) fn is_out(self) -> bool {
        matches!(self, Self::Unsupported | Self::Excluded)
    }
}

/// A row of a table.
pub(crate) trait Member {
    /// Titles of its columns, each with the room that it needs: 0, `-o wide` only; 1 and 2, left out where the terminal has no
    /// room for all, 1 first.
    const COLUMNS: &'static [(&'static str, u8)];
    /// Place of unreachable members among those that need a look: 2, before those that change; 4, after them.
    const UNREACHABLE: u8;

    fn cell(&self, title: &str, now: Timestamp) -> String;

    fn stage(&self) -> Stage;

    /// What needs a look first.
    fn urgency(&self) -> u8 {
        match self.stage() {
            Stage::Failed => 0,
            Stage::Blocked => 1,
            Stage::Progressing | Stage::Aside | Stage::Unknown => 3,
            Stage::Unreachable => Self::UNREACHABLE,
            Stage::Pending => 5,
            Stage::Synced | Stage::Restored | Stage::Unsupported | Stage::Excluded => 6,
        }
    }
}

/// Waiting, updated and blocked ones are in the total only, as the controller and the hub count them; those that get nothing are not.
pub(crate) fn count<M: Member>(rows: &[M]) -> Counts {
    let mut counts = Counts::default();
    for stage in rows.iter().map(Member::stage) {
        counts.total += u32::from(!stage.is_out());
        match stage {
            Stage::Synced => counts.synced += 1,
            Stage::Progressing | Stage::Unknown => counts.progressing += 1,
            Stage::Failed => counts.failed += 1,
            Stage::Unreachable => counts.unreachable += 1,
            Stage::Unsupported => counts.unsupported += 1,
            Stage::Blocked | Stage::Aside | Stage::Pending | Stage::Restored | Stage::Excluded => {}
        }
    }
    counts
}

/// Continues a headline with what needs a look.
pub(crate) fn headline(mut line: String, counts: [(u32, &str); 3], is_paused: bool) -> String {
    for (number, word) in counts.into_iter().filter(|(number, _)| *number > 0) {
        line.extend(["  ", &number.to_string(), " ", word]);
    }
    if is_paused {
        line.push_str("  paused");
    }
    line
}

/// The table, and a line about rows that are missing. Where there is not room for all rows beside this many lines, those that need a
/// look come first.
pub(crate) fn table<M: Member>(
    mut rows: Vec<&M>,
    lines: usize,
    now: Timestamp,
    layout: Layout,
) -> Vec<String> {
    if rows.is_empty() {
        return Vec::new();
    }
    let room = room(layout, lines);
    let mut hidden = Vec::new();
    if rows.len() > room {
        rows.sort_by_key(|row| row.urgency());
        hidden = rows.split_off(room);
    }
    let cell = |row: &&M, title: &str| row.cell(title, now);
    let color = |row: &&M, title: &str| row.stage().color().filter(|_| title == "PHASE");
    let header = header(&rows, now, layout);
    let table = laid_out_by(&header, &rows, layout, cell, color);
    let hidden = hidden.iter();
    let hidden = hidden.map(|row| (row.urgency(), row.cell("PHASE", now)));
    once(table).chain(more(hidden, layout)).collect()
}

/// The columns for which there is room.
fn header<M: Member>(rows: &[&M], now: Timestamp, layout: Layout) -> Vec<&'static str> {
    let from = |least: u8| -> Vec<&'static str> {
        let columns = M::COLUMNS.iter().filter(|(_, needs)| *needs >= least);
        columns.map(|(title, _)| *title).collect()
    };
    let fits = |header: &Vec<&str>| {
        let cells = |row: &&M| header.iter().map(|title| row.cell(title, now)).collect();
        layout.width.is_none_or(|width| {
            let cells: Vec<Vec<String>> = rows.iter().map(cells).collect();
            natural_width(header, &cells) <= usize::from(width)
        })
    };
    if layout.wide {
        return from(0);
    }
    let found = [1, 2].into_iter().map(from).find(fits);
    found.unwrap_or_else(|| from(3))
}

/// Rows that fit beside this many lines, the table's own header, and the line under it that says what is missing.
pub(crate) fn room(layout: Layout, lines: usize) -> usize {
    layout.height.map_or(usize::MAX, |height| {
        usize::from(height).saturating_sub(lines + 3).max(1)
    })
}

/// `... and 12 more: 2 Syncing, 10 Synced`, what needs a look first. `hidden`: urgency and phase of each row that is missing.
fn more(hidden: impl Iterator<Item = (u8, String)>, layout: Layout) -> Option<String> {
    let mut phases: BTreeMap<(u8, String), usize> = BTreeMap::new();
    for phase in hidden {
        *phases.entry(phase).or_default() += 1;
    }
    let number: usize = phases.values().sum();
    let words = phases
        .iter()
        .map(|((_, phase), number)| format!("{number} {phase}"));
    let text = format!(
        "... and {number} more: {}",
        words.collect::<Vec<_>>().join(", ")
    );
    let width = layout.width.filter(|_| layout.live).map(usize::from);
    (number > 0).then(|| width.map_or(text.clone(), |width| cut(&text, width)))
}

/// What changed between two looks, one line for each member, for where nothing can be redrawn. `title`: how a line begins;
/// `news`: what counts as a change.
pub(crate) fn changes<'a, M: 'a, K: Ord, N: PartialEq>(
    before: impl IntoIterator<Item = &'a M>,
    after: impl IntoIterator<Item = &'a M>,
    key: impl Fn(&'a M) -> K,
    news: impl Fn(&'a M) -> N,
    title: impl Fn(&M) -> String,
    line: impl Fn(&M) -> String,
) -> Vec<String> {
    let known: BTreeMap<K, &M> = before.into_iter().map(|row| (key(row), row)).collect();
    let now: BTreeMap<K, &M> = after.into_iter().map(|row| (key(row), row)).collect();
    let changed = now.iter().filter(|(key, row)| {
        let old = known.get(*key);
        old.is_none_or(|old| news(old) != news(row))
    });
    let changed = changed.map(|(_, row)| format!("{}  {}", title(row), line(row)));
    let gone = known.iter().filter(|(key, _)| !now.contains_key(*key));
    let gone = gone.map(|(_, row)| format!("{}  gone", title(row)));
    changed.chain(gone).collect()
}

/// Lines of at most this many characters.
pub(crate) fn fitting(text: &str, width: Option<usize>) -> Vec<String> {
    match width {
        Some(width) => wrap(&line(text), width),
        None => vec![line(text).into_owned()],
    }
}

/// The last lines: what is the matter, and what to do. `None`: nothing.
pub(crate) fn advised<H: AsRef<str>>(
    advice: Option<&(String, H)>,
    width: Option<usize>,
) -> Vec<String> {
    let lines = advice.map(|(message, hint)| {
        let hint = format!("hint: {}", hint.as_ref());
        [fitting(message, width), fitting(&hint, width)].concat()
    });
    lines.unwrap_or_default()
}

/// The message, or the reason where there is none.
pub(crate) fn said<'a>(reason: &'a str, message: &'a str) -> &'a str {
    if message.is_empty() { reason } else { message }
}
