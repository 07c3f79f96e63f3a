//! The plan's input, and the desired state of operators. Pure.

use std::collections::{BTreeMap, BTreeSet};

use globalps_core::names::operator_secret;
use jiff::Timestamp;

use super::views::{CatalogSecret, CatalogView, CsvView, SubscriptionView};
use crate::targets::Id;
use crate::targets::account::AccountView;
use crate::targets::memory::Memory;
use crate::targets::namespace::{NamespaceView, is_going};
use crate::targets::write::CopyContent;

/// The plan's input. The maps of objects in namespaces are by `namespace/name`.
pub struct OperatorsInput<'a> {
    /// false: everything that the controller created is removed.
    pub is_enabled: bool,
    /// Copies that exist stay as they are.
    pub paused: bool,
    /// By name.
    pub namespaces: &'a BTreeMap<String, NamespaceView>,
    /// By `namespace/name`, as all objects below.
    pub subscriptions: &'a BTreeMap<String, SubscriptionView>,
    /// Their pull secrets are what is copied.
    pub catalogs: &'a BTreeMap<String, CatalogView>,
    /// Their Deployments' accounts get the references.
    pub csvs: &'a BTreeMap<String, CsvView>,
    /// Those that have been looked up.
    pub secrets: &'a BTreeMap<Id, CatalogSecret>,
    /// Of all namespaces with operators.
    pub accounts: &'a BTreeMap<String, AccountView>,
    /// What this leader wrote.
    pub copies: &'a Copies,
    /// What failed.
    pub memory: &'a Memory,
    /// By the monotonic clock, as the times of the memory.
    pub now: Timestamp,
}

/// What this leader knows of copies, by namespace and name. It may write them, but never reads them.
pub type Copies = BTreeMap<Id, KnownCopy>;

/// What this leader last did with a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KnownCopy {
    /// It wrote the copy.
    Written {
        /// Which it has, unless another client changed it.
        content: CopyContent,
        /// By the monotonic clock.
        at: Timestamp,
    },
    /// It does not exist.
    Deleted,
}

/// A desired copy.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    pub(super) source: Id,
    pub(super) owners: BTreeSet<(String, String)>,
    /// Keys of the service accounts that refer to it.
    pub(super) accounts: BTreeSet<String>,
}

/// A Subscription to a catalog with pull secrets, once its operator is being installed.
#[derive(Debug)]
pub(super) struct Operator<'a> {
    pub(super) id: &'a Id,
    pub(super) copies: BTreeSet<Id>,
    pub(super) accounts: BTreeSet<String>,
}

#[derive(Debug, Default)]
pub(super) struct Wants<'a> {
    pub(super) operators: Vec<Operator<'a>>,
    /// By namespace and name.
    pub(super) copies: BTreeMap<Id, Wanted>,
    /// Names of copies, by the key of the service account.
    pub(super) references: BTreeMap<String, BTreeSet<String>>,
}

pub(super) fn key((namespace, name): &Id) -> String {
    AccountView::key_of(namespace, name)
}

impl<'a> Wants<'a> {
    pub(super) fn of(input: &OperatorsInput<'a>) -> Self {
        let mut wants = Self::default();
        let subscriptions = input.subscriptions.values();
        for subscription in subscriptions.filter(|_| input.is_enabled) {
            let Some(catalog) = input.catalogs.get(&key(&subscription.catalog)) else {
                continue;
            };
            let namespace = &subscription.id.0;
            let is_excluded = |namespace: &NamespaceView| namespace.is_marked_excluded;
            if is_going(input.namespaces, namespace)
                || input.namespaces.get(namespace).is_some_and(is_excluded)
            {
                continue;
            }
            let csvs = subscription.csvs.iter();
            let csvs =
                csvs.filter_map(|name| input.csvs.get(&AccountView::key_of(namespace, name)));
            let csvs: Vec<&CsvView> = csvs.filter(|csv| !csv.is_copied).collect();
            if csvs.is_empty() || catalog.secrets.is_empty() {
                continue;
            }
            let accounts = csvs.iter().flat_map(|csv| &csv.accounts);
            let accounts = accounts.map(|name| AccountView::key_of(namespace, name));
            let mut operator = Operator {
                id: &subscription.id,
                copies: BTreeSet::new(),
                accounts: accounts.collect(),
            };
            for secret in &catalog.secrets {
                let name = operator_secret(&catalog.id.0, secret);
                for account in &operator.accounts {
                    let names = wants.references.entry(account.clone()).or_default();
                    names.insert(name.clone());
                }
                let id = (namespace.clone(), name);
                let copy = wants.copies.entry(id.clone()).or_default();
                copy.source = (catalog.id.0.clone(), secret.clone());
                copy.accounts.extend(operator.accounts.iter().cloned());
                let owners = csvs.iter().map(|csv| (csv.id.1.clone(), csv.uid.clone()));
                copy.owners.extend(owners);
                operator.copies.insert(id);
            }
            wants.operators.push(operator);
        }
        wants
    }
}
