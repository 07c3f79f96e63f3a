//! The table of nodes, as text. Pure.

use std::collections::BTreeMap;

use comfy_table::Color;
use globalps_core::api::Phase;
use jiff::Timestamp;

use crate::terminal::{Layout, age, cut, laid_out, line, natural_width, nodes, wrap};
use crate::view::status::{
    About, Health, NODES, NamespacesRow, OperatorsRow, Row, SourceRow, Status, Summary,
};

/// One line about the whole fleet.
pub(crate) fn headline(status: &Status) -> String {
    let counts = &status.counts;
    let has_nodes = status.deliveries.iter().any(|row| row.kind == NODES);
    let mut line = if status.about == About::Restoration && counts.total > 0 {
        let (restored, all) = (status.done(), nodes(counts.total + status.gone));
        format!("restoring  {restored}/{all} restored")
    } else if status.is_stale() && counts.total == 0 {
        format!("revision {}", status.revision)
    } else if !has_nodes && counts.total == 0 {
        format!("revision {}  not delivered to nodes", status.revision)
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
        (counts.unsupported, "unsupported"),
    ] {
        if number > 0 {
            line.extend(["  ", &number.to_string(), " ", word]);
        }
    }
    if status.paused {
        line.push_str("  paused");
    }
    if status.is_stale() {
        line.push_str("  a change waits for the controller");
    }
    line
}

/// A line for each further form of delivery.
pub(crate) fn deliveries(status: &Status) -> impl Iterator<Item = String> {
    let namespaces = status.namespaces.as_ref().map(NamespacesRow::line);
    let operators = status.operators.as_ref().map(OperatorsRow::line);
    namespaces.into_iter().chain(operators)
}

/// A line each for the controller and the syncers, where they were looked at.
pub(crate) fn health(status: &Status, wide: bool) -> impl Iterator<Item = String> {
    let health = status.health.iter();
    health.flat_map(move |health| Health::lines(health, wide))
}

