//! The events of the watches.

use globalps_core::api::{GlobalPullSecret, HostedControlPlaneRef, NodePullSecret, SecretRef};
use k8s_openapi::api::core::v1::Secret;
use kube::api::PartialObjectMeta;
use kube::runtime::watcher::{self, Event};

use crate::content::source::Source;
use crate::nodes::input::NodeView;
use crate::objects::managed::{LiveObject, ManagedObject};

/// An event of one of the watches.
#[allow(clippy::large_enum_variant)] // Short-lived, and never stored.
pub(crate) enum CacheEvent {
    Additional(Event<Secret>),
    Original(Source),
    /// Of the Secret of this name in `spec.sources`.
    Source(String, Source),
    Global(Event<Secret>),
    RolledOut(Event<PartialObjectMeta<Secret>>),
    Config(Event<GlobalPullSecret>),
    Managed(ManagedObject, Event<LiveObject>),
    Node(Event<NodeView>),
    NodePullSecret(Event<Box<NodePullSecret>>),
    /// A watch failed, and retries.
    Failed(&'static str, watcher::Error),
}

/// Where the original pull secret is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OriginalRef {
    Secret(SecretRef),
    Hosted(HostedControlPlaneRef),
}
