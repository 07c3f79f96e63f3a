//! The tables of `FleetPullSecret`s and of clusters, as text. Pure.

use std::collections::BTreeMap;

use comfy_table::Color;
use globalps_core::api::ClusterPhase;
use jiff::Timestamp;

use super::verdict::{Advice, clusters};
use super::{ClusterRow, FleetStatus};
use crate::cluster::fleet::Scope;
use crate::terminal::layout::{Layout, age, laid_out_by};
use crate::view::table::{advised, fitting, more, room};

/// One line about all clusters of a `FleetPullSecret`.
pub(crate) fn headline(status: &FleetStatus) -> String {
    let counts = &status.fleet.counts;
    let total = usize::try_from(counts.total).unwrap_or(usize::MAX);
    let mut line = format!(
        "revision {}  {}/{} synced",
        status.fleet.revision,
        counts.synced,
        clusters(total)
    );
    let blocked = status.in_phase(ClusterPhase::Blocked).count();
    for (number, word) in [
        (counts.failed as usize, "failed"),
        (blocked, "blocked"),
        (counts.unreachable as usize, "unreachable"),
    ] {
        if number > 0 {
            line.extend(["  ", &number.to_string(), " ", word]);
        }
    }
    if status.fleet.paused {
        line.push_str("  paused");
    }
    line
}

/// The clusters of the one that was named, else a line for each one.
pub(crate) fn text(
    all: &[FleetStatus],
    scope: &Scope,
    now: Timestamp,
    layout: Layout,
    advice: Option<&Advice>,
) -> String {
    match all {
        [status] if scope.fleet.is_some() => render(status, now, layout, advice),
        [] => "no FleetPullSecret\n".to_owned(),
        all => overview(all, now, layout, scope.all_namespaces) + "\n",
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
    let last = advice.map_or_else(Vec::new, |(message, hint)| advised(message, hint, width));
    let mut rows: Vec<&ClusterRow> = status.clusters.iter().collect();
    rows.sort_by_key(|row| urgency(row.phase));
    if !rows.is_empty() {
        let room = room(layout, lines.len() + last.len());
        let hidden = rows.split_off(room.min(rows.len()));
        lines.push(of_clusters(&rows, now, layout));
        let hidden = hidden.iter();
        lines.extend(more(
            hidden.map(|row| (urgency(row.phase), row.phase.to_string())),
            width,
        ));
    }
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
            "AGE" => row.created.map_or(String::new(), |time| age(time, now)),
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

fn of_clusters(rows: &[&ClusterRow], now: Timestamp, layout: Layout) -> String {
    const ALL: [&str; 7] = [
        "CLUSTER", "PHASE", "REVISION", "NODES", "AGE", "REASON", "MESSAGE",
    ];
    let cell = |row: &&ClusterRow, title: &str| match title {
        "CLUSTER" => row.name.clone(),
        "PHASE" => row.phase.to_string(),
        "REVISION" => row.revision.to_string(),
        "NODES" => row.nodes.map_or_else(String::new, |nodes| {
            format!("{}/{}", nodes.synced, nodes.total)
        }),
        "AGE" => row.since_time.map_or(String::new(), |time| age(time, now)),
        "REASON" => row.reason.clone(),
        _ => row.message.clone(),
    };
    let is_shown = |title: &&str| *title != "MESSAGE" || layout.wide;
    let header: Vec<&str> = ALL.into_iter().filter(is_shown).collect();
    laid_out_by(&header, rows, layout, cell, |row, title| {
        color(row.phase).filter(|_| title == "PHASE")
    })
}

fn urgency(phase: ClusterPhase) -> u8 {
    match phase {
        ClusterPhase::Failed => 0,
        ClusterPhase::Blocked => 1,
        ClusterPhase::Unreachable => 2,
        ClusterPhase::Syncing | ClusterPhase::Removing | ClusterPhase::Other => 3,
        ClusterPhase::Pending => 4,
        ClusterPhase::Synced | ClusterPhase::Removed => 5,
    }
}

fn color(phase: ClusterPhase) -> Option<Color> {
    match phase {
        ClusterPhase::Synced | ClusterPhase::Removed => Some(Color::Green),
        ClusterPhase::Syncing | ClusterPhase::Removing => Some(Color::Yellow),
        ClusterPhase::Failed | ClusterPhase::Blocked => Some(Color::Red),
        ClusterPhase::Unreachable => Some(Color::Magenta),
        ClusterPhase::Pending | ClusterPhase::Other => None,
    }
}

/// What changed between two looks, one line for each cluster, for where nothing can be redrawn.
pub(crate) fn changes(before: &[FleetStatus], after: &[FleetStatus]) -> Vec<String> {
    let rows = |all: &[FleetStatus]| -> BTreeMap<(String, String), ClusterRow> {
        let rows = all.iter().flat_map(|status| status.clusters.clone());
        rows.map(|row| ((row.fleet.clone(), row.name.clone()), row))
            .collect()
    };
    let (known, now) = (rows(before), rows(after));
    // Of several, each line says which.
    let prefix = |fleet: &str| {
        if after.len().max(before.len()) > 1 {
            format!("{fleet}  ")
        } else {
            String::new()
        }
    };
    let is_news = |row: &ClusterRow| {
        let old = known.get(&(row.fleet.clone(), row.name.clone()));
        old.is_none_or(|old| {
            (old.phase, old.revision, &old.reason, old.nodes)
                != (row.phase, row.revision, &row.reason, row.nodes)
        })
    };
    let changed = now.values().filter(|row| is_news(row)).map(|row| {
        let nodes = row.nodes.map_or_else(String::new, |nodes| {
            format!("  {}/{} nodes", nodes.synced, nodes.total)
        });
        let reason = match row.reason.as_str() {
            "" => String::new(),
            reason => format!("  {reason}"),
        };
        let (name, phase, revision) = (&row.name, row.phase, row.revision);
        let fleet = prefix(&row.fleet);
        format!("{fleet}{name}  {phase}  revision {revision}{nodes}{reason}")
    });
    let gone = known.iter().filter(|(key, _)| !now.contains_key(*key));
    let gone = gone.map(|((fleet, name), _)| format!("{}{name}  gone", prefix(fleet)));
    changed.chain(gone).collect()
}
