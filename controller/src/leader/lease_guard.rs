//! The Lease while this controller holds it.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde_json::json;
use tokio::time::sleep;

use super::fencing::FencingToken;
use super::lease::{Lease, LeaseApi, LeaseError, RETRY, warn};
use crate::telemetry::clock;

/// Interval between renewals.
const RENEW: Duration = Duration::from_secs(3);

/// Number of renewals between two checks that the admission policy knows this holder.
const CHECK_RECORD: u32 = 10;

/// Why a controller stops leading.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// Another controller holds the Lease, or none does.
    Lease,
    /// Etcd was restored from a backup: every object may be older or absent.
    Objects,
}

/// Holds the Lease, and extends the fencing token with each renewal.
pub(crate) struct LeaseGuard<'a> {
    api: &'a LeaseApi,
    version: String,
    /// The admission policy knows this holder, as of the last check.
    is_announced: bool,
    pub(crate) token: Arc<FencingToken>,
}

impl<'a> LeaseGuard<'a> {
    pub(super) fn new(api: &'a LeaseApi, lease: Lease, sent: Duration) -> Self {
        tracing::info!(me = api.me, "leading");
        let token = FencingToken::default();
        token.renewed(sent);
        Self {
            api,
            version: lease.metadata.resource_version.unwrap_or_default(),
            is_announced: false,
            token: Arc::new(token),
        }
    }

    /// Renews the Lease until it is lost. Continues during an outage of the API server; the [`FencingToken`] then expires.
    pub(crate) async fn keep(&mut self) -> Lost {
        let mut pause = RENEW;
        let mut renewals = 0_u32;
        loop {
            sleep(pause).await;
            pause = match self.renew().await {
                Ok(()) => {
                    renewals = renewals.wrapping_add(1);
                    // Another client may have removed the annotation.
                    if !self.is_announced || renewals.is_multiple_of(CHECK_RECORD) {
                        self.announce().await;
                    }
                    RENEW
                }
                Err(LeaseError::Conflict) => match self.api.get().await {
                    // Another client changed the metadata, or a renewal of this controller succeeded without a response.
                    Ok(lease) if self.is_mine(&lease) => {
                        if version(&lease) < self.version.parse().ok() {
                            tracing::warn!(
                                "etcd was restored from a backup; listing all objects again"
                            );
                            return Lost::Objects;
                        }
                        self.update(lease);
                        RETRY
                    }
                    Ok(_) | Err(LeaseError::Gone) => break,
                    Err(error) => warn("read", &error),
                },
                Err(LeaseError::Gone) => break,
                Err(error) => warn("renew", &error),
            };
        }
        tracing::warn!("another controller leads");
        Lost::Lease
    }

    async fn renew(&mut self) -> Result<(), LeaseError> {
        let sent = clock::now();
        let renewal = json!({"renewTime": MicroTime(Timestamp::now())});
        let lease = self.api.write(&self.version, renewal).await?;
        self.update(lease);
        self.token.renewed(sent);
        Ok(())
    }

    /// Names this process to the admission policy, which rejects its writes before that. The next renewal repeats a failure.
    pub(super) async fn announce(&mut self) {
        let written = self.write_record().await;
        self.is_announced = written.is_ok();
        if let Err(error) = written {
            warn("name the holder of", &error);
        }
    }

    /// The order matters. The renewal shows that this process still held the Lease after it had read the object. A later holder
    /// reads the object after that. So if a later holder has written it, this write is a conflict, however late it arrives.
    async fn write_record(&mut self) -> Result<(), LeaseError> {
        if let Some(record) = self.api.outdated_record().await? {
            self.renew().await?;
            self.api.write_record(&record).await?;
        }
        Ok(())
    }

