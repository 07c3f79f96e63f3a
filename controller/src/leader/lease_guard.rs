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
    /// Another controller holds it, or nobody.
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

/// Its `resourceVersion`. Each renewal increases it. A lower one comes from a backup, like every other object then: watches would
/// wait for later versions, and caches have objects that no longer exist.
fn version(lease: &Lease) -> Option<u64> {
    lease.metadata.resource_version.as_ref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use hyper::{Method, Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::Value;
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

    /// The steps of a process that takes the Lease; another one may act between any two of them.
    #[tokio::test(start_paused = true)]
    async fn only_a_process_that_held_the_lease_since_names_the_holder() {
        for (case, other_at, expected) in [
            ("alone", None, "me"),
            ("before the first step", Some(0), "other"),
            ("after the read", Some(1), "other"),
            ("after the renewal", Some(2), "other"),
        ] {
            let server = Arc::new(Mutex::new(Server::default()));
            let shared = Arc::clone(&server);
            let service = service_fn(move |request: Request<Body>| {
                let shared = Arc::clone(&shared);
                async move {
                    let path = request.uri().path().to_owned();
                    let sent = request.into_body().collect_bytes().await?;
                    let sent: Value = serde_json::from_slice(&sent).unwrap_or_default();
                    let (code, body) = lock(&shared).handle(&path, &sent, other_at);
                    let response = Response::builder().status(code);
                    Ok::<_, BoxError>(response.body(Body::from(body.to_string().into_bytes()))?)
                }
            });
            let client = Client::new(service, "default");
            let api = LeaseApi::new(client, "lease", Some("record"), "me");
            let mut lease = Lease::default();
            lease.metadata.resource_version = Some("0".to_owned());
            let mut guard = LeaseGuard::new(&api, lease, clock::now());
            guard.announce().await;
            assert_eq!(guard.is_announced, expected == "me", "{case}");
            assert_eq!(lock(&server).named, expected, "{case}");
        }
    }

    fn lock(server: &Mutex<Server>) -> MutexGuard<'_, Server> {
        server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An API server with a Lease and the object that names its holder.
    #[derive(Default)]
    struct Server {
        requests: usize,
        /// Versions of the two.
        lease: usize,
        record: usize,
        named: String,
    }

    impl Server {
        /// `other_at`: number of requests of this process before another one takes the Lease and names itself.
        fn handle(&mut self, path: &str, sent: &Value, other_at: Option<usize>) -> (u16, Value) {
            if other_at == Some(self.requests) {
                self.lease += 1;
                self.record += 1;
                "other".clone_into(&mut self.named);
            }
            self.requests += 1;
            let is_lease = path.contains("/leases/");
            let version = if is_lease {
                &mut self.lease
            } else {
                &mut self.record
            };
            if let Some(expected) = sent["metadata"]["resourceVersion"].as_str() {
                if expected != version.to_string() {
                    let conflict = json!({"status": "Failure", "message": "", "reason": "Conflict", "code": 409});
                    return (409, conflict);
                }
                *version += 1;
            }
            let version = version.to_string();
            if let Some(named) = sent["metadata"]["annotations"]["globalps.io/leader"].as_str() {
                named.clone_into(&mut self.named);
            }
            let (api_version, kind) = if is_lease {
                ("coordination.k8s.io/v1", "Lease")
            } else {
                ("meta.k8s.io/v1", "PartialObjectMetadata")
            };
            let annotations = json!({"globalps.io/leader": self.named});
            let metadata = json!({"resourceVersion": version, "annotations": annotations});
            (
                200,
                json!({"apiVersion": api_version, "kind": kind, "metadata": metadata}),
            )
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
            let api = LeaseApi::new(client(version, holder), "lease", None, "me");
            let mut lease = Lease::default();
            lease.metadata.resource_version = Some("7".to_owned());
            let mut guard = LeaseGuard::new(&api, lease, clock::now());
            let ended = timeout(RENEW * 2, guard.keep()).await;
            assert_eq!(ended.ok(), expected, "{case}");
        }
    }
}
