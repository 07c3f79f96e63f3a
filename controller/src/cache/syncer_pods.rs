//! The watched pods of the syncers and restorers.

use std::collections::BTreeMap;

use globalps_core::decode::Unreadable;

use super::list_watch::Update;
use super::store::Store;
use crate::nodes::clock::Uptime;
use crate::objects::pods::PodView;

/// The watched pods.
#[derive(Default)]
pub(super) struct SyncerPods {
    pub(super) store: Store<PodView>,
    /// They can't be listed: the leader continues without them.
    has_failed: bool,
    /// While they are replaced: how many have the current template, and since when.
    pub(super) replaced: Option<(usize, Uptime)>,
}

impl SyncerPods {
    pub(super) fn handle(&mut self, update: Update<PodView>) -> bool {
        let is_failure = matches!(update, Update::Failed(_) | Update::Stale);
        let is_changed = self.store.handle(update);
        let had_failed = self.has_failed;
        self.has_failed = is_failure || had_failed && !self.store.synced;
        is_changed || self.has_failed && !had_failed
    }

    /// Nothing more will be known soon.
    pub(super) fn are_settled(&self) -> bool {
        self.store.synced || self.has_failed
    }

    pub(super) fn unreadable(&self) -> &BTreeMap<String, Box<Unreadable>> {
        &self.store.unreadable
    }

    /// The pod of each node; of several, one that runs.
    pub(super) fn by_node(&self) -> BTreeMap<&str, &PodView> {
        let mut pods: BTreeMap<&str, &PodView> = BTreeMap::new();
        for pod in self.store.live.values() {
            let known = pods.entry(&pod.node).or_insert(pod);
            if known.runs.is_err() {
                *known = pod;
            }
        }
        pods
    }
}
