//! Which Secrets the configuration names as sources and original, and the watches of them.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use globalps_core::api::SecretRef;
use globalps_core::names::{DATA_KEY, OPENSHIFT_ORIGINAL};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use tokio::time::Instant;

use super::{Controller, RESYNC};
use crate::cache::{self, OriginalRef};

/// Between two looks for the original of a cluster of `OpenShift`, which the controller may not read yet.
const OPENSHIFT_RETRY: Duration = Duration::from_secs(30);

/// What is known of the original pull secret.
pub(super) enum Followed {
    Same,
    /// It is another one from now on, and the plan waits for its first list.
    Other,
    /// Nobody said whether there is one.
    Unknown,
}

impl Controller {
    /// Watches the further sources that the configuration names.
    pub(super) fn follow_sources(&mut self) {
        let sources = self.world.config().map(|config| &config.spec.sources);
        let sources = sources.into_iter().flatten();
        let names: Vec<String> = sources.map(|source| source.name.clone()).collect();
        if self.world.are_sources(&names) {
            return;
        }
        tracing::info!(?names, "watching the sources");
        self.source_changes = cache::source_changes(&self.client, &self.namespace, &names);
        self.world.expect_sources(&names);
    }

    /// Watches the original pull secret that the configuration names.
    pub(super) async fn follow_original(&mut self) -> Followed {
        let original = self.world.config().map(|config| &config.spec.original);
        let secret = original.and_then(|original| original.secret_ref.clone());
        let hosted = original.and_then(|original| original.hosted_control_plane.clone());
        let configured = secret
            .map(OriginalRef::Secret)
            .or(hosted.map(OriginalRef::Hosted));
        let wanted = match configured {
            Some(reference) => Some(reference),
            None => match self.openshift_original().await {
                Some(found) => found.map(OriginalRef::Secret),
                None => return Followed::Unknown,
            },
        };
        if wanted.as_ref() == self.world.original_ref() {
            return Followed::Same;
        }
        self.original_changes = match &wanted {
            Some(reference) => {
                tracing::info!(?reference, "watching the original");
                cache::original_changes(&self.client, reference)
            }
            None => stream::pending().boxed(),
        };
        self.world.expect_original(wanted);
        if self.world.is_complete() {
            Followed::Same
        } else {
            Followed::Other
        }
    }

    /// After what time `OpenShift`'s original is looked for again: soon where it is to be expected, so that a permission
    /// that comes late is used.
    pub(super) fn openshift_again(&self) -> Duration {
        if self.world.original_ref().is_none() && self.world.is_openshift() {
            OPENSHIFT_RETRY
        } else {
            RESYNC
        }
    }

    /// `OpenShift`'s original, where there is one that the controller may read; looked for now and then.
    /// `None`: nobody answered.
    pub(super) async fn openshift_original(&mut self) -> Option<Option<SecretRef>> {
        let again = self.openshift_again();
        if self.openshift.0.is_some_and(|last| last.elapsed() < again) {
            return Some(self.openshift.1.clone());
        }
        let (namespace, name) = OPENSHIFT_ORIGINAL;
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        match tokio::time::timeout(Duration::from_secs(5), secrets.get_metadata(name)).await {
            Ok(Ok(_)) => {
                self.openshift.1 = Some(SecretRef {
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                    key: DATA_KEY.to_owned(),
                });
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => self.openshift.1 = None,
            // One that was read before does not go away with the permission.
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {}
            // No answer says nothing: to go on without would take the original's credentials from every node.
            Ok(Err(_)) | Err(_) => return None,
        }
        self.openshift.0 = Some(Instant::now());
        Some(self.openshift.1.clone())
    }
}
