//! Requests to a member cluster, each with a deadline.

use globalps_core::decode::{Item, Owned};
use globalps_core::names::{
    CLUSTER_ANNOTATION, DATA_KEY, FLEET_ANNOTATION, RETRY_ANNOTATION, REVISION_ANNOTATION,
    SECRET_TYPE,
};
use globalps_core::reasons::{Reason, ReasonAndMessage};
use globalps_planner::clusters::desired::Release;
use globalps_planner::clusters::text::sanitized;
use globalps_runtime::request::{within, without_content};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::PartialObjectMeta;
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use super::messages::MemberSpec;
use crate::remote::unreachable;

/// Maximum length of the uid of a member's `kube-system`: a member can report any text.
const IDENTITY: usize = 64;

pub(super) fn secrets(client: &Client, spec: &MemberSpec) -> Api<Owned<Secret>> {
    Api::namespaced(client.clone(), &spec.target.namespace)
}

/// The cluster's identity; `None`: the kubeconfig does not allow to read it.
pub(super) async fn identity(client: &Client) -> Result<Option<String>, ReasonAndMessage> {
    let namespaces: Api<Item<PartialObjectMeta<Namespace>>> = Api::all(client.clone());
    match within(namespaces.get("kube-system")).await {
        Ok(found) => Ok(found.uid().map(|uid| sanitized(&uid, IDENTITY))),
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => Ok(None),
        Err(error) => Err(unreachable_reason(&error)),
    }
}

/// The target Secret in the cluster; `None`: there is none.
pub(super) async fn target(
    client: &Client,
    spec: &MemberSpec,
) -> Result<Option<Secret>, ReasonAndMessage> {
    let name = &spec.target.name;
    let found = within(secrets(client, spec).get_opt(name)).await;
    let found = found.map_err(|error| unreachable_reason(&error))?;
    let found = found.map(Owned::into_result).transpose();
    found.map_err(|unreadable| {
        let message = format!("its Secret `{name}` can't be read: {unreadable}");
        (Reason::Unreadable, message)
    })
}

/// `version`: the API server rejects the write unless the Secret still has this `resourceVersion`.
pub(super) fn body(
    spec: &MemberSpec,
    release: Release,
    version: Option<&String>,
) -> serde_json::Value {
    let mut annotations = json!({
        FLEET_ANNOTATION: spec.fleet,
        CLUSTER_ANNOTATION: spec.cluster,
        REVISION_ANNOTATION: release.revision.number.to_string(),
    });
    if !release.retry.is_empty() {
        annotations[RETRY_ANNOTATION] = release.retry.into();
    }
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": spec.target.name,
            "resourceVersion": version,
            "labels": {"app.kubernetes.io/managed-by": "globalps"},
            "annotations": annotations,
        },
        "type": SECRET_TYPE,
        "data": {DATA_KEY: ByteString(release.content.0.clone().unwrap_or_default())},
    })
}

pub(super) fn unreachable_reason(error: &kube::Error) -> ReasonAndMessage {
    tracing::debug!(error = without_content(error), "member unreachable");
    unreachable::reason(error)
}
