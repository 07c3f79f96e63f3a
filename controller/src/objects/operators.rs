//! Writes copies of catalogs' pull secrets. They are never read: the controller has no right to.

use std::collections::BTreeMap;

use globalps_core::names::{
    CONTROLLER, CONTROLLER_MANAGER, DATA_KEY, LEADER_ANNOTATION, OPERATOR_SECRET_LABEL, SECRET_TYPE,
};
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, TestOperation};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::apply::{Applier, ApplyError, within};
use super::namespaced::Refusal;
use crate::operators::olm::resource;

impl Applier {
    /// Writes the copy in a namespace, unless another client has a Secret with that name there. `owners`: names and uids of
    /// `ClusterServiceVersion`s.
    pub(crate) async fn operator_secret(
        &self,
        namespace: &str,
        name: &str,
        content: Vec<u8>,
        owners: impl Iterator<Item = &(String, String)>,
    ) -> Result<(), ApplyError> {
        let text = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let labels = [
            text(OPERATOR_SECRET_LABEL, "true"),
            text("app.kubernetes.io/managed-by", CONTROLLER),
        ];
        let resource = resource("ClusterServiceVersion");
        let owners = owners.map(|(name, uid)| OwnerReference {
            api_version: resource.api_version.clone(),
            kind: resource.kind.clone(),
            name: name.clone(),
            uid: uid.clone(),
            ..OwnerReference::default()
        });
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some(BTreeMap::from(labels)),
                annotations: Some([self.leader()].into()),
                owner_references: Some(owners.collect()),
                ..ObjectMeta::default()
            },
            type_: Some(SECRET_TYPE.to_owned()),
            data: Some([(DATA_KEY.to_owned(), ByteString(content))].into()),
            ..Secret::default()
        };
        let api: Api<Secret> = self.in_namespace(namespace);
        // Not forced: fields of other clients stay.
        let params = PatchParams::apply(CONTROLLER_MANAGER);
        let patch = Patch::Apply(&secret);
        let title = format!("{namespace}/{name}");
        let write = || {
            let call = api.patch_metadata(name, &params, &patch);
            within("apply", "Secret", &title, call)
        };
        match write().await {
            Err(error) if error.is_immutable() => {
                self.delete_operator_secret(namespace, name).await?;
                write().await?;
            }
            done => drop(done?),
        }
        Ok(())
    }

    /// Deletes the copy in a namespace, if there is one.
    pub(crate) async fn delete_operator_secret(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<(), ApplyError> {
        let api: Api<Secret> = self.in_namespace(namespace);
        let title = format!("{namespace}/{name}");
        let (_, leader) = self.leader();
        // Only a copy has the label. The response has the version.
        let operations = vec![
            PatchOperation::Test(TestOperation {
                path: PointerBuf::from_tokens(["metadata", "labels", OPERATOR_SECRET_LABEL]),
                value: json!("true"),
            }),
            PatchOperation::Add(AddOperation {
                path: PointerBuf::from_tokens(["metadata", "annotations", LEADER_ANNOTATION]),
                value: json!(leader),
            }),
        ];
        let patch: Patch<()> = Patch::Json(json_patch::Patch(operations));
        let params = PatchParams {
            field_manager: Some(CONTROLLER_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let call = api.patch_metadata(name, &params, &patch);
        let copy = match within("patch", "Secret", &title, call).await {
            Err(error) => match error.refusal() {
                // There is none, it belongs to another client, or the controller may not write it. Anybody may have recorded it.
                Refusal::Gone | Refusal::Because("Invalid" | "Changed" | "Forbidden") => {
                    return Ok(());
                }
                Refusal::Because(_) => return Err(error),
            },
            Ok(copy) => copy,
        };
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                resource_version: copy.resource_version(),
                uid: copy.uid(),
            }),
            ..DeleteParams::background()
        };
        match within("delete", "Secret", &title, api.delete(name, &params)).await {
            Err(error) if !error.is_absent() => Err(error),
            _ => Ok(()),
        }
    }
}