/// Headline and rows. Where there is not room for all rows, those that need a look come first. `advice`: what is the
/// matter, and what to do.
pub(crate) fn render(
    status: &Status,
    now: Timestamp,
    layout: Layout,
    advice: Option<&(String, &'static str)>,
) -> String {
    let terminal = layout.width.map(usize::from);
    let width = terminal.filter(|_| layout.live);
    let mut lines = if layout.no_headers {
        Vec::new()
    } else {
        let summary = status.summary.as_ref();
        let changed = summary.map_or(String::new(), |summary| summary.changed(now));
        let mode = summary.map(Summary::mode_line).into_iter();
        let lines = mode.chain(health(status, layout.wide));
        let lines = lines.chain([headline(status) + &changed]);
        let lines = lines.chain(deliveries(status));
        let lines = lines.chain(summary.and_then(Summary::registries_line));
        lines.flat_map(|line| fitting(&line, terminal)).collect()
    };
    if let Some(width) = width
        && status.counts.total > 0
    {
        lines.push(bar(status, width, layout.color));
    }
    let last = advice.map_or_else(Vec::new, |(message, hint)| advised(message, hint, terminal));
    if !status.nodes.is_empty() {
        let room = room(layout, lines.len() + last.len());
        let mut rows: Vec<&Row> = status.nodes.iter().collect();
        let hidden = if rows.len() > room {
            rows.sort_by_key(|row| urgency(&row.phase));
            rows.split_off(room)
        } else {
            Vec::new()
        };
        lines.push(table(&rows, now, layout));
        let hidden = hidden.iter();
        lines.extend(more(
            hidden.map(|row| (urgency(&row.phase), row.phase.to_string())),
            width,
        ));
    }
    if !layout.live && !status.sources.is_empty() {
        lines.push(sources(&status.sources, layout));
    }
    if !layout.live {
        lines.extend(of_namespaces(status, layout));
        lines.extend(of_operators(status, layout));
    }
    lines.extend(last);
    lines.join("\n") + "\n"
}

/// After an empty line, a line for each source.
fn sources(sources: &[SourceRow], layout: Layout) -> String {
    const HEADER: [&str; 4] = ["SOURCE", "SCOPE", "DELIVERY", "MESSAGE"];
    let rows: Vec<Vec<String>> = sources
        .iter()
        .map(|source| {
            let scope = source.scope.clone();
            vec![
                source.name.clone(),
                scope.unwrap_or_else(|| "every pod".to_owned()),
                source.delivery.clone(),
                source.message.clone(),
            ]
        })
        .collect();
    "\n".to_owned() + &laid_out(&HEADER, &rows, layout, |_, _| None)
}

/// A line for each failed namespace in the status.
fn of_namespaces(status: &Status, layout: Layout) -> Option<String> {
    const HEADER: [&str; 3] = ["NAMESPACE", "REASON", "MESSAGE"];
    let status = &status.namespaces.as_ref()?.status;
    let failures = status.failures.iter();
    let rows = failures.map(|found| {
        let cells = [&found.namespace, &found.reason, &found.message];
        cells.map(String::clone).into()
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let see = "see `kubectl globalps status --namespaces`";
    table_of(&HEADER, &rows, status.failed, see, layout)
}

/// A line for each failed operator in the status.
fn of_operators(status: &Status, layout: Layout) -> Option<String> {
    const HEADER: [&str; 4] = ["NAMESPACE", "SUBSCRIPTION", "REASON", "MESSAGE"];
    let status = &status.operators.as_ref()?.status;
    let failures = status.failures.iter();
    let rows = failures.map(|found| {
        let cells = [&found.namespace, &found.name, &found.reason, &found.message];
        cells.map(String::clone).into()
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let see = "the status names 20 at most";
    table_of(&HEADER, &rows, status.failed, see, layout)
}

/// After an empty line, a line for each. `failed`: how many there are; `see`: where the others are.
fn table_of(
    header: &[&str],
    rows: &[Vec<String>],
    failed: u32,
    see: &str,
    layout: Layout,
) -> Option<String> {
    if rows.is_empty() {
        return None;
    }
    let named = u32::try_from(rows.len()).unwrap_or(u32::MAX);
    let more = match failed.saturating_sub(named) {
        0 => String::new(),
        number => format!("\n... and {number} more: {see}"),
    };
    let text = laid_out(header, rows, layout, |_, _| None);
    Some(format!("\n{text}{more}"))
}

/// Lines of at most this many characters.
pub(crate) fn fitting(text: &str, width: Option<usize>) -> Vec<String> {
    match width {
        Some(width) => wrap(&line(text), width),
        None => vec![line(text).into_owned()],
    }
}

/// The last lines: what is the matter, and what to do.
pub(crate) fn advised(message: &str, hint: &str, width: Option<usize>) -> Vec<String> {
    [
        fitting(message, width),
        fitting(&format!("hint: {hint}"), width),
    ]
    .concat()
}

/// Rows that fit beside this many lines, the table's own header, and the line under it that says what is missing.
pub(crate) fn room(layout: Layout, lines: usize) -> usize {
    layout.height.map_or(usize::MAX, |height| {
        usize::from(height).saturating_sub(lines + 3).max(1)
    })
}

/// `... and 12 more: 2 Syncing, 10 Synced`, what needs a look first. `hidden`: urgency and phase of each row that is missing.
pub(crate) fn more(
    hidden: impl Iterator<Item = (u8, String)>,
    width: Option<usize>,
) -> Option<String> {
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
    (number > 0).then(|| width.map_or(text.clone(), |width| cut(&text, width)))
}

/// How much of the fleet is done, in one line of at most 60 characters.
fn bar(status: &Status, width: usize, color: bool) -> String {
    let total = (status.counts.total + status.gone).max(1) as usize;
    let reached = (status.done() as usize).min(total);
    let percent = reached * 100 / total;
    let room = width.min(60).saturating_sub(5);
    let full = room * reached / total;
    let (done, open) = ("█".repeat(full), "░".repeat(room - full));
    if color {
        format!("\x1b[32m{done}\x1b[0m{open} {percent:3}%")
    } else {
        format!("{done}{open} {percent:3}%")
    }
}

fn urgency(phase: &Phase) -> u8 {
    match phase {
        Phase::Failed | Phase::RolledBack | Phase::ForeignOwner | Phase::Unreadable => 0,
        Phase::Syncing | Phase::Restoring | Phase::Other(_) => 1,
        Phase::Unreachable => 2,
        Phase::Pending => 3,
        Phase::Synced | Phase::Restored | Phase::Excluded | Phase::Unsupported => 4,
    }
}

fn table(rows: &[&Row], now: Timestamp, layout: Layout) -> String {
    const ALL: [&str; 7] = [
        "NODE", "PHASE", "REVISION", "AGE", "DELIVERY", "REASON", "MESSAGE",
    ];
    const WIDE: [&str; 2] = ["DELIVERY", "MESSAGE"];
    let cell = |row: &Row, title: &str| match title {
        "NODE" => row.name.clone(),
        "PHASE" => row.phase.to_string(),
        "REVISION" => row.revision.to_string(),
        "AGE" => row
            .since_time
            .map_or(String::new(), |since| age(since, now)),
        "DELIVERY" => row.delivery.clone(),
        "REASON" => row.reason.clone(),
        _ => row.message.clone(),
    };
    let chosen = |without: &[&str]| {
        let is_shown =
            |title: &&str| !without.contains(title) && (layout.wide || !WIDE.contains(title));
        let header: Vec<&str> = ALL.into_iter().filter(is_shown).collect();
        let cells: Vec<Vec<String>> = rows
            .iter()
            .map(|row| header.iter().map(|title| cell(row, title)).collect())
            .collect();
        (header, cells)
    };
    let width = layout.width.map(usize::from);
    let (mut header, mut cells) = chosen(&[]);
    // What can be done without, where there is no room for it.
    for without in [["AGE"].as_slice(), &["AGE", "REVISION"]] {
        if layout.wide || width.is_none_or(|width| natural_width(&header, &cells) <= width) {
            break;
        }
        (header, cells) = chosen(without);
    }
    let of_phase = |row: usize, column: usize| {
        let is_painted = layout.color && header.get(column) == Some(&"PHASE");
        rows.get(row)
            .filter(|_| is_painted)
            .and_then(|row| color(&row.phase))
    };
    laid_out(&header, &cells, layout, of_phase)
}

fn color(phase: &Phase) -> Option<Color> {
    match phase {
        Phase::Synced | Phase::Restored => Some(Color::Green),
        Phase::Syncing | Phase::Restoring => Some(Color::Yellow),
        Phase::RolledBack | Phase::Failed | Phase::ForeignOwner | Phase::Unreadable => {
            Some(Color::Red)
        }
        Phase::Unreachable => Some(Color::Magenta),
        Phase::Pending | Phase::Excluded | Phase::Unsupported | Phase::Other(_) => None,
    }
}

/// What changed between two looks, one line for each node, for where nothing can be redrawn. `wanted`: the revision that every node
/// should have.
pub(crate) fn changes(before: &[Row], after: &[Row], wanted: i64) -> Vec<String> {
    let known = by_name(before);
    let mut lines: Vec<String> = after
        .iter()
        .filter(|row| {
            known.get(row.name.as_str()).is_none_or(|old| {
                (&old.phase, old.revision, &old.reason) != (&row.phase, row.revision, &row.reason)
            })
        })
        .map(|row| change(row, wanted))
        .collect();
    let left = by_name(after);
    lines.extend(
        before
            .iter()
            .filter(|old| !left.contains_key(old.name.as_str()))
            .map(|old| format!("{}  gone", old.name)),
    );
    lines
}

fn change(row: &Row, wanted: i64) -> String {
    let is_next = row.revision < wanted;
    let revision = match (row.revision, &row.phase) {
        (0, Phase::Pending | Phase::Syncing) if is_next => format!("to revision {wanted}"),
        (has, Phase::Pending | Phase::Syncing) if is_next => format!("revision {has} -> {wanted}"),
        (has, _) => format!("revision {has}"),
    };
    let reason = match (row.reason.as_str(), row.message.as_str()) {
        ("", _) => String::new(),
        (reason, "") => format!("  {reason}"),
        (reason, message) => format!("  {reason}: {message}"),
    };
    format!("{}  {}  {revision}{reason}", row.name, row.phase)
}

fn by_name(rows: &[Row]) -> BTreeMap<&str, &Row> {
    rows.iter().map(|row| (row.name.as_str(), row)).collect()
}

#[cfg(test)]
mod tests;
