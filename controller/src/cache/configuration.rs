//! The configuration in force, and what the controller remembers of it.

use std::collections::BTreeSet;

use globalps_core::api::GlobalPullSecretSpec;
use globalps_core::names::{LAST_SOURCE_KEY_PREFIX, STATE_SECRET};
use globalps_core::state::State;
use k8s_openapi::api::core::v1::Secret;

use super::Cache;

impl Cache {
    pub(crate) fn state(&self) -> &State {
        &self.state.last
    }

    /// Whether the Secret has this state. `None`: no Secret exists, and none is needed.
    pub(crate) fn is_stored(&self, state: Option<&State>) -> bool {
        match state {
            Some(state) => self.state.stored().as_ref() == Some(state),
            None => self.state.secret.get(STATE_SECRET).is_none() && self.state().is_empty(),
        }
    }

    pub(crate) fn put_state(&mut self, secret: Secret) {
        self.state.put(secret);
    }

    /// The controller deleted it.
    pub(crate) fn forget_state(&mut self) {
        self.state.secret.forget_all();
        self.state.last = State::default();
    }

    /// Keeps the last configuration in force instead of the current one.
    pub(crate) fn keep_configuration(&mut self, is_kept: bool) {
        let last = self.state.last.configuration.as_ref();
        let last = last.filter(|_| is_kept);
        self.state.kept = last.map(|configuration| configuration.spec.clone());
    }

    /// The spec of the `GlobalPullSecret`. While there is none that can be read: of the last one that was in force. `None`: that is not known.
    pub(super) fn configured(&self) -> Option<&GlobalPullSecretSpec> {
        let last = self.state.last.configuration.as_ref();
        let last = last.map(|configuration| &configuration.spec);
        let config = self.config().filter(|_| self.refused_delivery().is_none());
        config.map(|config| &config.spec).or(last)
    }

    /// The configuration in force; `None`: it is not known.
    pub(crate) fn spec(&self) -> Option<&GlobalPullSecretSpec> {
        self.state.kept.as_ref().or(self.configured())
    }

    /// Whether a source selects namespaces by labels.
    pub(crate) fn selects_namespaces(&self) -> bool {
        let sources = self.spec().map(|spec| &spec.sources);
        let scopes = sources.into_iter().flatten();
        let mut scopes = scopes.filter_map(|source| source.scope.as_ref());
        scopes.any(|scope| scope.namespace_selector.is_some())
    }

    /// Names of the sources to watch: those of the current configuration in their order, then those in force that it doesn't name.
    pub(crate) fn wanted_sources(&self) -> Vec<String> {
        let configured = self.configured().into_iter();
        let named = configured.flat_map(|spec| &spec.sources);
        let mut wanted: Vec<String> = named.map(|source| source.name.clone()).collect();
        let unnamed = self.last_sources().into_iter();
        let unnamed: Vec<String> = unnamed.filter(|name| !wanted.contains(name)).collect();
        wanted.extend(unnamed);
        wanted
    }

    /// Names of the sources of the content in force, and of those in the last configuration: one of the latter may not
    /// have contributed yet, and the origin of the nodes' content may be unknown.
    fn last_sources(&self) -> BTreeSet<String> {
        let global = self.global().get();
        let data = global.and_then(|global| global.data.as_ref());
        let keys = data.into_iter().flat_map(|data| data.keys());
        let gave = keys.filter_map(|key| key.strip_prefix(LAST_SOURCE_KEY_PREFIX));
        let is_in_force = global.is_some() || !self.node_pull_secrets.live.is_empty();
        let last = self.state.last.configuration.iter();
        let last = last.filter(|_| is_in_force);
        let named = last.flat_map(|configuration| &configuration.spec.sources);
        let named = named.map(|source| source.name.clone());
        gave.map(str::to_owned).chain(named).collect()
    }
}
