//! Sets one annotation on many objects.

use std::fmt::Debug;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use globalps_core::api::NodePullSecret;
use k8s_openapi::NamespaceResourceScope;
use kube::api::Patch;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::cluster::client::Cluster;
use crate::cluster::params;
use crate::error::Result;

/// Concurrent requests.
const AT_ONCE: usize = 16;

/// Sets the annotation on the objects of these nodes. `done` receives each node and its result, in order; an error that
/// it returns stops the loop.
pub(crate) async fn annotate(
    cluster: &Cluster<'_>,
    nodes: &[String],
    annotation: (&str, &str),
    done: impl Fn(&str, Result<()>) -> Result<()>,
) -> Result<()> {
    let namespace = cluster.namespace.as_str();
    let objects: Vec<(&str, &str)> = nodes.iter().map(|node| (namespace, &**node)).collect();
    let done = |(_, node): (&str, &str), result| done(node, result);
    annotate_objects::<NodePullSecret>(cluster, &objects, annotation, done).await
}

/// Like [`annotate`], for objects by namespace and name.
pub(crate) async fn annotate_objects<K>(
    cluster: &Cluster<'_>,
    objects: &[(&str, &str)],
    (annotation, value): (&str, &str),
    done: impl Fn((&str, &str), Result<()>) -> Result<()>,
) -> Result<()>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned,
{
    let patch = Patch::Merge(json!({"metadata": {"annotations": {annotation: value}}}));
    let params = params::patch(false);
    stream::iter(objects)
        .map(|(namespace, name)| {
            let api: Api<K> = Api::namespaced(cluster.client.clone(), namespace);
            let (patch, params) = (&patch, &params);
            async move {
                let patched = api.patch_metadata(name, params, patch);
                let doing = format!("patch {} `{name}`", K::kind(&()));
                let result = cluster.call(&doing, patched).await;
                ((*namespace, *name), result.map(drop))
            }
        })
        .buffered(AT_ONCE)
        .map(|(object, result)| done(object, result))
        .try_collect::<()>()
        .await
}
