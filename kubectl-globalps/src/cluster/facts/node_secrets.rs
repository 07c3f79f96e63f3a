//! The `NodePullSecret`s without unused fields, which are more than half of a response.

use globalps_core::api::{NodePullSecret, NodePullSecretSpec, NodePullSecretStatus, Phase};
use globalps_core::decode::{Item, Unreadable};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use kube::core::Request;
use kube::{Resource as _, ResourceExt as _};
use serde::Deserialize;

use super::pages::{Format, pages_as};
use super::store::Store;
use super::watch::{Signals, WatchedKind, name_of, watch_kind};
use crate::cluster::client::Cluster;
use crate::error::Result;

#[derive(Clone, Debug, Deserialize)]
pub(super) struct SlimNodeSecret {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: NodePullSecretSpec,
    status: Option<NodePullSecretStatus>,
}

globalps_core::view!(SlimNodeSecret: NodePullSecret);

/// Turns an object that can't be decoded into one with phase `Unreadable`.
fn shown(object: Result<SlimNodeSecret, Box<Unreadable>>) -> NodePullSecret {
    match object {
        Ok(slim) => slim.into(),
        Err(unreadable) => NodePullSecret {
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

impl From<SlimNodeSecret> for NodePullSecret {
    fn from(slim: SlimNodeSecret) -> Self {
        Self {
            metadata: ObjectMeta {
                name: slim.metadata.name,
                generation: slim.metadata.generation,
                annotations: slim.metadata.annotations,
                ..ObjectMeta::default()
            },
            spec: slim.spec,
            status: slim.status,
        }
    }
}

/// Lists all in the namespace of the pull secrets.
pub(crate) async fn list(cluster: &Cluster<'_>) -> Result<Store<NodePullSecret>> {
    let path = NodePullSecret::url_path(&(), Some(&cluster.namespace));
    let list = Request::new(path);
    let mut store = Store::default();
    let doing = "list the NodePullSecrets";
    let params = ListParams::default();
    let format = Format::Objects;
    let listed = pages_as(
        cluster,
        doing,
        &list,
        params,
        format,
        |item: Item<SlimNodeSecret>| {
            let object = shown(item.into_result());
            store.insert(object.name_any(), object);
        },
    );
    store.version = listed.await?;
    Ok(store)
}

/// Continues from the list.
pub(super) fn watch<'a>(
    cluster: &'a Cluster<'a>,
    listed: &Store<NodePullSecret>,
) -> Signals<'a, NodePullSecret> {
    let kind = WatchedKind {
        doing: "watch the NodePullSecrets",
        api: cluster.api(),
        params: ListParams::default(),
        listed: listed.version(),
        key: name_of,
        keep: |object| Some(shown(object)),
    };
    watch_kind(cluster, kind)
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
        let item: Item<SlimNodeSecret> = serde_json::from_str(text).expect("an object");
        let object = shown(item.into_result());
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
            let slim: SlimNodeSecret = serde_json::from_value(object.clone()).expect("an object");
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
