//! `OpenShift`'s own pull secret, and what the controller wrote into it.

use std::collections::BTreeSet;

use globalps_core::names::DATA_KEY;
use globalps_dockerconfig::{Applied, DockerConfig};
use globalps_planner::openshift::{applied, of_others};
use globalps_runtime::object_watch::ObjectState;
use k8s_openapi::api::core::v1::Secret;

use super::Cache;

impl Cache {
    /// `OpenShift`'s own pull secret; `None`: not listed yet.
    pub(crate) fn cluster_secret(&self) -> Option<&ObjectState<Secret>> {
        self.cluster_secret.state.as_ref()
    }

    /// Registries for which it has an entry of other programs.
    pub(super) fn registries_of_others(&self) -> BTreeSet<String> {
        let Some(ObjectState::Present(secret)) = self.cluster_secret() else {
            return BTreeSet::new();
        };
        let document = secret.data.as_ref().and_then(|data| data.get(DATA_KEY));
        let document = document.map_or(&[][..], |document| &document.0);
        of_others(document, &self.applied().unwrap_or_default())
    }

    /// The response to a write of it.
    pub(crate) fn put_cluster_secret(&mut self, secret: Secret) {
        if self.cluster_secret.is_watched {
            self.cluster_secret.state = Some(ObjectState::Present(secret));
        }
    }

    /// What was written into it; `None`: nothing.
    pub(crate) fn applied(&self) -> Option<Applied> {
        self.applied.get().map(applied::decode)
    }

    /// Whether the API server has exactly this.
    pub(crate) fn has_applied(&self, wanted: &Secret) -> bool {
        let stored = self.applied.stored().filter(|_| !self.applied.is_lost);
        stored.is_some_and(|stored| stored.data == wanted.data)
    }

    pub(crate) fn put_applied(&mut self, secret: Secret) {
        self.applied.put(secret);
    }

    /// `global-pull-secret`, with which observers compare, exists.
    pub(crate) fn is_delivered(&self) -> bool {
        self.global.stored().is_some()
    }

    /// Whether observers compare with these entries.
    pub(crate) fn has_delivered(&self, entries: &DockerConfig) -> bool {
        let data = self.global.stored().and_then(|secret| secret.data.as_ref());
        let value = data.and_then(|data| data.get(DATA_KEY));
        value.is_some_and(|value| value.0 == entries.render())
    }

    pub(crate) fn put_delivered(&mut self, secret: Secret) {
        self.global.put(secret);
    }
}
