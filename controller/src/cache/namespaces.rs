//! Labels of the namespaces, for sources that select them: known only while one does.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use kube::api::PartialObjectMeta;
use tokio::time::Instant;

use super::list_watch::Update;
use super::store::Store;
use super::versioned::{Versioned, version};
use crate::content::scope::Namespaces;

/// Changes within this time share a revision.
const SETTLE: Duration = Duration::from_secs(1);

/// What the cache has of a namespace.
#[derive(Clone, Debug)]
pub(crate) struct NamespaceView {
    name: String,
    version: u64,
    labels: BTreeMap<String, String>,
}

impl From<PartialObjectMeta<Namespace>> for NamespaceView {
    fn from(mut object: PartialObjectMeta<Namespace>) -> Self {
        Self {
            name: object.name_any(),
            version: version(&object),
            labels: std::mem::take(object.labels_mut()),
        }
    }
}

impl Versioned for NamespaceView {
    fn key(&self) -> String {
        self.name.clone()
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn means_the_same(&self, other: &Self) -> bool {
        self.labels == other.labels
    }
}

#[derive(Default)]
pub(super) struct WatchedNamespaces {
    store: Store<NamespaceView>,
    pub(super) is_watched: bool,
    is_forbidden: bool,
    /// As the plan sees them; `None`: not known yet.
    settled: Option<Namespaces>,
    changed: Option<Instant>,
}

impl WatchedNamespaces {
    pub(super) fn new(is_watched: bool) -> Self {
        Self {
            is_watched,
            ..Self::default()
        }
    }

    /// Whether the plan may change now: the first list, or that there will be none.
    pub(super) fn handle(&mut self, update: Update<NamespaceView>, now: Instant) -> bool {
        if let Update::Failed(error) = &update {
            let news = error.is_forbidden && !self.is_forbidden;
            self.is_forbidden |= error.is_forbidden;
            return news;
        }
        let news = self.store.handle(update);
        if self.store.synced && self.settled.is_none() {
            self.is_forbidden = false;
            self.settle_now();
            return true;
        }
        if news {
            self.changed.get_or_insert(now);
        }
        false
    }

    pub(super) fn settles_at(&self) -> Option<Instant> {
        Some(self.changed? + SETTLE)
    }

    pub(super) fn settle(&mut self, now: Instant) -> bool {
        let settles = self.settles_at().is_some_and(|at| at <= now);
        settles && self.settle_now()
    }

    fn settle_now(&mut self) -> bool {
        self.changed = None;
        let live = self.store.live.values();
        let live = live.map(|view| (view.name.clone(), view.labels.clone()));
        let live = Some(live.collect());
        let news = self.settled != live;
        self.settled = live;
        news
    }

    /// What is not known is awaited, unless it can't be known.
    pub(super) fn is_synced(&self) -> bool {
        !self.is_watched || self.store.synced || self.is_forbidden
    }

    /// `None`: nobody asks for them, or the controller may not list them.
    pub(super) fn get(&self) -> Option<&Namespaces> {
        self.settled.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;

    use super::super::list_watch::WatchError;
    use super::*;

    #[test]
    fn changes_are_seen_after_a_moment_and_a_first_list_at_once() {
        let view = |name: &str, version, team: &str| NamespaceView {
            name: name.to_owned(),
            version,
            labels: [("team".to_owned(), team.to_owned())].into(),
        };
        let now = Instant::now();
        let mut namespaces = WatchedNamespaces::new(true);
        assert!(!namespaces.is_synced());
        let forbidden = Update::Failed(WatchError {
            message: String::new(),
            is_forbidden: true,
        });
        assert!(namespaces.handle(forbidden, now) && namespaces.is_synced());
        assert!(namespaces.get().is_none());
        for event in [Event::Init, Event::InitApply(view("a", 1, "x"))] {
            assert!(!namespaces.handle(Update::Event(event), now));
        }
        assert!(namespaces.handle(Update::Event(Event::InitDone), now));
        assert_eq!(namespaces.get().map(Namespaces::len), Some(1));
        assert!(!namespaces.handle(Update::Event(Event::Apply(view("a", 2, "x"))), now));
        assert_eq!(namespaces.settles_at(), None, "the same labels");
        assert!(!namespaces.handle(Update::Event(Event::Apply(view("b", 3, "x"))), now));
        assert_eq!(namespaces.get().map(Namespaces::len), Some(1));
        assert!(!namespaces.settle(now) && namespaces.settle(now + SETTLE));
        assert_eq!(namespaces.get().map(Namespaces::len), Some(2));
    }
}
