//! Writes Secrets and references into other namespaces.

use globalps_core::decode::{Item, Owned};
use globalps_core::names::{
    CONTENT_ANNOTATION, CONTROLLER, CONTROLLER_MANAGER, DATA_KEY, IMAGE_PULL_SECRET_LABEL,
    IMAGE_PULL_SECRETS, PROOF_KEY, ROLLED_OUT_SECRET, SECRET_TYPE,
};
use globalps_core::reasons::Reason;
use globalps_core::references::Change;
use globalps_planner::targets::Id;
use globalps_planner::targets::account::{AccountFields, AccountView};
use globalps_planner::targets::proof::Proof;
use globalps_planner::targets::write::NamespaceContent;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ObjectMeta, Patch, PatchParams,
    Preconditions,
};
use kube::{Api, ResourceExt as _};

use super::apply::{Applier, ApplyError, readable, within};
use super::recreate::write_or_recreate;
use super::request::is_denied;

/// Why the API server rejected a write: a reason for the status.
pub(crate) enum Refusal {
    /// The namespace or the object is deleted or terminating.
    Gone,
    Because(Reason),
}

impl Refusal {
    /// What is gone is refused until the watch says so, too.
    pub(crate) fn reason(self) -> Reason {
        match self {
            Self::Gone => Reason::Terminating,
            Self::Because(reason) => reason,
        }
    }
}

impl ApplyError {
    pub(crate) fn refusal(&self) -> Refusal {
        let status = match self {
            Self::Api {
                source: kube::Error::Api(status),
                ..
            } => status,
            Self::Prevented { reason, .. } => return Refusal::Because(*reason),
            _ => return Refusal::Because(Reason::Unavailable),
        };
        let message = &status.message;
        let says = |text: &str| message.contains(text);
        match status.code {
            // A webhook that does not respond, or can't be called.
            _ if says("failed calling webhook") => Refusal::Because(Reason::Unavailable),
            _ if is_denied(status) => Refusal::Because(Reason::Rejected),
            404 => Refusal::Gone,
            403 if says("being terminated") => Refusal::Gone,
            403 if says("exceeded quota") => Refusal::Because(Reason::QuotaExceeded),
            403 => Refusal::Because(Reason::Forbidden),
            409 => Refusal::Because(Reason::Changed),
            422 if says("test") => Refusal::Because(Reason::Changed),
            422 if says("Too long") => Refusal::Because(Reason::TooLarge),
            422 => Refusal::Because(Reason::Invalid),
            _ => Refusal::Because(Reason::WriteFailed),
        }
    }
}

