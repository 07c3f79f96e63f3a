//! The watches of the cache, and their events as one stream.

use std::fmt::Debug;

use futures::future::ready;
use futures::stream::{AbortHandle, BoxStream, SelectAll, Stream, StreamExt as _, abortable};
use globalps_core::api::{NodePullSecret, SecretRef};
use globalps_core::decode::Item;
use globalps_core::names::{
    ABANDON_ANNOTATION, ADDITIONAL_SECRET, APPLIED_SECRET, DATA_KEY, FORGET_ANNOTATION,
    GLOBAL_SECRET, MAY_REPLACE_ANNOTATION, OBSERVER, OPENSHIFT_ORIGINAL, RECORD_SECRET, RESTORER,
    RETRY_ANNOTATION, ROLLED_OUT_SECRET, STATE_SECRET, SYNCER, forget_up_to,
};
use globalps_planner::content::source::{Data, Source};
use globalps_planner::nodes::forget::may_have_old;
use globalps_planner::targets::Id;
use globalps_runtime::list_events::one;
use globalps_runtime::list_watch::{Update, list_watch};
use globalps_runtime::object_watch::{ObjectState, watch_object};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Namespace, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ListParams, PartialObjectMeta};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use super::event::{CacheEvent, OperatorEvent, OriginalRef};
use super::hosted;
use super::node::node_view;
use super::operators::operator_events;
use super::pools::pool_events;
use super::pull_secrets::{PullSecretsWatch, pull_secret_events};
use crate::objects::managed::{LiveObject, ManagedKind, ManagedObject};
use crate::objects::pods::{PodFields, pod_view};
use crate::objects::views::{DaemonSetView, NodeFields};

/// Objects per page. A Node with the names of its images can have 40 KB.
const PAGE: u32 = 50;
const PAGE_OF_NODES: u32 = 25;

/// A watch of what the configuration names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    Original(OriginalRef),
    /// The Secret of this name as a source. Each has its own watch, so that a forbidden one does not delay the others.
    Source(String),
    /// `OpenShift`'s own pull secret, to write into it.
    ClusterSecret,
    /// The pools of the Machine Config Operator.
    Pools,
    /// The labels of all namespaces.
    Namespaces,
    PullSecrets(PullSecretsWatch),
    /// Everything that operators need, except the pull secrets of catalogs.
    Operators,
    /// The pull secret of a catalog, as [`Self::Source`].
    CatalogSecret(Id),
}

impl Watch {
    fn start(&self, client: &Client, namespace: &str) -> BoxStream<'static, CacheEvent> {
        match self {
            Self::Original(OriginalRef::Hosted(hosted)) => hosted::original(client, hosted)
                .map(CacheEvent::Original)
                .boxed(),
            Self::Original(OriginalRef::Secret(secret)) => original_events(client, secret.clone()),
            Self::Source(name) => {
                let name = name.clone();
                sources(client, (namespace, &name), "source", DATA_KEY)
                    .map(move |source| CacheEvent::Source(name.clone(), source))
                    .boxed()
            }
            Self::CatalogSecret(id) => {
                let id = id.clone();
                sources(client, (&id.0, &id.1), "pull secret of a catalog", DATA_KEY)
                    .map(move |source| OperatorEvent::Secret(id.clone(), source))
                    .map(CacheEvent::Operators)
                    .boxed()
            }
            Self::ClusterSecret => {
                let (namespace, name) = OPENSHIFT_ORIGINAL;
                let secrets = Api::<Item<Secret>>::namespaced(client.clone(), namespace);
                watch_object(secrets, name, "pull secret of the cluster")
                    .map(CacheEvent::ClusterSecret)
                    .boxed()
            }
            Self::Pools => pool_events(client).map(CacheEvent::Pool).boxed(),
            Self::Namespaces => {
                let namespaces = Api::<Item<PartialObjectMeta<Namespace>>>::all(client.clone());
                list_watch(namespaces, all(), "namespaces")
                    .map(|update| CacheEvent::Namespace(update.map(Into::into)))
                    .boxed()
            }
            Self::PullSecrets(watch) => pull_secret_events(client, watch),
            Self::Operators => operator_events(client),
        }
    }
}

