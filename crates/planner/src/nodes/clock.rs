//! What the leader saw when, by its own monotonic clock. Times in objects come from other machines and from previous leaders: they
//! decide only where this leader has not seen the change itself.

use std::collections::{BTreeMap, BTreeSet};

use globalps_core::api::{NodePullSecret, NodePullSecretStatus, Phase};
use jiff::{SignedDuration, Timestamp};

use super::node::NodeView;
use super::node::is_abandoned;
use super::received::{Heard, Received};

/// Time since the leader's machine booted.
pub type Uptime = SignedDuration;

/// Only a Node younger than this bootstraps. An older one without an object had one that was deleted out of band.
const NEW_FOR: SignedDuration = SignedDuration::from_mins(10);
/// A node that can't begin yet stays new for this long, and then has [`NEW_FOR`]: later it runs workloads.
const NEW_AT_MOST: SignedDuration = SignedDuration::from_mins(30);
/// How far the API server's clock may be ahead of the leader's.
const SKEW: SignedDuration = SignedDuration::from_mins(1);

/// Empty at the start of each term.
#[derive(Clone, Debug, Default)]
pub struct LeaderClock {
    /// What appears from now on, this leader has seen appear.
    has_begun: bool,
    entries: BTreeMap<String, Entry>,
    /// Since when a cleanup may finish without these nodes.
    abandoned: BTreeMap<String, Uptime>,
    /// Since when no plan has found these nodes `Ready` with a syncer that runs. A node that flaps doesn't begin again.
    unable: BTreeMap<String, Uptime>,
}

/// Boxed, because a map reserves space for several values.
#[derive(Clone, Debug, Default)]
struct Entry {
    object: Option<Box<SeenObject>>,
    node: Option<Box<SeenNode>>,
}

impl Entry {
    /// What was seen of the object's current generation.
    fn assigned(&self, object: &NodePullSecret) -> Option<&SeenObject> {
        let seen = self.object.as_deref()?;
        (Some(seen.generation) == object.metadata.generation).then_some(seen)
    }
}

#[derive(Clone, Debug)]
struct SeenObject {
    generation: i64,
    assigned: Uptime,
    /// The leader saw it being assigned.
    saw_assignment: bool,
    /// Reported restart of the kubelet when it was assigned.
    restarted_before: Option<Timestamp>,
    report: Report,
    reported: Uptime,
    /// The leader saw the report arrive.
    saw_report: bool,
    /// When it first reported that this generation is done.
    first_done: Option<Uptime>,
    /// Longest time that the node stayed ready since such a report, before it was lost or reported again.
    longest_ready: SignedDuration,
}

impl SeenObject {
    /// Call it before the report or the node's readiness changes.
    fn keep_longest_ready(&mut self, node: &SeenNode, now: Uptime) {
        if node.is_ready && self.report.is_done(self.generation) {
            let stayed = now - node.since.max(self.reported);
            self.longest_ready = self.longest_ready.max(stayed);
        }
    }
}

/// Reported generation, phase, and `lastTransitionTime`, which is only compared: the node may have left the phase and come back while
/// the leader's watch was interrupted.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Report {
    generation: i64,
    phase: Phase,
    since: Option<Timestamp>,
}

impl Report {
    fn of(status: Option<&NodePullSecretStatus>) -> Self {
        Self {
            generation: status.map_or(0, |status| status.observed_generation),
            phase: status.map_or(Phase::Pending, |status| status.phase.clone()),
            since: status.and_then(|status| Some(status.last_transition_time.as_ref()?.0)),
        }
    }

    fn is_done(&self, generation: i64) -> bool {
        self.generation == generation && matches!(self.phase, Phase::Synced | Phase::Restored)
    }
}

#[derive(Clone, Debug)]
struct SeenNode {
    created: Timestamp,
    /// `None`: it was there before.
    appeared: Option<Uptime>,
    /// If it appeared.
    new_until: Uptime,
    is_ready: bool,
    /// Since when it is ready, or not.
    since: Uptime,
    /// The leader saw it change from or to ready.
    saw_change: bool,
    heartbeat: Timestamp,
    /// When `heartbeat` last changed; `None`: never yet.
    heard: Option<Uptime>,
}

