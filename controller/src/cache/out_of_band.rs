//! Detects changes by other clients. Pure.

use globalps_planner::targets::version_of;
use globalps_runtime::list_events::Event;
use globalps_runtime::list_watch::Update;

use super::store::Store;
use super::versioned::Versioned;

/// A change by another client of an object that the controller wrote.
#[derive(Debug)]
pub(crate) struct OutOfBandChange {
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) is_deleted: bool,
}

/// The controller's own writes and deletions are in the cache before the watch reports them, so every other change is by another
/// client. `concerns`: whether the two differ in fields that the controller manages.
pub(crate) fn out_of_band_changes<T: Versioned + Clone>(
    kind: &'static str,
    store: &Store<T>,
    update: &Update<T>,
    concerns: impl Fn(&T, &T) -> bool,
) -> Vec<OutOfBandChange> {
    let change = |name, is_deleted| OutOfBandChange {
        kind,
        name,
        is_deleted,
    };
    let (object, is_deleted) = match update {
        Update::Event(Event::Apply(object)) => (object, false),
        Update::Event(Event::Delete(object)) => (object, true),
        Update::Unreadable {
            object,
            is_deleted: true,
        } => {
            let name = T::key_of(object.namespace(), object.name());
            let known = store.get(&name);
            let is_news = known.map_or(store.unreadable.contains_key(&name), |known| {
                known.version() <= version_of(&object.metadata)
            });
            return is_news.then(|| change(name, true)).into_iter().collect();
        }
        Update::Event(Event::InitDone) => {
            let missing = store.missing().into_iter();
            return missing.map(|name| change(name, true)).collect();
        }
        _ => return Vec::new(),
    };
    let name = object.key();
    let is_news = store.get(&name).is_some_and(|known| {
        if is_deleted {
            known.version() <= object.version()
        } else {
            known.version() < object.version() && concerns(known, object)
        }
    });
    let changes = is_news.then(|| change(name, is_deleted));
    changes.into_iter().collect()
}
