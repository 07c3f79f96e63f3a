//! Secrets and service accounts of the namespaces that get pull secrets: known only while some do.

use futures::stream::{BoxStream, StreamExt as _, select};
use globalps_core::decode::{Item, Owned};
use globalps_core::names::ATTACHED_ANNOTATION;
use globalps_planner::namespaces::views::PullSecretView;
use globalps_planner::targets::PER_NAMESPACE;
use globalps_planner::targets::account::{AccountFields, AccountView};
use globalps_provider::Pattern;
use globalps_runtime::list_events::Event;
use globalps_runtime::list_watch::{Update, list_watch};
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::Api;
use kube::api::ListParams;

use super::event::CacheEvent;
use super::kept::{Bounded, Kept};
use super::store::Store;
use super::versioned::Versioned;

/// Objects per page; each has about a kilobyte of managed fields, and the Secrets have their credentials.
const PAGE: u32 = 100;

impl Versioned for PullSecretView {
    fn key(&self) -> String {
        self.namespace.clone()
    }

    fn key_of(namespace: &str, _name: &str) -> String {
        namespace.to_owned()
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn means_the_same(&self, other: &Self) -> bool {
        let same = Self {
            version: self.version,
            ..other.clone()
        };
        *self == same
    }
}

impl Versioned for AccountView {
    fn key(&self) -> String {
        AccountView::key(self)
    }

    fn key_of(namespace: &str, name: &str) -> String {
        AccountView::key_of(namespace, name)
    }

    fn version(&self) -> u64 {
        self.references.version.parse().unwrap_or_default()
    }
}

impl Bounded for AccountView {
    const MOST: usize = PER_NAMESPACE;
}

/// The watched objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PullSecretsWatch {
    /// Name of the Secret in each namespace.
    pub(crate) secret_name: String,
    /// Service accounts that may get a reference; `None`: service accounts are not watched.
    pub(crate) accounts: Option<Vec<Pattern>>,
}

#[derive(Default)]
pub(crate) struct PullSecrets {
    watch: Option<PullSecretsWatch>,
    pub(crate) secrets: Store<PullSecretView>,
    pub(crate) accounts: Kept<AccountView>,
}

impl PullSecrets {
    pub(crate) fn new(watch: Option<PullSecretsWatch>) -> Self {
        Self {
            watch,
            ..Self::default()
        }
    }

    pub(crate) fn watch(&self) -> Option<&PullSecretsWatch> {
        self.watch.as_ref()
    }

    pub(crate) fn watches_accounts(&self) -> bool {
        let watch = self.watch.as_ref();
        watch.is_some_and(|watch| watch.accounts.is_some())
    }

    /// The service accounts have been listed, if they are watched.
    pub(crate) fn are_accounts_synced(&self) -> bool {
        !self.watches_accounts() || self.accounts.synced
    }

    pub(super) fn handle_secret(&mut self, update: Update<PullSecretView>) -> bool {
        let was_forbidden = self.is_forbidden();
        self.secrets.handle(update) || self.is_forbidden() != was_forbidden
    }

    pub(super) fn handle_account(&mut self, update: Update<AccountView>) -> bool {
        let was_forbidden = self.is_forbidden();
        self.accounts.handle(update) || self.is_forbidden() != was_forbidden
    }

    /// The controller may not list them.
    pub(crate) fn is_forbidden(&self) -> bool {
        self.secrets.is_forbidden || self.accounts.is_forbidden
    }
}

/// The Secrets with this name, of whose content only a digest is kept, and the relevant service accounts.
pub(super) fn pull_secret_events(
    client: &Client,
    watch: &PullSecretsWatch,
) -> BoxStream<'static, CacheEvent> {
    let config = ListParams::default()
        .fields(&format!("metadata.name={}", watch.secret_name))
        .limit(PAGE);
    let secrets = Api::<Owned<Secret>>::all(client.clone());
    let secrets = list_watch(secrets, config, "pull secrets of namespaces")
        .map(|update| CacheEvent::PullSecret(update.map(PullSecretView::from)));
    let Some(patterns) = watch.accounts.clone() else {
        return secrets.boxed();
    };
    let accounts = Api::<Item<AccountFields>>::all(client.clone());
    let config = ListParams::default().limit(PAGE);
    let secret_name = watch.secret_name.clone();
    let accounts = list_watch(accounts, config, "service accounts").map(move |update| {
        let view = |account: AccountFields| {
            let mut view = AccountView::new(&account, ATTACHED_ANNOTATION);
            view.references.believe(|name| name == secret_name);
            view
        };
        CacheEvent::ServiceAccount(only(update.map(view), &patterns))
    });
    select(secrets, accounts).boxed()
}

/// An irrelevant one counts as deleted, because there are thousands.
fn only(update: Update<AccountView>, patterns: &[Pattern]) -> Update<AccountView> {
    let matters = |account: &AccountView| {
        let mut patterns = patterns.iter();
        account.is_attached() || patterns.any(|pattern| pattern.matches(&account.name))
    };
    match update {
        Update::Event(Event::Apply(account) | Event::InitApply(account)) if !matters(&account) => {
            Update::Event(Event::Delete(account))
        }
        other => other,
    }
}
