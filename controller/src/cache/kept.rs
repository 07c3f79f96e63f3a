//! What is kept of the objects of one watch: of each namespace only so much, the oldest first. Who may write objects in one namespace
//! can't exhaust the process, which serves the others too.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Included, Unbounded};
use std::ops::{Deref, DerefMut};

use jiff::Timestamp;
use kube::runtime::watcher::Event;

use super::list_watch::Update;
use super::store::Store;
use super::versioned::Versioned;

/// Objects of a namespace that can't be decoded.
const UNREADABLE: usize = 500;

pub(crate) trait Bounded: Versioned + Clone {
    /// Size of a namespace's objects of this kind without their contents.
    const MOST: usize;
    /// Size of these contents.
    const MOST_CONTENT: usize = 0;
    /// Where there is too much, this part of it has to leave as well, so that not each event counts again; 0: none.
    const PART: usize = 0;

    /// `None`: those of a namespace are ordered by name.
    fn created(&self) -> Option<Timestamp> {
        None
    }

    fn size(&self) -> usize {
        1
    }

    fn content(&self) -> usize {
        0
    }

    /// It is known that it had content.
    fn drop_content(&mut self) {}
}

/// A store with a limit for each namespace.
#[derive(Debug)]
pub(crate) struct Kept<T> {
    store: Store<T>,
    /// At most this is kept of each namespace. Deletions are not subtracted until it is counted again.
    sizes: BTreeMap<String, Size>,
    /// Namespaces of which not everything is kept.
    full: BTreeSet<String>,
    /// The same of a list in progress.
    listed: Option<BTreeSet<String>>,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self {
            store: Store::default(),
            sizes: BTreeMap::new(),
            full: BTreeSet::new(),
            listed: None,
        }
    }
}

impl<T> Deref for Kept<T> {
    type Target = Store<T>;

    fn deref(&self) -> &Store<T> {
        &self.store
    }
}

impl<T> DerefMut for Kept<T> {
    fn deref_mut(&mut self) -> &mut Store<T> {
        &mut self.store
    }
}

impl<T: Bounded> Kept<T> {
    /// Whether the update changes anything.
    pub(crate) fn handle(&mut self, update: Update<T>) -> bool {
        self.keep(update, Store::handle)
    }

    /// As [`Store::handle_optional`].
    pub(crate) fn handle_optional(&mut self, update: Update<T>) -> bool {
        self.keep(update, Store::handle_optional)
    }

    fn keep(
        &mut self,
        update: Update<T>,
        store: impl FnOnce(&mut Store<T>, Update<T>) -> bool,
    ) -> bool {
        let (mut added, mut is_complete) = (None, false);
        match &update {
            Update::Event(Event::Apply(object) | Event::InitApply(object)) => {
                added = Some((object.key(), Size::of(object)));
            }
            Update::Event(Event::Init) => self.listed = Some(BTreeSet::new()),
            Update::Event(Event::InitDone) => is_complete = true,
            Update::Unreadable { object, is_deleted } if !*is_deleted => {
                let key = T::key_of(object.namespace(), object.name());
                if self.has_too_many_unreadable(&key) {
                    return false;
                }
            }
            _ => {}
        }
        let changed = store(&mut self.store, update);
        self.added(added);
        if is_complete {
            self.full = self.listed.take().unwrap_or_default();
        }
        changed
    }

    /// Stores the response to a write.
    pub(crate) fn put(&mut self, object: T) {
        let added = Some((object.key(), Size::of(&object)));
        self.store.put(object);
        self.added(added);
    }

    /// Namespaces of which not everything is kept.
    pub(crate) fn full(&self) -> &BTreeSet<String> {
        &self.full
    }

    fn has_too_many_unreadable(&self, key: &str) -> bool {
        let is_full = |objects: &BTreeMap<_, _>| {
            !objects.contains_key(key) && of(objects, space(key)).count() >= UNREADABLE
        };
        self.store.unreadable_lists().any(is_full)
    }

