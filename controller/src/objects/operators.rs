//! Writes copies of catalogs' pull secrets. They are never read: the controller has no right to.

use std::collections::BTreeMap;

use globalps_core::names::{
    CONTROLLER, CONTROLLER_MANAGER, DATA_KEY, LEADER_ANNOTATION, OPERATOR_SECRET_LABEL, PROOF_KEY,
    SECRET_TYPE,
};
use globalps_core::reasons::Reason;
use globalps_planner::operators::olm::resource;
use globalps_planner::targets::proof::Proof;
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, TestOperation};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, ObjectMeta, PartialObjectMeta, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::apply::{Applier, ApplyError, within};
use super::namespaced::{Refusal, data};

impl Applier {
    /// Writes the copy in a namespace, unless another client has a Secret with that name there. `owners`: names and uids of
    /// `ClusterServiceVersion`s.
    pub(crate) async fn operator_secret(
        &self,
        namespace: &str,
        name: &str,
        content: Vec<u8>,
        proof: Proof,
        owners: impl Iterator<Item = &(String, String)>,
    ) -> Result<(), ApplyError> {
        let content = ByteString(content);
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
            data: Some(data(&content, proof)),
            ..Secret::default()
        };
        let api: Api<Secret> = self.in_namespace(namespace);
        // Not forced: fields of other clients stay.
        let params = PatchParams::apply(CONTROLLER_MANAGER);
        let title = format!("{namespace}/{name}");
        let write = |version| {
            let (api, params, title) = (&api, &params, &title);
            let mut secret = secret.clone();
            secret.metadata.resource_version = version;
            async move {
                let patch = Patch::Apply(&secret);
                let call = api.patch_metadata(name, params, &patch);
                within("apply", "Secret", title, call).await
            }
        };
        let known = match self
            .own_copy(&api, name, &title, PROOF_KEY, &proof.value())
            .await
        {
            // With this content it is one whose proof has another key, which was lost.
            Err(error) if is_of_others(&error) => {
                self.own_copy(&api, name, &title, DATA_KEY, &content).await
            }
            known => known,
        };
        let known = known.map_err(|error| match error {
            error if is_of_others(&error) => ApplyError::Prevented {
                action: "apply",
                object: format!("Secret `{title}`"),
                reason: Reason::Changed,
                message: "another client created it".to_owned(),
            },
            error => error,
        })?;
        let version = known.and_then(|known| known.metadata.resource_version);
        match write(version).await {
            Err(error) if error.is_immutable() => {
                self.delete_operator_secret(namespace, name, proof).await?;
                write(None).await?;
            }
            done => drop(done?),
        }
        Ok(())
    }

    /// Version and uid of the copy; `None`: there is no such Secret. Copies are never read, so a patch without a change tests whether
    /// the Secret has this value, which only a copy has.
    async fn own_copy(
        &self,
        api: &Api<Secret>,
        name: &str,
        title: &str,
        key: &str,
        value: &ByteString,
    ) -> Result<Option<PartialObjectMeta<Secret>>, ApplyError> {
        let (_, leader) = self.leader();
        let operations = vec![
            PatchOperation::Test(TestOperation {
                path: PointerBuf::from_tokens(["data", key]),
                value: json!(value),
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
        match within("patch", "Secret", title, call).await {
            Err(error) if error.is_absent() => Ok(None),
            done => done.map(Some),
        }
    }

    /// Deletes the copy in a namespace, if there is one.
    pub(crate) async fn delete_operator_secret(
        &self,
        namespace: &str,
        name: &str,
        proof: Proof,
    ) -> Result<(), ApplyError> {
        let api: Api<Secret> = self.in_namespace(namespace);
        let title = format!("{namespace}/{name}");
        let copy = match self
            .own_copy(&api, name, &title, PROOF_KEY, &proof.value())
            .await
        {
            // It belongs to another client, or the controller may not write it. Anybody may have recorded it.
            Err(error) if is_of_others(&error) => None,
            Err(error) if matches!(error.refusal(), Refusal::Because(Reason::Forbidden)) => None,
            copy => copy?,
        };
        let Some(copy) = copy else {
            return Ok(());
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

/// The test of a patch has failed.
fn is_of_others(error: &ApplyError) -> bool {
    matches!(
        error.refusal(),
        Refusal::Because(Reason::Invalid | Reason::Changed)
    )
}
