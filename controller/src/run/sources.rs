//! Watches the Secrets that the configuration refers to as sources and original.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use globalps_core::api::SecretRef;
use globalps_core::decode::Item;
use globalps_core::names::{DATA_KEY, OPENSHIFT_ORIGINAL};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PartialObjectMeta;
use tokio::time::Instant;

use super::{Controller, RESYNC};
use crate::cache::{self, CacheEvents, OriginalRef};

/// Interval between lookups of `OpenShift`'s original while the controller may not read it.
const OPENSHIFT_RETRY: Duration = Duration::from_secs(30);

/// The watch of the original pull secret.
pub(super) enum Watched {
    Unchanged,
    /// Another one is watched now, and the plan waits for its first list.
    Replaced,
    /// The API server did not report whether there is one.
    Unknown,
}

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

    /// Watches the original pull secret in the configuration.
    pub(super) async fn watch_original(&mut self) -> Watched {
        let original = self.cache.spec().map(|spec| &spec.original);
        let secret = original.and_then(|original| original.secret_ref.clone());
        let hosted = original.and_then(|original| original.hosted_control_plane.clone());
        let configured = secret
            .map(OriginalRef::Secret)
            .or(hosted.map(OriginalRef::Hosted));
        let wanted = match configured {
            Some(reference) => Some(reference),
            None => match self.openshift_original().await {
                Some(found) => found.map(OriginalRef::Secret),
                None => return Watched::Unknown,
            },
        };
        if wanted.as_ref() == self.cache.original_ref() {
            return Watched::Unchanged;
        }
        self.original_events = match &wanted {
            Some(reference) => {
                tracing::info!(?reference, "watching the original pull secret");
                cache::original_events(&self.client, reference)
            }
            None => stream::pending().boxed(),
        };
        self.cache.set_original(wanted);
        if self.cache.caches_synced() {
            Watched::Unchanged
        } else {
            Watched::Replaced
        }
    }

    /// Time until the next lookup of `OpenShift`'s original: short on `OpenShift`, so that a permission granted later takes
    /// effect soon.
    pub(super) fn openshift_retry(&self) -> Duration {
        if self.cache.original_ref().is_none() && self.cache.is_openshift() {
            OPENSHIFT_RETRY
        } else {
            RESYNC
        }
    }

    /// `OpenShift`'s original, if there is one that the controller may read; looked up periodically. `None`: no response.
    pub(super) async fn openshift_original(&mut self) -> Option<Option<SecretRef>> {
        let again = self.openshift_retry();
        if self.openshift.0.is_some_and(|last| last.elapsed() < again) {
            return Some(self.openshift.1.clone());
        }
        let (namespace, name) = OPENSHIFT_ORIGINAL;
        let secrets: Api<Item<PartialObjectMeta<Secret>>> =
            Api::namespaced(self.client.clone(), namespace);
        match tokio::time::timeout(Duration::from_secs(5), secrets.get(name)).await {
            Ok(Ok(_)) => {
                self.openshift.1 = Some(SecretRef {
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                    key: DATA_KEY.to_owned(),
                });
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => self.openshift.1 = None,
            // A lost permission does not remove an original that was read before.
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {}
            // Unknown: treating it as absent would remove its credentials from every node.
            Ok(Err(_)) | Err(_) => return None,
        }
        self.openshift.0 = Some(Instant::now());
        Some(self.openshift.1.clone())
    }
}
