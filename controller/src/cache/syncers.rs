//! The pods of the syncers and restorers, and on which nodes none runs.

use std::collections::{BTreeMap, BTreeSet};

use globalps_manifests::Agent;
use globalps_planner::nodes::clock::Uptime;
use globalps_planner::nodes::provider_paths::ProviderPods;
use globalps_planner::nodes::syncers::{Cause, Down, START, Syncers, UNSUPPORTED_AFTER};

use super::Cache;
use super::syncer_pods::Replacement;
use crate::objects::managed::{LiveObject, ManagedKind, ManagedObject};
use crate::objects::views::AgentTemplate;

impl Cache {
    /// The agents of the delivery in force. Objects of the others may belong to `HyperShift`.
    pub(crate) fn agents(&self) -> &'static [Agent] {
        Agent::of(self.delivery())
    }

    fn daemon_set(&self, agent: Agent) -> Option<&LiveObject> {
        let kind = ManagedKind::DaemonSet;
        self.managed(ManagedObject { agent, kind })
    }

    /// Whether the `DaemonSet` exists. One that is being deleted gets no pods.
    pub(crate) fn has_daemon_set(&self, agent: Agent) -> bool {
        self.daemon_set(agent)
            .is_some_and(|it| !it.is_being_deleted)
    }

    pub(super) fn has_agents(&self) -> bool {
        self.agents().iter().any(|it| self.has_daemon_set(*it))
    }

    /// Whether an object of a syncer or restorer still exists, even if it is being deleted.
    pub(super) fn has_leftovers(&self) -> bool {
        let mut managed = ManagedObject::of(self.agents());
        managed.any(|object| !self.managed.get(object).live.is_empty())
            || !self.node_pull_secrets.is_empty()
    }

    /// The syncers' pods' support for `kubelet`; `None` if there are no pods yet.
    pub(crate) fn provider_pods(&self) -> Option<ProviderPods> {
        let is_observed = self.delivery().is_observed();
        let daemon_set = self.daemon_set(Agent::Syncer).filter(|_| !is_observed)?;
        Some(ProviderPods {
            paths: daemon_set.provider.clone(),
            are_current: self.templates().is_some() && self.syncers.outdated.is_empty(),
        })
    }

    /// The templates of the `DaemonSets` that Kubernetes makes pods from; `None`: it doesn't yet, or the pods are not known.
    fn templates(&self) -> Option<BTreeMap<&'static str, AgentTemplate>> {
        let known = self.agents().iter().filter_map(|&agent| {
            let template = self.daemon_set(agent)?.template?;
            Some((agent.name(), template))
        });
        let templates: BTreeMap<_, _> = known.collect();
        let are_known = self.pods.store.synced
            && !templates.is_empty()
            && templates.values().all(|template| template.is_observed);
        are_known.then_some(templates)
    }

    /// Call it before each plan. A watch has no event for having been down for a while.
    pub(super) fn observe_syncers(&mut self, now: Uptime) {
        let before = std::mem::take(&mut self.syncers);
        let Some(templates) = self.templates() else {
            self.pods.replacement = Replacement::default();
            return;
        };
        let pods = self.pods.by_node(self.agents());
        let mut syncers = Syncers::default();
        let mut current = BTreeSet::new();
        let nodes = self.nodes.live.values();
        for node in nodes.filter(|node| node.is_linux() && node.ready.is_ok()) {
            let cause = match pods.get(node.name.as_str()).map(|pod| (pod, &pod.runs)) {
                None => Cause::NoPod,
                Some((_, Err(cause))) => cause.clone(),
                Some((pod, Ok(()))) => {
                    let template = templates.get(pod.agent.name());
                    let is_old = |template: &AgentTemplate| {
                        pod.template > 0 && pod.template < template.generation
                    };
                    if template.is_some_and(is_old) && node.can_run_syncer() {
                        syncers.outdated.insert(node.name.clone());
                    } else {
                        current.insert(node.name.as_str());
                    }
                    continue;
                }
            };
            let since = before.down.get(&node.name).map_or(now, |down| down.since);
            syncers
                .down
                .insert(node.name.clone(), Down { since, cause });
        }
        let of = templates.values().map(|template| template.generation);
        let of = of.fold(0, i64::saturating_add);
        let seen = (&syncers.outdated, &current);
        self.pods.replacement.observe(of, seen, now);
        syncers.are_replaced =
            !syncers.outdated.is_empty() && now - self.pods.replacement.last_progress() < START;
        for name in syncers.down.keys() {
            let object = self.node_pull_secrets.get(name);
            if object.is_none_or(|object| object.status.is_none() && object.spec.revision == 0) {
                self.clock.keep_new(name, now);
            }
        }
        self.syncers = syncers;
    }

    /// Whether a node's syncer may soon have been down for too long.
    pub(crate) fn waits_for_syncers(&self, now: Uptime) -> bool {
        let mut down = self.syncers.down.values();
        let is_open = |down: &Down| now - down.since < UNSUPPORTED_AFTER;
        self.syncers.are_replaced || down.any(is_open)
    }
}

#[cfg(test)]
mod tests;
