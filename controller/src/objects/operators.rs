//! Writes copies of catalogs' pull secrets. They are never read: the controller has no right to.

use globalps_core::names::{
    CONTROLLER_MANAGER, DATA_KEY, LEADER_ANNOTATION, OPERATOR_SECRET_LABEL, PROOF_KEY,
};
use globalps_core::reasons::Reason;
use globalps_planner::operators::olm::resource;
use globalps_planner::targets::Id;
use globalps_planner::targets::proof::Proof;
use globalps_planner::targets::write::CopyContent;
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, TestOperation};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{PartialObjectMeta, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::apply::{Applier, ApplyError, within};
use super::namespaced::Refusal;

impl Applier {
    /// Writes the copy in a namespace, unless another client has a Secret with that name there.
    pub(crate) async fn operator_secret(
        &self,
        id: &Id,
        credentials: Vec<u8>,
        proof: Proof,
        of: &CopyContent,
    ) -> Result<(), ApplyError> {
        let (namespace, name) = id;
        let credentials = ByteString(credentials);
        let resource = resource("ClusterServiceVersion");
        let owners = of.owners.iter().map(|(name, uid)| OwnerReference {
            api_version: resource.api_version.clone(),
            kind: resource.kind.clone(),
            name: name.clone(),
            uid: uid.clone(),
            ..OwnerReference::default()
        });
        let mut secret = self.with_proof(name, OPERATOR_SECRET_LABEL, &credentials, proof);
        secret.metadata.owner_references = Some(owners.collect());
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
        let known = match self.own_copy(id, PROOF_KEY, &proof.value()).await {
            // With these credentials it is one whose proof has another key, which was lost.
            Err(error) if is_of_others(&error) => self.own_copy(id, DATA_KEY, &credentials).await,
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
                self.delete_operator_secret(id, proof).await?;
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
        (namespace, name): &Id,
        key: &str,
        value: &ByteString,
    ) -> Result<Option<PartialObjectMeta<Secret>>, ApplyError> {
        let api: Api<Secret> = self.in_namespace(namespace);
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
        match within("patch", "Secret", &format!("{namespace}/{name}"), call).await {
            Err(error) if error.is_absent() => Ok(None),
            done => done.map(Some),
        }
    }

    /// Deletes the copy in a namespace, if there is one.
    pub(crate) async fn delete_operator_secret(
        &self,
        id: &Id,
        proof: Proof,
    ) -> Result<(), ApplyError> {
        let copy = match self.own_copy(id, PROOF_KEY, &proof.value()).await {
            // It belongs to another client, or the controller may not write it. Anybody may have recorded it.
            Err(error) if is_of_others(&error) => None,
            Err(error) if matches!(error.refusal(), Refusal::Because(Reason::Forbidden)) => None,
            copy => copy?,
        };
        if let Some(copy) = copy {
            self.delete_version(id, copy.resource_version(), copy.uid())
                .await?;
        }
        Ok(())
    }
}

/// The test of a patch has failed.
fn is_of_others(error: &ApplyError) -> bool {
    matches!(
        error.refusal(),
        Refusal::Because(Reason::Invalid | Reason::Changed)
    )
}
