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
fn the_youngest_have_no_effect_and_others_keep_everything() {
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
