//! The plan for operators: which copies and references to write and remove next. Pure.
//!
//! A service account records the names of the copies from before they are written until they are deleted. Copies are never read,
//! so a new leader finds leftovers by this record.

use std::collections::{BTreeMap, BTreeSet};

use globalps_core::reasons::Reason;
use globalps_core::references::Change;
use jiff::{SignedDuration, Timestamp};

use super::input::{Content, Copies, Input, Known, Operator, Wanted, Wants};
use super::summary::Summary;
use super::views::Id;
use crate::targets::WRITES;
use crate::targets::account::AccountView;

/// A copy is written again after this time, because another client may have changed or deleted it.
const AGAIN: SignedDuration = SignedDuration::from_mins(10);

/// One request to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Write the copy.
    Copy {
        /// Namespace and name.
        id: Id,
        /// Which catalog's Secret, in which edition.
        content: Content,
    },
    /// Delete the copy, if the controller created it.
    Delete {
        /// Namespace and name.
        id: Id,
    },
    /// Change the references of the service account with this key. `what`: all that it should have.
    Account {
        /// `namespace/name`.
        key: String,
        /// What to add and what to remove.
        change: Change,
        /// Names of Secrets, separated by commas.
        what: String,
        /// Another client has removed a reference.
        is_restore: bool,
    },
}

impl Write {
    /// The key of its object in the memory.
    pub fn key(&self) -> String {
        match self {
            Self::Copy { id, .. } | Self::Delete { id } => copy_key(id),
            Self::Account { key, .. } => key.clone(),
        }
    }
}

/// Distinct from the keys of service accounts.
fn copy_key((namespace, name): &Id) -> String {
    format!("{namespace}/secrets/{name}")
}

/// What the controller writes, and what it reports.
#[derive(Clone, Debug, Default)]
pub struct OperatorsPlan {
    /// In order: no reference before its Secret.
    pub writes: Vec<Write>,
    /// When to plan again without an event.
    pub again_at: Option<Timestamp>,
    /// For the status and the metrics.
    pub summary: Summary,
}

/// Reason and message.
type ReasonAndMessage = (Reason, String);

/// Decides everything for the operators. Pure: the same input has the same plan.
pub fn plan(input: &Input) -> OperatorsPlan {
    let wants = Wants::of(input);
    let mut plan = OperatorsPlan::default();
    let account_write = |account| account_write(input, &wants, account);
    let accounts = wants.references.keys();
    let accounts = accounts.filter_map(|key| input.accounts.get(key));
    let copies = wants.copies.iter();
    let copies = copies.filter_map(|(id, wanted)| copy_write(input, id, wanted));
    let left_over = left_over(input, &wants);
    let deletions = left_over
        .iter()
        .filter(|id| may_attempt(input, &copy_key(id)))
        .map(|id| Write::Delete { id: id.clone() });
    let is_left_over = |account: &&AccountView| !wants.references.contains_key(&account.key());
    let others = attached(input).filter(is_left_over);
    let writes = accounts.filter_map(account_write).chain(copies);
    let writes = writes
        .chain(deletions)
        .chain(others.filter_map(account_write));
    plan.writes = writes.take(WRITES).collect();
    let summary = &mut plan.summary;
    for operator in &wants.operators {
        summary.total += 1;
        match error_of(input, &wants, operator) {
            Some((reason, message)) => summary.fail(operator.id, reason, &message),
            None => summary.synced += usize::from(is_synced(input, &wants, operator)),
        }
    }
    summary.accounts = attached(input).count();
    summary.is_clean = !input.is_enabled && summary.accounts == 0 && left_over.is_empty();
    let written = wants
        .copies
        .keys()
        .filter_map(|id| match input.copies.get(id) {
            Some(Known::Written { at, .. }) => Some(*at + AGAIN),
            _ => None,
        });
    let retry_at = input.memory.next_retry(input.now);
    plan.again_at = written.filter(|at| *at > input.now).chain(retry_at).min();
    plan
}

/// Forgets deletions once no service account records the copy: with a record that is there again, such as from a backup, the copy may
/// be there again, too. Call it before each plan.
pub fn forget(copies: &mut Copies, accounts: &BTreeMap<String, AccountView>) {
    if copies.values().all(|known| *known != Known::Deleted) {
        return;
    }
    let recorded = accounts.values().flat_map(|account| {
        let names = account.references.recorded.iter();
        names.map(|name| (account.namespace.as_str(), &**name))
    });
    let recorded: BTreeSet<(&str, &str)> = recorded.collect();
    copies.retain(|(namespace, name), known| {
        *known != Known::Deleted || recorded.contains(&(namespace.as_str(), name.as_str()))
    });
}

fn may_attempt(input: &Input, key: &str) -> bool {
    let failure = input.memory.failure(key);
    failure.is_none_or(|failure| failure.retry_at <= input.now)
}

/// Copies that may exist but are not needed.
fn left_over(input: &Input, wants: &Wants) -> BTreeSet<Id> {
    let recorded = attached(input).flat_map(|account| {
        let names = account.references.recorded.iter();
        names.map(|name| (account.namespace.clone(), name.to_string()))
    });
    let all = recorded.chain(input.copies.keys().cloned());
    all.filter(|id| !wants.copies.contains_key(id) && input.copies.get(id) != Some(&Known::Deleted))
        .filter(|id| !input.is_going(&id.0))
        .collect()
}

