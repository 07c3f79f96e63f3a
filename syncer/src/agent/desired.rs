//! The desired state of the node. Pure.

use globalps_dockerconfig::DockerConfig;
use globalps_provider::Delivery;

use super::facts::NodeFacts;
use crate::node::state::{InstalledProvider, JournalState, ProviderSide};

/// The desired state of the node.
#[derive(Default)]
pub(super) struct DesiredFiles {
    /// Entries of the credentials file.
    pub(super) config: DockerConfig,
    /// Files of the credential provider; `None`: it is not used.
    pub(super) provider: Option<ProviderSide>,
}

/// The assigned content in the form in which it is delivered. During a halted rollout nodes may stay on an older revision, whose
/// content is in the journal. If the provider is not possible, the credentials file gets the content for every pod.
pub(super) fn desired(facts: &NodeFacts) -> Option<DesiredFiles> {
    let in_force = facts.state.and_then(|state| state.provider.as_ref());
    if let (Some(content), Some(task)) = (facts.desired, facts.task) {
        let settled = facts.state.filter(|state| state.is_settled_on(task));
        let side = match (settled, &content.delivery, facts.provider) {
            // Setting up or removing the provider and changing its settings need a restart, which the controller schedules. An
            // upgraded kubelet or a resolved obstacle waits for it.
            (Some(state), _, found) => {
                let both = state.provider.as_ref().zip(found);
                both.and_then(|(installed, found)| {
                    found.with_settings_of(installed, task, content).ok()
                })
            }
            (None, Delivery::CredentialProvider(config), Some(provider)) => provider
                .with_content(task.revision.number, content, config, in_force)
                .ok(),
            (None, ..) => None,
        };
        return Some(side.map_or_else(|| of_file(content.config.clone()), by_provider));
    }
    let state = facts
        .state
        .filter(|_| is_in_force_though_superseded(facts))?;
    let content = in_force.filter(|_| facts.provider.is_some());
    let content = || content.and_then(InstalledProvider::content);
    in_journal(facts, state).or_else(|| content().map(|content| of_file(content.config)))
}

/// The content in force as it is delivered. `None`: the journal doesn't have it, or the provider is not possible.
pub(super) fn in_journal(facts: &NodeFacts, state: &JournalState) -> Option<DesiredFiles> {
    match &state.provider {
        Some(installed) => facts
            .provider?
            .with(installed.clone())
            .ok()
            .map(by_provider),
        None => state.managed.content().map(of_file),
    }
}

fn of_file(config: DockerConfig) -> DesiredFiles {
    DesiredFiles {
        config,
        provider: None,
    }
}

fn by_provider(side: ProviderSide) -> DesiredFiles {
    DesiredFiles {
        config: DockerConfig::default(),
        provider: Some(side),
    }
}

fn is_in_force_though_superseded(facts: &NodeFacts) -> bool {
    let in_force = facts.state.map(|state| state.revision);
    facts.superseded
        && in_force == facts.task.map(|task| task.revision)
        && !facts.state.is_some_and(JournalState::awaits_restart)
}
