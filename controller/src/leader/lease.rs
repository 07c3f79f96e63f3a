//! The requests for the Lease, and for the object that names its holder to the admission policy. Each has a deadline and the
//! `resourceVersion` that it applies to.

use std::time::Duration;

use globalps_core::decode::Item;
use globalps_core::names::{CONTROLLER_MANAGER, CONTROLLER_NAMESPACE, LEADER_ANNOTATION};
use globalps_runtime::backoff::up_to;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease as WholeLease, LeaseSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PartialObjectMeta, Patch, PatchParams};
use kube::{Api, Client, Resource as _};
use serde::Deserialize;
use serde::de::Error as _;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::fencing::LEASE_DURATION;

/// Pause between two attempts, before jitter.
pub(super) const RETRY: Duration = Duration::from_millis(500);
/// Deadline of each request.
const REQUEST: Duration = Duration::from_secs(2);

/// A Lease without its times, which no decision needs: another client can write any time.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Lease {
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    pub(super) spec: LeaseFields,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct LeaseFields {
    pub(super) holder_identity: Option<String>,
    pub(super) lease_duration_seconds: Option<i32>,
    pub(super) lease_transitions: Option<i32>,
}

globalps_core::view!(Lease: WholeLease);

pub(super) struct LeaseApi {
    pub(super) leases: Api<Item<Lease>>,
    accounts: Api<Item<PartialObjectMeta<ServiceAccount>>>,
    /// Name of the `ServiceAccount` that names the holder to the admission policy; `None`: no policy reads it.
    record: Option<&'static str>,
    /// Name of the Lease.
    pub(super) name: String,
    /// Holder identity of this process.
    pub(super) me: String,
}

impl LeaseApi {
    pub(super) fn new(client: Client, name: &str, record: Option<&'static str>, me: &str) -> Self {
        Self {
            leases: Api::namespaced(client.clone(), CONTROLLER_NAMESPACE),
            accounts: Api::namespaced(client, CONTROLLER_NAMESPACE),
            record,
            name: name.to_owned(),
            me: me.to_owned(),
        }
    }

    /// Creates the Lease without a holder, so that controllers do not compete for the creation.
    pub(super) async fn create(&self) -> Result<Lease, LeaseError> {
        let params = PatchParams::apply(CONTROLLER_MANAGER);
        let body = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": self.name},
        });
        let patch = Patch::Apply(&body);
        readable(within(self.leases.patch(&self.name, &params, &patch)).await?)
    }

    pub(super) async fn get(&self) -> Result<Lease, LeaseError> {
        readable(within(self.leases.get(&self.name)).await?)
    }

    pub(super) async fn take(&self, version: &str, transitions: i32) -> Result<Lease, LeaseError> {
        let now = Some(MicroTime(Timestamp::now()));
        let spec = LeaseSpec {
            holder_identity: Some(self.me.clone()),
            lease_duration_seconds: i32::try_from(LEASE_DURATION.as_secs()).ok(),
            lease_transitions: Some(transitions.saturating_add(1)),
            acquire_time: now.clone(),
            renew_time: now,
            ..LeaseSpec::default()
        };
        self.write(version, json!(spec)).await
    }

    /// Succeeds only if the Lease still has this `resourceVersion`.
    pub(super) async fn write(&self, version: &str, spec: Value) -> Result<Lease, LeaseError> {
        let body = json!({"metadata": {"resourceVersion": version}, "spec": spec});
        let (patch, params) = (Patch::Merge(&body), params());
        readable(within(self.leases.patch(&self.name, &params, &patch)).await?)
    }

    /// The object that names the holder, if it has to be written: it names another one.
    pub(super) async fn outdated_record(&self) -> Result<Option<Record>, LeaseError> {
        let Some(name) = self.record else {
            return Ok(None);
        };
        let metadata = match within(self.accounts.get(name)).await {
            Ok(found) => found.meta().clone(),
            // The policy is not in force without it.
            Err(LeaseError::Gone) => {
                tracing::warn!(
                    name,
                    "the ServiceAccount is missing, so the API server does not reject late writes; install again"
                );
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let annotations = metadata.annotations.unwrap_or_default();
        let is_current = annotations.get(LEADER_ANNOTATION) == Some(&self.me);
        Ok((!is_current).then(|| Record {
            name,
            version: metadata.resource_version.unwrap_or_default(),
        }))
    }

    /// Names this process. Succeeds only if the object still has the `resourceVersion`.
    pub(super) async fn write_record(&self, record: &Record) -> Result<(), LeaseError> {
        let body = json!({"metadata": {
            "resourceVersion": record.version, "annotations": {LEADER_ANNOTATION: self.me},
        }});
        let (patch, params) = (Patch::Merge(&body), params());
        within(self.accounts.patch(record.name, &params, &patch)).await?;
        Ok(())
    }
}

/// A version of the object that names the holder.
pub(super) struct Record {
    name: &'static str,
    version: String,
}

fn params() -> PatchParams {
    PatchParams {
        field_manager: Some(CONTROLLER_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum LeaseError {
    #[error("another client wrote it")]
    Conflict,
    #[error("the object does not exist")]
    Gone,
    #[error("no response from the API server within {} s", REQUEST.as_secs())]
    Timeout,
    #[error(transparent)]
    Other(kube::Error),
}

async fn within<T>(call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, LeaseError> {
    match timeout(REQUEST, call).await {
        Ok(Ok(object)) => Ok(object),
        Ok(Err(kube::Error::Api(status))) if status.code == 409 => Err(LeaseError::Conflict),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Err(LeaseError::Gone),
        Ok(Err(error)) => Err(LeaseError::Other(error)),
        Err(_) => Err(LeaseError::Timeout),
    }
}

fn readable(item: Item<Lease>) -> Result<Lease, LeaseError> {
    item.into_result().map_err(|unreadable| {
        LeaseError::Other(kube::Error::SerdeError(serde_json::Error::custom(
            unreadable,
        )))
    })
}

/// Logs the error and returns the pause before the next attempt, with jitter.
pub(super) fn warn(action: &'static str, error: &LeaseError) -> Duration {
    tracing::warn!(%error, action, "a request for the Lease failed; retrying");
    RETRY + up_to(RETRY)
}
