//! Nodes that nobody waits for: they can't have a syncer, or none has ever run there. Pure.

use std::fmt;

use globalps_core::phase::has_nothing;
use globalps_core::virtual_nodes::VirtualMark;
use jiff::SignedDuration;

use super::input::{NodeView, Snapshot};
use super::node::is_selectable;
use super::syncers::{Cause, START, UNSUPPORTED_AFTER};

/// Why nobody waits for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsupported<'a> {
    /// No machine is behind it.
    Virtual(VirtualMark),
    /// No pod of the syncer has run there.
    NoSyncer(&'a Cause),
    /// Its pod runs, or nothing is known of pods.
    NeverReported,
}

/// As a clause.
impl fmt::Display for Unsupported<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Virtual(mark) => mark.fmt(f),
            Self::NoSyncer(cause) => cause.fmt(f),
            Self::NeverReported => f.write_str("its syncer has never reported"),
        }
    }
}

impl Snapshot<'_> {
    /// Why nobody waits for this node; `None`: it can have content, or may have some, which only its syncer can restore.
    pub fn unsupported(&self, node: &NodeView) -> Option<Unsupported<'_>> {
        if self.nodes.unreadable.contains_key(&node.name) {
            return None;
        }
        let object = self.nodes.objects.get(&node.name).map(AsRef::as_ref);
        let has_nothing = match object {
            Some(object) => has_nothing(object),
            None if node.virtual_by.is_some() => {
                !self.nodes.deleted_out_of_band.contains(&node.name)
            }
            None => !self.may_have_something(node),
        };
        if let Some(mark) = node.virtual_by {
            // A node that got the mark later is restored like an excluded one.
            return has_nothing.then_some(Unsupported::Virtual(mark));
        }
        let may_run = node.is_linux() && node.ready.is_ok();
        if !may_run || !has_nothing {
            return None;
        }
        let is_over = |time: SignedDuration| time >= UNSUPPORTED_AFTER;
        if let Some(down) = self.agents.syncers.down.get(&node.name)
            && is_over(self.clock.uptime - down.since)
        {
            return Some(Unsupported::NoSyncer(&down.cause));
        }
        let silent = object.filter(|object| object.status.is_none());
        let silent_for = silent.map(|object| self.clock.assigned_for(object));
        silent_for
            .is_some_and(is_over)
            .then_some(Unsupported::NeverReported)
    }

    /// Unsupported nodes that the configuration selects, each with the reason.
    pub fn unsupported_nodes(&self) -> impl Iterator<Item = (&str, Unsupported<'_>)> {
        let nodes = self.nodes.views.values();
        let nodes = nodes.filter(|node| is_selectable(&self.config.spec, node));
        nodes.filter_map(|node| Some((node.name.as_str(), self.unsupported(node)?)))
    }

    /// Selected nodes whose syncer should run and doesn't, longer than a pod takes to start. Those that no kubelet has begun to run
    /// on an unsupported node don't count, unless no node is supported.
    pub fn down_syncers(&self) -> Vec<(&str, &Cause)> {
        let selected = self.nodes.views.values().filter(|node| {
            is_selectable(&self.config.spec, node)
                && node.virtual_by.is_none()
                && node.ready.is_ok()
        });
        let mut are_supported = false;
        let mut found = Vec::new();
        for node in selected {
            let is_supported = self.unsupported(node).is_none();
            are_supported |= is_supported;
            if let Some(down) = self.agents.syncers.down.get(&node.name)
                && self.clock.uptime - down.since >= START
            {
                found.push((node.name.as_str(), &down.cause, is_supported));
            }
        }
        let is_counted = |cause: &Cause, is_supported| {
            is_supported || !are_supported || !matches!(cause, Cause::NotTaken(_))
        };
        let found = found.into_iter();
        found
            .filter(|(_, cause, is_supported)| is_counted(cause, *is_supported))
            .map(|(name, cause, _)| (name, cause))
            .collect()
    }
}

#[cfg(test)]
mod tests;
