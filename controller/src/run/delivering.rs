//! The writes of deliveries into namespaces and to operators, concurrently. A failed write does not block others.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use globalps_core::names::{ATTACHED_ANNOTATION, OPERATOR_SECRETS_ANNOTATION};
use globalps_core::reasons::{Reason, ReasonAndMessage};
use globalps_core::state::ProofKey;
use globalps_planner::namespaces::input::Delivery;
use globalps_planner::namespaces::views::PullSecretView;
use globalps_planner::operators::input::KnownCopy;
use globalps_planner::operators::views::CatalogSecret;
use globalps_planner::refused::title;
use globalps_planner::targets::Id;
use globalps_planner::targets::account::AccountView;
use globalps_planner::targets::memory::Memory;
use globalps_planner::targets::proof::Proof;
use globalps_planner::targets::write::{SecretContent, Write};
use globalps_runtime::backoff::random;
use jiff::SignedDuration;
use tokio::time::{Instant, timeout_at};

use super::clock::steady;
use crate::cache::{Kept, OperatorObjects, PullSecrets};
use crate::objects::apply::{Applier, ApplyError};
use crate::objects::namespaced::Refusal;

/// Maximum number of writes in flight; each uses a connection.
const CONCURRENT: usize = 64;
/// The writes of one reconcile start within this time, so that events do not wait for long.
const PER_RECONCILE: Duration = Duration::from_secs(1);
/// A reconcile waits this long for responses after its last write started.
const PATIENCE: Duration = Duration::from_secs(1);
/// A request without a response has ended by then.
const GIVEN_UP: SignedDuration = SignedDuration::from_secs(20);

/// An object as it is stored after a write.
pub(super) enum Stored {
    Secret(PullSecretView),
    Account(AccountView),
}

/// A finished write. `None`: the object is gone, or is never read.
pub(super) type Done = (Write, Result<Option<Stored>, ApplyError>);

/// The cache that a delivery writes its results to.
pub(super) enum DeliveryCache<'a> {
    Namespaces(&'a mut PullSecrets),
    Operators(&'a mut OperatorObjects),
}

impl DeliveryCache<'_> {
    /// The service accounts, and the annotation with the references that the delivery added.
    fn accounts(&mut self) -> (&mut Kept<AccountView>, &'static str) {
        match self {
            Self::Namespaces(objects) => (&mut objects.accounts, ATTACHED_ANNOTATION),
            Self::Operators(objects) => (&mut objects.accounts, OPERATOR_SECRETS_ANNOTATION),
        }
    }

    /// The credentials of the Secret to write. `rendered`: those for namespaces, by their identity.
    fn credentials(
        &self,
        write: &Write,
        delivery: Option<&Delivery>,
        rendered: &mut HashMap<String, Vec<u8>>,
    ) -> Option<Vec<u8>> {
        let Write::Secret { content, .. } = write else {
            return None;
        };
        match (content, self) {
            (SecretContent::Copy(of), Self::Operators(objects)) => {
                objects.secrets.get(&of.source).map(CatalogSecret::content)
            }
            (SecretContent::Namespace(of), Self::Namespaces(_)) => {
                let delivery = delivery?;
                let rendered = rendered.entry(of.identity.clone());
                Some(rendered.or_insert_with(|| delivery.render(of)).clone())
            }
            _ => None,
        }
    }
}

/// Executes the writes of one delivery. A write without a response delays no other; it is awaited in the background.
#[derive(Default)]
pub(super) struct Executor {
    pub(super) memory: Memory,
    /// Writes in flight, including those of earlier reconciles.
    pub(super) pending: FuturesUnordered<BoxFuture<'static, Done>>,
}

