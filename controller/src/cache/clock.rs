//! When the leader received what.

use globalps_planner::nodes::clock::Uptime;
use jiff::Timestamp;

use super::Cache;
use crate::telemetry::clock;

/// The monotonic clock of the leader's machine, which is never set.
pub(crate) fn uptime() -> Uptime {
    Uptime::try_from(clock::now()).unwrap_or_default()
}

impl Cache {
    /// `creationTimestamp` of the current `global-pull-secret`.
    pub(super) fn first_written(&self) -> Option<Timestamp> {
        let created = self.global().get()?.metadata.creation_timestamp.as_ref();
        created.map(|created| created.0)
    }

    /// Records the object's newest state at this time.
    pub(super) fn observe_object(&mut self, name: &str) {
        if let Some(object) = self.node_pull_secrets.get(name) {
            self.clock.observe_object(object, uptime());
        }
    }

    /// Call it before taking a snapshot.
    pub(crate) fn observe_clock(&mut self, now: Uptime) {
        let objects = self.node_pull_secrets.live.values();
        let objects = objects.map(|object| &**object);
        let nodes = self.nodes.live.values().map(|node| &**node);
        self.clock.observe(objects, nodes, now);
        self.observe_syncers(now);
        let nodes = self.nodes.live.values();
        let down = &self.syncers.down;
        let unable = nodes.filter(|node| node.ready.is_err() || down.contains_key(&node.name));
        let unable = unable.map(|node| node.name.as_str());
        self.clock.observe_unable(unable, now);
    }
}
