//! A row for each node: from its object, its Node, and what the controller reports about nodes without a syncer. Pure.

use std::collections::BTreeMap;

use globalps_core::api::{NodePullSecret, NodeWithoutSyncer, Phase, STATUS_NODES};
use globalps_core::phase::{NodeView, NotReady, has_nothing, phase};
use globalps_core::reasons::Reason;
use globalps_core::rollout::{Revision, UNRESPONSIVE_AFTER};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;

use crate::cluster::facts::{Facts, Lost, NodeFacts, Store};
use crate::terminal::layout::rfc3339;
use crate::view::members::Stage;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Row {
    pub name: String,
    pub phase: Phase,
    pub revision: i64,
    pub reason: String,
    pub message: String,
    /// RFC 3339, seconds, UTC; empty: never changed.
    pub since: String,
    /// How the revision in force is delivered: `ConfigFile` or `CredentialProvider`; empty: none is, or an older syncer.
    pub delivery: String,
    #[serde(skip)]
    pub since_time: Option<Timestamp>,
    /// What the node reports of its restoration; `None`: it is not being restored, or has not begun.
    #[serde(skip)]
    pub restoration: Option<Phase>,
}

pub(super) fn rows(facts: &Facts, newest: Revision, now: Timestamp) -> Vec<Row> {
    let node = |name: &str| facts.nodes.as_ref().and_then(|nodes| nodes.get(name));
    let without_syncer = WithoutSyncer::of_status(facts);
    let mut rows: Vec<Row> = facts
        .node_secrets
        .iter()
        .map(|(name, object)| {
            row(
                name,
                object,
                (node(name), without_syncer.of(name)),
                newest,
                now,
            )
        })
        .collect();
    if without_syncer.is_cut() {
        for row in &mut rows {
            let object = facts.node_secrets.get(&row.name);
            let is_silent = object.is_some_and(|it| it.status.is_none() && has_nothing(it));
            if is_silent && matches!(row.phase, Phase::Pending | Phase::Unreachable) {
                row.phase = Phase::Unsupported;
                row.reason = Reason::NoSyncer.into();
            }
        }
    }
    if facts.gps().is_some() {
        // They have no NodePullSecret, but `status` should list them.
        rows.extend(without_object(facts, &without_syncer));
        rows.sort_by(|a, b| a.name.cmp(&b.name));
    }
    rows
}

fn row(
    name: &str,
    object: &NodePullSecret,
    (node, without_syncer): (Option<&NodeFacts>, Option<&NodeWithoutSyncer>),
    newest: Revision,
    now: Timestamp,
) -> Row {
    let status = object.status.clone().unwrap_or_default();
    let view = view(object, (node, without_syncer), now);
    let phase = phase(Some(object), view, newest).unwrap_or_default();
    let since_time = status.last_transition_time.map(|Time(time)| time);
    let is_up_to_date =
        status.observed_generation >= object.metadata.generation.unwrap_or_default();
    let has_reported = object.status.is_some() && is_up_to_date;
    let has_begun = !matches!(
        status.phase,
        Phase::Pending | Phase::Syncing | Phase::Synced
    );
    let restoration =
        (object.spec.restore && has_reported && has_begun).then(|| status.phase.clone());
    // Reason and message belong to the phase that the node reported.
    let own = phase == status.phase;
    let or_empty = |text: String| if own { text } else { String::new() };
    let (reason, message) = match &phase {
        Phase::Unsupported | Phase::Unreachable if !own => why(node, without_syncer, &phase),
        _ => (or_empty(status.reason), or_empty(status.message)),
    };
    Row {
        name: name.to_owned(),
        phase,
        revision: status.revision,
        reason,
        message,
        since: rfc3339(since_time),
        delivery: status.delivery,
        since_time,
        restoration,
    }
}

fn view(
    object: &NodePullSecret,
    (node, without_syncer): (Option<&NodeFacts>, Option<&NodeWithoutSyncer>),
    now: Timestamp,
) -> NodeView {
    let observed = object.status.as_ref().map_or(0, |s| s.observed_generation);
    let is_up_to_date = observed >= object.metadata.generation.unwrap_or_default();
    let assigned_at = object.spec.assigned_at.as_ref().map(|Time(time)| *time);
    let node = node.copied().unwrap_or_default();
    let is = |phase: Phase| without_syncer.is_some_and(|listed| listed.phase == phase);
    let is_virtual = node.virtual_by.is_some();
    let has_nothing = has_nothing(object);
    NodeView {
        // A node with content that got the mark later is restored like an excluded one.
        excluded: node.excluded || is_virtual && !has_nothing,
        unsupported: is_virtual && has_nothing || is(Phase::Unsupported),
        not_ready: node.not_ready.map(|(since, lost)| {
            let duration = now.duration_since(since);
            match lost {
                Lost::No => NotReady::Reported(duration),
                Lost::Yes => NotReady::Unknown(duration),
            }
        }),
        unresponsive: is(Phase::Unreachable)
            || !is_up_to_date
                && assigned_at.is_some_and(|time| now.duration_since(time) >= UNRESPONSIVE_AFTER),
    }
}