impl Executor {
    /// Starts as many writes as possible within [`PER_RECONCILE`]. A write without a response in time counts as failed until there is
    /// one. `proof_key`: as stored. `delivery`: what namespaces get.
    pub(super) async fn execute(
        &mut self,
        writes: Vec<Write>,
        applier: &Arc<Applier>,
        mut cache: DeliveryCache<'_>,
        proof_key: Option<ProofKey>,
        delivery: Option<&Delivery<'_>>,
    ) {
        let mut writes = writes.into_iter();
        let mut rendered = HashMap::new();
        // Writes of earlier reconciles don't count.
        let most = self.pending.len() + CONCURRENT;
        let mut begun = BTreeSet::new();
        let until = Instant::now() + PER_RECONCILE;
        let mut patience = Instant::now() + PATIENCE;
        loop {
            while self.pending.len() < most
                && Instant::now() < until
                && let Some(write) = writes.next()
            {
                patience = Instant::now() + PATIENCE;
                let key = write.key();
                if write.is_restore() {
                    self.memory.restored(&key, steady());
                }
                let credentials = cache.credentials(&write, delivery, &mut rendered);
                let (accounts, record) = cache.accounts();
                let account = accounts.get(&key).cloned();
                let applier = Arc::clone(applier);
                begun.insert(key);
                self.pending.push(Box::pin(async move {
                    let call = perform(&applier, &write, credentials, proof_key, account, record);
                    let done = call.await;
                    (write, done)
                }));
            }
            if begun.is_empty() {
                return;
            }
            match timeout_at(patience, self.pending.next()).await {
                Ok(Some(done)) => {
                    begun.remove(&done.0.key());
                    self.settle(&mut cache, done);
                }
                Ok(None) => return,
                Err(_) => break,
            }
        }
        let now = steady();
        for key in &begun {
            self.memory.waits(key, now, now + GIVEN_UP);
        }
    }

    /// Records the result of a write.
    pub(super) fn settle(&mut self, cache: &mut DeliveryCache, (write, done): Done) {
        let (key, now) = (write.key(), steady());
        let stored = match done {
            Ok(stored) => stored,
            Err(error) => {
                let (reason, message) = reason_and_message(&write, &error);
                let what = match cache {
                    DeliveryCache::Namespaces(_) => "could not write into a namespace",
                    DeliveryCache::Operators(_) => "could not deliver to an operator",
                };
                tracing::warn!(%error, reason = reason.as_str(), "{what}");
                self.memory.failed(&key, reason, message, now, random());
                return;
            }
        };
        let is_written = match (&write, &stored) {
            (Write::Secret { .. }, _) => true,
            (_, Some(Stored::Account(account))) => account.is_attached(),
            _ => false,
        };
        if is_written {
            self.memory.wrote(&key, write.what());
        } else {
            self.memory.removed(&key);
        }
        match (cache, write, stored) {
            (cache, _, Some(Stored::Account(account))) => cache.accounts().0.put(account),
            (DeliveryCache::Namespaces(objects), _, Some(Stored::Secret(secret))) => {
                objects.secrets.put(secret);
            }
            (DeliveryCache::Namespaces(objects), Write::Delete { id, .. }, None) => {
                objects.secrets.live.remove(&id.0);
            }
            (
                DeliveryCache::Operators(objects),
                Write::Secret {
                    id,
                    content: SecretContent::Copy(content),
                    ..
                },
                _,
            ) => {
                let written = KnownCopy::Written { content, at: now };
                objects.copies.insert(id, written);
            }
            (DeliveryCache::Operators(objects), Write::Delete { id, .. }, _) => {
                objects.copies.insert(id, KnownCopy::Deleted);
            }
            _ => {}
        }
    }
}

fn reason_and_message(write: &Write, error: &ApplyError) -> ReasonAndMessage {
    match (write, error.refusal()) {
        (
            Write::Secret {
                id: (namespace, name),
                content: SecretContent::Copy(_),
                ..
            },
            Refusal::Because(Reason::Changed),
        ) => {
            let message = format!(
                "another client created or changed Secret `{namespace}/{name}`, so globalps does not write it"
            );
            (Reason::ForeignSecret, message)
        }
        (_, refusal) => (refusal.reason(), error.to_string()),
    }
}

