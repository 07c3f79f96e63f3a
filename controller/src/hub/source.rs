//! Watch of a source of a `FleetPullSecret`.

use std::future::ready;

use futures::{Stream, StreamExt as _};
use globalps_core::decode::Item;
use globalps_planner::content::source::{Data, Source};
use globalps_runtime::object_watch::{ObjectState, watch_object};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt as _};

/// Namespace, name and key of the source of a `FleetPullSecret`.
pub(super) type SourceRef = (String, String, String);

/// A source, and the `resourceVersion` of its Secret.
#[derive(Clone)]
pub(super) struct SourceState {
    pub(super) source: Source,
    pub(super) version: String,
}

/// Bytes of the sources of a namespace.
const MOST: usize = 16 << 20;

impl SourceState {
    pub(super) fn size(&self) -> usize {
        match &self.source {
            Source::Found(data) => data.0.as_ref().map_or(0, Vec::len),
            _ => 0,
        }
    }

    /// `others`: bytes of the other sources of the namespace, whose author must not exhaust the hub.
    pub(super) fn within(self, others: usize, namespace: &str) -> Self {
        if self.size().saturating_add(others) <= MOST || self.size() == 0 {
            return self;
        }
        let reason = format!(
            "the sources of the FleetPullSecrets in namespace `{namespace}` have more than {} MiB together",
            MOST >> 20
        );
        Self {
            source: Source::Unreadable(reason),
            ..self
        }
    }
}

/// Watches a source. It reports an error only while the source is unknown: an outage of the API server does not change the Secret.
pub(super) fn source(
    client: &Client,
    (namespace, name, key): &SourceRef,
) -> impl Stream<Item = SourceState> + Send + use<> {
    let secrets: Api<Item<Secret>> = Api::namespaced(client.clone(), namespace);
    let key = key.clone();
    let mut is_known = false;
    watch_object(secrets, name, "source").filter_map(move |state| {
        let without = |source| SourceState {
            source,
            version: String::new(),
        };
        let found = match state {
            ObjectState::Present(secret) => Some(SourceState {
                source: Source::Found(Data::of(&secret, &key)),
                version: secret.resource_version().unwrap_or_default(),
            }),
            ObjectState::Absent => Some(without(Source::Absent)),
            ObjectState::Unreadable(reason) => Some(without(Source::Unreadable(reason))),
            ObjectState::Forbidden => Some(without(Source::Forbidden)),
            ObjectState::Unknown(reason) if !is_known => Some(without(Source::Unreadable(reason))),
            ObjectState::Unknown(_) | ObjectState::Stale => None,
        };
        is_known |= found.is_some();
        ready(found)
    })
}
