//! The part of a watch's objects that is kept: for each namespace a limited size, the oldest objects first. So a user
//! who may write objects in one namespace can't exhaust the process, which serves the others too.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Included, Unbounded};
use std::ops::{Deref, DerefMut};

use globalps_runtime::list_events::Event;
use globalps_runtime::list_watch::Update;
use jiff::Timestamp;

use super::store::Store;
use super::versioned::Versioned;

/// Objects of a namespace that can't be decoded.
const UNREADABLE: usize = 500;

pub(crate) trait Bounded: Versioned + Clone {
    /// Size of a namespace's objects of this kind without their contents.
    const MOST: usize;
    /// Size of these contents.
    const MOST_CONTENT: usize = 0;
    /// If there is too much, this part of it is dropped as well, so that not every event counts again; 0: none.
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

    /// Drops the content, but records that there was some.
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
    /// The full namespaces of a list in progress.
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

    /// Like [`Store::handle_optional`].
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

/// Size of the objects, and of their contents.
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
mod tests;
