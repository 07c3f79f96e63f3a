//! The syncers' pods, as counted in the status of their `DaemonSets`.

use globalps_core::manifests::Agent;
use jiff::SignedDuration;

use super::Cache;
use crate::nodes::clock::Uptime;
use crate::nodes::input::{NodeView, Syncers};
use crate::nodes::provider_paths::ProviderPods;
use crate::objects::managed::{ManagedKind, ManagedObject};
use crate::objects::views::AgentPods;

/// Maximum time for a syncer's pod to start.
const START: SignedDuration = SignedDuration::from_mins(1);

impl Cache {
    pub(crate) fn has_daemon_set(&self, agent: Agent) -> bool {
        self.agent_pods(agent).is_some()
    }

    /// `None`: there is no `DaemonSet`.
    fn agent_pods(&self, agent: Agent) -> Option<AgentPods> {
        let kind = ManagedKind::DaemonSet;
        self.managed(ManagedObject { agent, kind })?.pods
    }

    /// What the syncers' pods support for `kubelet`; `None`: there are no pods yet.
    pub(super) fn provider_pods(&self) -> Option<ProviderPods> {
        let (agent, kind) = (Agent::Syncer, ManagedKind::DaemonSet);
        let daemon_set = self.managed(ManagedObject { agent, kind })?;
        Some(ProviderPods {
            paths: daemon_set.provider.clone(),
            are_current: daemon_set
                .pods
                .is_some_and(|pods| pods.are_current(self.not_ready())),
        })
    }

    pub(super) fn agents(&self) -> impl Iterator<Item = AgentPods> {
        Agent::ALL
            .into_iter()
            .filter_map(|agent| self.agent_pods(agent))
    }

    pub(super) fn not_ready(&self) -> usize {
        let is_counted = |node: &&NodeView| node.is_linux() && node.ready.is_err();
        self.nodes.live.values().filter(is_counted).count()
    }

    /// How many pods have the current template while others are replaced; `None`: none is.
    pub(super) fn replaced(&self) -> Option<i32> {
        let not_ready = self.not_ready();
        let is_rolling = self.agents().any(|pods| pods.are_rolling(not_ready));
        is_rolling.then(|| {
            let updated = self.agents().map(|pods| pods.updated_number_scheduled);
            updated.fold(0, i32::saturating_add)
        })
    }

    pub(super) fn syncers(&self, now: Uptime) -> Syncers {
        let not_ready = self.not_ready();
        let lasts = self.down_since.is_some_and(|since| now - since >= START);
        let down = self.agents().map(|pods| pods.down(not_ready)).sum();
        Syncers {
            down: if lasts { down } else { 0 },
            are_missing: lasts && self.agents().any(|pods| pods.are_missing()),
            // Pods that never start, such as those with a wrong image, are their nodes' own problem.
            are_rolling: self.rolling.is_some_and(|(_, since)| now - since < START),
        }
    }
}