/// Service accounts with a reference of the controller.
fn attached<'a>(input: &Input<'a>) -> impl Iterator<Item = &'a AccountView> {
    let accounts = input.accounts.values();
    accounts.filter(|account| account.is_attached() && !input.is_going(&account.namespace))
}

fn names<'a>(wants: &'a Wants, account: &AccountView) -> BTreeSet<&'a str> {
    let wanted = wants.references.get(&account.key()).into_iter().flatten();
    wanted.map(String::as_str).collect()
}

/// All that the service account should have, for the memory.
fn what(wants: &Wants, account: &AccountView) -> String {
    let names: Vec<&str> = names(wants, account).into_iter().collect();
    names.join(",")
}

/// What the service account lacks or has too much. The record of a copy stays until the copy is deleted.
fn change(input: &Input, wants: &Wants, account: &AccountView) -> Option<Change> {
    if account.is_being_deleted || account.has_too_many {
        return None;
    }
    let is_there = |name: &str| {
        let id = (account.namespace.clone(), name.to_owned());
        !wants.copies.contains_key(&id) && input.copies.get(&id) != Some(&Known::Deleted)
    };
    let wanted = names(wants, account);
    account.references.change_of_own(&wanted, is_there)
}

fn account_write(input: &Input, wants: &Wants, account: &AccountView) -> Option<Write> {
    let change = change(input, wants, account)?;
    let key = account.key();
    let what = what(wants, account);
    let is_restore = is_restore(input, account, &change, &what);
    let is_contested = is_restore && input.memory.is_contested(&key, &what, input.now);
    (!is_contested && may_attempt(input, &key)).then_some(Write::Account {
        key,
        change,
        what,
        is_restore,
    })
}

/// Whether another client has removed a reference, maybe with its record, as the Operator Lifecycle Manager does in an upgrade.
fn is_restore(input: &Input, account: &AccountView, change: &Change, what: &str) -> bool {
    let was_written = input.memory.has_written(&account.key(), what);
    account.references.is_restore(change) || was_written && !change.added.is_empty()
}

fn copy_write(input: &Input, id: &Id, wanted: &Wanted) -> Option<Write> {
    let secret = input.secrets.get(&wanted.source)?;
    if secret.error.is_some() || !may_attempt(input, &copy_key(id)) {
        // An existing copy stays.
        return None;
    }
    let accounts = || {
        wanted
            .accounts
            .iter()
            .filter_map(|key| input.accounts.get(key))
    };
    if !accounts().any(|account| records(account, &id.1)) {
        return None;
    }
    let content = Content {
        source: wanted.source.clone(),
        edition: secret.edition,
        owners: wanted.owners.clone(),
    };
    let is_due = match input.copies.get(id) {
        Some(Known::Written { content: known, at }) => {
            let is_rotation = known.edition != content.edition;
            let is_other = *known != content || *at + AGAIN <= input.now;
            is_other && !(input.paused && is_rotation)
        }
        // A new leader does not know whether it exists and with which content. A new operator must not wait.
        Some(Known::Deleted) | None => {
            !input.paused || accounts().any(|account| input.memory.wrote_any(&account.key()))
        }
    };
    is_due.then(|| Write::Copy {
        id: id.clone(),
        content,
    })
}

fn records(account: &AccountView, name: &str) -> bool {
    account
        .references
        .recorded
        .iter()
        .any(|known| **known == *name)
}

/// Why the operator isn't in the desired state.
fn error_of(input: &Input, wants: &Wants, operator: &Operator) -> Option<ReasonAndMessage> {
    let of = |key: &str| {
        let failure = input.memory.failure(key)?;
        Some((failure.reason, failure.message.clone()))
    };
    for id in &operator.copies {
        let secret = input.secrets.get(&wants.copies.get(id)?.source);
        let error = secret.and_then(|secret| secret.error.clone());
        if let Some(error) = error.or_else(|| of(&copy_key(id))) {
            return Some(error);
        }
    }
    for key in &operator.accounts {
        let Some(account) = input.accounts.get(key) else {
            let message = format!(
                "ServiceAccount `{key}`, which a Deployment of the operator uses, does not exist"
            );
            return Some((Reason::ServiceAccountMissing, message));
        };
        if account.has_too_many {
            return Some(AccountView::too_many(key));
        }
        let Some(change) = change(input, wants, account) else {
            continue;
        };
        let what = what(wants, account);
        if input.memory.is_contested(key, &what, input.now) {
            return Some((Reason::Conflict, AccountView::conflict(key)));
        }
        if let Some(error) = of(key).filter(|_| !change.added.is_empty()) {
            return Some(error);
        }
    }
    None
}

fn is_synced(input: &Input, wants: &Wants, operator: &Operator) -> bool {
    let has_copy = |id: &Id| {
        let wanted = wants.copies.get(id);
        let secret = wanted.and_then(|wanted| input.secrets.get(&wanted.source));
        match (input.copies.get(id), secret) {
            (Some(Known::Written { content, .. }), Some(secret)) => {
                content.edition == secret.edition
            }
            _ => false,
        }
    };
    let is_attached = |key: &String| {
        let account = input.accounts.get(key);
        account.is_some_and(|account| change(input, wants, account).is_none())
    };
    operator.copies.iter().all(has_copy) && operator.accounts.iter().all(is_attached)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
