//! Records that nodes are restored on purpose, although Secrets still exist that the configuration no longer names.

use globalps_core::api::GlobalPullSecret;
use globalps_core::names;
use globalps_core::state::restore_meant;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::Patch;
use serde_json::{Value, json};

use crate::cluster::attempts::until_written;
use crate::cluster::{Cluster, params};
use crate::error::Result;
use crate::target::pull_secret;

/// Metadata of a patch that records this intent. It contains the generation that the patch will produce, so the patch
/// fails if the object has changed since it was read.
pub(crate) fn meant(metadata: &ObjectMeta, changes_spec: bool) -> Value {
    let generation = metadata.generation.unwrap_or_default();
    let after = generation.saturating_add(changes_spec.into());
    let uid = metadata.uid.as_deref().unwrap_or_default();
    json!({
        "resourceVersion": metadata.resource_version,
        "annotations": {names::RESTORE_ANNOTATION: restore_meant(uid, after)},
    })
}

/// Applies `change` to the spec and records the intent; `change` returns `None` if there is nothing to do.
pub(crate) async fn restore_on_purpose(
    cluster: &Cluster<'_>,
    doing: &str,
    change: impl Fn(&GlobalPullSecret) -> Option<Value>,
    dry_run: bool,
) -> Result<()> {
    let api = cluster.api::<GlobalPullSecret>();
    let params = params::patch(dry_run);
    until_written(async |_| {
        let Some(config) = pull_secret::installed_configuration(cluster).await? else {
            return Ok(());
        };
        let Some(spec) = change(&config) else {
            return Ok(());
        };
        let metadata = meant(&config.metadata, spec != json!({}));
        let patch = Patch::Merge(json!({"metadata": metadata, "spec": spec}));
        let call = api.patch(names::GLOBAL_SECRET, &params, &patch);
        cluster.call(doing, call).await.map(drop)
    })
    .await
}