    /// Releases the Lease, so that the next leader need not wait for its end. No write may be in flight.
    pub(crate) async fn release(mut self) {
        let nobody = json!({"holderIdentity": null});
        let mut released = self.api.write(&self.version, nobody.clone()).await;
        if let Err(LeaseError::Conflict) = released
            && let Ok(lease) = self.api.get().await
            && self.is_mine(&lease)
        {
            self.update(lease);
            released = self.api.write(&self.version, nobody).await;
        }
        match released {
            Ok(_) => tracing::info!("released the Lease"),
            Err(error) => {
                warn("release", &error);
            }
        }
    }

    fn update(&mut self, lease: Lease) {
        self.version = lease.metadata.resource_version.unwrap_or_default();
    }

    fn is_mine(&self, lease: &Lease) -> bool {
        lease.spec.holder_identity.as_ref() == Some(&self.api.me)
    }
}

/// The Lease's `resourceVersion`, which each renewal increases. A lower one comes from a backup, and so do all other
/// objects then: watches would wait for later versions, and caches have objects that no longer exist.
fn version(lease: &Lease) -> Option<u64> {
    lease.metadata.resource_version.as_ref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use globalps_core::names::{CONTROLLER_NAMESPACE, LEADER_ANNOTATION};
    use globalps_fake_api::FakeApi;
    use tokio::time::timeout;

    use super::*;

    fn record() -> String {
        format!("/api/v1/namespaces/{CONTROLLER_NAMESPACE}/serviceaccounts/record")
    }

    /// An API server with this Lease and the object that names its holder.
    fn server(version: &str, holder: &str) -> FakeApi {
        let api = FakeApi::default();
        let base = format!("/apis/coordination.k8s.io/v1/namespaces/{CONTROLLER_NAMESPACE}");
        let metadata = json!({"resourceVersion": version});
        let lease = json!({"metadata": metadata, "spec": {"holderIdentity": holder}});
        api.put(&format!("{base}/leases/lease"), &lease);
        api.put(&record(), &json!({"metadata": metadata}));
        api
    }

    /// The steps of a process that takes the Lease; another one may act between any two of them.
    #[tokio::test(start_paused = true)]
    async fn only_a_process_that_held_the_lease_since_names_the_holder() {
        for (case, other_at, expected) in [
            ("alone", None, "me"),
            ("before the first step", Some(0), "other"),
            ("after the read", Some(1), "other"),
            ("after the renewal", Some(2), "other"),
        ] {
            let mut requests = 0;
            let server = server("0", "me").with_rule(move |_, objects| {
                if other_at == Some(requests) {
                    for object in objects.values_mut() {
                        object["metadata"]["resourceVersion"] = json!("100");
                        object["metadata"]["annotations"] = json!({LEADER_ANNOTATION: "other"});
                        object["spec"] = json!({"holderIdentity": "other"});
                    }
                }
                requests += 1;
                None
            });
            let api = LeaseApi::new(server.client(), "lease", Some("record"), "me");
            let mut lease = Lease::default();
            lease.metadata.resource_version = Some("0".to_owned());
            let mut guard = LeaseGuard::new(&api, lease, clock::now());
            guard.announce().await;
            assert_eq!(guard.is_announced, expected == "me", "{case}");
            let record = server.object(&record()).unwrap();
            let named = &record["metadata"]["annotations"][LEADER_ANNOTATION];
            assert_eq!(named, expected, "{case}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lower_version_ends_the_term() {
        for (case, version, holder, expected) in [
            ("another client wrote a label", "8", "me", None),
            ("etcd was restored", "6", "me", Some(Lost::Objects)),
            ("another controller leads", "8", "other", Some(Lost::Lease)),
            (
                "another controller led in the backup",
                "6",
                "other",
                Some(Lost::Lease),
            ),
        ] {
            let api = LeaseApi::new(server(version, holder).client(), "lease", None, "me");
            let mut lease = Lease::default();
            lease.metadata.resource_version = Some("7".to_owned());
            let mut guard = LeaseGuard::new(&api, lease, clock::now());
            let ended = timeout(RENEW * 2, guard.keep()).await;
            assert_eq!(ended.ok(), expected, "{case}");
        }
    }
}
