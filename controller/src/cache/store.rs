//! The objects of one watch, by name.

use std::collections::BTreeMap;

use globalps_core::decode::Unreadable;
use globalps_planner::targets::version_of;
use globalps_runtime::list_events::Event;
use globalps_runtime::list_watch::{Update, WatchError};

use super::versioned::Versioned;

/// The objects of one watch by name, as of the newest event.
#[derive(Debug)]
pub(crate) struct Store<T> {
    /// The last readable version of each object.
    pub(crate) live: BTreeMap<String, T>,
    /// Objects whose newest version can't be decoded.
    pub(crate) unreadable: BTreeMap<String, Box<Unreadable>>,
    /// Versions of objects that the controller deleted: the events of its last writes may come later.
    forgotten: BTreeMap<String, u64>,
    /// Filled during a relist, and replaces the objects at its end, so that deletions during a gap of the watch are not missed.
    relist: Option<Relist<T>>,
    /// A list is complete, and no later one is overdue.
    pub(crate) synced: bool,
    /// The API server has refused to list them since the last complete list.
    pub(crate) is_forbidden: bool,
    /// The API server does not serve the resource: see [`Store::handle_optional`] and [`Store::handle_held`].
    pub(crate) is_not_served: bool,
}

#[derive(Debug)]
struct Relist<T> {
    live: BTreeMap<String, T>,
    unreadable: BTreeMap<String, Box<Unreadable>>,
}

impl<T> Default for Relist<T> {
    fn default() -> Self {
        Self {
            live: BTreeMap::new(),
            unreadable: BTreeMap::new(),
        }
    }
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self {
            live: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            forgotten: BTreeMap::new(),
            relist: None,
            synced: false,
            is_forbidden: false,
            is_not_served: false,
        }
    }
}

/// Inserts the object unless a newer one is present.
fn insert<T: Versioned>(objects: &mut BTreeMap<String, T>, object: T) {
    let key = object.key();
    let known = objects.get(&key);
    if known.is_none_or(|known| known.version() <= object.version()) {
        replace(objects, key, object);
    }
}

fn replace<T: Versioned>(objects: &mut BTreeMap<String, T>, key: String, mut object: T) {
    let mut before = objects.range::<String, _>(..=&key);
    if let Some((_, before)) = before.next_back() {
        object.share(before);
    }
    objects.insert(key, object);
}

impl<T: Versioned + Clone> Store<T> {
    /// Whether the update changes anything.
    pub(crate) fn handle(&mut self, update: Update<T>) -> bool {
        match update {
            Update::Event(event) => self.handle_event(event),
            Update::Unreadable { object, is_deleted } => {
                let key = T::key_of(object.namespace(), object.name());
                let version = version_of(&object.metadata);
                if is_deleted {
                    self.delete(&key, version)
                } else {
                    self.put_unreadable(key, version, object)
                }
            }
            Update::Stale => {
                self.synced = false;
                false
            }
            Update::Failed(error) => {
                self.is_forbidden |= error.is_forbidden;
                false
            }
        }
    }

    /// Like [`Self::handle`], for a resource that must not block others: while it isn't served, it has no objects.
    pub(crate) fn handle_optional(&mut self, update: Update<T>) -> bool {
        match update {
            Update::Failed(WatchError {
                is_not_served: true,
                ..
            }) => {
                let is_known = self.is_not_served && self.synced;
                *self = Self {
                    synced: true,
                    is_not_served: true,
                    ..Self::default()
                };
                !is_known
            }
            Update::Stale if self.is_not_served => false,
            update => self.handle(update),
        }
    }

    /// Like [`Self::handle`], for a resource whose objects are unknown while it isn't served: the last known ones stay.
    pub(crate) fn handle_held(&mut self, update: Update<T>) -> bool {
        let is_not_served = matches!(&update, Update::Failed(error) if error.is_not_served);
        let is_new = is_not_served && !std::mem::replace(&mut self.is_not_served, true);
        self.handle(update) || is_new
    }

    /// Everything is gone, though no watch reports it.
    pub(crate) fn empty(&mut self) {
        self.live.clear();
        self.unreadable.clear();
    }