impl Applier {
    /// A Secret with these credentials, this label, and the proof that the controller wrote it.
    pub(super) fn with_proof(
        &self,
        name: &str,
        label: &str,
        credentials: &ByteString,
        proof: Proof,
    ) -> Secret {
        let labels = [
            (label, "true"),
            ("app.kubernetes.io/managed-by", CONTROLLER),
        ];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let values = [(DATA_KEY, credentials.clone()), (PROOF_KEY, proof.value())];
        let values = values.map(|(key, value)| (key.to_owned(), value));
        Secret {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some(labels.into()),
                annotations: Some([self.leader()].into()),
                ..ObjectMeta::default()
            },
            type_: Some(SECRET_TYPE.to_owned()),
            data: Some(values.into()),
            ..Secret::default()
        }
    }

    /// Writes the Secret of a namespace, in place of the version in `of`, which no other client may have written since. Without one,
    /// none of another client is overwritten.
    pub(crate) async fn pull_secret(
        &self,
        (namespace, name): &Id,
        credentials: Vec<u8>,
        proof: Proof,
        of: &NamespaceContent,
    ) -> Result<Secret, ApplyError> {
        let credentials = ByteString(credentials);
        let mut secret = self.with_proof(name, IMAGE_PULL_SECRET_LABEL, &credentials, proof);
        let identity = (CONTENT_ANNOTATION.to_owned(), of.identity.clone());
        secret.annotations_mut().extend([identity]);
        let api: Api<Owned<Secret>> = self.in_namespace(namespace);
        let title = format!("{namespace}/{name}");
        let mut version = of.version;
        let write = || {
            // An immutable one is deleted before the second write.
            let version = version.take();
            let params = PatchParams {
                force: version.is_some(),
                ..PatchParams::apply(CONTROLLER_MANAGER)
            };
            let mut secret = secret.clone();
            secret.metadata.resource_version = version.map(|version| version.to_string());
            let (api, title) = (&api, &title);
            async move {
                let patch = Patch::Apply(&secret);
                let call = api.patch(name, &params, &patch);
                readable("apply", "Secret", title, call).await
            }
        };
        write_or_recreate(&api, name, &title, &self.required(), write).await
    }

    /// Deletes the Secret of a namespace, unless another client has written it since. Returns it if it is still there: it has
    /// finalizers.
    pub(crate) async fn delete_pull_secret(
        &self,
        id: &Id,
        version: u64,
    ) -> Result<Option<Secret>, ApplyError> {
        self.delete_version(id, Some(version.to_string()), None)
            .await
    }

    pub(super) async fn delete_version(
        &self,
        (namespace, name): &Id,
        resource_version: Option<String>,
        uid: Option<String>,
    ) -> Result<Option<Secret>, ApplyError> {
        let api: Api<Owned<Secret>> = self.in_namespace(namespace);
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                resource_version,
                uid,
            }),
            ..DeleteParams::background()
        };
        let call = api.delete(name, &params);
        let done = match within("delete", "Secret", &format!("{namespace}/{name}"), call).await {
            Err(error) if error.is_absent() => return Ok(None),
            done => done?,
        };
        let left = done.left().and_then(|left| left.into_result().ok());
        Ok(left.filter(|left| left.metadata.deletion_timestamp.is_some()))
    }

    /// Changes the references of a service account. `annotation`: the key of their record.
    pub(crate) async fn reference(
        &self,
        account: &AccountView,
        change: &Change,
        annotation: &str,
    ) -> Result<AccountView, ApplyError> {
        let api: Api<Item<AccountFields>> = self.in_namespace(&account.namespace);
        let params = PatchParams {
            field_manager: Some(CONTROLLER_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch: Patch<()> = Patch::Json(account.references.patch(change, annotation));
        let call = api.patch(&account.name, &params, &patch);
        let account = readable("patch", "ServiceAccount", &account.key(), call).await?;
        Ok(AccountView::new(&account, annotation))
    }

    /// `global-pull-secret-rolled-out`; `None`: there is none.
    pub(crate) async fn rolled_out(&self) -> Result<Option<Secret>, ApplyError> {
        let api: Api<Item<Secret>> = self.api();
        let call = api.get_opt(ROLLED_OUT_SECRET);
        let found = within("read", "Secret", ROLLED_OUT_SECRET, call).await?;
        Ok(found.and_then(|found| found.into_result().ok()))
    }

    /// Whether the policy that attaches Secrets to pods is in force.
    pub(crate) async fn has_admission_policy(&self) -> Result<bool, ApplyError> {
        for kind in ["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"] {
            let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
            let resource = ApiResource::from_gvk(&kind);
            let api: Api<DynamicObject> = Api::all_with(self.client(), &resource);
            let call = api.get_metadata_opt(IMAGE_PULL_SECRETS);
            match within("read", &kind.kind, IMAGE_PULL_SECRETS, call).await {
                Ok(Some(_)) => {}
                Ok(None) => return Ok(false),
                // The API server does not serve policies, or the installation is too old to allow reading them.
                Err(error) if error.is_forbidden() => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use globalps_core::state::ProofKey;
    use globalps_fake_api::{FakeApi, Fault};
    use serde_json::json;

    use super::*;
    use crate::objects::agents::Leftover;

    fn id(namespace: &str) -> Id {
        (namespace.to_owned(), "s".to_owned())
    }

    #[tokio::test]
    async fn a_secret_that_finalizers_keep_is_not_gone() {
        let api = FakeApi::default();
        let path = "/api/v1/namespaces/a/secrets/s";
        for (finalizers, is_left) in [(json!([]), false), (json!(["x.io/y"]), true)] {
            let object = json!({"kind": "Secret", "apiVersion": "v1", "data": {"a": "Yg=="},
                "metadata": {"name": "s", "namespace": "a", "resourceVersion": "5", "finalizers": finalizers}});
            api.put(path, &object);
            let applier = Applier::new(api.client(), "kube-system", "i", "me", None);
            let left = applier.delete_pull_secret(&id("a"), 5).await.unwrap();
            let left = left.map(|left| left.metadata.finalizers.unwrap_or_default().join(" "));
            assert_eq!(left, is_left.then(|| "x.io/y".to_owned()));
        }
    }

    #[tokio::test]
    async fn what_a_webhook_keeps_is_not_gone() {
        let path = "/api/v1/namespaces/kube-system/secrets/s";
        let proof = Proof::new(&ProofKey([0; 16]), "kube-system", "s");
        for (message, is_gone) in [
            ("secrets \"s\" not found", true),
            (
                "admission webhook \"x\" denied the request: not found",
                false,
            ),
        ] {
            let api = FakeApi::default();
            let applier = Applier::new(api.client(), "kube-system", "i", "me", None);
            let refusal = Fault::Answer(404, message);
            api.fail(&format!("DELETE {path}"), refusal);
            let copy = applier.delete_pull_secret(&id("kube-system"), 5).await;
            let own = applier.remove(Leftover::Secret("s".to_owned())).await;
            api.fail(path, refusal);
            let id = id("kube-system");
            let of_operator = applier.delete_operator_secret(&id, proof).await;
            let found = [copy.is_ok(), own.is_ok(), of_operator.is_ok()];
            assert_eq!(found, [is_gone; 3], "{message}");
        }
    }
}
