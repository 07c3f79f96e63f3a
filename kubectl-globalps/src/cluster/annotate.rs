//! Sets one annotation on many objects.

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use globalps_core::names;
use kube::api::{DynamicObject, Patch};
use kube::discovery::ApiResource;
use kube::{Api, Resource};
use serde_json::json;

use crate::cluster::client::Cluster;
use crate::cluster::params;
use crate::error::Result;

/// Concurrent requests.
const AT_ONCE: usize = 16;

/// Sets the annotation on objects by namespace and name. `done` receives each name and its result, in order; an error that it
/// returns stops the loop.
pub(crate) async fn annotate<K: Resource<DynamicType = ()>>(
    cluster: &Cluster<'_>,
    objects: &[(&str, &str)],
    (annotation, value): (&str, &str),
    done: impl Fn(&str, Result<()>) -> Result<()>,
) -> Result<()> {
    let resource = ApiResource::erase::<K>(&());
    let patch = Patch::Merge(json!({"metadata": {"annotations": {annotation: value}}}));
    let params = params::patch(false);
    stream::iter(objects)
        .map(|(namespace, name)| {
            let client = cluster.client.clone();
            let api: Api<DynamicObject> = Api::namespaced_with(client, namespace, &resource);
            let (patch, params) = (&patch, &params);
            async move {
                let patched = api.patch_metadata(name, params, patch);
                let doing = format!("patch {} `{name}`", K::kind(&()));
                let result = cluster.call(&doing, patched).await;
                (*name, result.map(drop))
            }
        })
        .buffered(AT_ONCE)
        .map(|(name, result)| done(name, result))
        .try_collect::<()>()
        .await
}

/// The same, and prints of each object what it does now: `word`.
pub(crate) async fn annotate_and_print<K: Resource<DynamicType = ()>>(
    cluster: &Cluster<'_>,
    objects: &[(&str, &str)],
    annotation: (&str, &str),
    word: &str,
) -> Result<()> {
    let kind = K::kind(&()).to_lowercase();
    let done = |name: &str, result: Result<()>| {
        let line = format!("{kind}.{}/{name} {word}", names::GROUP);
        result.map(|()| cluster.printer().data(&line))
    };
    annotate::<K>(cluster, objects, annotation, done).await
}
