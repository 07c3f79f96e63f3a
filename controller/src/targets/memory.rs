//! What one leader remembers of namespaces between plans: failed writes with their backoff, and how often it restored changes by
//! other clients. Pure.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::refused::{Failure, Failures, Response};

/// First and longest backoff after a failed write.
const BACKOFF: (SignedDuration, SignedDuration) =
    (SignedDuration::from_secs(1), SignedDuration::from_mins(5));
/// An object is restored this often within [`CONFLICT_WINDOW`], then no longer.
const RESTORES: u32 = 5;
const CONFLICT_WINDOW: SignedDuration = SignedDuration::from_mins(10);

#[derive(Clone, Copy, Debug)]
struct Restores {
    count: u32,
    since: Timestamp,
}

/// Keys are namespaces, and service accounts as `namespace/name`.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    failures: Failures,
    restores: BTreeMap<String, Restores>,
    /// What this leader has written: the content's identity; empty for a reference.
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
    pub(crate) fn failure(&self, key: &str) -> Option<&Failure> {
        self.failures.get(key)
    }

    /// Time of the next future attempt.
    pub(crate) fn next_retry(&self, now: Timestamp) -> Option<Timestamp> {
        self.failures.next_retry(now)
    }

    /// `jitter`: from 0 to 1.
    pub(crate) fn failed(
        &mut self,
        key: &str,
        reason: &'static str,
        message: String,
        now: Timestamp,
        jitter: f64,
    ) {
        let what = (reason, message);
        self.failures
            .failed(key, what, Response::Rejected, now, jitter);
    }

    /// The write has no response yet, and is not repeated before this time.
    pub(crate) fn waits(&mut self, key: &str, now: Timestamp, until: Timestamp) {
        self.failures.waits(key, now, until);
    }

    /// The write succeeded.
    pub(crate) fn wrote(&mut self, key: &str, what: &str) {
        self.failures.forget(key);
        let before = self.written.insert(key.to_owned(), what.into());
        if before.is_some_and(|before| *before != *what) {
            self.restores.remove(key);
        }
    }

    pub(crate) fn removed(&mut self, key: &str) {
        self.failures.forget(key);
        self.written.remove(key);
        self.restores.remove(key);
    }

    /// Whether this leader has written this before, so that another client has changed it since.
    pub(crate) fn has_written(&self, key: &str, what: &str) -> bool {
        self.written
            .get(key)
            .is_some_and(|written| **written == *what)
    }

    pub(crate) fn wrote_any(&self, key: &str) -> bool {
        self.written.contains_key(key)
    }

    pub(crate) fn restored(&mut self, key: &str, now: Timestamp) {
        let restores = self.restores.entry(key.to_owned()).or_insert(Restores {
            count: 0,
            since: now,
        });
        if now.duration_since(restores.since) > CONFLICT_WINDOW {
            *restores = Restores {
                count: 0,
                since: now,
            };
        }
        restores.count += 1;
    }

    /// Another client has changed it too often: it is not restored until other content is desired.
    pub(crate) fn is_contested(&self, key: &str) -> bool {
        let restores = self.restores.get(key);
        restores.is_some_and(|restores| restores.count >= RESTORES)
    }

    /// Forgets deleted namespaces and their service accounts.
    pub(crate) fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
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
        memory.failed("a", "Rejected", String::new(), at(0), 1.0);
        memory.failed("b", "Rejected", String::new(), at(0), 0.0);
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
    fn a_conflict_ends_after_five_restores_within_ten_minutes() {
        let mut memory = Memory::default();
        for second in [0, 1, 2, 3, 601, 602, 603, 604] {
            memory.restored("slow", at(second));
        }
        assert!(!memory.is_contested("slow"));
        memory.wrote("a", "5");
        for second in 0..5 {
            assert!(!memory.is_contested("a"));
            memory.restored("a", at(second));
            memory.wrote("a", "5");
        }
        assert!(memory.is_contested("a") && !memory.is_contested("b"));
        memory.wrote("a", "6");
        assert!(!memory.is_contested("a"), "other content");
        for second in [0, 1, 2, 3, 600] {
            memory.restored("just", at(second));
        }
        assert!(memory.is_contested("just"), "not longer than ten minutes");
        memory.wrote("just", "5");
        memory.failed("just", "Rejected", String::new(), at(0), 1.0);
        memory.removed("just");
        assert!(!memory.is_contested("just") && !memory.wrote_any("just"));
        assert!(memory.failure("just").is_none());
        memory.retain(|namespace| namespace != "a");
        assert!(!memory.has_written("a", "6"));
    }
}
