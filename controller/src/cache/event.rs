//! The events of the watches.

use globalps_core::api::{GlobalPullSecret, HostedControlPlaneRef, NodePullSecret, SecretRef};
use k8s_openapi::api::core::v1::Secret;
use kube::api::PartialObjectMeta;

use super::list_watch::Update;
use super::object_watch::ObjectState;
use crate::content::source::Source;
use crate::namespaces::views::{AccountView, NamespaceView, PullSecretView};
use crate::nodes::input::NodeView;
use crate::objects::managed::{LiveObject, ManagedObject};

/// An event of one of the watches.
#[allow(clippy::large_enum_variant)] // Short-lived, and never stored.
pub(crate) enum CacheEvent {
    Additional(ObjectState<Secret>),
    Original(Source),
    /// Of the Secret of this name in `spec.sources`.
    Source(String, Source),
    Global(Update<Secret>),
    RolledOut(Update<PartialObjectMeta<Secret>>),
    Config(Update<GlobalPullSecret>),
    Managed(ManagedObject, Update<LiveObject>),
    Node(Update<NodeView>),
    NodePullSecret(Update<Box<NodePullSecret>>),
    Namespace(Update<NamespaceView>),
    /// Of a namespace.
    PullSecret(Update<PullSecretView>),
    ServiceAccount(Update<AccountView>),
}

/// Where the original pull secret is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OriginalRef {
    Secret(SecretRef),
    Hosted(HostedControlPlaneRef),
}