fn unknown((namespace, name): &Id) -> ApplyError {
    ApplyError::Prevented {
        action: "apply",
        object: title("Secret", &format!("{namespace}/{name}")),
        reason: Reason::Unavailable,
        message: "its credentials are not known".to_owned(),
    }
}

/// `credentials`: of the Secret to write. `key`: of its proof. `account`: the service account to change, with this record.
async fn perform(
    applier: &Applier,
    write: &Write,
    credentials: Option<Vec<u8>>,
    key: Option<ProofKey>,
    account: Option<AccountView>,
    record: &'static str,
) -> Result<Option<Stored>, ApplyError> {
    let proof = |(namespace, name): &Id| key.map(|key| Proof::new(&key, namespace, name));
    let stored = match write {
        Write::Secret { id, content, .. } => {
            let (Some(credentials), Some(proof)) = (credentials, proof(id)) else {
                return Err(unknown(id));
            };
            match content {
                SecretContent::Namespace(of) => {
                    let stored = applier.pull_secret(id, credentials, proof, of).await?;
                    Some(Stored::Secret(stored.into()))
                }
                SecretContent::Copy(of) => {
                    applier.operator_secret(id, credentials, proof, of).await?;
                    None
                }
            }
        }
        Write::Delete { id, version } => match (version, proof(id)) {
            (Some(version), _) => {
                let left = applier.delete_pull_secret(id, *version).await?;
                left.map(|left| Stored::Secret(left.into()))
            }
            (None, Some(proof)) => {
                applier.delete_operator_secret(id, proof).await?;
                None
            }
            (None, None) => None,
        },
        Write::Account { change, .. } => match account {
            Some(account) => {
                let account = applier.reference(&account, change, record).await?;
                Some(Stored::Account(account))
            }
            None => None,
        },
    };
    Ok(stored)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use globalps_fake_api::{FakeApi, Fault};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_write_without_a_response_is_awaited_in_the_background() {
        let api = FakeApi::default();
        let path = "/api/v1/namespaces/slow/secrets/s";
        api.fail(&format!("DELETE {path}"), Fault::Silence);
        let applier = Applier::new(api.client(), "kube-system", "i", "me", None);
        let applier = Arc::new(applier);
        let mut known = PullSecrets::new(None);
        let delete = |namespace: &str| Write::Delete {
            id: (namespace.to_owned(), "s".to_owned()),
            version: Some(5),
        };
        let mut executor = Executor::default();
        let begun = Instant::now();
        let writes = ["a", "slow", "b"].map(delete).into();
        let cache = DeliveryCache::Namespaces(&mut known);
        executor.execute(writes, &applier, cache, None, None).await;
        assert_eq!(
            begun.elapsed(),
            PATIENCE,
            "waits briefly for the slow write"
        );
        let failure = |executor: &Executor, namespace| {
            executor.memory.failure(&delete(namespace).key()).cloned()
        };
        assert_eq!(failure(&executor, "a"), None);
        let slow = failure(&executor, "slow").unwrap();
        assert_eq!(slow.reason, Reason::Unavailable);
        let left = slow.retry_at.duration_since(steady());
        let is_soon = left <= GIVEN_UP && left > SignedDuration::ZERO;
        assert!(is_soon, "by the clock that nobody sets: {left:?}");

        let begun = Instant::now();
        let cache = DeliveryCache::Namespaces(&mut known);
        executor
            .execute(vec![delete("c")], &applier, cache, None, None)
            .await;
        assert!(begun.elapsed() < PATIENCE, "but not the next time");
        let (write, done) = executor.pending.next().await.unwrap();
        assert!(write == delete("slow") && done.is_err());
        assert!(matches!(executor.pending.next().now_or_never(), Some(None)));
    }
}