    /// Removes an object that is gone although no watch has reported it yet.
    pub(crate) fn forget(&mut self, key: &str) {
        let known = self.live.remove(key).map(|known| known.version());
        let unreadable = self.unreadable.remove(key);
        let unreadable = unreadable.map(|known| version_of(&known.metadata));
        if let Some(version) = known.max(unreadable) {
            self.forgotten.insert(key.to_owned(), version);
        }
    }

    /// Like [`Self::forget`], for all objects.
    pub(crate) fn forget_all(&mut self) {
        for key in self.names() {
            self.forget(&key);
        }
    }

    /// Whether this is a version that is gone.
    fn is_forgotten(&self, key: &str, version: u64) -> bool {
        self.forgotten.get(key).is_some_and(|last| version <= *last)
    }

    fn handle_event(&mut self, event: Event<T>) -> bool {
        match event {
            Event::Apply(object) => self.put(object),
            Event::Delete(object) => self.delete(&object.key(), object.version()),
            Event::Init => {
                self.relist = Some(Relist::default());
                // A list from now on is only older if it was restored from a backup.
                self.forgotten.clear();
                false
            }
            Event::InitApply(mut object) => {
                if let Some(known) = self.live.get(&object.key()) {
                    object.share(known);
                }
                insert(&mut self.relist.get_or_insert_default().live, object);
                false
            }
            Event::InitDone => {
                let mut relist = self.relist.take().unwrap_or_default();
                relist
                    .live
                    .retain(|key, object| !self.is_forgotten(key, object.version()));
                relist
                    .unreadable
                    .retain(|key, object| !self.is_forgotten(key, version_of(&object.metadata)));
                self.live = relist.live;
                self.unreadable = relist.unreadable;
                self.synced = true;
                (self.is_forbidden, self.is_not_served) = (false, false);
                true
            }
        }
    }

    /// The controller's own write may have stored a newer one.
    fn delete(&mut self, key: &str, version: u64) -> bool {
        if !self.is_forgotten(key, version) {
            self.forgotten.remove(key);
        }
        let known = self.live.get(key);
        if known.is_some_and(|known| known.version() > version) {
            return false;
        }
        self.unreadable.remove(key).is_some() | self.live.remove(key).is_some()
    }

    /// The last readable version stays.
    fn put_unreadable(&mut self, key: String, version: u64, object: Box<Unreadable>) -> bool {
        if self.is_forgotten(&key, version) {
            return false;
        }
        let known = self.live.get(&key);
        let is_old = known.is_some_and(|known| known.version() > version);
        if let Some(relist) = &mut self.relist {
            relist
                .live
                .extend(known.cloned().map(|known| (key.clone(), known)));
            if !is_old {
                relist.unreadable.insert(key, object);
            }
            return false;
        }
        if is_old {
            return false;
        }
        let field = object.field.clone();
        let known = self.unreadable.insert(key, object);
        known.is_none_or(|known| known.field != field)
    }

    /// Stores the object unless a newer one is present: the response to a write may arrive before the watch event. Returns
    /// whether it changes anything.
    pub(crate) fn put(&mut self, object: T) -> bool {
        let key = object.key();
        if self.is_forgotten(&key, object.version()) {
            return false;
        }
        if let Some(relist) = &mut self.relist {
            // The list in progress may be older than this.
            relist.unreadable.remove(&key);
            insert(&mut relist.live, object.clone());
        }
        let known = self.live.get(&key);
        if known.is_some_and(|known| known.version() > object.version()) {
            return false;
        }
        let changed = known.is_none_or(|known| {
            known.version() < object.version() && !known.means_the_same(&object)
        });
        let was_unreadable = self.unreadable.remove(&key).is_some();
        replace(&mut self.live, key, object);
        changed || was_unreadable
    }

    /// Objects that the relist does not have. Once it is complete, they are known to be deleted.
    pub(crate) fn missing(&self) -> Vec<String> {
        let listed = |name: &&String| {
            let relist = self.relist.as_ref();
            relist.is_some_and(|relist| {
                relist.live.contains_key(*name) || relist.unreadable.contains_key(*name)
            })
        };
        self.live
            .keys()
            .filter(|name| !listed(name))
            .cloned()
            .collect()
    }

    /// The objects that are known, and those of a list in progress.
    pub(crate) fn lists_mut(&mut self) -> impl Iterator<Item = &mut BTreeMap<String, T>> {
        let relist = self.relist.as_mut().map(|relist| &mut relist.live);
        [&mut self.live].into_iter().chain(relist)
    }

