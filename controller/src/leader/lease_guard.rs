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

/// Interval between renewals.
const RENEW: Duration = Duration::from_secs(3);

/// Why a controller stops leading.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// Another controller holds it, or nobody.
    Lease,
    /// Etcd was restored from a backup: every object may be older or absent.
    Objects,
}

/// Holds the Lease, and extends the fencing token with each renewal.
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

    /// Renews the Lease until it is lost. Continues during an outage of the API server; the [`FencingToken`] then expires.
    pub(crate) async fn keep(&mut self) -> Lost {
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
        let spec = lease.spec.as_ref();
        spec.and_then(|spec| spec.holder_identity.as_ref()) == Some(&self.api.me)
    }
}

/// Its `resourceVersion`. Each renewal increases it. A lower one comes from a backup, like every other object then: watches would
/// wait for later versions, and caches have objects that no longer exist.
fn version(lease: &Lease) -> Option<u64> {
    lease.metadata.resource_version.as_ref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use hyper::{Method, Request, Response};
    use kube::Client;
    use kube::client::Body;
    use tokio::time::timeout;
    use tower::{BoxError, service_fn};

    use super::*;

    /// An API server with this Lease that rejects every other version of it.
    fn client(version: &str, holder: &str) -> Client {
        let lease =
            json!({"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": holder}});
        let conflict =
            json!({"status": "Failure", "message": "", "reason": "Conflict", "code": 409});
        let service = service_fn(move |request: Request<Body>| {
            let (code, body) = if request.method() == Method::GET {
                (200, lease.to_string())
            } else {
                (409, conflict.to_string())
            };
            async move {
                let response = Response::builder().status(code);
                Ok::<_, BoxError>(response.body(Body::from(body.into_bytes()))?)
            }
        });
        Client::new(service, "default")
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
            let api = LeaseApi::new(client(version, holder), "lease", "me");
            let mut lease = Lease::default();
            lease.metadata.resource_version = Some("7".to_owned());
            let mut guard = LeaseGuard::new(&api, lease, clock::now());
            let ended = timeout(RENEW * 2, guard.keep()).await;
            assert_eq!(ended.ok(), expected, "{case}");
        }
    }
}