    fn added(&mut self, added: Option<(String, Size)>) {
        let Some((key, size)) = added else { return };
        let space = space(&key);
        let known = self.sizes.entry(space.to_owned()).or_default();
        *known = known.plus(size);
        if known.fits::<T>() {
            return;
        }
        let mut has_dropped = false;
        let mut left = Size::default();
        for objects in self.store.lists_mut() {
            let size = of(objects, space).map(|(_, it)| Size::of(it));
            let mut size = size.fold(Size::default(), Size::plus);
            if !size.fits::<T>() {
                size = limit(objects, space, size);
                has_dropped = true;
            }
            left = left.max(size);
        }
        *known = left;
        let namespace = space.trim_end_matches('/');
        if !has_dropped {
            return;
        }
        if let Some(listed) = &mut self.listed {
            listed.insert(namespace.to_owned());
        }
        if self.full.insert(namespace.to_owned()) {
            tracing::warn!(
                namespace,
                "not all objects of this namespace are kept: those beyond the limit have no effect, and other namespaces are not affected"
            );
        }
    }
}

/// Of objects, and of their contents.
#[derive(Clone, Copy, Debug, Default)]
struct Size(usize, usize);

impl Size {
    fn of(object: &impl Bounded) -> Self {
        Self(object.size(), object.content())
    }

    fn plus(self, other: Self) -> Self {
        Self(
            self.0.saturating_add(other.0),
            self.1.saturating_add(other.1),
        )
    }

    fn minus(self, other: Self) -> Self {
        Self(
            self.0.saturating_sub(other.0),
            self.1.saturating_sub(other.1),
        )
    }

    fn max(self, other: Self) -> Self {
        Self(self.0.max(other.0), self.1.max(other.1))
    }

    fn fits<T: Bounded>(self) -> bool {
        self.0 <= T::MOST && self.1 <= T::MOST_CONTENT
    }
}

/// The part of the key that all objects of its namespace have.
fn space(key: &str) -> &str {
    key.split_inclusive('/').next().unwrap_or_default()
}

fn of<'a, V>(
    objects: &'a BTreeMap<String, V>,
    space: &'a str,
) -> impl Iterator<Item = (&'a String, &'a V)> {
    let from = objects.range::<str, _>((Included(space), Unbounded));
    from.take_while(move |(key, _)| key.starts_with(space))
}

/// Drops objects and contents, the youngest first. Returns the size of what is left.
fn limit<T: Bounded>(objects: &mut BTreeMap<String, T>, space: &str, mut size: Size) -> Size {
    let by_age = of(objects, space).map(|(key, object)| (object.created(), key.clone()));
    let mut by_age: Vec<(Option<Timestamp>, String)> = by_age.collect();
    by_age.sort();
    let is_over = |size: usize, most: usize| size > most - most.checked_div(T::PART).unwrap_or(0);
    if size.0 > T::MOST {
        while let Some((_, key)) = by_age.pop_if(|_| is_over(size.0, T::MOST)) {
            let dropped = objects.remove(&key);
            size = size.minus(dropped.map_or(Size::default(), |it| Size::of(&it)));
        }
    }
    if size.1 > T::MOST_CONTENT {
        while let Some((_, key)) = by_age.pop_if(|_| is_over(size.1, T::MOST_CONTENT)) {
            if let Some(object) = objects.get_mut(&key) {
                size = size.minus(Size(0, object.content()));
                object.drop_content();
            }
        }
    }
    size
}

#[cfg(test)]
mod tests {
    use globalps_core::decode::Unreadable;
    use kube::api::ObjectMeta;

    use super::*;

    #[derive(Clone, Debug)]
    struct Thing {
        key: &'static str,
        second: i64,
        content: usize,
    }

    impl Versioned for Thing {
        fn key(&self) -> String {
            self.key.to_owned()
        }

        fn key_of(namespace: &str, name: &str) -> String {
            format!("{namespace}/{name}")
        }

        fn version(&self) -> u64 {
            1
        }
    }

    impl Bounded for Thing {
        const MOST: usize = 40;
        const MOST_CONTENT: usize = 100;
        const PART: usize = 8;

        fn created(&self) -> Option<Timestamp> {
            Timestamp::from_second(self.second).ok()
        }

        fn size(&self) -> usize {
            10
        }

        fn content(&self) -> usize {
            self.content
        }

        fn drop_content(&mut self) {
            self.content = 0;
        }
    }

    fn thing(key: &'static str, second: i64, content: usize) -> Thing {
        Thing {
            key,
            second,
            content,
        }
    }

    fn kept(kept: &Kept<Thing>) -> Vec<(&str, usize)> {
        let live = kept.live.values();
        live.map(|it| (it.key, it.content)).collect()
    }

