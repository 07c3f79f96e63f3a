//! What is missing or left over at service accounts. Pure.

use std::collections::BTreeMap;

use globalps_core::api::Attach;

use super::attach::{Change, change};
use super::input::{Input, Wanted};
use super::memory::Failure;
use super::views::AccountView;

/// Reason and message.
pub(super) type Trouble = (&'static str, String);

pub(super) struct Reference {
    pub(super) key: String,
    /// `None`: it is as it should be.
    pub(super) change: Option<Change>,
    /// Its backoff is over.
    pub(super) is_due: bool,
    pub(super) is_restore: bool,
    pub(super) failure: Option<Trouble>,
}

/// The service accounts that matter, by namespace.
pub(super) struct References<'a> {
    pub(super) of: BTreeMap<&'a str, Vec<Reference>>,
}

impl<'a> References<'a> {
    pub(super) fn of(input: &Input<'a>, wanted: &BTreeMap<&'a str, Wanted>) -> Self {
        let mut of: BTreeMap<&str, Vec<Reference>> = BTreeMap::new();
        for (key, account) in input.accounts {
            let namespace = account.namespace.as_str();
            let delivery = input.delivery.as_ref();
            let name = delivery
                .filter(|delivery| {
                    let mut patterns = delivery.accounts.iter();
                    delivery.attach == Attach::ServiceAccounts
                        && wanted.contains_key(namespace)
                        && patterns.any(|pattern| pattern.matches(&account.name))
                })
                .map(|delivery| delivery.secret_name);
            let change = change(account, name);
            if change.is_none() && name.is_none() {
                continue;
            }
            let is_restore = change == Some(Change::Attach) && account.attached.is_some();
            let is_contested = is_restore && input.memory.is_contested(key);
            let failed = input.memory.failure(key);
            let failure = if is_contested {
                let message = format!(
                    "another client has removed the reference of ServiceAccount `{key}` five times: it is left as it is"
                );
                Some(("Conflict", message))
            } else {
                let message = |f: &Failure| (f.reason, f.message.clone());
                failed.filter(|_| change.is_some()).map(message)
            };
            of.entry(namespace).or_default().push(Reference {
                key: key.clone(),
                change,
                is_due: !is_contested && failed.is_none_or(|f| f.retry_at <= input.now),
                is_restore,
                failure,
            });
        }
        Self { of }
    }
}

pub(super) fn references_of_ours<'a>(input: &Input<'a>) -> impl Iterator<Item = &'a AccountView> {
    let accounts = input.accounts.values();
    accounts.filter(|account| account.attached.is_some())
}