/// By name, as far as the status lists them.
struct WithoutSyncer<'a>(BTreeMap<&'a str, &'a NodeWithoutSyncer>);

impl<'a> WithoutSyncer<'a> {
    fn of_status(facts: &'a Facts) -> Self {
        let status = facts.gps().and_then(|gps| gps.status.as_ref());
        let listed = status.iter().flat_map(|it| &it.nodes_without_syncer);
        Self(listed.map(|node| (node.name.as_str(), node)).collect())
    }

    /// There may be more nodes without a syncer than the status lists; virtual ones come last.
    fn is_cut(&self) -> bool {
        let are_others = self
            .0
            .values()
            .all(|listed| listed.reason != Reason::VirtualNode);
        self.0.len() >= STATUS_NODES && are_others
    }

    fn of(&self, name: &str) -> Option<&'a NodeWithoutSyncer> {
        self.0.get(name).copied()
    }
}

pub(crate) fn stage(phase: &Phase) -> Stage {
    match phase {
        Phase::RolledBack | Phase::Failed | Phase::ForeignOwner | Phase::Unreadable => {
            Stage::Failed
        }
        Phase::Syncing | Phase::Restoring => Stage::Progressing,
        Phase::SteppedAside => Stage::Aside,
        Phase::Other(_) => Stage::Unknown,
        Phase::Unreachable => Stage::Unreachable,
        Phase::Pending => Stage::Pending,
        Phase::Synced => Stage::Synced,
        Phase::Restored => Stage::Restored,
        Phase::Unsupported => Stage::Unsupported,
        Phase::Excluded => Stage::Excluded,
    }
}

/// Whether a node in this phase failed to apply its assignment.
pub(crate) fn has_failed(phase: &Phase) -> bool {
    stage(phase) == Stage::Failed
}

/// Rows of nodes without a `NodePullSecret`: excluded and virtual ones, and others that the controller lists.
fn without_object(facts: &Facts, listed: &WithoutSyncer) -> Vec<Row> {
    let has_object = |name: &str| facts.node_secrets.get(name).is_some();
    let mut found: BTreeMap<&str, Option<&NodeFacts>> = BTreeMap::new();
    let nodes = facts.nodes.iter().flat_map(Store::iter);
    let shown = nodes.filter(|(_, node)| node.excluded || node.virtual_by.is_some());
    found.extend(shown.map(|(name, node)| (name.as_str(), Some(node))));
    for (name, node) in &listed.0 {
        let known = facts.nodes.as_ref().map(|nodes| nodes.get(name));
        // A Node that is gone is not listed much longer.
        if node.phase == Phase::Unsupported && known != Some(None) {
            found.insert(name, known.flatten());
        }
    }
    let found = found.into_iter().filter(|(name, _)| !has_object(name));
    found
        .map(|(name, node)| {
            let is_excluded = node.is_some_and(|node| node.excluded);
            let phase = if is_excluded {
                Phase::Excluded
            } else {
                Phase::Unsupported
            };
            let (reason, message) = why(node, listed.of(name), &phase);
            Row {
                name: name.to_owned(),
                phase,
                reason,
                message,
                ..Row::default()
            }
        })
        .collect()
}

/// Reason and message of a node that reports none itself.
fn why(
    node: Option<&NodeFacts>,
    listed: Option<&NodeWithoutSyncer>,
    phase: &Phase,
) -> (String, String) {
    let mark = node.and_then(|node| node.virtual_by);
    match (phase, mark, listed) {
        (Phase::Unsupported, Some(mark), _) => (Reason::VirtualNode.into(), mark.to_string()),
        (Phase::Unsupported | Phase::Unreachable, _, Some(listed)) => {
            (listed.reason.clone(), listed.message.clone())
        }
        (Phase::Unreachable, _, None) => {
            let message = match node.and_then(|node| node.not_ready) {
                Some(_) => "the node is not Ready".to_owned(),
                // Its process may be frozen while its pod is Ready.
                None => format!(
                    "its syncer has not responded to its assignment for {} minutes",
                    UNRESPONSIVE_AFTER.as_mins()
                ),
            };
            (String::new(), message)
        }
        _ => (String::new(), String::new()),
    }
}
