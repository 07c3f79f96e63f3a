//! Objects of the Operator Lifecycle Manager, service accounts, and the pull secrets of catalogs: known only while operators get
//! pull secrets or still have some.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use globalps_core::decode::Item;
use globalps_core::names::OPERATOR_SECRETS_ANNOTATION;
use globalps_planner::operators::input::Copies;
use globalps_planner::operators::olm::{OlmObject, resource};
use globalps_planner::operators::views::{
    COPIED_LABEL, CatalogSecret, CatalogView, CsvView, SubscriptionView,
};
use globalps_planner::targets::account::{AccountFields, AccountView};
use globalps_planner::targets::{Id, PER_NAMESPACE};
use globalps_runtime::list_watch::{Update, list_watch};
use kube::api::ListParams;
use kube::{Api, Client};

use super::event::{CacheEvent, OperatorEvent};
use super::kept::{Bounded, Kept};
use super::versioned::Versioned;

/// Objects per page. A `ClusterServiceVersion` can have half a megabyte.
const PAGE: u32 = 100;
const PAGE_OF_CSVS: u32 = 4;

macro_rules! versioned {
    ($($view:ty),*) => {$(
        impl Versioned for $view {
            fn key(&self) -> String {
                AccountView::key_of(&self.id.0, &self.id.1)
            }

            fn key_of(namespace: &str, name: &str) -> String {
                AccountView::key_of(namespace, name)
            }

            fn version(&self) -> u64 {
                self.version
            }

            fn means_the_same(&self, other: &Self) -> bool {
                let same = Self { version: self.version, ..other.clone() };
                *self == same
            }
        }

        impl Bounded for $view {
            const MOST: usize = PER_NAMESPACE;
        }
    )*};
}

versioned!(SubscriptionView, CatalogView, CsvView);

#[derive(Default)]
pub(crate) struct OperatorObjects {
    pub(crate) is_watched: bool,
    pub(crate) subscriptions: Kept<SubscriptionView>,
    pub(crate) catalogs: Kept<CatalogView>,
    pub(crate) csvs: Kept<CsvView>,
    pub(crate) accounts: Kept<AccountView>,
    /// The pull secrets of catalogs that are watched.
    pub(crate) watched: BTreeSet<Id>,
    /// The Secrets that have been looked up.
    pub(crate) secrets: BTreeMap<Id, CatalogSecret>,
    /// What this leader did with the copies, which are never read.
    pub(crate) copies: Copies,
}

impl OperatorObjects {
    pub(super) fn new(is_watched: bool) -> Self {
        Self {
            is_watched,
            ..Self::default()
        }
    }

    /// Everything that is watched has been listed.
    pub(crate) fn is_synced(&self) -> bool {
        self.subscriptions.synced
            && self.catalogs.synced
            && self.csvs.synced
            && self.accounts.synced
    }

    /// Whether the event may change the plan.
    pub(super) fn handle(&mut self, event: OperatorEvent) -> bool {
        let before = (self.is_forbidden(), self.is_served());
        let changed = match event {
            OperatorEvent::Subscription(update) => self.subscriptions.handle_optional(update),
            OperatorEvent::Catalog(update) => self.catalogs.handle_optional(update),
            OperatorEvent::Csv(update) => self.csvs.handle_optional(update),
            OperatorEvent::Account(update) => self.accounts.handle(update),
            OperatorEvent::Secret(id, source) => {
                let known = self.secrets.get(&id);
                if known.is_some_and(|known| known.source == source) {
                    return false;
                }
                let edition = known.map_or(0, |known| known.edition);
                let secret = CatalogSecret::new(&id, source, edition);
                self.secrets.insert(id, secret);
                true
            }
        };
        changed || (self.is_forbidden(), self.is_served()) != before
    }

    /// The controller may not list them.
    pub(crate) fn is_forbidden(&self) -> bool {
        self.subscriptions.is_forbidden
            || self.catalogs.is_forbidden
            || self.csvs.is_forbidden
            || self.accounts.is_forbidden
    }

    pub(crate) fn is_served(&self) -> bool {
        let (subscriptions, catalogs) = (&self.subscriptions, &self.catalogs);
        !(subscriptions.is_not_served || catalogs.is_not_served || self.csvs.is_not_served)
    }

    /// No service account's record names other Secrets than these.
    pub(crate) fn believe(&mut self, names: &BTreeSet<String>) {
        for account in self.accounts.live.values_mut() {
            account.references.believe(|name| names.contains(name));
        }
    }

    /// Replaces the watched pull secrets. Keeps what is known of those that stay.
    pub(super) fn set_watched(&mut self, watched: BTreeSet<Id>) {
        self.secrets.retain(|id, _| watched.contains(id));
        self.watched = watched;
    }

    /// The pull secrets of the catalogs that operators come from.
    pub(crate) fn named(&self) -> BTreeSet<Id> {
        let subscriptions = self.subscriptions.live.values();
        let catalogs = subscriptions.filter_map(|subscription| {
            let (namespace, name) = &subscription.catalog;
            self.catalogs.get(&AccountView::key_of(namespace, name))
        });
        let named = catalogs.flat_map(|catalog| {
            let secrets = catalog.secrets.iter();
            secrets.map(|name| (catalog.id.0.clone(), name.clone()))
        });
        named.collect()
    }
}

pub(super) fn operator_events(client: &Client) -> BoxStream<'static, CacheEvent> {
    fn watch<T: From<OlmObject> + 'static>(
        client: &Client,
        kind: &'static str,
        config: ListParams,
        event: fn(Update<T>) -> OperatorEvent,
    ) -> BoxStream<'static, CacheEvent> {
        let objects = Api::<Item<OlmObject>>::all_with(client.clone(), &resource(kind));
        list_watch(objects, config, kind)
            .map(move |update| CacheEvent::Operators(event(update.map(T::from))))
            .boxed()
    }
    let config = || ListParams::default().limit(PAGE);
    let csvs = ListParams::default()
        .limit(PAGE_OF_CSVS)
        .labels(&format!("!{COPIED_LABEL}"));
    let accounts = list_watch(
        Api::<Item<AccountFields>>::all(client.clone()),
        config(),
        "service accounts of operators",
    );
    let accounts = accounts.map(|update| {
        let view = |account: AccountFields| AccountView::new(&account, OPERATOR_SECRETS_ANNOTATION);
        CacheEvent::Operators(OperatorEvent::Account(update.map(view)))
    });
    stream::select_all([
        watch(
            client,
            "Subscription",
            config(),
            OperatorEvent::Subscription,
        ),
        watch(client, "CatalogSource", config(), OperatorEvent::Catalog),
        watch(client, "ClusterServiceVersion", csvs, OperatorEvent::Csv),
        accounts.boxed(),
    ])
    .boxed()
}
