//! The watched pods of the syncers and restorers.

use std::collections::{BTreeMap, BTreeSet};

use globalps_core::decode::Unreadable;
use globalps_manifests::Agent;
use globalps_planner::nodes::clock::Uptime;
use globalps_runtime::list_watch::Update;

use super::store::Store;
use crate::objects::pods::PodView;

/// The watched pods.
#[derive(Default)]
pub(super) struct SyncerPods {
    pub(super) store: Store<PodView>,
    /// They can't be listed: the leader continues without them.
    has_failed: bool,
    pub(super) replacement: Replacement,
}

/// The replacement of pods with an earlier template.
#[derive(Debug, Default)]
pub(super) struct Replacement {
    /// Generation of the templates.
    of: i64,
    /// Nodes whose pod was an earlier one, and none with the current template has run since.
    open: BTreeSet<String>,
    /// When the last node was added to or removed from `open`.
    progressed: Uptime,
}

impl Replacement {
    /// `outdated`, `current`: nodes whose pod runs with an earlier template, or with the current one. Others say nothing: a node
    /// that is Ready only now and then makes no progress.
    pub(super) fn observe(
        &mut self,
        of: i64,
        (outdated, current): (&BTreeSet<String>, &BTreeSet<&str>),
        now: Uptime,
    ) {
        if self.of != of {
            *self = Self {
                of,
                progressed: now,
                ..Self::default()
            };
        }
        let before = self.open.len();
        self.open.retain(|name| !current.contains(name.as_str()));
        let replaced = before - self.open.len();
        let before = self.open.len();
        self.open.extend(outdated.iter().cloned());
        if replaced > 0 || self.open.len() > before {
            self.progressed = now;
        }
    }

    pub(super) fn last_progress(&self) -> Uptime {
        self.progressed
    }
}

impl SyncerPods {
    pub(super) fn handle(&mut self, update: Update<PodView>) -> bool {
        let is_failure = matches!(update, Update::Failed(_) | Update::Stale);
        let is_changed = self.store.handle(update);
        let had_failed = self.has_failed;
        self.has_failed = is_failure || had_failed && !self.store.synced;
        is_changed || self.has_failed && !had_failed
    }

    /// Whether no more information will arrive soon.
    pub(super) fn are_settled(&self) -> bool {
        self.store.synced || self.has_failed
    }

    pub(super) fn unreadable(&self) -> &BTreeMap<String, Box<Unreadable>> {
        &self.store.unreadable
    }

    /// The pod of each node; of several, one that runs.
    pub(super) fn by_node(&self, agents: &[Agent]) -> BTreeMap<&str, &PodView> {
        let mut pods: BTreeMap<&str, &PodView> = BTreeMap::new();
        let all = self.store.live.values();
        for pod in all.filter(|pod| agents.contains(&pod.agent)) {
            let known = pods.entry(&pod.node).or_insert(pod);
            if known.runs.is_err() {
                *known = pod;
            }
        }
        pods
    }
}
