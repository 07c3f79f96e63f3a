//! Writes of namespaces, many at once. One that fails holds up no other.

use std::collections::HashMap;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use globalps_core::names::{ATTACHED_ANNOTATION, SECRET_LIMIT};
use globalps_core::namespaces::config_of;
use jiff::Timestamp;
use tokio::time::Instant;

use crate::cache::PullSecrets;
use crate::namespaces::input::Delivery;
use crate::namespaces::plan::Write;
use crate::namespaces::views::PullSecretView;
use crate::objects::apply::{Applier, ApplyError};
use crate::objects::namespaced::Refusal;
use crate::targets::account::AccountView;
use crate::targets::memory::{Memory, jitter};

/// Writes in flight; each one uses a connection.
const CONCURRENT: usize = 64;
/// Writes of one reconcile begin within this time, so that events do not wait for long.
const PER_RECONCILE: Duration = Duration::from_secs(1);

/// What this leader knows of namespaces beyond the cache.
#[derive(Default)]
pub(super) struct Delivering {
    pub(super) memory: Memory,
    /// Whether the admission policy is in force, and when that was looked up, for which generation of the spec.
    pub(super) policy: Option<(Instant, i64, bool)>,
}

/// What a write yielded.
enum Written {
    Secret(PullSecretView),
    Account(AccountView),
    Deleted,
    /// The service account is not there any more.
    Gone,
}

pub(super) struct NamespaceWrites<'a> {
    pub(super) applier: &'a Applier,
    pub(super) memory: &'a mut Memory,
    pub(super) watched: &'a mut PullSecrets,
    /// Of the Secret in each namespace.
    pub(super) name: &'a str,
}

impl NamespaceWrites<'_> {
    /// As many of them as begin within [`PER_RECONCILE`].
    pub(super) async fn perform(self, writes: Vec<Write>, delivery: Option<&Delivery<'_>>) {
        let Self {
            applier,
            memory,
            watched,
            name,
        } = self;
        let mut rendered: HashMap<(bool, Vec<usize>), Vec<u8>> = HashMap::new();
        let until = Instant::now() + PER_RECONCILE;
        let mut waiting = writes.into_iter();
        let mut in_flight = FuturesUnordered::new();
        loop {
            while in_flight.len() < CONCURRENT
                && Instant::now() < until
                && let Some(write) = waiting.next()
            {
                let (key, what) = key_of(&write);
                if is_restore(&write) {
                    memory.restored(&key, Timestamp::now());
                }
                let content = match (&write, delivery) {
                    (
                        Write::Apply {
                            parts, is_stable, ..
                        },
                        Some(delivery),
                    ) => {
                        let content = rendered.entry((*is_stable, parts.clone()));
                        let content =
                            content.or_insert_with(|| render(delivery, parts, *is_stable));
                        if content.len() > SECRET_LIMIT {
                            let message = format!(
                                "its Secret would have {} bytes, more than the {SECRET_LIMIT} of a Secret",
                                content.len()
                            );
                            let now = Timestamp::now();
                            memory.failed(&key, "TooLarge", message, now, 1.0);
                            continue;
                        }
                        content.clone()
                    }
                    _ => Vec::new(),
                };
                let version = match &write {
                    Write::Delete { namespace } => {
                        let secrets = &watched.secrets;
                        secrets.get(namespace).map_or(0, |secret| secret.version)
                    }
                    _ => 0,
                };
                let account = match &write {
                    Write::Account { key, .. } => watched.accounts.get(key).cloned(),
                    _ => None,
                };
                in_flight.push(async move {
                    let done = perform(applier, &write, name, content, version, account).await;
                    (key, what, done)
                });
            }
            let Some((key, what, done)) = in_flight.next().await else {
                return;
            };
            match done {
                Ok(Written::Secret(secret)) => {
                    memory.wrote(&key, &what);
                    watched.secrets.put(secret);
                }
                Ok(Written::Account(account)) => {
                    if account.is_attached() {
                        memory.wrote(&key, &what);
                    } else {
                        memory.removed(&key);
                    }
                    watched.accounts.put(account);
                }
                Ok(Written::Deleted) => {
                    memory.removed(&key);
                    watched.secrets.live.remove(&key);
                }
                Ok(Written::Gone) => memory.removed(&key),
                Err(error) => match error.refusal() {
                    Refusal::Gone => memory.removed(&key),
                    Refusal::Because(reason) => {
                        tracing::warn!(%error, reason, "a namespace could not be written");
                        let now = Timestamp::now();
                        memory.failed(&key, reason, error.to_string(), now, jitter(now));
                    }
                },
            }
        }
    }
}

fn render(delivery: &Delivery, parts: &[usize], is_stable: bool) -> Vec<u8> {
    let content = match delivery.stable.filter(|_| is_stable) {
        Some(stable) => stable.content,
        None => delivery.parts.content,
    };
    config_of(content, parts).render()
}

/// The key of the write's object in the memory, and what it writes.
fn key_of(write: &Write) -> (String, String) {
    match write {
        Write::Apply {
            namespace,
            identity,
            ..
        } => (namespace.clone(), identity.clone()),
        Write::Delete { namespace } => (namespace.clone(), String::new()),
        Write::Account { key, .. } => (key.clone(), String::new()),
    }
}

fn is_restore(write: &Write) -> bool {
    match write {
        Write::Apply { is_restore, .. } | Write::Account { is_restore, .. } => *is_restore,
        Write::Delete { .. } => false,
    }
}

/// `version`: of the Secret that is deleted. `account`: the service account that is changed.
async fn perform(
    applier: &Applier,
    write: &Write,
    name: &str,
    content: Vec<u8>,
    version: u64,
    account: Option<AccountView>,
) -> Result<Written, ApplyError> {
    match write {
        Write::Apply {
            namespace,
            identity,
            ..
        } => {
            let secret = applier
                .pull_secret(namespace, name, content, identity)
                .await?;
            Ok(Written::Secret(secret.into()))
        }
        Write::Delete { namespace } => {
            applier.delete_pull_secret(namespace, name, version).await?;
            Ok(Written::Deleted)
        }
        Write::Account { change, .. } => {
            let Some(account) = account else {
                return Ok(Written::Gone);
            };
            let account = applier
                .reference(&account, change, ATTACHED_ANNOTATION)
                .await?;
            Ok(Written::Account(account))
        }
    }
}
