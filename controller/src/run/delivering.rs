//! Writes into namespaces concurrently. A failed write does not block others.

use std::collections::HashMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use globalps_core::names::ATTACHED_ANNOTATION;
use globalps_core::namespaces::config_of;
use globalps_core::rollout::Revision;
use globalps_core::state::ProofKey;
use globalps_planner::namespaces::clock::SecretClock;
use globalps_planner::namespaces::digest::Digests;
use globalps_planner::namespaces::input::Delivery;
use globalps_planner::namespaces::ownership::Ownership;
use globalps_planner::namespaces::plan::Write;
use globalps_planner::namespaces::summary::NamespacesReport;
use globalps_planner::namespaces::views::PullSecretView;
use globalps_planner::targets::account::AccountView;
use globalps_planner::targets::memory::Memory;
use globalps_planner::targets::proof::Proof;
use globalps_runtime::backoff::random;
use tokio::time::Instant;

use super::clock::steady;
use super::pending::{Pending, Writes};
use crate::cache::PullSecrets;
use crate::objects::apply::{Applier, ApplyError};

/// What this leader knows of namespaces beyond the cache.
#[derive(Default)]
pub(super) struct Delivering {
    /// Results of the last reconcile; `None`: namespaces get nothing and have nothing.
    pub(super) report: Option<NamespacesReport>,
    /// The newest revision that has reached every namespace that can get it.
    pub(super) everywhere: Option<Revision>,
    pub(super) memory: Memory,
    pub(super) clock: SecretClock,
    pub(super) ownership: Ownership,
    pub(super) digests: Digests,
    pub(super) pending: Pending<Done>,
    /// Time of the last lookup of the admission policy, the spec's generation then, and whether the policy is in force.
    pub(super) policy: Option<(Instant, i64, bool)>,
    /// When the Secrets and service accounts were last listed from the beginning.
    pub(super) listed: Option<Instant>,
    /// Since when it is not known what the namespaces have.
    pub(super) unknown_since: Option<Instant>,
}

/// The result of a write.
pub(super) enum Written {
    Secret(PullSecretView),
    Account(AccountView),
    Deleted,
    /// Its finalizers keep the Secret.
    BeingDeleted(PullSecretView),
    /// Nothing: the service account no longer exists.
    Gone,
}

/// A finished write: the key of its object in the memory, what it wrote, and the result.
pub(super) type Done = (String, String, Result<Written, ApplyError>);

pub(super) struct NamespaceWrites<'a> {
    pub(super) applier: &'a Arc<Applier>,
    pub(super) memory: &'a mut Memory,
    pub(super) watched: &'a mut PullSecrets,
    /// Name of the Secret in each namespace.
    pub(super) name: &'a str,
    pub(super) delivery: Option<&'a Delivery<'a>>,
    /// As stored.
    pub(super) key: Option<ProofKey>,
    pub(super) waiting: std::vec::IntoIter<Write>,
    pub(super) rendered: HashMap<(bool, Vec<usize>), Vec<u8>>,
}

impl NamespaceWrites<'_> {
    /// The content of the Secret to write, with the proof that the controller wrote it.
    fn content(&mut self, write: &Write) -> Option<(Vec<u8>, Proof)> {
        let Write::Apply {
            namespace,
            parts,
            is_stable,
            ..
        } = write
        else {
            return None;
        };
        let (delivery, key) = self.delivery.zip(self.key)?;
        let content = self.rendered.entry((*is_stable, parts.clone()));
        let content = content.or_insert_with(|| render(delivery, parts, *is_stable));
        Some((content.clone(), Proof::new(&key, namespace, self.name)))
    }
}

impl Writes for NamespaceWrites<'_> {
    type Done = Done;

    fn begin(&mut self) -> Option<(String, BoxFuture<'static, Done>)> {
        let write = self.waiting.next()?;
        let (key, what) = key_of(&write);
        if is_restore(&write) {
            self.memory.restored(&key, steady());
        }
        let content = self.content(&write);
        let secret = self.watched.secrets.get(&key);
        let version = secret.map(|secret| secret.version);
        let account = match &write {
            Write::Account { key, .. } => self.watched.accounts.get(key).cloned(),
            _ => None,
        };
        let (applier, name) = (Arc::clone(self.applier), self.name.to_owned());
        let of = key.clone();
        let call = async move {
            let done = perform(&applier, &write, &name, content, version, account).await;
            (of, what, done)
        };
        Some((key, Box::pin(call)))
    }

    fn done(&mut self, done: Done) {
        settle(self.memory, self.watched, done);
    }

    fn memory(&mut self) -> &mut Memory {
        self.memory
    }
}

/// Records the result of a write.
pub(super) fn settle(memory: &mut Memory, watched: &mut PullSecrets, (key, what, done): Done) {
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
        Ok(Written::BeingDeleted(secret)) => {
            memory.removed(&key);
            watched.secrets.put(secret);
        }
        Ok(Written::Gone) => memory.removed(&key),
        Err(error) => {
            let reason = error.refusal().reason();
            tracing::warn!(%error, reason = reason.as_str(), "could not write into a namespace");
            memory.failed(&key, reason, error.to_string(), steady(), random());
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

/// `content`: of the Secret to write. `version`: of the one that is there. `account`: the service account to change.
async fn perform(
    applier: &Applier,
    write: &Write,
    name: &str,
    content: Option<(Vec<u8>, Proof)>,
    version: Option<u64>,
    account: Option<AccountView>,
) -> Result<Written, ApplyError> {
    match write {
        Write::Apply {
            namespace,
            identity,
            ..
        } => {
            let Some((content, proof)) = content else {
                return Ok(Written::Gone);
            };
            let secret = applier
                .pull_secret(namespace, name, content, proof, identity, version)
                .await?;
            Ok(Written::Secret(secret.into()))
        }
        Write::Delete { namespace } => {
            let version = version.unwrap_or_default();
            let left = applier.delete_pull_secret(namespace, name, version).await?;
            Ok(left.map_or(Written::Deleted, |left| Written::BeingDeleted(left.into())))
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