/// The watches of everything.
pub(crate) struct Watches {
    events: SelectAll<BoxStream<'static, CacheEvent>>,
    /// The watches that can end.
    running: Vec<(Watch, AbortHandle)>,
}

impl Watches {
    /// Watches what does not depend on the configuration.
    pub(crate) fn new(client: &Client, namespace: &str) -> Self {
        Self {
            events: events(client, namespace).collect(),
            running: Vec::new(),
        }
    }

    /// Starts those of these that don't run, and ends all others.
    pub(crate) fn set(&mut self, client: &Client, namespace: &str, wanted: &[Watch]) {
        self.end(|watch| !wanted.contains(watch));
        for watch in wanted {
            if self.running.iter().all(|(running, _)| running != watch) {
                tracing::info!(?watch, "watching");
                let (events, handle) = abortable(watch.start(client, namespace));
                self.events.push(events.boxed());
                self.running.push((watch.clone(), handle));
            }
        }
    }

    pub(crate) fn end(&mut self, is_over: impl Fn(&Watch) -> bool) {
        let ended = self.running.extract_if(.., |(watch, _)| is_over(watch));
        ended.for_each(|(_, handle)| handle.abort());
    }

    /// `None`: every watch has ended.
    pub(crate) async fn next(&mut self) -> Option<CacheEvent> {
        self.events.next().await
    }
}

/// All objects that are watched from the start.
fn events(
    client: &Client,
    namespace: &str,
) -> impl Iterator<Item = BoxStream<'static, CacheEvent>> {
    fn api<K>(client: &Client, namespace: &str) -> Api<Item<K>>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(client.clone(), namespace)
    }
    let additional = watch_object(
        api(client, namespace),
        ADDITIONAL_SECRET,
        "additional pull secret",
    );
    let global = named(api(client, namespace), GLOBAL_SECRET, "global pull secret");
    let record = named(api(client, namespace), RECORD_SECRET, "record");
    let applied = named(api(client, namespace), APPLIED_SECRET, "applied entries");
    let rolled_out = named(
        api(client, namespace),
        ROLLED_OUT_SECRET,
        "rolled-out pull secret",
    );
    let config = named(api(client, namespace), GLOBAL_SECRET, "GlobalPullSecret");
    let state = named(api(client, namespace), STATE_SECRET, "state");
    // Nodes are large objects: keep only the fields that the plan needs.
    let nodes = Api::<Item<NodeFields>>::all(client.clone());
    let nodes = list_watch(nodes, all().limit(PAGE_OF_NODES), "nodes");
    let node_pull_secrets = list_watch(
        api::<NodePullSecret>(client, namespace),
        all(),
        "NodePullSecrets",
    );
    let pods = ListParams {
        label_selector: Some(format!("name in ({SYNCER}, {RESTORER}, {OBSERVER})")),
        ..all()
    };
    let pods = list_watch(api::<PodFields>(client, namespace), pods, "syncers' pods");
    let managed = ManagedObject::all().map(|object| match object.kind {
        ManagedKind::ServiceAccount => managed(
            api::<PartialObjectMeta<ServiceAccount>>(client, namespace),
            object,
        ),
        ManagedKind::Role => managed(api::<PartialObjectMeta<Role>>(client, namespace), object),
        ManagedKind::RoleBinding => managed(
            api::<PartialObjectMeta<RoleBinding>>(client, namespace),
            object,
        ),
        ManagedKind::DaemonSet => managed(api::<DaemonSetView>(client, namespace), object),
    });
    let others = [
        additional.map(CacheEvent::Additional).boxed(),
        global.map(CacheEvent::Global).boxed(),
        record.map(CacheEvent::Record).boxed(),
        applied.map(CacheEvent::Applied).boxed(),
        rolled_out.map(CacheEvent::RolledOut).boxed(),
        config.map(CacheEvent::Config).boxed(),
        state.map(CacheEvent::State).boxed(),
        nodes
            .map(|update| CacheEvent::Node(update.map(|node| Box::new(node_view(&node)))))
            .boxed(),
        node_pull_secrets
            .map(|update| CacheEvent::NodePullSecret(update.map(stripped)))
            .boxed(),
        pods.map(|update| CacheEvent::Pod(update.map(|pod| pod_view(&pod))))
            .boxed(),
    ];
    managed.chain(others)
}

