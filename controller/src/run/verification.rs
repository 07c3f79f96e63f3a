//! Asks registries whether they accept the credentials, in the background.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use globalps_core::names::{REGISTRY_AUTHORITIES_DIR, REGISTRY_AUTHORITIES_KEY};
use globalps_core::rollout::Revision;
use globalps_planner::content::secret::Global;
use globalps_registry::{Checker, Connection};
use globalps_runtime::backoff::{jittered, up_to};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::verification::{Ledger, Outcome, Question, Verified, is_allowed};

/// For each request to a registry, with its connection.
const REQUEST: Duration = Duration::from_secs(10);

/// The checks of this leader. Those in progress end with it.
#[derive(Default)]
pub(super) struct Verification {
    /// `None`: `spec.verify` is absent.
    interval: Option<Duration>,
    /// Revision of the content in the ledger.
    revision: Revision,
    ledger: Ledger,
    questions: JoinSet<(Question, Outcome)>,
}

impl Verification {
    /// `None`: nothing is verified, or there is nothing to verify.
    pub(super) fn verified(&self) -> Option<Verified> {
        self.interval?;
        self.ledger.verified()
    }

    /// `global`: the content in force.
    pub(super) fn set(&mut self, interval: Option<Duration>, global: Option<&Global>) {
        let content = global.and_then(|global| global.content.as_ref());
        let (Some(interval), Some(global), Some(content)) = (interval, global, content) else {
            *self = Self::default();
            return;
        };
        let is_known = self.interval.is_some() && self.revision == global.revision;
        if self.interval.replace(interval) > Some(interval) {
            self.ledger.limit(Instant::now() + interval);
        }
        if !is_known {
            self.revision = global.revision;
            self.ledger.set_content(content, Instant::now(), up_to);
        }
    }

    /// Asks registries until the state of one of them may have changed.
    pub(super) async fn changed(&mut self) {
        loop {
            while let Some(question) = self.ledger.ask(Instant::now()) {
                self.questions.spawn(ask(question));
            }
            let next = self.ledger.next();
            let timer = async {
                match next {
                    Some(next) => sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            let done = tokio::select! {
                Some(done) = self.questions.join_next() => done,
                () = timer => continue,
            };
            // A check that panicked would abort the process.
            let (Ok((question, outcome)), Some(interval)) = (done, self.interval) else {
                continue;
            };
            let before = self.ledger.verified();
            let now = Instant::now();
            self.ledger
                .settle(&question, outcome, now, interval, jittered);
            if self.ledger.verified() != before {
                return;
            }
        }
    }
}

async fn ask(question: Question) -> (Question, Outcome) {
    // A new one for each question: certificate authorities change on disk.
    let checker = Checker::new(Connection {
        tls: Box::new(tls),
        insecure: false,
        time: REQUEST,
        user_agent: concat!("globalps/", env!("CARGO_PKG_VERSION")),
        allows: is_allowed,
    });
    let answer = checker
        .check(question.registry(), &question.credential)
        .await;
    let outcome = Outcome::from(answer);
    match outcome {
        Outcome::Accepted => {}
        Outcome::Rejected(status) => {
            tracing::warn!(
                registry = question.registry(),
                status,
                "the registry rejects the credentials"
            );
        }
        Outcome::Unknown(reason) => {
            tracing::info!(
                registry = question.registry(),
                reason,
                "the registry could not be asked"
            );
        }
    }
    (question, outcome)
}

/// Trusts the public certificate authorities, and those of the cluster's `ConfigMap`.
fn tls() -> Result<ClientConfig, String> {
    let mut roots = RootCertStore {
        roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
    };
    roots.add_parsable_certificates(authorities(Path::new(REGISTRY_AUTHORITIES_DIR)));
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// Empty if there is no such file. What is no certificate in it is skipped: others may be needed.
fn authorities(dir: &Path) -> Vec<CertificateDer<'static>> {
    let Ok(pem) = fs::read(dir.join(REGISTRY_AUTHORITIES_KEY)) else {
        return Vec::new();
    };
    CertificateDer::pem_slice_iter(&pem).flatten().collect()
}
