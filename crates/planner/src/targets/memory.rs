//! What one leader remembers of namespaces between plans: failed writes with their backoff, and how often it restored changes by
//! other clients. Pure.

use globalps_core::reasons::Reason;
use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::refused::{Failure, Failures, Response, after};

/// First and longest backoff after a failed write.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(5));
/// An object is restored this often within [`CONFLICT_WINDOW`], then not for as long.
const RESTORES: u32 = 5;
const CONFLICT_WINDOW: SignedDuration = SignedDuration::from_mins(10);

#[derive(Clone, Copy, Debug)]
struct Restores {
    count: u32,
    since: Timestamp,
    last: Timestamp,
}

impl Restores {
    /// When it may be restored again, if another client has changed it too often.
    fn contested_until(&self) -> Option<Timestamp> {
        (self.count >= RESTORES).then(|| after(self.last, CONFLICT_WINDOW))
    }
}

/// All times are by the monotonic clock. Keys are those of the writes, and begin with the namespace.
#[derive(Clone, Debug)]
pub struct Memory {
    failures: Failures,
    restores: BTreeMap<String, Restores>,
    /// What this leader has written.
    written: BTreeMap<String, Box<str>>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            failures: Failures::new(BACKOFF.0, BACKOFF.1),
            restores: BTreeMap::new(),
            written: BTreeMap::new(),
        }
    }
}

impl Memory {
    /// `None`: the last write of the object did not fail.
    pub fn failure(&self, key: &str) -> Option<&Failure> {
        self.failures.get(key)
    }

    /// Time of the next future attempt.
    pub fn next_retry(&self, now: Timestamp) -> Option<Timestamp> {
        let contested = self.restores.values().filter_map(Restores::contested_until);
        let contested = contested.filter(|until| *until > now);
        contested.chain(self.failures.next_retry(now)).min()
    }

    /// `jitter`: from 0 to 1.
    pub fn failed(
        &mut self,
        key: &str,
        reason: Reason,
        message: String,
        now: Timestamp,
        jitter: f64,
    ) {
        let what = (reason, message);
        self.failures
            .failed(key, what, Response::Rejected, now, jitter);
    }

    /// The write has no response yet, and is not repeated before this time.
    pub fn waits(&mut self, key: &str, now: Timestamp, until: Timestamp) {
        self.failures.waits(key, now, until);
    }

    /// The write succeeded.
    pub fn wrote(&mut self, key: &str, what: &str) {
        self.failures.forget(key);
        let before = self.written.insert(key.to_owned(), what.into());
        if before.is_some_and(|before| *before != *what) {
            self.restores.remove(key);
        }
    }

    /// Forgets all of an object that is gone.
    pub fn removed(&mut self, key: &str) {
        self.failures.forget(key);
        self.written.remove(key);
        self.restores.remove(key);
    }

    /// Whether this leader has written this before, so that another client has changed it since.
    pub fn has_written(&self, key: &str, what: &str) -> bool {
        self.written
            .get(key)
            .is_some_and(|written| **written == *what)
    }

    pub(crate) fn wrote_any(&self, key: &str) -> bool {
        self.written.contains_key(key)
    }

    /// The caller has written again what another client changed.
    pub fn restored(&mut self, key: &str, now: Timestamp) {
        let restores = self.restores.entry(key.to_owned()).or_insert(Restores {
            count: 0,
            since: now,
            last: now,
        });
        if now.duration_since(restores.since) > CONFLICT_WINDOW {
            (restores.count, restores.since) = (0, now);
        }
        restores.count += 1;
        restores.last = now;
    }

    /// How often it was restored to this content, in the last window with a restore.
    pub fn restores_of(&self, key: &str, what: &str) -> u32 {
        let restores = self.restores.get(key);
        let restores = restores.filter(|_| self.has_written(key, what));
        restores.map_or(0, |restores| restores.count)
    }

    /// Another client has changed this content too often: it is not restored for a while. Other content is written.
    pub fn is_contested(&self, key: &str, what: &str, now: Timestamp) -> bool {
        let restores = self.restores.get(key);
        let restores = restores.filter(|_| self.has_written(key, what));
        let until = restores.and_then(Restores::contested_until);
        until.is_some_and(|until| now < until)
    }

    /// Forgets deleted namespaces and their service accounts.
    pub fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        let is_there = |key: &str| is_there(key.split('/').next().unwrap_or_default());
        self.failures.retain(is_there);
        self.restores.retain(|key, _| is_there(key));
        self.written.retain(|key, _| is_there(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
    }

    #[test]
    fn a_success_ends_a_failure() {
        let mut memory = Memory::default();
        memory.failed("a", Reason::Rejected, String::new(), at(0), 1.0);
        memory.failed("b", Reason::Rejected, String::new(), at(0), 0.0);
        let half = at(0) + SignedDuration::from_millis(500);
        assert_eq!(memory.next_retry(at(0)), Some(half));
        assert_eq!(memory.next_retry(half), Some(at(1)));
        assert_eq!(
            memory.next_retry(at(1)),
            None,
            "an overdue attempt causes no wake-up"
        );
        memory.wrote("a", "5");
        assert!(memory.failure("a").is_none() && memory.has_written("a", "5"));
        assert!(!memory.has_written("a", "6"));
    }

    #[test]
    fn five_restores_in_ten_minutes_are_a_conflict_for_ten_minutes() {
        let mut memory = Memory::default();
        for key in ["slow", "a", "just"] {
            memory.wrote(key, "5");
        }
        for second in [0, 1, 2, 3, 601, 602, 603, 604] {
            memory.restored("slow", at(second));
        }
        assert!(!memory.is_contested("slow", "5", at(604)));
        for second in 0..5 {
            assert!(!memory.is_contested("a", "5", at(second)));
            memory.restored("a", at(second));
            memory.wrote("a", "5");
        }
        let is = |memory: &Memory, key, what, second| memory.is_contested(key, what, at(second));
        assert!(is(&memory, "a", "5", 4) && !is(&memory, "b", "5", 4));
        assert!(
            !is(&memory, "a", "6", 4),
            "nobody has changed other content"
        );
        assert_eq!(
            [memory.restores_of("a", "5"), memory.restores_of("a", "6")],
            [5, 0]
        );
        assert_eq!(memory.next_retry(at(4)), Some(at(604)));
        assert!(is(&memory, "a", "5", 603) && !is(&memory, "a", "5", 604));
        assert_eq!(memory.next_retry(at(604)), None);
        for (second, is_contested) in [(604, false), (605, false), (606, false), (607, false)] {
            memory.restored("a", at(second));
            assert_eq!(is(&memory, "a", "5", second), is_contested, "{second}");
        }
        memory.restored("a", at(608));
        assert!(is(&memory, "a", "5", 608), "the same number of times again");
        memory.wrote("a", "6");
        memory.wrote("a", "5");
        assert!(!is(&memory, "a", "5", 608), "there was other content");
        for second in [0, 1, 2, 3, 600] {
            memory.restored("just", at(second));
        }
        assert!(is(&memory, "just", "5", 600), "not longer than ten minutes");
        memory.failed("just", Reason::Rejected, String::new(), at(0), 1.0);
        memory.removed("just");
        memory.wrote("just", "5");
        assert!(!is(&memory, "just", "5", 600));
        memory.removed("just");
        assert!(!memory.wrote_any("just") && memory.failure("just").is_none());
        memory.retain(|namespace| namespace != "a");
        assert!(!memory.has_written("a", "5"));
    }
}
