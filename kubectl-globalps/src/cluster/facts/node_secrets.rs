//! The `NodePullSecret`s, without what nobody looks at: of an object's answer that is more than half.

use std::collections::BTreeMap;

use futures::FutureExt as _;
use globalps_core::api::{NodePullSecret, NodePullSecretSpec, NodePullSecretStatus, Phase};
use globalps_core::decode::{Item, decode};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use kube::core::Request;
use kube::{Resource as _, ResourceExt as _};
use serde::Deserialize;

use super::pages::{Format, pages_as};
use super::store::Store;
use super::watch::{self, PARAMS, Signals, Watched};
use crate::cluster::client::Cluster;
use crate::error::Result;

#[derive(Deserialize)]
struct Slim {
    metadata: SlimMeta,
    #[serde(default)]
    spec: NodePullSecretSpec,
    status: Option<NodePullSecretStatus>,
}

#[derive(Deserialize)]
struct SlimMeta {
    name: String,
    generation: Option<i64>,
    annotations: Option<BTreeMap<String, String>>,
}

/// One that can't be decoded says so by its phase.
fn shown(item: Item<Slim>) -> NodePullSecret {
    match item {
        Item::Readable(slim) => slim.into(),
        Item::Unreadable(unreadable) => NodePullSecret {
            spec: NodePullSecretSpec::default(),
            status: Some(NodePullSecretStatus {
                observed_generation: unreadable.metadata.generation.unwrap_or_default(),
                phase: Phase::Unreadable,
                reason: Phase::Unreadable.to_string(),
                message: unreadable.to_string(),
                ..NodePullSecretStatus::default()
            }),
            metadata: unreadable.metadata,
        },
    }
}

impl From<Slim> for NodePullSecret {
    fn from(slim: Slim) -> Self {
        Self {
            metadata: ObjectMeta {
                name: Some(slim.metadata.name),
                generation: slim.metadata.generation,
                annotations: slim.metadata.annotations,
                ..ObjectMeta::default()
            },
            spec: slim.spec,
            status: slim.status,
        }
    }
}

/// All of the pull secrets' namespace.
pub(crate) async fn list(cluster: &Cluster<'_>) -> Result<Store<NodePullSecret>> {
    let path = NodePullSecret::url_path(&(), Some(&cluster.namespace));
    let list = Request::new(path);
    let mut store = Store::default();
    let doing = "list the NodePullSecrets";
    let params = ListParams::default();
    let format = Format::Objects;
    let listed = pages_as(cluster, doing, &list, params, format, |item: Item<Slim>| {
        let object = shown(item);
        store.insert(object.name_any(), object);
    });
    store.version = listed.await?;
    Ok(store)
}

/// Continues from the list.
pub(super) fn watch<'a>(
    cluster: &'a Cluster<'a>,
    listed: &Store<NodePullSecret>,
) -> Signals<'a, NodePullSecret> {
    let path = NodePullSecret::url_path(&(), Some(&cluster.namespace));
    let watched = Watched {
        doing: "watch the NodePullSecrets",
        request: Request::new(path),
        params: PARAMS,
        format: Format::Objects,
        version: listed.version(),
        list: Box::new(|| list(cluster).boxed_local()),
        read: Box::new(|object| {
            let object = shown(decode(object)?);
            Ok(vec![(object.name_any(), Some(object))])
        }),
    };
    watch::watch(cluster, watched)
}

#[cfg(test)]
mod tests {
    use globalps_core::phase::{NodeView, phase};
    use globalps_core::rollout::Revision;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_unreadable_object_is_shown_as_such() {
        let text = r#"{"metadata": {"name": "n", "generation": 3}, "spec": {"revision": []}}"#;
        let item: Item<Slim> = serde_json::from_str(text).expect("an object");
        let object = shown(item);
        let status = object.status.as_ref().expect("a status");
        assert_eq!(object.name_any(), "n");
        assert_eq!(status.message, "its field `spec.revision` can't be decoded");
        let phase = phase(Some(&object), NodeView::default(), Revision::NONE);
        assert_eq!(phase, Some(Phase::Unreadable));
    }

    #[test]
    fn what_is_looked_at_is_kept() {
        for (object, generation) in [
            (json!({"metadata": {"name": "n"}}), None),
            (
                json!({
                    "metadata": {
                        "name": "n", "generation": 3, "annotations": {"globalps.io/retry": "x"},
                        "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}], "uid": "u",
                    },
                    "spec": {"revision": 2, "retry": "x"},
                    "status": {"phase": "Synced", "revision": 2},
                }),
                Some(3),
            ),
        ] {
            let slim: Slim = serde_json::from_value(object.clone()).expect("an object");
            let slim = NodePullSecret::from(slim);
            let mut whole = object;
            whole["spec"] = json!(slim.spec);
            let whole: NodePullSecret = serde_json::from_value(whole).expect("an object");
            assert_eq!(slim.metadata.generation, generation);
            assert_eq!(slim.metadata.annotations, whole.metadata.annotations);
            assert_eq!((slim.spec, slim.status), (whole.spec, whole.status));
        }
    }
}
