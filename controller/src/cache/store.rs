//! The objects of a watch, as of its newest event.

use std::collections::BTreeMap;

use kube::runtime::watcher::Event;

/// The objects of one watch by name, as of the newest event.
#[derive(Debug)]
pub(crate) struct Cache<T> {
    pub(crate) live: BTreeMap<String, T>,
    /// Filled during a relist; replaces `live` when it is complete, so that a gap loses no deletion.
    relist: Option<BTreeMap<String, T>>,
    pub(crate) complete: bool,
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self {
            live: BTreeMap::new(),
            relist: None,
            complete: false,
        }
    }
}

/// Where no newer one is there.
fn insert<T: Versioned>(objects: &mut BTreeMap<String, T>, object: T) {
    let key = object.key();
    let known = objects.get(&key);
    if known.is_none_or(|known| known.version() <= object.version()) {
        objects.insert(key, object);
    }
}

impl<T: Versioned + Clone> Cache<T> {
    /// Whether the event says something that was not known.
    pub(crate) fn handle(&mut self, event: Event<T>) -> bool {
        match event {
            Event::Apply(object) => self.put(object),
            Event::Delete(object) => {
                // A newer one of that name may be there already, by our own write.
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
                self.complete = true;
                true
            }
        }
    }

    /// Takes the object over unless a newer one is there: an answer to our own write may overtake the watch. Whether it
    /// says something that was not known.
    pub(crate) fn put(&mut self, object: T) -> bool {
        if let Some(relist) = &mut self.relist {
            // The list that is being read may be older than this.
            insert(relist, object.clone());
        }
        let key = object.key();
        let known = self.live.get(&key);
        if known.is_some_and(|known| known.version() > object.version()) {
            return false;
        }
        let news = known.is_none_or(|known| {
            known.version() < object.version() && !known.means_the_same(&object)
        });
        self.live.insert(key, object);
        news
    }

    pub(crate) fn get(&self, name: &str) -> Option<&T> {
        self.live.get(name)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.live.keys().cloned().collect()
    }
}

/// Name and `resourceVersion` of what a [`Cache`] keeps. Resource versions of one resource grow.
pub(crate) trait Versioned {
    fn key(&self) -> String;
    fn version(&self) -> u64;

    /// Whether nothing follows from the other one that did not follow from this one.
    fn means_the_same(&self, _other: &Self) -> bool {
        false
    }
}

/// A large object, in a map that would keep room for more of them.
impl<T: Versioned> Versioned for Box<T> {
    fn key(&self) -> String {
        T::key(self)
    }

    fn version(&self) -> u64 {
        T::version(self)
    }

    fn means_the_same(&self, other: &Self) -> bool {
        T::means_the_same(self, other)
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
    fn a_gap_loses_no_deletion_and_old_news_changes_nothing() {
        let mut cache = Cache::default();
        for event in [
            Event::Init,
            Event::InitApply(("a", 1)),
            Event::InitApply(("b", 2)),
        ] {
            cache.handle(event);
        }
        assert!(
            !cache.complete && cache.live.is_empty(),
            "a list that is not complete says nothing"
        );
        cache.handle(Event::InitDone);
        assert_eq!(cache.names(), ["a", "b"]);
        cache.put(("a", 5));
        cache.handle(Event::Apply(("a", 3)));
        assert_eq!(
            cache.get("a"),
            Some(&("a", 5)),
            "our own write is newer than the watch"
        );
        for event in [Event::Init, Event::InitApply(("b", 2)), Event::InitDone] {
            cache.handle(event);
        }
        assert_eq!(cache.names(), ["b"], "what a relist does not have is gone");
        cache.handle(Event::Init);
        cache.put(("b", 7));
        cache.put(("c", 8));
        for event in [Event::InitApply(("b", 2)), Event::InitDone] {
            cache.handle(event);
        }
        assert_eq!(
            (cache.get("b"), cache.get("c")),
            (Some(&("b", 7)), Some(&("c", 8))),
            "what we wrote while the list was read is newer than the list"
        );
    }

    #[test]
    fn only_what_was_not_known_is_news() {
        let mut cache = Cache::default();
        for (sentence, event, news) in [
            ("a list that begins", Event::Init, false),
            ("a part of a list", Event::InitApply(("a", 1)), false),
            ("a list", Event::InitDone, true),
            ("a newer one", Event::Apply(("a", 3)), true),
            ("the echo of our own write", Event::Apply(("a", 3)), false),
            ("an older one", Event::Apply(("a", 2)), false),
            ("a deletion", Event::Delete(("a", 4)), true),
            ("of what is gone", Event::Delete(("a", 4)), false),
        ] {
            assert_eq!(cache.handle(event), news, "{sentence}");
        }
    }
}
