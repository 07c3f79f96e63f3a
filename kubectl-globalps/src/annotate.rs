//! One annotation on many `NodePullSecret`s.

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use globalps_core::api::NodePullSecret;
use globalps_core::names;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::client::Cluster;
use crate::error::Failure;

/// Requests at the same time.
const AT_ONCE: usize = 16;

/// Sets the annotation on these nodes' objects. `done` gets each node and its result, in their order; an error that it
/// returns ends the work.
pub(crate) async fn annotate(
    cluster: &Cluster<'_>,
    nodes: &[String],
    (annotation, value): (&str, &str),
    done: impl Fn(&str, Result<(), Failure>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let api = cluster.api::<NodePullSecret>();
    let patch = Patch::Merge(json!({"metadata": {"annotations": {annotation: value}}}));
    let params = PatchParams {
        field_manager: Some(names::PLUGIN_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    stream::iter(nodes)
        .map(|node| {
            let (api, patch, params) = (&api, &patch, &params);
            async move {
                let patched = api.patch_metadata(node, params, patch);
                let result = cluster
                    .call(&format!("patch NodePullSecret `{node}`"), patched)
                    .await;
                (node, result.map(drop))
            }
        })
        .buffered(AT_ONCE)
        .map(|(node, result)| done(node, result))
        .try_collect::<()>()
        .await
}
