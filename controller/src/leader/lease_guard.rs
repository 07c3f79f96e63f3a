//! The Lease while this controller holds it.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde_json::json;
use tokio::time::sleep;

use super::fencing::FencingToken;
use super::lease::{LeaseApi, LeaseError, RETRY, warn};
use crate::telemetry::clock;

/// Between two renewals.
const RENEW: Duration = Duration::from_secs(3);

/// Holds the Lease, and keeps the fencing token valid with each renewal.
pub(crate) struct LeaseGuard<'a> {
    api: &'a LeaseApi,
    version: String,
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
            token: Arc::new(token),
        }
    }

    /// Renews the Lease; returns when another controller holds it. Continues during an outage of the API server: the
    /// [`FencingToken`] expires without it.
    pub(crate) async fn keep(&mut self) {
        let mut pause = RENEW;
        loop {
            sleep(pause).await;
            let sent = clock::now();
            let renewal = json!({"renewTime": MicroTime(Timestamp::now())});
            pause = match self.api.write(&self.version, renewal).await {
                Ok(lease) => {
                    self.update(lease);
                    self.token.renewed(sent);
                    RENEW
                }
                Err(LeaseError::Conflict) => match self.api.get().await {
                    // Another client wrote a label, or a renewal of this controller succeeded without a response.
                    Ok(lease) if self.is_mine(&lease) => {
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
    }

    /// Releases the Lease, so that the next leader does not wait for its end. No write may be in flight.
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
            Ok(_) => tracing::info!("the Lease is released"),
            Err(error) => {
                warn("release", &error);
            }
        }
    }

    fn update(&mut self, lease: Lease) {
        self.version = lease.metadata.resource_version.unwrap_or_default();
    }

    fn is_mine(&self, lease: &Lease) -> bool {
        let spec = lease.spec.as_ref();
        spec.and_then(|spec| spec.holder_identity.as_ref()) == Some(&self.api.me)
    }
}
