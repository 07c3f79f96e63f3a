//! Determines which references service accounts lack or have left over. Pure.

use std::collections::{BTreeMap, BTreeSet};

use globalps_core::api::Attach;
use globalps_core::reasons::Reason;
use globalps_core::references::Change;

use super::clock::STUCK_AFTER;
use super::input::{Input, Wanted};
use crate::refused::Failure;
use crate::targets::account::AccountView;

/// Reason and message.
pub(super) type ReasonAndMessage = (Reason, String);

pub(super) struct Reference {
    pub(super) key: String,
    /// `None`: the references are as desired.
    pub(super) change: Option<Change>,
    /// Its backoff is over.
    pub(super) may_retry: bool,
    pub(super) is_restore: bool,
    pub(super) failure: Option<ReasonAndMessage>,
    /// It has failed long enough that nothing else waits for it.
    pub(super) is_stuck: bool,
}

/// The relevant service accounts, by namespace.
pub(super) fn references<'a>(
    input: &Input<'a>,
    wanted: &BTreeMap<&'a str, Wanted>,
) -> BTreeMap<&'a str, Vec<Reference>> {
    let mut of: BTreeMap<&str, Vec<Reference>> = BTreeMap::new();
    for (key, account) in input.accounts.into_iter().flatten() {
        let namespace = account.namespace.as_str();
        let delivery = input.delivery.as_ref();
        let delivery = delivery.filter(|delivery| {
            let mut patterns = delivery.accounts.iter();
            delivery.attach == Attach::ServiceAccounts
                && wanted.contains_key(namespace)
                && patterns.any(|pattern| pattern.matches(&account.name))
        });
        let names: BTreeSet<&str> = delivery.map(|_| input.secret_name).into_iter().collect();
        let change = account.references.change(&names, |_| false);
        let change = change.filter(|_| !account.is_being_deleted && !account.has_too_many);
        if change.is_none() && names.is_empty() {
            continue;
        }
        let is_restore = change
            .as_ref()
            .is_some_and(|c| account.references.is_restore(c));
        let is_contested = is_restore && input.memory.is_contested(key, "", input.now);
        let failed = input.memory.failure(key);
        let failure = if account.has_too_many {
            Some(AccountView::too_many(key))
        } else if is_contested {
            Some((Reason::Conflict, AccountView::conflict(key)))
        } else {
            let message = |f: &Failure| (f.reason, f.message.clone());
            failed.filter(|_| change.is_some()).map(message)
        };
        of.entry(namespace).or_default().push(Reference {
            key: key.clone(),
            change,
            may_retry: !is_contested && failed.is_none_or(|f| f.retry_at <= input.now),
            is_restore,
            failure,
            is_stuck: failed.is_some_and(|f| f.lasts_for(input.now) >= STUCK_AFTER),
        });
    }
    of
}

pub(super) fn managed_references<'a>(input: &Input<'a>) -> impl Iterator<Item = &'a AccountView> {
    let accounts = input.accounts.into_iter().flat_map(BTreeMap::values);
    accounts.filter(|account| account.is_attached())
}
