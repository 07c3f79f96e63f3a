//! The watches of the cache.

use std::fmt::Debug;

use futures::future::ready;
use futures::stream::{self, BoxStream, SelectAll, Stream, StreamExt as _};
use globalps_core::api::{NodePullSecret, SecretRef};
use globalps_core::decode::Item;
use globalps_core::names::{
    ABANDON_ANNOTATION, ADDITIONAL_SECRET, DATA_KEY, FORGET_ANNOTATION, GLOBAL_SECRET, RESTORER,
    RETRY_ANNOTATION, ROLLED_OUT_SECRET, STATE_SECRET, SYNCER, forget_up_to,
};
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

use super::event::{CacheEvent, OriginalRef};
use super::hosted;
use super::node::node_view;
use crate::content::source::{Data, Source};
use crate::nodes::forget::may_have_old;
use crate::objects::managed::{LiveObject, ManagedKind, ManagedObject};
use crate::objects::pods::{PodFields, pod_view};
use crate::objects::views::{DaemonSetView, NodeFields};

/// Objects per page. A Node with the names of its images can have 40 KB.
const PAGE: u32 = 50;
const PAGE_OF_NODES: u32 = 25;

pub(crate) type CacheEvents = SelectAll<BoxStream<'static, CacheEvent>>;

/// All objects that are watched from the start.
pub(crate) fn events(client: &Client, namespace: &str) -> CacheEvents {
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
        label_selector: Some(format!("name in ({SYNCER}, {RESTORER})")),
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
    stream::select_all(managed.chain(others))
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
    let secrets: Api<Item<Secret>> = Api::namespaced(client.clone(), &namespace);
    sources(secrets, &name, "original pull secret", key)
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

/// Watches each of these Secrets separately, so that a forbidden one does not delay the others.
pub(crate) fn source_events(client: &Client, namespace: &str, names: &[String]) -> CacheEvents {
    let secrets: Api<Item<Secret>> = Api::namespaced(client.clone(), namespace);
    let watch = |name: &String| {
        let name = name.clone();
        sources(secrets.clone(), &name, "source", DATA_KEY.to_owned())
            .map(move |source| CacheEvent::Source(name.clone(), source))
            .boxed()
    };
    stream::select_all(names.iter().map(watch))
}

/// Watches the labels of all namespaces.
pub(crate) fn namespace_events(client: &Client) -> CacheEvents {
    let namespaces = Api::<Item<PartialObjectMeta<Namespace>>>::all(client.clone());
    let updates = list_watch(namespaces, all(), "namespaces");
    let events = updates.map(|update| CacheEvent::Namespace(update.map(Into::into)));
    stream::select_all([events.boxed()])
}

/// The content of this key of the Secret. An error is reported only while nothing is known yet: an outage of the API server does
/// not change the Secret.
pub(super) fn sources(
    secrets: Api<Item<Secret>>,
    name: &str,
    what: &'static str,
    key: String,
) -> impl Stream<Item = Source> + Send + use<> {
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

/// Without fields that nothing depends on: there are thousands of these objects.
pub(crate) fn stripped(mut object: NodePullSecret) -> Box<NodePullSecret> {
    let metadata = std::mem::take(&mut object.metadata);
    // Each object also has the leader annotation, which costs half a kilobyte in a map.
    let kept = metadata.annotations.and_then(|mut annotations| {
        let asked = forget_up_to(&annotations).and_then(Result::ok);
        let is_answered = asked.is_none_or(|asked| !may_have_old(&object, asked));
        annotations.retain(|key, _| match key.as_str() {
            RETRY_ANNOTATION | ABANDON_ANNOTATION => true,
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
