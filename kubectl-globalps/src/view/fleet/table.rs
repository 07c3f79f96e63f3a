//! The tables of `FleetPullSecret`s and of clusters, as text. Pure.

use comfy_table::Color;
use globalps_core::api::ClusterPhase;
use jiff::Timestamp;

use super::verdict::clusters;
use super::{ClusterRow, FleetStatus};
use crate::cluster::fleet::FleetFilter;
use crate::terminal::layout::{Layout, age_of, laid_out_by};
use crate::view::members::{self, Advice, Member, Stage, advised, fitting, room};

/// One line about all clusters of a `FleetPullSecret`.
pub(crate) fn headline(status: &FleetStatus) -> String {
    let counts = &status.fleet.counts;
    let total = usize::try_from(counts.total).unwrap_or(usize::MAX);
    let line = format!(
        "revision {}  {}/{} synced",
        status.fleet.revision,
        counts.synced,
        clusters(total)
    );
    let blocked = status.in_phase(ClusterPhase::Blocked).count();
    let named = [
        (counts.failed, "failed"),
        (u32::try_from(blocked).unwrap_or(u32::MAX), "blocked"),
        (counts.unreachable, "unreachable"),
    ];
    members::headline(line, named, status.fleet.paused)
}

/// The clusters of the one that was named, else a line for each one.
pub(crate) fn text(
    all: &[FleetStatus],
    filter: &FleetFilter,
    now: Timestamp,
    layout: Layout,
    advice: Option<&Advice>,
) -> String {
    match all {
        [status] if filter.fleet.is_some() => render(status, now, layout, advice),
        [] => "no FleetPullSecret\n".to_owned(),
        all => overview(all, now, layout, filter.all_namespaces) + "\n",
    }
}

/// Headline and clusters, those that need a look first. `advice`: what is the matter, and what to do.
pub(crate) fn render(
    status: &FleetStatus,
    now: Timestamp,
    layout: Layout,
    advice: Option<&Advice>,
) -> String {
    let width = layout.width.filter(|_| layout.live).map(usize::from);
    let mut lines = if layout.no_headers {
        Vec::new()
    } else {
        fitting(&headline(status), width)
    };
    let last = advised(advice, width);
    let mut rows: Vec<&ClusterRow> = status.clusters.iter().collect();
    rows.sort_by_key(|row| row.urgency());
    let table = members::table(rows, lines.len() + last.len(), now, layout);
    lines.extend(table);
    lines.extend(last);
    lines.join("\n") + "\n"
}

/// A line for each `FleetPullSecret`. `has_namespaces`: of several namespaces.
pub(crate) fn overview(
    all: &[FleetStatus],
    now: Timestamp,
    layout: Layout,
    has_namespaces: bool,
) -> String {
    const ALL: [&str; 11] = [
        "NAMESPACE",
        "NAME",
        "READY",
        "REVISION",
        "CLUSTERS",
        "SYNCED",
        "FAILED",
        "UNREACHABLE",
        "AGE",
        "REASON",
        "MESSAGE",
    ];
    let cell = |status: &&FleetStatus, title: &str| {
        let row = &status.fleet;
        let (namespace, name) = row.name.split_once('/').unwrap_or_default();
        match title {
            "NAMESPACE" => namespace.to_owned(),
            "NAME" => name.to_owned(),
            "READY" => row.state.to_owned(),
            "REVISION" => row.revision.to_string(),
            "CLUSTERS" => row.counts.total.to_string(),
            "SYNCED" => row.counts.synced.to_string(),
            "FAILED" => row.counts.failed.to_string(),
            "UNREACHABLE" => row.counts.unreachable.to_string(),
            "AGE" => age_of(row.created, now),
            "REASON" => row.reason.clone(),
            _ => row.message.clone(),
        }
    };
    let is_shown = |title: &&str| match *title {
        "NAMESPACE" => has_namespaces,
        "AGE" | "MESSAGE" => layout.wide,
        _ => true,
    };
    let header: Vec<&str> = ALL.into_iter().filter(is_shown).collect();
    let mut all: Vec<&FleetStatus> = all.iter().collect();
    let room = room(layout, 0);
    let mut hidden = 0;
    if all.len() > room {
        all.sort_by_key(|status| status.fleet.ready);
        hidden = all.split_off(room).len();
    }
    let color = |status: &&FleetStatus, title: &str| match (title, status.fleet.state) {
        ("READY", "True") => Some(Color::Green),
        ("READY", "False") => Some(Color::Red),
        _ => None,
    };
    let text = laid_out_by(&header, &all, layout, cell, color);
    match hidden {
        0 => text,
        hidden => format!("{text}\n... and {hidden} more"),
    }
}

impl Member for ClusterRow {
    const COLUMNS: &'static [(&'static str, u8)] = &[
        ("CLUSTER", 3),
        ("PHASE", 3),
        ("REVISION", 3),
        ("NODES", 3),
        ("AGE", 3),
        ("REASON", 3),
        ("MESSAGE", 0),
    ];
    const UNREACHABLE: u8 = 2;

    fn cell(&self, title: &str, now: Timestamp) -> String {
        match title {
            "CLUSTER" => self.name.clone(),
            "PHASE" => self.phase.to_string(),
            "REVISION" => self.revision.to_string(),
            "NODES" => self.nodes.map_or_else(String::new, |nodes| {
                format!("{}/{}", nodes.synced, nodes.total)
            }),
            "AGE" => age_of(self.since_time, now),
            "REASON" => self.reason.clone(),
            _ => self.message.clone(),
        }
    }

    fn stage(&self) -> Stage {
        match self.phase {
            ClusterPhase::Failed => Stage::Failed,
            ClusterPhase::Blocked => Stage::Blocked,
            ClusterPhase::Syncing | ClusterPhase::Removing => Stage::Progressing,
            ClusterPhase::Other => Stage::Unknown,
            ClusterPhase::Unreachable => Stage::Unreachable,
            ClusterPhase::Pending => Stage::Pending,
            ClusterPhase::Synced => Stage::Synced,
            ClusterPhase::Removed => Stage::Restored,
        }
    }
}

/// What changed between two looks, one line for each cluster, for where nothing can be redrawn.
pub(crate) fn changes(before: &[FleetStatus], after: &[FleetStatus]) -> Vec<String> {
    // Of several, each line says which.
    let are_several = after.len().max(before.len()) > 1;
    members::changes(
        before.iter().flat_map(|status| &status.clusters),
        after.iter().flat_map(|status| &status.clusters),
        |row| (&row.fleet, &row.name),
        |row| (row.phase, row.revision, &row.reason, row.nodes),
        |row| {
            if are_several {
                format!("{}  {}", row.fleet, row.name)
            } else {
                row.name.clone()
            }
        },
        |row| {
            let nodes = row.nodes.map_or_else(String::new, |nodes| {
                format!("  {}/{} nodes", nodes.synced, nodes.total)
            });
            let reason = match row.reason.as_str() {
                "" => String::new(),
                reason => format!("  {reason}"),
            };
            format!("{}  revision {}{nodes}{reason}", row.phase, row.revision)
        },
    )
}
