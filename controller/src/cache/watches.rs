//! The watches. Each one recovers from errors and gaps, with backoff.

use std::fmt::Debug;

use futures::future::ready;
use futures::stream::{self, BoxStream, SelectAll, Stream, StreamExt as _};
use globalps_core::api::{NodePullSecret, SecretRef};
use globalps_core::names::{
    ABANDON_ANNOTATION, ADDITIONAL_SECRET, DATA_KEY, GLOBAL_SECRET, RETRY_ANNOTATION,
    ROLLED_OUT_SECRET,
};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PartialObjectMeta;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use super::event::{CacheEvent, OriginalRef};
use super::hosted;
use super::node::node_view;
use super::object_watch::{ObjectState, watch_object};
use crate::content::source::{Data, Source};
use crate::objects::managed::{LiveObject, ManagedKind, ManagedObject};

pub(crate) type CacheEvents = SelectAll<BoxStream<'static, CacheEvent>>;

/// All objects that are watched from the start.
pub(crate) fn events(client: &Client, namespace: &str) -> CacheEvents {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let mut events = SelectAll::new();
    events.push(named(
        secrets.clone(),
        ADDITIONAL_SECRET,
        "additional pull secret",
        CacheEvent::Additional,
    ));
    events.push(named(
        secrets,
        GLOBAL_SECRET,
        "global pull secret",
        CacheEvent::Global,
    ));
    events.push(named(
        Api::<PartialObjectMeta<Secret>>::namespaced(client.clone(), namespace),
        ROLLED_OUT_SECRET,
        "rolled-out pull secret",
        CacheEvent::RolledOut,
    ));
    let config = Api::namespaced(client.clone(), namespace);
    events.push(named(
        config,
        GLOBAL_SECRET,
        "GlobalPullSecret",
        CacheEvent::Config,
    ));
    for object in ManagedObject::all() {
        events.push(match object.kind {
            ManagedKind::ServiceAccount => managed::<ServiceAccount>(client, namespace, object),
            ManagedKind::Role => managed::<Role>(client, namespace, object),
            ManagedKind::RoleBinding => managed::<RoleBinding>(client, namespace, object),
            ManagedKind::DaemonSet => managed::<DaemonSet>(client, namespace, object),
        });
    }
    // Nodes are large objects: only the fields that the plan needs are kept.
    events.push(
        watch(Api::<Node>::all(client.clone()), all())
            .default_backoff()
            .map(|result| {
                result.map_or_else(
                    |error| CacheEvent::Failed("nodes", error),
                    |event| CacheEvent::Node(map(event, |node| node_view(&node))),
                )
            })
            .boxed(),
    );
    events.push(
        watch(
            Api::<NodePullSecret>::namespaced(client.clone(), namespace),
            all(),
        )
        .default_backoff()
        .map(|result| {
            result.map_or_else(
                |error| CacheEvent::Failed("NodePullSecrets", error),
                |event| CacheEvent::NodePullSecret(map(event, stripped)),
            )
        })
        .boxed(),
    );
    events
}

/// Watches the original pull secret.
pub(crate) fn original_events(
    client: &Client,
    reference: &OriginalRef,
) -> BoxStream<'static, CacheEvent> {
    let SecretRef {
        namespace,
        name,
        key,
    } = match reference {
        OriginalRef::Hosted(hosted) => {
            return hosted::original(client, hosted)
                .map(CacheEvent::Original)
                .boxed();
        }
        OriginalRef::Secret(secret) => secret.clone(),
    };
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    sources(secrets, &name, "original pull secret", key)
        .map(move |source| {
            CacheEvent::Original(match source {
                Source::Forbidden => Source::Unreadable(format!(
                    "the controller may not read Secret `{namespace}/{name}`: `kubectl globalps \
                     install --original {namespace}/{name} --apply` allows it"
                )),
                Source::Absent => {
                    Source::Unreadable(format!("there is no Secret `{namespace}/{name}`"))
                }
                other => other,
            })
        })
        .boxed()
}

