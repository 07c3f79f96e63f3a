//! Limits edits that another program undoes again and again.

use std::collections::BTreeMap;
use std::time::Duration;

use globalps_core::backoff::doubled;
use jiff::{SignedDuration, Timestamp};
use zeroize::Zeroizing;

/// Equal edits of one key without a pause.
const AT_ONCE: u32 = 3;
/// The pauses after that.
const PAUSES: (Duration, Duration) = (Duration::from_secs(10), Duration::from_mins(10));
/// An edit that lasted as long was not undone.
const LASTED: SignedDuration = SignedDuration::from_hours(1);

/// The last edit of a key.
#[derive(Debug)]
struct Edit {
    /// What the key became; `None`: it lost its entry.
    entry: Option<Zeroizing<String>>,
    /// How many times in a row.
    times: u32,
    at: Timestamp,
}

/// The edits of one leader.
#[derive(Default)]
pub struct Turns(BTreeMap<String, Edit>);

impl Turns {
    /// Whether this key may become this entry now. A new entry always may.
    pub fn is_due(&self, key: &str, entry: Option<&str>, now: Timestamp) -> bool {
        self.due(key, entry).is_none_or(|due| due <= now)
    }

    fn due(&self, key: &str, entry: Option<&str>) -> Option<Timestamp> {
        let last = self.0.get(key)?;
        let is_same = last.entry.as_ref().map(|entry| entry.as_str()) == entry;
        if !is_same || last.times < AT_ONCE {
            return None;
        }
        let pause = doubled(PAUSES.0, PAUSES.1, last.times - AT_ONCE, 1.0);
        last.at.checked_add(pause).ok()
    }

    /// These edits were written.
    pub fn wrote(&mut self, edits: BTreeMap<String, Option<Zeroizing<String>>>, now: Timestamp) {
        self.0
            .retain(|_, last| now.duration_since(last.at) < LASTED);
        for (key, entry) in edits {
            let last = self.0.get(&key).filter(|last| last.entry == entry);
            let times = last.map_or(1, |last| last.times.saturating_add(1));
            let at = now;
            self.0.insert(key, Edit { entry, times, at });
        }
    }

    /// When the first of the edits that wait is due.
    pub fn next(&self, now: Timestamp) -> Option<Timestamp> {
        let due = self.0.iter().filter_map(|(key, last)| {
            self.due(key, last.entry.as_ref().map(|entry| entry.as_str()))
        });
        due.filter(|due| *due > now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_that_is_undone_waits_longer_each_time() {
        let mut turns = Turns::default();
        let mut now = Timestamp::UNIX_EPOCH;
        let entry = || Some(Zeroizing::new("{}".to_owned()));
        let mut edits = 0;
        for _ in 0..3600 {
            if turns.is_due("a", Some("{}"), now) {
                turns.wrote([("a".to_owned(), entry())].into(), now);
                edits += 1;
            }
            now += Duration::from_secs(2);
        }
        assert!((10..20).contains(&edits), "{edits} in two hours");
        assert!(turns.next(now).is_some());
        assert!(turns.is_due("a", Some("{1}"), now), "another entry");
        assert!(turns.is_due("a", None, now), "its removal");
        now += SignedDuration::from_hours(2);
        assert!(turns.is_due("a", Some("{}"), now) && turns.next(now).is_none());
        turns.wrote([("a".to_owned(), entry())].into(), now);
        assert!(turns.is_due("a", Some("{}"), now), "it begins again");
    }
}
