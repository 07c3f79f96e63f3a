//! The objects of one watch, by name.

use std::collections::BTreeMap;

use kube::runtime::watcher::Event;

use super::list_watch::Update;
use super::versioned::Versioned;

/// The objects of one watch by name, as of the newest event.
#[derive(Debug)]
pub(crate) struct Store<T> {
    pub(crate) live: BTreeMap<String, T>,
    /// Filled during a relist, and replaces `live` at its end, so that deletions during a gap of the watch are not missed.
    relist: Option<BTreeMap<String, T>>,
    /// A list is complete, and no later one is overdue.
    pub(crate) synced: bool,
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self {
            live: BTreeMap::new(),
            relist: None,
            synced: false,
        }
    }
}

/// Inserts the object unless a newer one is present.
fn insert<T: Versioned>(objects: &mut BTreeMap<String, T>, object: T) {
    let key = object.key();
    let known = objects.get(&key);
    if known.is_none_or(|known| known.version() <= object.version()) {
        objects.insert(key, object);
    }
}

impl<T: Versioned + Clone> Store<T> {
    /// Whether the update changes anything.
    pub(crate) fn handle(&mut self, update: Update<T>) -> bool {
        match update {
            Update::Event(event) => self.handle_event(event),
            Update::Stale => {
                self.synced = false;
                false
            }
            Update::Failed(_) => false,
        }
    }

    fn handle_event(&mut self, event: Event<T>) -> bool {
        match event {
            Event::Apply(object) => self.put(object),
            Event::Delete(object) => {
                // The controller's own write may have stored a newer one.
                let key = object.key();
                if self
                    .live
                    .get(&key)
                    .is_none_or(|known| known.version() <= object.version())
                {
                    self.live.remove(&key).is_some()
                } else {
                    false
                }
            }
            Event::Init => {
                self.relist = Some(BTreeMap::new());
                false
            }
            Event::InitApply(object) => {
                insert(self.relist.get_or_insert_default(), object);
                false
            }
            Event::InitDone => {
                self.live = self.relist.take().unwrap_or_default();
                self.synced = true;
                true
            }
        }
    }

    /// Stores the object unless a newer one is present: the response to a write may arrive before the watch event. Returns
    /// whether it changes anything.
    pub(crate) fn put(&mut self, object: T) -> bool {
        if let Some(relist) = &mut self.relist {
            // The list in progress may be older than this.
            insert(relist, object.clone());
        }
        let key = object.key();
        let known = self.live.get(&key);
        if known.is_some_and(|known| known.version() > object.version()) {
            return false;
        }
        let changed = known.is_none_or(|known| {
            known.version() < object.version() && !known.means_the_same(&object)
        });
        self.live.insert(key, object);
        changed
    }

    /// Objects that the relist does not have. Once it is complete, they are known to be deleted.
    pub(crate) fn missing(&self) -> Vec<String> {
        let listed = |name: &&String| {
            let relist = self.relist.as_ref();
            relist.is_some_and(|relist| relist.contains_key(*name))
        };
        self.live
            .keys()
            .filter(|name| !listed(name))
            .cloned()
            .collect()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&T> {
        self.live.get(name)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.live.keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Versioned for (&str, u64) {
        fn key(&self) -> String {
            self.0.to_owned()
        }

        fn version(&self) -> u64 {
            self.1
        }
    }

    #[test]
    fn deletions_in_a_gap_are_noticed_and_old_events_ignored() {
        let mut store = Store::default();
        for event in [
            Event::Init,
            Event::InitApply(("a", 1)),
            Event::InitApply(("b", 2)),
        ] {
            store.handle(Update::Event(event));
        }
        assert!(
            !store.synced && store.live.is_empty(),
            "an incomplete list has no effect"
        );
        store.handle(Update::Event(Event::InitDone));
        assert_eq!(store.names(), ["a", "b"]);
        store.put(("a", 5));
        store.handle(Update::Event(Event::Apply(("a", 3))));
        assert_eq!(
            store.get("a"),
            Some(&("a", 5)),
            "the controller's own write is newer than the watch"
        );
        for event in [Event::Init, Event::InitApply(("b", 2)), Event::InitDone] {
            store.handle(Update::Event(event));
        }
        assert_eq!(
            store.names(),
            ["b"],
            "objects missing from a relist are deleted"
        );
        store.handle(Update::Event(Event::Init));
        store.put(("b", 7));
        store.put(("c", 8));
        for event in [Event::InitApply(("b", 2)), Event::InitDone] {
            store.handle(Update::Event(event));
        }
        assert_eq!(
            (store.get("b"), store.get("c")),
            (Some(&("b", 7)), Some(&("c", 8))),
            "a write during the relist is newer than the list"
        );
    }

    #[test]
    fn only_unknown_changes_are_reported() {
        let mut store = Store::default();
        for (sentence, event, changed) in [
            ("a list that begins", Event::Init, false),
            ("a part of a list", Event::InitApply(("a", 1)), false),
            ("a list", Event::InitDone, true),
            ("a newer one", Event::Apply(("a", 3)), true),
            (
                "the event of the controller's own write",
                Event::Apply(("a", 3)),
                false,
            ),
            ("an older one", Event::Apply(("a", 2)), false),
            ("a deletion", Event::Delete(("a", 4)), true),
            (
                "a deletion of an absent object",
                Event::Delete(("a", 4)),
                false,
            ),
        ] {
            assert_eq!(store.handle(Update::Event(event)), changed, "{sentence}");
        }
    }
}
