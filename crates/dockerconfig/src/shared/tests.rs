use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};

use super::*;

fn auth(password: &str) -> String {
    use base64::Engine as _;
    let pair = base64::prelude::BASE64_STANDARD.encode(format!("u:{password}"));
    format!(r#"{{"auth":"{pair}"}}"#)
}

fn config(entries: &[(&str, &str)]) -> DockerConfig {
    let entries: Vec<String> = entries
        .iter()
        .map(|(key, password)| format!("{}:{}", quote(key), auth(password)))
        .collect();
    let text = format!(r#"{{"auths":{{{}}}}}"#, entries.join(","));
    let parsed = parse(text.as_bytes()).unwrap();
    super::super::combine(&[&parsed]).config()
}

fn merged(
    document: &str,
    desired: &[(&str, &str)],
    applied: &Applied,
    free: &[&str],
) -> SharedMerge {
    let rules = Rules {
        may_override: &|registry| free.contains(&registry),
        is_platform: &|registry| registry == "quay.io",
        has_turn: &|_, _| true,
    };
    merge_shared(document.as_bytes(), &config(desired), applied, &rules).unwrap()
}

fn text(merge: &SharedMerge, before: &str) -> String {
    let document = merge.document.clone();
    document.map_or(before.to_owned(), |text| String::from_utf8(text).unwrap())
}

const ODD: &str = " {\n  \"x\": 1.50e3,\n  \"auths\" : {\n    \"a.io\" : { \"auth\" : \"dTphCg==\", \"n\":[ 1.0 ,\"\\u00e9\"] },\n\t\"b.io\":{\"auth\":\"dTpi\"}\n  }, \"x\": 2 }\n";

#[test]
fn entries_are_added_and_go_without_a_trace() {
    let a = auth("p");
    for (before, expected) in [
        (
            r#"{"auths":{}}"#.to_owned(),
            format!(r#"{{"auths":{{"c.io":{a}}}}}"#),
        ),
        (
            "{\"auths\":{ \n}}".to_owned(),
            format!("{{\"auths\":{{\"c.io\":{a} \n}}}}"),
        ),
        (
            ODD.to_owned(),
            ODD.replace("\n  },", &format!(",\"c.io\":{a}\n  }},")),
        ),
    ] {
        let merge = merged(&before, &[("c.io", "p")], &Applied::default(), &[]);
        assert_eq!(text(&merge, &before), expected);
        assert_eq!(merge.fates, [("c.io".to_owned(), Fate::Written)].into());
        let again = merged(&expected, &[("c.io", "p")], &merge.applied, &[]);
        assert!(again.document.is_none());
        assert_eq!(again.fates, [("c.io".to_owned(), Fate::InForce)].into());
        let gone = merged(&expected, &[], &again.applied, &[]);
        assert_eq!(text(&gone, &expected), before);
        assert!(!gone.is_clean && merged(&before, &[], &gone.applied, &[]).is_clean);
    }
}

#[test]
fn entries_of_others_stay_unless_they_may_be_overridden() {
    let document = format!(
        r#"{{"auths":{{"https://c.io/v1/":{},"same.io":{}}}}}"#,
        auth("theirs"),
        auth("p")
    );
    let desired = [("c.io", "p"), ("same.io", "p"), ("quay.io", "p")];
    let merge = merged(&document, &desired, &Applied::default(), &[]);
    assert!(merge.document.is_none(), "{merge:?}");
    let fates = [
        ("c.io", Fate::Theirs),
        ("quay.io", Fate::Platform),
        ("same.io", Fate::InForce),
    ];
    let fates = fates.map(|(key, fate)| (key.to_owned(), fate));
    assert_eq!(merge.fates, fates.into());
    assert!(merge.applied.versions.is_empty(), "{:?}", merge.applied);

    let free = ["c.io", "quay.io"];
    let merge = merged(&document, &desired, &Applied::default(), &free);
    let (ours, p) = (text(&merge, &document), auth("p"));
    let all =
        format!(r#"{{"auths":{{"https://c.io/v1/":{p},"same.io":{p},"c.io":{p},"quay.io":{p}}}}}"#);
    assert_eq!(ours, all);
    let again = merged(&ours, &desired, &merge.applied, &free);
    assert!(again.document.is_none());
    for (desired, free) in [(&desired[..], &[][..]), (&[], &free)] {
        let back = merged(&ours, desired, &again.applied, free);
        assert_eq!(text(&back, &ours), document, "what was there comes back");
        assert!(merged(&document, &[], &back.applied, &[]).is_clean);
        let crashed = merged(&ours, desired, &back.applied, free);
        assert_eq!(text(&crashed, &ours), document, "it was not written");
    }
}

#[test]
fn a_key_that_another_program_changed_is_theirs() {
    let desired = [("c.io", "p")];
    let merge = merged(r#"{"auths":{}}"#, &desired, &Applied::default(), &[]);
    let theirs = format!(r#"{{"auths":{{"c.io":{}}}}}"#, auth("theirs"));
    for desired in [&desired[..], &[("c.io", "new")], &[]] {
        let changed = merged(&theirs, desired, &merge.applied, &[]);
        assert!(changed.document.is_none());
        let fate = changed.fates.get("c.io").copied();
        assert_eq!(fate, (!desired.is_empty()).then_some(Fate::Theirs));
    }
    let old = format!(r#"{{"auths":{{"c.io": {}}}}}"#, auth("p"));
    let rotated = merged(&old, &[("c.io", "new")], &merge.applied, &[]);
    assert_eq!(rotated.applied.versions.len(), 2);
    let back = merged(&old, &[("c.io", "new")], &rotated.applied, &[]);
    assert_eq!(
        text(&back, &old),
        old.replace(&auth("p"), &auth("new")),
        "an earlier entry is no one else's"
    );
}

#[test]
fn without_a_turn_nothing_is_edited_or_forgotten() {
    let merge = merged(
        r#"{"auths":{}}"#,
        &[("c.io", "p")],
        &Applied::default(),
        &[],
    );
    let document = text(&merge, "");
    let rules = Rules {
        may_override: &|_| true,
        is_platform: &|_| false,
        has_turn: &|key, _| key == "d.io",
    };
    let desired = config(&[("c.io", "new"), ("d.io", "p"), ("e.io", "p")]);
    let next = merge_shared(document.as_bytes(), &desired, &merge.applied, &rules).unwrap();
    let fates: Vec<Fate> = next.fates.values().copied().collect();
    assert_eq!(fates, [Fate::Waits, Fate::Written, Fate::Waits]);
    let none = config(&[]);
    let left = merge_shared(document.as_bytes(), &none, &next.applied, &rules).unwrap();
    assert_eq!(left.left, ["c.io".to_owned()].into());
    assert!(left.document.is_none() && !left.is_clean);
    let gone = merged(&document, &[], &left.applied, &[]);
    assert_eq!(text(&gone, &document), r#"{"auths":{}}"#);
}

#[test]
fn a_document_that_readers_read_differently_is_not_edited() {
    for (document, expected) in [
        (&b"{"[..], "it can't be read: not JSON (line 1, column 2)"),
        (b"null", "it has no `auths`, or several"),
        (b"{}", "it has no `auths`, or several"),
        (br#"{"auths":null}"#, "it has no `auths`, or several"),
        (
            br#"{"auths":{},"Auths":{}}"#,
            "it has no `auths`, or several",
        ),
        (
            br#"{"auths":{"a":{},"\u0061":{}}}"#,
            "`auths` has the key `a` more than once",
        ),
        (b"{\"auths\":{\"a\":\"\xff\"}}", "it is not UTF-8"),
    ] {
        let rules = Rules {
            may_override: &|_| false,
            is_platform: &|_| false,
            has_turn: &|_, _| true,
        };
        let found = merge_shared(document, &config(&[]), &Applied::default(), &rules);
        assert_eq!(found.unwrap_err().to_string(), expected);
    }
}

/// What happens to the Secret.
#[derive(Clone, Debug)]
enum Event {
    /// globalps wants other entries.
    Desire(Vec<(usize, u8)>),
    Override(bool),
    /// globalps writes; maybe it dies after it has stored what it is about to write.
    Sync(bool),
    /// Another program adds or changes a key, with its own spelling and spaces.
    Put(usize, u8, bool),
    Delete(usize),
    /// `oc set data` of a whole document from before.
    Older(usize),
    /// A program that writes each document again.
    Reformat,
}

const KEYS: [&str; 4] = ["a.io", "b.io/org", "quay.io", "docker.io"];

fn events() -> impl Strategy<Value = Vec<Event>> {
    let key = 0..KEYS.len();
    let event = prop_oneof![
        2 => prop::collection::vec((key.clone(), 0_u8..3), 0..4).prop_map(Event::Desire),
        1 => any::<bool>().prop_map(Event::Override),
        6 => any::<bool>().prop_map(Event::Sync),
        3 => (key.clone(), 0_u8..3, any::<bool>()).prop_map(|(key, n, odd)| Event::Put(key, n, odd)),
        1 => key.prop_map(Event::Delete),
        1 => (0_usize..4).prop_map(Event::Older),
        1 => Just(Event::Reformat),
    ];
    prop::collection::vec(event, 0..24)
}

struct World {
    document: String,
    applied: Applied,
    desired: Vec<(&'static str, String)>,
    free: bool,
    earlier: Vec<String>,
}

impl World {
    fn new(document: &str) -> Self {
        Self {
            document: document.to_owned(),
            applied: Applied::default(),
            desired: Vec::new(),
            free: false,
            earlier: Vec::new(),
        }
    }

    fn members(document: &str) -> Vec<(String, String)> {
        let (auths, _) = Auths::of(document).unwrap();
        let members = auths.members.into_iter();
        let members = members.map(|it| (it.key, it.value.into_owned()));
        members.collect()
    }

    /// Written by globalps, as the test knows.
    fn is_ours(value: &str) -> bool {
        let entry = Entry::new(String::new(), Json::parse(value.as_bytes()).unwrap());
        let password = entry.credential().unwrap().unwrap().password.clone();
        password.expose().starts_with(b"ours")
    }

    fn sync(&mut self, dies: bool) {
        let desired: Vec<(&str, &str)> = self
            .desired
            .iter()
            .map(|(key, password)| (*key, password.as_str()))
            .collect();
        let free: &[&str] = if self.free { &KEYS } else { &[] };
        let merge = merged(&self.document, &desired, &self.applied, free);
        self.applied = merge.applied.clone();
        if dies {
            return;
        }
        let next = text(&merge, &self.document);
        let others = |document: &str, is_kept: &dyn Fn(&str) -> bool| {
            let mut members = Self::members(document);
            members.retain(|(key, value)| !Self::is_ours(value) && is_kept(key));
            members
        };
        let after = Self::members(&next);
        let is_ours_now = |key: &str| {
            let found = after.iter().find(|(known, _)| known == key);
            found.is_some_and(|(_, value)| Self::is_ours(value))
        };
        let is_kept = |key: &str| !self.free || !is_ours_now(key);
        let was = others(&self.document, &is_kept);
        let is = others(&next, &is_kept);
        let is: Vec<_> = is.into_iter().filter(|it| was.contains(it)).collect();
        assert_eq!(was, is, "{} -> {next}", self.document);
        let again = merged(&next, &desired, &self.applied, free);
        assert!(again.document.is_none(), "one write is enough: {next}");
        self.write(next);
    }

    fn write(&mut self, next: String) {
        let last = std::mem::replace(&mut self.document, next);
        self.earlier.push(last);
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Desire(entries) => {
                let entries = entries.into_iter();
                let entries = entries.map(|(key, n)| (KEYS[key], format!("ours{n}")));
                let entries: BTreeMap<_, _> = entries.collect();
                self.desired = entries.into_iter().collect();
            }
            Event::Override(free) => self.free = free,
            Event::Sync(dies) => self.sync(dies),
            Event::Put(key, n, odd) => {
                let key = KEYS[key];
                let key = if odd {
                    format!("https://{key}/v1/")
                } else {
                    key.to_owned()
                };
                let value = auth(&format!("theirs{n}"));
                let value = if odd {
                    value.replace(':', " : ")
                } else {
                    value
                };
                let (mut auths, _) = Auths::of(&self.document).unwrap();
                auths.put(&key, &value);
                let next = auths.render();
                self.write(next);
            }
            Event::Delete(key) => {
                let (mut auths, _) = Auths::of(&self.document).unwrap();
                auths.remove(KEYS[key]);
                let next = auths.render();
                self.write(next);
            }
            Event::Older(back) => {
                let at = self.earlier.len().checked_sub(back + 1);
                if let Some(older) = at.map(|at| self.earlier[at].clone()) {
                    self.write(older);
                }
            }
            Event::Reformat => {
                let next = parse(self.document.as_bytes()).unwrap().render();
                self.write(String::from_utf8(next).unwrap());
            }
        }
    }
}

fn config_of_cases() -> Config {
    let is_given = std::env::var_os("PROPTEST_CASES").is_some();
    let default = Config::default();
    Config {
        cases: if is_given { default.cases } else { 2000 },
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..default
    }
}

proptest! {
    #![proptest_config(config_of_cases())]

    /// Whatever other programs write in between, their entries stay as they are, and in the end none of globalps is left.
    #[test]
    fn what_others_wrote_stays(events in events(), is_odd in any::<bool>()) {
        let document = if is_odd { ODD } else { r#"{"auths":{"quay.io":{"auth":"dTp0aGVpcnM="}}}"# };
        let mut world = World::new(document);
        for event in events {
            world.apply(event);
        }
        world.desired = Vec::new();
        world.sync(false);
        let left = World::members(&world.document);
        prop_assert!(left.iter().all(|(_, value)| !World::is_ours(value)), "{:?}", world.document);
    }

    /// Where nobody else writes, the Secret is in the end what it was, byte for byte.
    #[test]
    fn alone_it_leaves_no_trace(events in events(), is_odd in any::<bool>()) {
        let document = if is_odd { ODD } else { r#"{"auths":{"quay.io":{"auth":"dTp0aGVpcnM="} } }"# };
        let mut world = World::new(document);
        for event in events {
            if matches!(event, Event::Desire(_) | Event::Override(_) | Event::Sync(_)) {
                world.apply(event);
            }
        }
        world.desired = Vec::new();
        world.sync(false);
        prop_assert_eq!(&world.document, document);
    }
}