impl LeaderClock {
    /// Records all objects and Nodes, and forgets those that are gone. Call it before each plan.
    pub fn observe<'a>(
        &mut self,
        objects: impl Iterator<Item = &'a NodePullSecret>,
        nodes: impl Iterator<Item = &'a NodeView>,
        now: Uptime,
    ) {
        let has_begun = std::mem::replace(&mut self.has_begun, true);
        let (mut live_objects, mut live_nodes) = (BTreeSet::new(), BTreeSet::new());
        let mut abandoned = BTreeMap::new();
        for object in objects {
            live_objects.extend(object.metadata.name.as_deref());
            self.record_object(object, now, has_begun);
            if let Some(name) = &object.metadata.name
                && object
                    .metadata
                    .annotations
                    .as_ref()
                    .is_some_and(is_abandoned)
            {
                let since = self.abandoned.get(name).copied();
                abandoned.insert(name.clone(), since.unwrap_or(now));
            }
        }
        self.abandoned = abandoned;
        for node in nodes {
            live_nodes.insert(node.name.as_str());
            self.record_node(node, now, has_begun);
        }
        self.entries.retain(|name, entry| {
            entry.object = entry
                .object
                .take()
                .filter(|_| live_objects.contains(name.as_str()));
            entry.node = entry
                .node
                .take()
                .filter(|_| live_nodes.contains(name.as_str()));
            entry.object.is_some() || entry.node.is_some()
        });
    }

    /// Records an object as soon as it arrives: a busy leader plans later.
    pub fn observe_object(&mut self, object: &NodePullSecret, now: Uptime) {
        if self.has_begun {
            self.record_object(object, now, true);
        }
    }

    /// The same of a Node.
    pub fn observe_node(&mut self, node: &NodeView, now: Uptime) {
        if self.has_begun {
            self.record_node(node, now, true);
        }
    }

    fn update(&mut self, name: &str, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.entries.get_mut(name) {
            change(entry);
        } else {
            let mut entry = Entry::default();
            change(&mut entry);
            self.entries.insert(name.to_owned(), entry);
        }
    }

    fn record_object(&mut self, object: &NodePullSecret, now: Uptime, has_begun: bool) {
        let Some(name) = &object.metadata.name else {
            return;
        };
        let generation = object.metadata.generation.unwrap_or_default();
        let status = object.status.as_ref();
        let report = Report::of(status);
        let restarted = status.and_then(|status| status.kubelet_restarted_at.as_ref());
        let done = report.is_done(generation).then_some(now);
        self.update(name, |entry| match &mut entry.object {
            Some(seen) if seen.generation == generation => {
                if seen.report != report {
                    if let Some(node) = entry.node.as_deref() {
                        seen.keep_longest_ready(node, now);
                    }
                    seen.report = report;
                    seen.reported = now;
                    seen.saw_report = true;
                    seen.first_done = seen.first_done.or(done);
                }
            }
            seen => {
                *seen = Some(Box::new(SeenObject {
                    generation,
                    assigned: now,
                    saw_assignment: has_begun && up_to_date(object).is_none(),
                    restarted_before: restarted.map(|time| time.0),
                    report,
                    reported: now,
                    saw_report: has_begun,
                    first_done: done,
                    longest_ready: SignedDuration::ZERO,
                }));
            }
        });
    }

    fn record_node(&mut self, node: &NodeView, now: Uptime, has_begun: bool) {
        let is_ready = node.ready.is_ok();
        self.update(&node.name, |entry| match &mut entry.node {
            // Another Node of the same name differs in its creation.
            Some(seen) if seen.created == node.created => {
                if seen.is_ready != is_ready {
                    if let Some(object) = &mut entry.object {
                        object.keep_longest_ready(seen, now);
                    }
                    seen.is_ready = is_ready;
                    seen.since = now;
                    seen.saw_change = true;
                }
                if seen.heartbeat != node.heartbeat {
                    seen.heartbeat = node.heartbeat;
                    seen.heard = Some(now);
                }
            }
            seen => {
                *seen = Some(Box::new(SeenNode {
                    created: node.created,
                    appeared: has_begun.then_some(now),
                    new_until: now + NEW_FOR,
                    is_ready,
                    since: now,
                    saw_change: false,
                    heartbeat: node.heartbeat,
                    heard: None,
                }));
            }
        });
    }

    fn object(&self, object: &NodePullSecret) -> Option<&SeenObject> {
        let entry = self.entries.get(object.metadata.name.as_ref()?)?;
        entry.assigned(object)
    }

    fn node(&self, name: &str) -> Option<&SeenNode> {
        self.entries.get(name)?.node.as_deref()
    }

    /// How long the object has had its generation; zero if it is newer than the last observation.
    pub fn assigned_for(&self, object: &NodePullSecret, now: Uptime) -> SignedDuration {
        let seen = self.object(object);
        seen.map_or(SignedDuration::ZERO, |seen| now - seen.assigned)
    }

    /// How long a cleanup may have finished without this node; `None`: it may not.
    pub(super) fn abandoned_for(&self, node: &str, now: Uptime) -> Option<SignedDuration> {
        Some(now - *self.abandoned.get(node)?)
    }

    /// Call it before each plan, with the nodes that are `NotReady` or have no syncer that runs.
    pub fn observe_unable<'a>(&mut self, nodes: impl Iterator<Item = &'a str>, now: Uptime) {
        let before = std::mem::take(&mut self.unable);
        let since = |name: &str| before.get(name).copied().unwrap_or(now);
        self.unable = nodes.map(|name| (name.to_owned(), since(name))).collect();
    }

    pub(super) fn unable_for(&self, node: &str, now: Uptime) -> Option<SignedDuration> {
        Some(now - *self.unable.get(node)?)
    }

    /// How long the node has been `NotReady`; `None`: it is ready.
    pub fn not_ready_for(&self, node: &NodeView, now: Uptime) -> Option<SignedDuration> {
        node.ready.err()?;
        let seen = self.node(&node.name).filter(|seen| !seen.is_ready);
        Some(seen.map_or(SignedDuration::ZERO, |seen| now - seen.since))
    }

    /// The leader saw the Node appear.
    pub fn saw_join(&self, node: &NodeView) -> bool {
        let seen = self.node(&node.name);
        seen.is_some_and(|seen| seen.appeared.is_some())
    }

    /// A node that joined and can't begin yet stays new, for a while.
    pub fn keep_new(&mut self, node: &str, now: Uptime) {
        let entry = self.entries.get_mut(node);
        if let Some(seen) = entry.and_then(|entry| entry.node.as_deref_mut())
            && let Some(appeared) = seen.appeared
            && now < seen.new_until
            && now - appeared < NEW_AT_MOST
        {
            seen.new_until = now + NEW_FOR;
        }
    }

    /// Whether the node has just been created: the leader saw it appear, or the API server's clock says so and is plausible.
    pub fn is_new(&self, node: &NodeView, now: Uptime, wall: Timestamp) -> bool {
        match self.node(&node.name).filter(|it| it.appeared.is_some()) {
            Some(seen) => now < seen.new_until,
            None => (-SKEW..NEW_FOR).contains(&wall.duration_since(node.created)),
        }
    }

    /// How the leader received the node's report for its current assignment.
    pub(super) fn received(
        &self,
        object: &NodePullSecret,
        node: &NodeView,
        now: Uptime,
    ) -> Received {
        let entry = self.entries.get(&node.name);
        let Some(seen) = entry.and_then(|entry| entry.assigned(object)) else {
            return Received::default();
        };
        let on_node = entry.and_then(|entry| entry.node.as_deref());
        let status = object.status.as_ref();
        let restarted = status.and_then(|status| status.kubelet_restarted_at.as_ref());
        let restarted = restarted.map(|time| time.0);
        let not_ready = on_node.filter(|node| !node.is_ready);
        let since = not_ready.map(|node| node.since);
        let saw_both = seen.saw_report && not_ready.is_some_and(|node| node.saw_change);
        let was_not_ready = saw_both && since < Some(seen.assigned);
        let ready = on_node.filter(|node| node.is_ready);
        let stays = ready.map(|node| now - node.since.max(seen.reported));
        Received {
            ago: now - seen.reported,
            done_ago: now - seen.first_done.unwrap_or(seen.reported),
            saw_report: seen.saw_report,
            has_restarted: seen
                .saw_assignment
                .then_some(restarted != seen.restarted_before),
            heard: match on_node.and_then(|node| node.heard) {
                Some(heard) if heard >= seen.reported => Heard::SinceReport,
                Some(heard) if heard >= seen.assigned => Heard::SinceAssignment,
                _ => Heard::Nothing,
            },
            unchanged_for: on_node.map_or(SignedDuration::ZERO, |node| now - node.since),
            longest_ready: stays.unwrap_or_default().max(seen.longest_ready),
            lost_after: since
                .filter(|_| saw_both && !was_not_ready)
                .map(|since| since - seen.reported),
            was_not_ready,
        }
    }
}

/// The status, if it describes the current spec.
pub(super) fn up_to_date(object: &NodePullSecret) -> Option<&NodePullSecretStatus> {
    let generation = object.metadata.generation.unwrap_or_default();
    let status = object.status.as_ref();
    status.filter(|status| status.observed_generation == generation && generation > 0)
}
