//! The controller's own state: written before what depends on it.

use std::sync::Arc;

use globalps_core::api::GlobalPullSecret;
use globalps_core::names::{ROLLED_OUT_SECRET, STATE_SECRET};
use globalps_core::state::State;
use globalps_planner::nodes::plan::{Aim, Hold, Plan};
use globalps_planner::refused::title;
use globalps_planner::targets::proof::new_key;

use super::Controller;
use crate::objects::agents::{Leftover, Removal};

impl Controller {
    /// Remembers the configuration that the plan is made from. `is_needed`: something is in force, or the plan changes that.
    pub(super) async fn remember_configuration(&mut self, plan: &Plan, is_needed: bool) {
        let is_kept = plan.aim == Aim::Hold(Hold::SourcesRemoved);
        self.cache.keep_configuration(is_kept);
        let before = self.cache.state();
        let is_refused = self.cache.refused_delivery().is_some();
        let config = self.cache.config().filter(|_| !is_kept && !is_refused);
        let next = remembered(before, config, is_needed, plan.keeps_selector);
        let _ = self.remember(next).await;
    }

    /// Stores the state, unless it is stored, with a key if there may be copies. An empty one needs no Secret. Returns whether it is
    /// stored now.
    pub(super) async fn remember(&mut self, mut state: State) -> bool {
        state.proof_key = if state.has_copies() {
            let Some(key) = state.proof_key.or_else(new_key) else {
                tracing::warn!("the machine has no random numbers for a key");
                return false;
            };
            Some(key)
        } else {
            None
        };
        let state = Some(state.bounded()).filter(|state| !state.is_empty());
        if self.cache.is_stored(state.as_ref()) {
            return true;
        }
        let Some(state) = state else {
            let secret = Leftover::Secret(STATE_SECRET.to_owned());
            return self.remove([secret]).await == Removal::Gone;
        };
        let applier = Arc::clone(&self.applier);
        let call = applier.state_secret(&state);
        let object = title("Secret", STATE_SECRET);
        let stored = self.refusals.one(object, call).await;
        let is_stored = stored.is_some();
        if let Some(secret) = stored {
            self.cache.put_state(secret);
        }
        is_stored
    }
}

/// The state with the configuration to remember. `config`: the one to apply; `None`: there is none, or a change of it is held.
/// `keeps_selector`: a change of its `nodeSelector` is.
pub(super) fn remembered(
    before: &State,
    config: Option<&GlobalPullSecret>,
    is_needed: bool,
    keeps_selector: bool,
) -> State {
    let before = before.clone();
    match config {
        _ if !is_needed => State {
            configuration: None,
            uid: None,
            replaced: None,
            ..before
        },
        Some(config) => {
            let mut config = config.clone();
            if let Some(last) = before.configuration.as_ref().filter(|_| keeps_selector) {
                config
                    .spec
                    .node_selector
                    .clone_from(&last.spec.node_selector);
            }
            before.configured(&config)
        }
        None => before,
    }
}

/// The controller's Secrets that nothing needs once no node has anything. The state names what is left elsewhere, until nothing is.
pub(super) fn needless(state: &State) -> Vec<&'static str> {
    let state = (!state.has_copies()).then_some(STATE_SECRET);
    [ROLLED_OUT_SECRET].into_iter().chain(state).collect()
}

#[cfg(test)]
mod tests {
    use globalps_core::api::GlobalPullSecretSpec;
    use globalps_core::state::Configuration;

    use super::*;

    #[test]
    fn the_last_configuration_is_kept_while_anything_is_in_force() {
        let paused = |paused| {
            let mut spec = GlobalPullSecretSpec::default();
            spec.rollout.paused = paused;
            GlobalPullSecret::new("g", spec)
        };
        let before = State {
            configuration: Some(Configuration::of(&paused(true))),
            ..State::default()
        };
        let other = paused(false);
        for (case, before, config, is_needed, expected) in [
            ("nothing", &State::default(), None, false, None),
            ("not needed", &before, Some(&other), false, None),
            (
                "the first",
                &State::default(),
                Some(&other),
                true,
                Some(false),
            ),
            ("another one", &before, Some(&other), true, Some(false)),
            ("deleted, or held", &before, None, true, Some(true)),
            (
                "deleted before it was known",
                &State::default(),
                None,
                true,
                None,
            ),
        ] {
            let found = remembered(before, config, is_needed, false);
            let paused = found.configuration.as_ref();
            let paused = paused.map(|found| found.spec.rollout.paused);
            assert_eq!(paused, expected, "{case}");
            assert_eq!(found.is_empty(), expected.is_none(), "{case}");
        }
    }

    #[test]
    fn while_the_selector_is_held_the_rest_is_remembered() {
        let of = |pool: &str, paused| {
            let mut spec = GlobalPullSecretSpec {
                node_selector: [("pool".to_owned(), pool.to_owned())].into(),
                ..GlobalPullSecretSpec::default()
            };
            spec.rollout.paused = paused;
            GlobalPullSecret::new("g", spec)
        };
        let before = State {
            configuration: Some(Configuration::of(&of("a", false))),
            ..State::default()
        };
        for (keeps_selector, expected) in [(true, of("a", true)), (false, of("b", true))] {
            let found = remembered(&before, Some(&of("b", true)), true, keeps_selector);
            let found = found.configuration.map(|found| found.spec);
            assert_eq!(found, Some(expected.spec));
        }
    }
}