fn original_events(
    client: &Client,
    SecretRef {
        namespace,
        name,
        key,
    }: SecretRef,
) -> BoxStream<'static, CacheEvent> {
    sources(client, (&namespace, &name), "original pull secret", &key)
        .map(move |source| {
            CacheEvent::Original(match source {
                Source::Forbidden => Source::Unreadable(format!(
                    "the controller may not read Secret `{namespace}/{name}`: `kubectl globalps \
                     install --original {namespace}/{name}` allows it"
                )),
                Source::Absent => {
                    Source::Unreadable(format!("there is no Secret `{namespace}/{name}`"))
                }
                Source::Unreadable(reason) => Source::Unreadable(format!(
                    "Secret `{namespace}/{name}` can't be read: {reason}"
                )),
                found @ Source::Found(_) => found,
            })
        })
        .boxed()
}

/// The content of this key of the Secret. An error is reported only while nothing is known yet: an outage of the API server does
/// not change the Secret.
fn sources(
    client: &Client,
    (namespace, name): (&str, &str),
    what: &'static str,
    key: &str,
) -> impl Stream<Item = Source> + Send + use<> {
    let secrets: Api<Item<Secret>> = Api::namespaced(client.clone(), namespace);
    let key = key.to_owned();
    let mut is_known = false;
    watch_object(secrets, name, what).filter_map(move |state| {
        let source = match state {
            ObjectState::Present(secret) => Some(Source::Found(Data::of(&secret, &key))),
            ObjectState::Absent => Some(Source::Absent),
            ObjectState::Forbidden => Some(Source::Forbidden),
            ObjectState::Unknown(_) if is_known => None,
            ObjectState::Stale => None,
            ObjectState::Unreadable(reason) | ObjectState::Unknown(reason) => {
                Some(Source::Unreadable(reason))
            }
        };
        is_known |= source.is_some();
        ready(source)
    })
}

/// Watches one of the syncer's objects.
fn managed<K>(api: Api<Item<K>>, object: ManagedObject) -> BoxStream<'static, CacheEvent>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    K::DynamicType: Clone + Send + Sync,
    LiveObject: From<K>,
{
    named(api, object.agent.name(), "syncer")
        .map(move |update| CacheEvent::Managed(object, update.map(LiveObject::from)))
        .boxed()
}

fn named<K>(api: Api<Item<K>>, name: &str, what: &'static str) -> BoxStream<'static, Update<K>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    K::DynamicType: Clone + Send + Sync,
{
    list_watch(api, one(name), what)
}

fn all() -> ListParams {
    ListParams::default().limit(PAGE)
}

/// Without unused fields, because there are thousands of these objects.
pub(crate) fn stripped(mut object: NodePullSecret) -> Box<NodePullSecret> {
    let metadata = std::mem::take(&mut object.metadata);
    // Each object also has the leader annotation, which costs half a kilobyte in a map.
    let kept = metadata.annotations.and_then(|mut annotations| {
        let asked = forget_up_to(&annotations).and_then(Result::ok);
        let is_answered = asked.is_none_or(|asked| !may_have_old(&object, asked));
        annotations.retain(|key, _| match key.as_str() {
            RETRY_ANNOTATION | ABANDON_ANNOTATION | MAY_REPLACE_ANNOTATION => true,
            FORGET_ANNOTATION => !is_answered,
            _ => false,
        });
        (!annotations.is_empty()).then_some(annotations)
    });
    object.metadata = ObjectMeta {
        name: metadata.name,
        uid: metadata.uid,
        annotations: kept,
        generation: metadata.generation,
        resource_version: metadata.resource_version,
        deletion_timestamp: metadata.deletion_timestamp,
        ..ObjectMeta::default()
    };
    Box::new(object)
}
