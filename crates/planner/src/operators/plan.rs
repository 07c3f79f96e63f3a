//! The plan for operators: which copies and references to write and remove next. Pure.
//!
//! A service account records the names of the copies from before they are written until they are deleted. Copies are never read,
//! so a new leader finds leftovers by this record.

use std::collections::{BTreeMap, BTreeSet};

use globalps_core::reasons::Reason;
use jiff::SignedDuration;

use super::input::{Copies, KnownCopy, OperatorsInput, Wanted, Wants};
use crate::targets::account::AccountView;
use crate::targets::namespace::is_going;
use crate::targets::plan::{DeliveryPlan, Diff};
use crate::targets::write::{CopyContent, SecretContent, Write};
use crate::targets::{Id, WRITES};

/// A copy is written again after this time, because another client may have changed or deleted it.
const AGAIN: SignedDuration = SignedDuration::from_mins(10);

/// Decides everything for the operators. Pure: the same input has the same plan, in which no copy is written before its record.
pub fn plan(input: &OperatorsInput) -> DeliveryPlan {
    let wants = Wants::of(input);
    let mut plan = DeliveryPlan::default();
    let accounts = wants.references.keys();
    let accounts = accounts.filter_map(|key| {
        let diff = match input.accounts.get(key) {
            Some(account) => references_of(input, &wants, account)?,
            None => Diff::failed((Reason::ServiceAccountMissing, missing(key))),
        };
        Some((key, diff))
    });
    let accounts: BTreeMap<&String, Diff> = accounts.collect();
    let copies = wants.copies.iter();
    let copies: BTreeMap<&Id, Diff> = copies
        .map(|(id, wanted)| (id, copy_of(input, id, wanted)))
        .collect();
    for operator in &wants.operators {
        let copies = operator.copies.iter().filter_map(|id| copies.get(id));
        let keys = operator.accounts.iter();
        let accounts = keys.filter_map(|key| accounts.get(key));
        plan.count(&operator.id.0, &operator.id.1, copies.chain(accounts));
    }
    let left_over = left_over(input, &wants);
    plan.summary.accounts = attached(input).count();
    plan.summary.is_clean = !input.is_enabled && plan.summary.accounts == 0 && left_over.is_empty();
    let deletions = left_over.into_iter().map(|id| {
        let write = Write::Delete { id, version: None };
        Diff::of(write, input.memory, input.now)
    });
    let others = attached(input).filter(|it| !wants.references.contains_key(&it.key()));
    let others = others.filter_map(|account| references_of(input, &wants, account));
    let written = wants
        .copies
        .keys()
        .filter_map(|id| match input.copies.get(id) {
            Some(KnownCopy::Written { at, .. }) => Some(*at + AGAIN),
            _ => None,
        });
    let retry_at = input.memory.next_retry(input.now);
    plan.again_at = written.filter(|at| *at > input.now).chain(retry_at).min();
    let diffs = accounts.into_values().chain(copies.into_values());
    let diffs = diffs.chain(deletions).chain(others);
    plan.writes = diffs.filter_map(|diff| diff.write).take(WRITES).collect();
    plan
}

/// Forgets deletions once no service account records the copy: with a record that is there again, such as from a backup, the copy may
/// be there again, too. Call it before each plan.
pub fn forget(copies: &mut Copies, accounts: &BTreeMap<String, AccountView>) {
    if copies.values().all(|known| *known != KnownCopy::Deleted) {
        return;
    }
    let recorded = accounts.values().flat_map(|account| {
        let names = account.references.recorded.iter();
        names.map(|name| (account.namespace.as_str(), &**name))
    });
    let recorded: BTreeSet<(&str, &str)> = recorded.collect();
    copies.retain(|(namespace, name), known| {
        *known != KnownCopy::Deleted || recorded.contains(&(namespace.as_str(), name.as_str()))
    });
}

fn missing(key: &str) -> String {
    format!("ServiceAccount `{key}`, which a Deployment of the operator uses, does not exist")
}

/// Copies that may exist but are not needed.
fn left_over(input: &OperatorsInput, wants: &Wants) -> BTreeSet<Id> {
    let recorded = attached(input).flat_map(|account| {
        let names = account.references.recorded.iter();
        names.map(|name| (account.namespace.clone(), name.to_string()))
    });
    let all = recorded.chain(input.copies.keys().cloned());
    all.filter(|id| {
        !wants.copies.contains_key(id) && input.copies.get(id) != Some(&KnownCopy::Deleted)
    })
    .filter(|id| !is_going(input.namespaces, &id.0))
    .collect()
}

/// Service accounts with a reference of the controller.
fn attached<'a>(input: &OperatorsInput<'a>) -> impl Iterator<Item = &'a AccountView> {
    let accounts = input.accounts.values();
    accounts
        .filter(|account| account.is_attached() && !is_going(input.namespaces, &account.namespace))
}

/// The record of a copy stays until the copy is deleted.
fn references_of(input: &OperatorsInput, wants: &Wants, account: &AccountView) -> Option<Diff> {
    let names = wants.references.get(&account.key()).into_iter().flatten();
    let names = names.map(String::as_str).collect();
    let may_exist = |name: &str| {
        let id = (account.namespace.clone(), name.to_owned());
        !wants.copies.contains_key(&id) && input.copies.get(&id) != Some(&KnownCopy::Deleted)
    };
    Diff::of_account(account, &names, true, may_exist, input.memory, input.now)
}

fn copy_of(input: &OperatorsInput, id: &Id, wanted: &Wanted) -> Diff {
    let Some(secret) = input.secrets.get(&wanted.source) else {
        return Diff::default();
    };
    if let Some(error) = &secret.error {
        // An existing copy stays.
        return Diff::failed(error.clone());
    }
    let content = CopyContent {
        source: wanted.source.clone(),
        edition: secret.edition,
        owners: wanted.owners.clone(),
    };
    let accounts = || {
        let accounts = wanted.accounts.iter();
        accounts.filter_map(|key| input.accounts.get(key))
    };
    let is_recorded = accounts().any(|account| records(account, &id.1));
    let (is_synced, is_due) = match input.copies.get(id) {
        Some(KnownCopy::Written { content: known, at }) => {
            let is_rotation = known.edition != content.edition;
            let is_other = *known != content || *at + AGAIN <= input.now;
            (!is_rotation, is_other && !(input.paused && is_rotation))
        }
        // A new leader does not know whether it exists and with which content. A new operator must not wait.
        Some(KnownCopy::Deleted) | None => {
            let mut accounts = accounts();
            let is_new = accounts.any(|account| input.memory.wrote_any(&account.key()));
            (false, !input.paused || is_new)
        }
    };
    let write = Write::Secret {
        id: id.clone(),
        content: SecretContent::Copy(content),
        is_restore: false,
    };
    let mut diff = Diff::of(write, input.memory, input.now);
    diff.is_synced = is_synced;
    diff.write.take_if(|_| !(is_recorded && is_due));
    diff
}

fn records(account: &AccountView, name: &str) -> bool {
    account
        .references
        .recorded
        .iter()
        .any(|known| **known == *name)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