    #[test]
    fn the_youngest_have_no_effect_and_other_namespaces_keep_everything() {
        let old = thing("a/z", 1, 60);
        for (case, others, expected) in [
            (
                "they fit",
                vec![thing("a/a", 2, 40)],
                vec![("a/a", 40), ("a/z", 60)],
            ),
            (
                "the younger one loses its content",
                vec![thing("a/a", 2, 41)],
                vec![("a/a", 0), ("a/z", 60)],
            ),
            (
                "the elder one keeps its own",
                vec![thing("a/a", 0, 80)],
                vec![("a/a", 80), ("a/z", 0)],
            ),
            (
                "of the same second, the last by name loses it",
                vec![thing("a/a", 1, 60)],
                vec![("a/a", 60), ("a/z", 0)],
            ),
            (
                "too many",
                vec![
                    thing("a/b", 4, 1),
                    thing("a/c", 2, 2),
                    thing("a/d", 5, 3),
                    thing("a/a", 3, 4),
                ],
                vec![("a/a", 4), ("a/c", 2), ("a/z", 60)],
            ),
        ] {
            for is_list in [false, true] {
                let mut found = Kept::default();
                if is_list {
                    found.handle(Update::Event(Event::Init));
                }
                let mut all = vec![thing("b/x", 9, 90), old.clone()];
                all.extend(others.clone());
                for object in all {
                    let event = if is_list {
                        Event::InitApply
                    } else {
                        Event::Apply
                    };
                    found.handle(Update::Event(event(object)));
                }
                if is_list {
                    found.handle(Update::Event(Event::InitDone));
                }
                let mut expected = expected.clone();
                expected.push(("b/x", 90));
                assert_eq!(kept(&found), expected, "{case}, {is_list}");
                assert_eq!(!found.full().is_empty(), case != "they fit", "{case}");
            }
        }
    }

    #[test]
    fn a_list_has_room_for_what_was_not_kept_before() {
        let mut found = Kept::default();
        for (key, second) in [("a/a", 1), ("a/b", 2)] {
            found.handle(Update::Event(Event::Apply(thing(key, second, 60))));
        }
        assert_eq!(kept(&found), [("a/a", 60), ("a/b", 0)]);
        for event in [
            Event::Init,
            Event::InitApply(thing("a/b", 2, 60)),
            Event::InitDone,
        ] {
            found.handle(Update::Event(event));
        }
        assert_eq!(kept(&found), [("a/b", 60)]);
        assert!(found.full().is_empty());
    }

    #[derive(Clone, Debug)]
    struct Counted(&'static str);

    impl Versioned for Counted {
        fn key(&self) -> String {
            self.0.to_owned()
        }

        fn version(&self) -> u64 {
            1
        }
    }

    impl Bounded for Counted {
        const MOST: usize = 2;
    }

    #[test]
    fn by_number_the_last_by_name_have_no_effect() {
        let mut found = Kept::<Counted>::default();
        let mut after = |event| {
            found.handle(Update::Event(event));
            let live: Vec<&str> = found.live.values().map(|it| it.0).collect();
            let full = found.full().iter().map(String::as_str);
            (live.join(" "), full.collect::<String>())
        };
        let is = |live: &str, full: &str| (live.to_owned(), full.to_owned());
        for name in ["a/b", "b/x", "a0", "a/c"] {
            after(Event::Apply(Counted(name)));
        }
        let last = after(Event::Apply(Counted("a/d")));
        assert_eq!(last, is("a/b a/c a0 b/x", "a"));
        let first = after(Event::Apply(Counted("a/a")));
        assert_eq!(first, is("a/a a/b a0 b/x", "a"));
        after(Event::Delete(Counted("a/a")));
        let room = after(Event::Apply(Counted("a/e")));
        assert_eq!(room, is("a/b a/e a0 b/x", "a"));
        // A list that is not complete says nothing about what is not kept.
        assert_eq!(after(Event::Init).1, "a");
        assert_eq!(after(Event::InitApply(Counted("a/c"))).1, "a");
        assert_eq!(after(Event::InitDone), is("a/c", ""));
    }

    #[test]
    fn the_number_of_objects_that_cannot_be_decoded_is_limited() {
        let mut found = Kept::<Thing>::default();
        for number in 0..2 * UNREADABLE {
            let mut object = Box::new(Unreadable {
                metadata: ObjectMeta::default(),
                field: String::new(),
            });
            object.metadata.name = Some(number.to_string());
            found.handle(Update::Unreadable {
                object,
                is_deleted: false,
            });
        }
        assert_eq!(found.unreadable.len(), UNREADABLE);
    }
}
