//! The watches. Each recovers from errors and gaps by itself, with backoff.

use std::fmt::Debug;

use futures::future::ready;
use futures::stream::{self, BoxStream, SelectAll, Stream, StreamExt as _};
use globalps_core::api::{NodePullSecret, SecretRef};
use globalps_core::names::{ADDITIONAL_SECRET, DATA_KEY, GLOBAL_SECRET, RETRY_ANNOTATION, SYNCER};
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

use super::hosted;
use super::node::node_view;
use super::{Change, OriginalRef};
use crate::cache::object_watch::{Seen, follow};
use crate::content::resolve::{Data, Source};
use crate::objects::managed::{Created, Piece};

pub(crate) type Changes = SelectAll<BoxStream<'static, Change>>;

/// Everything that is watched from the start. Each watch recovers from errors and gaps by itself, with backoff.
pub(crate) fn changes(client: &Client, namespace: &str) -> Changes {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let mut changes = SelectAll::new();
    changes.push(named(
        secrets.clone(),
        ADDITIONAL_SECRET,
        "additional pull secret",
        Change::Additional,
    ));
    changes.push(named(
        secrets,
        GLOBAL_SECRET,
        "global pull secret",
        Change::Global,
    ));
    let config = Api::namespaced(client.clone(), namespace);
    changes.push(named(
        config,
        GLOBAL_SECRET,
        "GlobalPullSecret",
        Change::Config,
    ));
    changes.push(created::<ServiceAccount>(
        client,
        namespace,
        Piece::ServiceAccount,
    ));
    changes.push(created::<Role>(client, namespace, Piece::Role));
    changes.push(created::<RoleBinding>(
        client,
        namespace,
        Piece::RoleBinding,
    ));
    changes.push(created::<DaemonSet>(client, namespace, Piece::DaemonSet));
    // Nodes are large objects: only what the plan needs of them is kept.
    changes.push(
        watch(Api::<Node>::all(client.clone()), all())
            .default_backoff()
            .map(|result| {
                result.map_or_else(
                    |error| Change::Failed("nodes", error),
                    |event| Change::Node(map(event, |node| node_view(&node))),
                )
            })
            .boxed(),
    );
    changes.push(
        watch(
            Api::<NodePullSecret>::namespaced(client.clone(), namespace),
            all(),
        )
        .default_backoff()
        .map(|result| {
            result.map_or_else(
                |error| Change::Failed("NodePullSecrets", error),
                |event| Change::NodePullSecret(map(event, stripped)),
            )
        })
        .boxed(),
    );
    changes
}

/// A watch of the original pull secret.
pub(crate) fn original_changes(
    client: &Client,
    reference: &OriginalRef,
) -> BoxStream<'static, Change> {
    let SecretRef {
        namespace,
        name,
        key,
    } = match reference {
        OriginalRef::Hosted(hosted) => {
            return hosted::original(client, hosted)
                .map(Change::Original)
                .boxed();
        }
        OriginalRef::Secret(secret) => secret.clone(),
    };
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    sources(secrets, &name, "original pull secret", key)
        .map(move |source| {
            Change::Original(match source {
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

/// A watch of each of these Secrets, so that one that may not be read holds up no other.
pub(crate) fn source_changes(client: &Client, namespace: &str, names: &[String]) -> Changes {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let watch = |name: &String| {
        let name = name.clone();
        sources(secrets.clone(), &name, "source", DATA_KEY.to_owned())
            .map(move |source| Change::Source(name.clone(), source))
            .boxed()
    };
    stream::select_all(names.iter().map(watch))
}

/// What this key of the Secret holds. Where the API server is away, that is told only if nothing was known before: when it
/// is back, the Secret is as it was.
fn sources(
    secrets: Api<Secret>,
    name: &str,
    what: &'static str,
    key: String,
) -> impl Stream<Item = Source> + Send + 'static {
    let mut is_known = false;
    follow(secrets, name, what).filter_map(move |seen| {
        let source = match seen {
            Seen::There(secret) => Some(Source::Found(Data::of(&secret, &key))),
            Seen::Absent => Some(Source::Absent),
            Seen::Forbidden => Some(Source::Forbidden),
            Seen::Unknown(_) if is_known => None,
            Seen::Unknown(why) => Some(Source::Unreadable(why)),
        };
        is_known |= source.is_some();
        ready(source)
    })
}

/// A watch of one of the syncer's objects, of which nothing but the metadata is needed.
fn created<K>(client: &Client, namespace: &str, piece: Piece) -> BoxStream<'static, Change>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    let api: Api<PartialObjectMeta<K>> = Api::namespaced(client.clone(), namespace);
    watch(api, by_name(SYNCER))
        .default_backoff()
        .map(move |result| {
            result.map_or_else(
                |error| Change::Failed("syncer", error),
                |event| Change::Created(piece, map(event, Created::from)),
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
    change: fn(Event<K>) -> Change,
) -> BoxStream<'static, Change> {
    watched(api, by_name(name), what, change)
}

fn all() -> watcher::Config {
    watcher::Config::default().page_size(50)
}

/// Without what nothing depends on and the API server keeps anyway: there are thousands of them.
pub(super) fn stripped(mut object: NodePullSecret) -> Box<NodePullSecret> {
    let metadata = std::mem::take(&mut object.metadata);
    // Every object has the one that tells the leader, which is half a kilobyte in a map.
    let asked = metadata.annotations.and_then(|mut annotations| {
        let asked = annotations.remove_entry(RETRY_ANNOTATION)?;
        Some([asked].into())
    });
    object.metadata = ObjectMeta {
        name: metadata.name,
        uid: metadata.uid,
        annotations: asked,
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
    change: fn(Event<K>) -> Change,
) -> BoxStream<'static, Change> {
    watch(api, config)
        .default_backoff()
        .modify(|object| object.meta_mut().managed_fields = None)
        .map(move |result| result.map_or_else(|error| Change::Failed(what, error), change))
        .boxed()
}
