//! Watches what the configuration names.

use std::time::Duration;

use globalps_core::api::{DeliveryType, GlobalPullSecretSpec, SecretRef};
use globalps_core::decode::Item;
use globalps_core::names::{DATA_KEY, OPENSHIFT_ORIGINAL};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PartialObjectMeta;
use tokio::time::Instant;

use super::Controller;
use super::known::ForOperators;
use super::openshift::Lookup;
use crate::cache::{OriginalRef, Watch};
use crate::leader::reconciling::RESYNC;

/// Interval between lookups of `OpenShift`'s original while the controller may not read it.
const OPENSHIFT_RETRY: Duration = Duration::from_secs(30);
/// The same after a lookup that failed, and the deadline of each: the whole loop waits for it.
const FAILED_RETRY: Duration = Duration::from_secs(10);
const LOOKUP: Duration = Duration::from_secs(2);

impl Controller {
    /// Returns whether the plan can be made: after a change it waits for the first lists.
    pub(super) async fn watch(&mut self) -> bool {
        self.look_up_policy().await;
        let original = self.original().await;
        let wanted = self.wanted(original);
        let pull_secrets = self.cache.pull_secrets.watch().cloned();
        let had_operators = self.cache.operators.is_watched;
        self.cache.set_watches(&wanted);
        let is_other = self.cache.pull_secrets.watch() != pull_secrets.as_ref();
        if is_other {
            // The results of pending writes concern other Secrets.
            self.namespaces.executor.pending.clear();
        }
        if self.cache.operators.is_watched != had_operators {
            self.operators = ForOperators::default();
        }
        if is_other || self.lists_again() {
            self.namespaces.listed = Some(Instant::now());
            self.watches
                .end(|watch| matches!(watch, Watch::PullSecrets(_)));
        }
        self.watches.set(&self.client, &self.namespace, &wanted);
        self.cache.caches_synced()
    }

    /// The sources in the configuration and those in force; the original; what is needed while namespaces or operators get pull
    /// secrets or still have some.
    fn wanted(&self, original: Option<OriginalRef>) -> Vec<Watch> {
        let sources = self.cache.wanted_sources().into_iter();
        let mut wanted: Vec<Watch> = sources.map(Watch::Source).collect();
        wanted.extend(original.map(Watch::Original));
        wanted.extend(self.writes_cluster_secret().then_some(Watch::ClusterSecret));
        let has_pools = self.cache.delivery() == DeliveryType::OpenShift;
        wanted.extend(has_pools.then_some(Watch::Pools));
        let pull_secrets = self.wanted_pull_secrets();
        let has_operators = self.operator_settings().is_some();
        if pull_secrets.is_some() || has_operators || self.cache.selects_namespaces() {
            wanted.push(Watch::Namespaces);
        }
        wanted.extend(pull_secrets.map(Watch::PullSecrets));
        if has_operators {
            wanted.push(Watch::Operators);
            let secrets = self.cache.operators.named().into_iter();
            wanted.extend(secrets.map(Watch::CatalogSecret));
        }
        wanted
    }

    /// The original pull secret: that of the configuration, or `OpenShift`'s.
    async fn original(&mut self) -> Option<OriginalRef> {
        if self.cache.delivery() == DeliveryType::OpenShift {
            return None;
        }
        match self.cache.spec().and_then(configured) {
            None if self.has_openshift_original().await => Some(openshift_original()),
            configured => configured,
        }
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
