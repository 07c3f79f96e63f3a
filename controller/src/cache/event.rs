//! The events of the watches.

use globalps_core::api::{GlobalPullSecret, HostedControlPlaneRef, NodePullSecret, SecretRef};
use globalps_planner::content::source::Source;
use globalps_planner::namespaces::views::PullSecretView;
use globalps_planner::nodes::input::NodeView;
use globalps_planner::operators::views::{CatalogView, CsvView, SubscriptionView};
use globalps_planner::targets::Id;
use globalps_planner::targets::account::AccountView;
use globalps_planner::targets::namespace::NamespaceView;
use globalps_runtime::list_watch::Update;
use globalps_runtime::object_watch::ObjectState;
use k8s_openapi::api::core::v1::Secret;

use super::pools::PoolView;
use crate::objects::managed::{LiveObject, ManagedObject};
use crate::objects::pods::PodView;

/// An event of one of the watches.
#[expect(clippy::large_enum_variant, reason = "short-lived, and never stored")]
pub(crate) enum CacheEvent {
    Additional(ObjectState<Secret>),
    Original(Source),
    /// The Secret of this name, a source.
    Source(String, Source),
    Global(Update<Secret>),
    /// What `Global` is where that belongs to `HyperShift`'s controller.
    Record(Update<Secret>),
    /// What the controller wrote into `OpenShift`'s pull secret.
    Applied(Update<Secret>),
    /// `OpenShift`'s own pull secret.
    ClusterSecret(ObjectState<Secret>),
    Pool(Update<PoolView>),
    RolledOut(Update<Secret>),
    Config(Update<GlobalPullSecret>),
    /// The controller's own state.
    State(Update<Secret>),
    Managed(ManagedObject, Update<LiveObject>),
    Node(Update<Box<NodeView>>),
    NodePullSecret(Update<Box<NodePullSecret>>),
    /// A pod of a syncer or restorer.
    Pod(Update<PodView>),
    Namespace(Update<NamespaceView>),
    /// Events in a namespace.
    PullSecret(Update<PullSecretView>),
    ServiceAccount(Update<AccountView>),
    Operators(OperatorEvent),
}

/// An event for operators. The Secret belongs to a catalog.
pub(crate) enum OperatorEvent {
    Subscription(Update<SubscriptionView>),
    Catalog(Update<CatalogView>),
    Csv(Update<CsvView>),
    Account(Update<AccountView>),
    Secret(Id, Source),
}

/// Location of the original pull secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OriginalRef {
    Secret(SecretRef),
    Hosted(HostedControlPlaneRef),
}