/// Watches each of these Secrets on its own, so that a forbidden one delays no other.
pub(crate) fn source_events(client: &Client, namespace: &str, names: &[String]) -> CacheEvents {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let watch = |name: &String| {
        let name = name.clone();
        sources(secrets.clone(), &name, "source", DATA_KEY.to_owned())
            .map(move |source| CacheEvent::Source(name.clone(), source))
            .boxed()
    };
    stream::select_all(names.iter().map(watch))
}

/// The content of this key of the Secret. A failure is reported only while nothing is known yet: an outage of the API server
/// does not change the Secret.
fn sources(
    secrets: Api<Secret>,
    name: &str,
    what: &'static str,
    key: String,
) -> impl Stream<Item = Source> + Send + 'static {
    let mut is_known = false;
    watch_object(secrets, name, what).filter_map(move |state| {
        let source = match state {
            ObjectState::Present(secret) => Some(Source::Found(Data::of(&secret, &key))),
            ObjectState::Absent => Some(Source::Absent),
            ObjectState::Forbidden => Some(Source::Forbidden),
            ObjectState::Unknown(_) if is_known => None,
            ObjectState::Unknown(reason) => Some(Source::Unreadable(reason)),
        };
        is_known |= source.is_some();
        ready(source)
    })
}

/// Watches the metadata of one of the syncer's objects.
fn managed<K>(
    client: &Client,
    namespace: &str,
    object: ManagedObject,
) -> BoxStream<'static, CacheEvent>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    let api: Api<PartialObjectMeta<K>> = Api::namespaced(client.clone(), namespace);
    watch(api, by_name(object.agent.name()))
        .default_backoff()
        .map(move |result| {
            result.map_or_else(
                |error| CacheEvent::Failed("syncer", error),
                |event| CacheEvent::Managed(object, map(event, LiveObject::from)),
            )
        })
        .boxed()
}

fn by_name(name: &str) -> watcher::Config {
    watcher::Config::default().fields(&format!("metadata.name={name}"))
}

fn named<K: Resource + Clone + Debug + DeserializeOwned + Send + 'static>(
    api: Api<K>,
    name: &str,
    what: &'static str,
    event: fn(Event<K>) -> CacheEvent,
) -> BoxStream<'static, CacheEvent> {
    watched(api, by_name(name), what, event)
}

fn all() -> watcher::Config {
    watcher::Config::default().page_size(50)
}

/// Without the fields that nothing depends on: there are thousands of these objects.
pub(super) fn stripped(mut object: NodePullSecret) -> Box<NodePullSecret> {
    let metadata = std::mem::take(&mut object.metadata);
    // Each object also has the leader annotation, which costs half a kilobyte in a map.
    let kept = metadata.annotations.and_then(|mut annotations| {
        annotations.retain(|key, _| [RETRY_ANNOTATION, ABANDON_ANNOTATION].contains(&key.as_str()));
        (!annotations.is_empty()).then_some(annotations)
    });
    object.metadata = ObjectMeta {
        name: metadata.name,
        uid: metadata.uid,
        annotations: kept,
        generation: metadata.generation,
        resource_version: metadata.resource_version,
        ..ObjectMeta::default()
    };
    Box::new(object)
}

fn map<K, V>(event: Event<K>, f: impl Fn(K) -> V) -> Event<V> {
    match event {
        Event::Apply(object) => Event::Apply(f(object)),
        Event::Delete(object) => Event::Delete(f(object)),
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(f(object)),
        Event::InitDone => Event::InitDone,
    }
}

fn watched<K: Resource + Clone + Debug + DeserializeOwned + Send + 'static>(
    api: Api<K>,
    config: watcher::Config,
    what: &'static str,
    event: fn(Event<K>) -> CacheEvent,
) -> BoxStream<'static, CacheEvent> {
    watch(api, config)
        .default_backoff()
        .modify(|object| object.meta_mut().managed_fields = None)
        .map(move |result| result.map_or_else(|error| CacheEvent::Failed(what, error), event))
        .boxed()
}
