//! Writes for operators. A failed write does not block others.

use std::sync::Arc;

use futures::future::BoxFuture;
use globalps_core::names::OPERATOR_SECRETS_ANNOTATION;
use globalps_core::reasons::Reason;
use globalps_core::state::ProofKey;
use globalps_planner::operators::input::{Copies, Known};
use globalps_planner::operators::plan::Write;
use globalps_planner::operators::summary::OperatorsReport;
use globalps_planner::operators::views::CatalogSecret;
use globalps_planner::targets::account::AccountView;
use globalps_planner::targets::memory::Memory;
use globalps_planner::targets::proof::Proof;
use globalps_runtime::backoff::random;

use super::clock::steady;
use super::pending::{Pending, Writes};
use crate::cache::OperatorObjects;
use crate::objects::apply::{Applier, ApplyError};
use crate::objects::namespaced::Refusal;

/// What this leader knows of operators beyond the cache.
#[derive(Default)]
pub(super) struct ForOperators {
    /// Results of the last reconcile; `None`: operators get nothing and have nothing.
    pub(super) report: Option<OperatorsReport>,
    pub(super) memory: Memory,
    pub(super) copies: Copies,
    pub(super) pending: Pending<Done>,
}

/// The result of a write.
pub(super) enum Written {
    Copy,
    Deleted,
    Account(AccountView),
    /// The service account no longer exists.
    Gone,
}

pub(super) type Done = (Write, Result<Written, ApplyError>);

pub(super) struct OperatorWrites<'a> {
    pub(super) applier: &'a Arc<Applier>,
    pub(super) memory: &'a mut Memory,
    pub(super) copies: &'a mut Copies,
    pub(super) objects: &'a mut OperatorObjects,
    /// As stored.
    pub(super) key: Option<ProofKey>,
    pub(super) waiting: std::vec::IntoIter<Write>,
}

impl Writes for OperatorWrites<'_> {
    type Done = Done;

    fn begin(&mut self) -> Option<(String, BoxFuture<'static, Done>)> {
        let write = self.waiting.next()?;
        if let Write::Account {
            key,
            is_restore: true,
            ..
        } = &write
        {
            self.memory.restored(key, steady());
        }
        let content = match &write {
            Write::Copy { content, .. } => self.objects.secrets.get(&content.source),
            _ => None,
        };
        let content = content.map(CatalogSecret::content).unwrap_or_default();
        let account = match &write {
            Write::Account { key, .. } => self.objects.accounts.get(key).cloned(),
            _ => None,
        };
        let proof = match (&write, self.key) {
            (Write::Copy { id, .. } | Write::Delete { id }, Some(key)) => {
                Some(Proof::new(&key, &id.0, &id.1))
            }
            _ => None,
        };
        let applier = Arc::clone(self.applier);
        let key = write.key();
        let call = async move {
            let done = perform(&applier, &write, content, proof, account).await;
            (write, done)
        };
        Some((key, Box::pin(call)))
    }

    fn done(&mut self, done: Done) {
        settle(self.memory, self.copies, self.objects, done);
    }

    fn memory(&mut self) -> &mut Memory {
        self.memory
    }
}

/// Records the result of a write.
pub(super) fn settle(
    memory: &mut Memory,
    copies: &mut Copies,
    objects: &mut OperatorObjects,
    (write, done): Done,
) {
    let now = steady();
    let key = write.key();
    match (write, done) {
        (Write::Copy { id, content }, Ok(Written::Copy)) => {
            memory.wrote(&key, "");
            copies.insert(id, Known::Written { content, at: now });
        }
        (Write::Delete { id }, Ok(_)) => {
            memory.removed(&key);
            copies.insert(id, Known::Deleted);
        }
        (Write::Account { what, .. }, Ok(Written::Account(account))) => {
            if account.is_attached() {
                memory.wrote(&key, &what);
            } else {
                memory.removed(&key);
            }
            objects.accounts.put(account);
        }
        (_, Ok(_)) => memory.removed(&key),
        (write, Err(error)) => {
            let (reason, message) = reason_and_message(&write, &error);
            tracing::warn!(%error, reason = reason.as_str(), "could not deliver to an operator");
            memory.failed(&key, reason, message, now, random());
        }
    }
}

fn reason_and_message(write: &Write, error: &ApplyError) -> (Reason, String) {
    match (write, error.refusal()) {
        (Write::Copy { id, .. }, Refusal::Because(Reason::Changed)) => {
            let (namespace, name) = id;
            let message = format!(
                "another client created or changed Secret `{namespace}/{name}`, so globalps does not write it"
            );
            (Reason::ForeignSecret, message)
        }
        (_, refusal) => (refusal.reason(), error.to_string()),
    }
}

/// `content`: of a copy. `proof`: of this copy. `account`: the service account to change.
async fn perform(
    applier: &Applier,
    write: &Write,
    content: Vec<u8>,
    proof: Option<Proof>,
    account: Option<AccountView>,
) -> Result<Written, ApplyError> {
    match (write, proof, account) {
        (
            Write::Copy {
                id: (namespace, name),
                content: of,
            },
            Some(proof),
            _,
        ) => {
            let owners = of.owners.iter();
            applier
                .operator_secret(namespace, name, content, proof, owners)
                .await?;
            Ok(Written::Copy)
        }
        (
            Write::Delete {
                id: (namespace, name),
            },
            Some(proof),
            _,
        ) => {
            applier
                .delete_operator_secret(namespace, name, proof)
                .await?;
            Ok(Written::Deleted)
        }
        (Write::Account { change, .. }, _, Some(account)) => {
            let account = applier
                .reference(&account, change, OPERATOR_SECRETS_ANNOTATION)
                .await?;
            Ok(Written::Account(account))
        }
        _ => Ok(Written::Gone),
    }
}
