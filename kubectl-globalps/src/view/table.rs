//! The table of nodes, as text. Pure.

use globalps_core::api::Phase;
use jiff::Timestamp;

use crate::terminal::{Layout, age_of, nodes, uncolored};
use crate::view::members::{self, Member, Stage, advised, fitting};
use crate::view::status::{
    About, Health, NODES, NamespacesRow, OperatorsRow, Row, SourceRow, Status, Summary, stage,
};

/// One line about the whole fleet.
pub(crate) fn headline(status: &Status) -> String {
    let counts = &status.counts;
    let has_nodes = status.deliveries.iter().any(|row| row.kind == NODES);
    let line = if status.about == About::Restoration && counts.total > 0 {
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
    let named = [
        (counts.failed, "failed"),
        (counts.unreachable, "unreachable"),
        (counts.unsupported, "unsupported"),
    ];
    let mut line = members::headline(line, named, status.paused);
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
    let last = advised(advice, terminal);
    let rows: Vec<&Row> = status.nodes.iter().collect();
    let table = members::table(rows, lines.len() + last.len(), now, layout);
    lines.extend(table);
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
    let rows = sources.iter().cloned().map(|source| {
        let scope = source.scope.unwrap_or_else(|| "every pod".to_owned());
        [source.name, scope, source.delivery, source.message]
    });
    let header = ["SOURCE", "SCOPE", "DELIVERY", "MESSAGE"];
    format!("\n{}", uncolored(header, rows, layout))
}

/// A line for each failed namespace in the status.
fn of_namespaces(status: &Status, layout: Layout) -> Option<String> {
    let status = &status.namespaces.as_ref()?.status;
    let failures = status.failures.iter().cloned();
    let rows = failures.map(|found| [found.namespace, found.reason, found.message]);
    let see = "see `kubectl globalps status --namespaces`";
    let header = ["NAMESPACE", "REASON", "MESSAGE"];
    table_of(header, rows, status.failed, see, layout)
}

/// A line for each failed operator in the status.
fn of_operators(status: &Status, layout: Layout) -> Option<String> {
    let status = &status.operators.as_ref()?.status;
    let failures = status.failures.iter().cloned();
    let rows = failures.map(|it| [it.namespace, it.name, it.reason, it.message]);
    let see = "the status names 20 at most";
    let header = ["NAMESPACE", "SUBSCRIPTION", "REASON", "MESSAGE"];
    table_of(header, rows, status.failed, see, layout)
}

/// After an empty line, a line for each. `failed`: how many there are; `see`: where the others are.
fn table_of<const N: usize>(
    header: [&str; N],
    rows: impl ExactSizeIterator<Item = [String; N]>,
    failed: u32,
    see: &str,
    layout: Layout,
) -> Option<String> {
    let named = u32::try_from(rows.len()).unwrap_or(u32::MAX);
    let more = match failed.saturating_sub(named) {
        0 => String::new(),
        number => format!("\n... and {number} more: {see}"),
    };
    (named > 0).then(|| format!("\n{}{more}", uncolored(header, rows, layout)))
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

impl Member for Row {
    const COLUMNS: &'static [(&'static str, u8)] = &[
        ("NODE", 3),
        ("PHASE", 3),
        ("REVISION", 2),
        ("AGE", 1),
        ("DELIVERY", 0),
        ("REASON", 3),
        ("MESSAGE", 0),
    ];
    const UNREACHABLE: u8 = 4;

    fn cell(&self, title: &str, now: Timestamp) -> String {
        match title {
            "NODE" => self.name.clone(),
            "PHASE" => self.phase.to_string(),
            "REVISION" => self.revision.to_string(),
            "AGE" => age_of(self.since_time, now),
            "DELIVERY" => self.delivery.clone(),
            "REASON" => self.reason.clone(),
            _ => self.message.clone(),
        }
    }

    fn stage(&self) -> Stage {
        stage(&self.phase)
    }
}

/// What changed between two looks, one line for each node, for where nothing can be redrawn. `wanted`: the revision that every node
/// should have.
pub(crate) fn changes(before: &[Row], after: &[Row], wanted: i64) -> Vec<String> {
    members::changes(
        before,
        after,
        |row| row.name.as_str(),
        |row| (&row.phase, row.revision, &row.reason),
        |row| row.name.clone(),
        |row| change(row, wanted),
    )
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
    format!("{}  {revision}{reason}", row.phase)
}

#[cfg(test)]
mod tests;
