//! The namespaces: known only while a source selects some by labels, or while they get pull secrets.

use std::collections::BTreeMap;
use std::time::Duration;

use globalps_core::decode::Unreadable;
use globalps_planner::content::scope::Namespaces;
use globalps_planner::targets::namespace::NamespaceView;
use globalps_runtime::list_watch::Update;
use tokio::time::Instant;

use super::store::Store;
use super::versioned::Versioned;

/// Changes within this time share a revision.
const SETTLE: Duration = Duration::from_secs(1);

impl Versioned for NamespaceView {
    fn key(&self) -> String {
        self.name.clone()
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn share(&mut self, before: &Self) {
        self.labels.share_keys(&before.labels);
    }

    fn means_the_same(&self, other: &Self) -> bool {
        let Self {
            name: _,
            version: _,
            labels,
            is_marked_excluded,
            is_terminating,
        } = self;
        (labels, is_marked_excluded, is_terminating)
            == (
                &other.labels,
                &other.is_marked_excluded,
                &other.is_terminating,
            )
    }
}

/// The features that need the namespaces.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Purpose {
    /// A source selects some by labels: changes within a second share a revision.
    pub(super) scopes: bool,
    /// They get pull secrets: each change takes effect immediately.
    pub(super) secrets: bool,
}

#[derive(Default)]
pub(super) struct WatchedNamespaces {
    store: Store<NamespaceView>,
    pub(super) is_watched: bool,
    purpose: Purpose,
    /// The value for the plan; `None`: not known yet.
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

    pub(super) fn set_purpose(&mut self, purpose: Purpose) {
        let before = std::mem::replace(&mut self.purpose, purpose);
        if before.scopes != purpose.scopes && self.store.synced {
            self.settle_now();
        }
    }

    /// Whether the plan may change now: after the first list, or once it is clear that there will be none.
    pub(super) fn handle(&mut self, update: Update<NamespaceView>, now: Instant) -> bool {
        let was_forbidden = self.store.is_forbidden;
        let changed = self.store.handle(update);
        if self.store.is_forbidden && !was_forbidden {
            return true;
        }
        if self.store.synced && self.settled.is_none() {
            self.settle_now();
            return true;
        }
        if changed {
            self.changed.get_or_insert(now);
        }
        changed && self.purpose.secrets
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
        let live = self.store.live.values().filter(|_| self.purpose.scopes);
        let live = live.map(|view| (view.name.clone(), view.labels.to_map()));
        let live = Some(live.collect());
        let changed = self.settled != live;
        self.settled = live;
        changed
    }

    /// Unknown namespaces are waited for, unless they can't be known.
    pub(super) fn is_synced(&self) -> bool {
        !self.is_watched || self.store.synced || self.store.is_forbidden
    }

    /// All of them are known.
    pub(super) fn is_listed(&self) -> bool {
        self.is_watched && self.store.synced
    }

    pub(super) fn unreadable(&self) -> &BTreeMap<String, Box<Unreadable>> {
        &self.store.unreadable
    }

    pub(super) fn live(&self) -> &BTreeMap<String, NamespaceView> {
        &self.store.live
    }

    /// `None`: not needed, or the controller may not list them.
    pub(super) fn get(&self) -> Option<&Namespaces> {
        self.settled.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use globalps_runtime::list_events::Event;
    use globalps_runtime::list_watch::WatchError;

    use super::*;

    #[test]
    fn changes_are_delayed_except_the_first_list() {
        let view = |name: &str, version, team: &str| NamespaceView {
            name: name.to_owned(),
            version,
            labels: (&BTreeMap::from([("team".to_owned(), team.to_owned())])).into(),
            is_marked_excluded: false,
            is_terminating: false,
        };
        let now = Instant::now();
        let mut namespaces = WatchedNamespaces::new(true);
        namespaces.purpose.scopes = true;
        assert!(!namespaces.is_synced());
        let forbidden = Update::Failed(WatchError {
            message: String::new(),
            is_forbidden: true,
            is_not_served: false,
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
