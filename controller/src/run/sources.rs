//! Watches the Secrets that the configuration refers to as sources and original.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use globalps_core::api::{GlobalPullSecretSpec, SecretRef};
use globalps_core::decode::Item;
use globalps_core::names::{DATA_KEY, OPENSHIFT_ORIGINAL};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PartialObjectMeta;
use tokio::time::Instant;

use super::openshift::Lookup;
use super::{Controller, RESYNC};
use crate::cache::{self, CacheEvents, OriginalRef};

/// Interval between lookups of `OpenShift`'s original while the controller may not read it.
const OPENSHIFT_RETRY: Duration = Duration::from_secs(30);
/// The same after a lookup that failed, and the deadline of each: the whole loop waits for it.
const FAILED_RETRY: Duration = Duration::from_secs(10);
const LOOKUP: Duration = Duration::from_secs(2);

impl Controller {
    /// Watches the additional sources in the configuration, and those in force.
    pub(super) fn watch_sources(&mut self) {
        let names = self.cache.wanted_sources();
        if self.cache.are_sources(&names) {
            return;
        }
        tracing::info!(?names, "watching the sources");
        self.source_events = cache::source_events(&self.client, &self.namespace, &names);
        self.cache.set_sources(&names);
    }

    /// Watches namespaces while a source selects some by labels, or while they get pull secrets.
    pub(super) fn watch_namespaces(&mut self) {
        let sources = self.cache.spec().map(|spec| &spec.sources);
        let scopes = sources.into_iter().flatten();
        let mut scopes = scopes.filter_map(|source| source.scope.as_ref());
        let are_selected = scopes.any(|scope| scope.namespace_selector.is_some());
        let have_secrets =
            self.cache.pull_secrets.watch().is_some() || self.cache.operators.is_watched;
        let is_wanted = are_selected || have_secrets;
        if is_wanted == self.cache.are_namespaces_watched() {
            self.cache.set_use_of_namespaces(are_selected, have_secrets);
            return;
        }
        self.namespace_events = if is_wanted {
            tracing::info!("watching namespaces");
            cache::namespace_events(&self.client)
        } else {
            CacheEvents::new()
        };
        self.cache.set_namespaces_watched(is_wanted);
        self.cache.set_use_of_namespaces(are_selected, have_secrets);
    }

    /// Watches the original pull secret in the configuration. Returns whether the plan can be made: after a change it waits for the
    /// first list.
    pub(super) async fn watch_original(&mut self) -> bool {
        let wanted = match self.cache.spec().and_then(configured) {
            None if self.has_openshift_original().await => Some(openshift_original()),
            configured => configured,
        };
        if wanted.as_ref() == self.cache.original_ref() {
            return self.cache.caches_synced();
        }
        self.original_events = match &wanted {
            Some(reference) => {
                tracing::info!(?reference, "watching the original pull secret");
                cache::original_events(&self.client, reference)
            }
            None => stream::pending().boxed(),
        };
        self.cache.set_original(wanted);
        self.cache.caches_synced()
    }

    /// Time until the next lookup of `OpenShift`'s original: short on `OpenShift`, so that a permission granted later takes
    /// effect soon.
    pub(super) fn openshift_retry(&self) -> Duration {
        if self.openshift.has_failed {
            FAILED_RETRY
        } else if self.cache.original_ref().is_none() && self.cache.is_openshift() {
            OPENSHIFT_RETRY
        } else {
            RESYNC
        }
    }

    /// Whether `OpenShift`'s original is used; looked up periodically.
    async fn has_openshift_original(&mut self) -> bool {
        let again = self.openshift_retry();
        let last = self.openshift.looked_up;
        if last.is_some_and(|last| last.elapsed() < again) {
            return self.openshift.is_used;
        }
        let (namespace, name) = OPENSHIFT_ORIGINAL;
        let secrets: Api<Item<PartialObjectMeta<Secret>>> =
            Api::namespaced(self.client.clone(), namespace);
        let lookup = match tokio::time::timeout(LOOKUP, secrets.get(name)).await {
            Ok(Ok(_)) => Lookup::Found,
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Lookup::Absent,
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => Lookup::Forbidden,
            Ok(Err(_)) | Err(_) => Lookup::Failed,
        };
        // Elsewhere a permission is never granted, and the last original was another one. So it was if the last configuration
        // named one.
        let last = self.cache.state().configuration.as_ref();
        let last = last.and_then(|last| configured(&last.spec));
        let is_in_force = self.cache.is_openshift()
            && last.is_none_or(|last| last == openshift_original())
            && self
                .cache
                .decoded_global()
                .is_some_and(|global| global.last_original.is_some());
        self.openshift.found(lookup, is_in_force);
        self.openshift.looked_up = Some(Instant::now());
        self.openshift.is_used
    }
}

/// The original pull secret that this configuration names.
fn configured(spec: &GlobalPullSecretSpec) -> Option<OriginalRef> {
    let secret = spec.original.secret_ref.clone();
    let hosted = spec.original.hosted_control_plane.clone();
    let secret = secret.map(OriginalRef::Secret);
    secret.or(hosted.map(OriginalRef::Hosted))
}

fn openshift_original() -> OriginalRef {
    let (namespace, name) = OPENSHIFT_ORIGINAL;
    OriginalRef::Secret(SecretRef {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        key: DATA_KEY.to_owned(),
    })
}