    /// Like [`Self::lists_mut`], for objects that can't be decoded.
    pub(crate) fn unreadable_lists(
        &self,
    ) -> impl Iterator<Item = &BTreeMap<String, Box<Unreadable>>> {
        let relist = self.relist.as_ref().map(|relist| &relist.unreadable);
        [&self.unreadable].into_iter().chain(relist)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&T> {
        self.live.get(name)
    }

    /// Whether there is no object, readable or not.
    pub(crate) fn is_empty(&self) -> bool {
        self.live.is_empty() && self.unreadable.is_empty()
    }

    /// Each object, readable or not.
    pub(crate) fn names(&self) -> Vec<String> {
        let unreadable = self.unreadable.keys();
        let unreadable = unreadable.filter(|name| !self.live.contains_key(*name));
        self.live.keys().chain(unreadable).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use kube::api::ObjectMeta;

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
    fn late_events_bring_nothing_back_that_the_controller_deleted() {
        let apply = |version| Update::Event(Event::Apply(("a", version)));
        let mut store = Store::default();
        store.handle(apply(1));
        store.handle(apply(3));
        store.forget("a");
        for late in [apply(2), apply(3), Update::Event(Event::Delete(("a", 4)))] {
            assert!(!store.handle(late));
            assert_eq!(store.get("a"), None);
        }
        store.handle(apply(5));
        assert!(store.get("a").is_some(), "it was created again");
        store.handle(Update::Event(Event::Init));
        store.handle(Update::Event(Event::InitApply(("a", 5))));
        store.forget("a");
        store.handle(Update::Event(Event::InitDone));
        assert_eq!(store.get("a"), None, "the list was older");
        for event in [Event::Init, Event::InitApply(("a", 2)), Event::InitDone] {
            store.handle(Update::Event(event));
        }
        assert!(store.get("a").is_some(), "from a backup");
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

    fn unreadable(name: &str, version: u64, field: &str) -> Box<Unreadable> {
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            resource_version: Some(version.to_string()),
            ..ObjectMeta::default()
        };
        Box::new(Unreadable {
            metadata,
            field: field.to_owned(),
        })
    }

    #[test]
    fn an_unreadable_object_keeps_its_last_readable_version() {
        type Step = (&'static str, Update<(&'static str, u64)>, bool);
        let event = |event| Update::Event(event);
        let bad = |version, field| Update::Unreadable {
            object: unreadable("a", version, field),
            is_deleted: false,
        };
        let deleted = |version| Update::Unreadable {
            object: unreadable("a", version, "x"),
            is_deleted: true,
        };
        let steps: [(Step, Option<u64>, bool); 16] = [
            (("a list", event(Event::Init), false), None, false),
            (("it is in it", bad(2, "x"), false), None, false),
            (("its end", event(Event::InitDone), true), None, true),
            (
                ("readable", event(Event::Apply(("a", 3))), true),
                Some(3),
                false,
            ),
            (("unreadable", bad(4, "x"), true), Some(3), true),
            (("likewise", bad(5, "x"), false), Some(3), true),
            (("elsewhere", bad(6, "y"), true), Some(3), true),
            (("a list", event(Event::Init), false), Some(3), true),
            (("it is in it", bad(6, "y"), false), Some(3), true),
            (("its end", event(Event::InitDone), true), Some(3), true),
            (
                ("readable again", event(Event::Apply(("a", 7))), true),
                Some(7),
                false,
            ),
            (("an old event", bad(6, "y"), false), Some(7), false),
            (("an old deletion", deleted(6), false), Some(7), false),
            (("unreadable", bad(8, "x"), true), Some(7), true),
            (("deleted", deleted(9), true), None, false),
            (("never seen", deleted(9), false), None, false),
        ];
        let mut store = Store::default();
        for ((case, update, changed), version, is_unreadable) in steps {
            assert_eq!(store.handle(update), changed, "{case}");
            assert_eq!(store.get("a").map(|known| known.1), version, "{case}");
            assert_eq!(store.unreadable.contains_key("a"), is_unreadable, "{case}");
        }
        store.handle(event(Event::Apply(("a", 1))));
        store.handle(event(Event::Init));
        store.handle(bad(2, "x"));
        assert!(store.missing().is_empty(), "it is not deleted");
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
