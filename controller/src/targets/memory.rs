//! What one leader remembers of namespaces between plans: failed writes with their backoff, and how often it restored changes by
//! other clients. Pure.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

/// First and longest backoff after a failed write.
const BACKOFF: (SignedDuration, SignedDuration) =
    (SignedDuration::from_secs(1), SignedDuration::from_mins(5));
/// An object is restored this often within [`CONFLICT_WINDOW`], then no longer.
const RESTORES: u32 = 5;
const CONFLICT_WINDOW: SignedDuration = SignedDuration::from_mins(10);

/// A random share of a pause, from 0 to 1.
pub(crate) fn jitter(now: Timestamp) -> f64 {
    f64::from(now.subsec_nanosecond().unsigned_abs() % 1000) / 1000.0
}

/// A write that the API server rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    attempts: u32,
    pub(crate) retry_at: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct Restores {
    count: u32,
    since: Timestamp,
}

/// Keys are namespaces, and service accounts as `namespace/name`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    failures: BTreeMap<String, Failure>,
    restores: BTreeMap<String, Restores>,
    /// What this leader has written: the content's identity; empty for a reference.
    written: BTreeMap<String, Box<str>>,
}

impl Memory {
    pub(crate) fn failure(&self, key: &str) -> Option<&Failure> {
        self.failures.get(key)
    }

    /// Time of the next future attempt. Attempts that are due are made now, or are no longer needed.
    pub(crate) fn next_retry(&self, now: Timestamp) -> Option<Timestamp> {
        let retries = self.failures.values().map(|failure| failure.retry_at);
        retries.filter(|at| *at > now).min()
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
        let attempts = self.failures.get(key).map_or(0, |failure| failure.attempts) + 1;
        let (first, longest) = BACKOFF;
        let doubled = first.saturating_mul(2_i32.saturating_pow(attempts.saturating_sub(1)));
        let pause = doubled.min(longest).mul_f64(0.5 + jitter / 2.0);
        let failure = Failure {
            reason,
            message,
            attempts,
            retry_at: now + pause,
        };
        self.failures.insert(key.to_owned(), failure);
    }

    /// The write has no response yet, and is not repeated before this time.
    pub(crate) fn waits(&mut self, key: &str, until: Timestamp) {
        let attempts = self.failures.get(key).map_or(0, |failure| failure.attempts);
        let failure = Failure {
            reason: "Unavailable",
            message: "waiting for a response from the API server or its webhook".to_owned(),
            attempts,
            retry_at: until,
        };
        self.failures.insert(key.to_owned(), failure);
    }

    /// The write succeeded.
    pub(crate) fn wrote(&mut self, key: &str, what: &str) {
        self.failures.remove(key);
        let before = self.written.insert(key.to_owned(), what.into());
        if before.is_some_and(|before| *before != *what) {
            self.restores.remove(key);
        }
    }

    pub(crate) fn removed(&mut self, key: &str) {
        self.failures.remove(key);
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
        let is_there = |key: &String| is_there(key.split('/').next().unwrap_or_default());
        self.failures.retain(|key, _| is_there(key));
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
    fn a_backoff_doubles_up_to_its_limit_and_ends_with_a_success() {
        let mut memory = Memory::default();
        let mut pauses = Vec::new();
        for _ in 0..12 {
            memory.failed("a", "Rejected", String::new(), at(0), 1.0);
            let failure = memory.failure("a").cloned();
            pauses.push(failure.map_or(0, |f| f.retry_at.duration_since(at(0)).as_secs()));
        }
        assert_eq!(pauses[..5], [1, 2, 4, 8, 16]);
        assert_eq!(pauses[11], 300);
        memory.failed("b", "Rejected", String::new(), at(0), 0.0);
        let half = at(0) + SignedDuration::from_millis(500);
        assert_eq!(memory.next_retry(at(0)), Some(half));
        assert_eq!(memory.next_retry(half), Some(at(300)));
        assert_eq!(
            memory.next_retry(at(300)),
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
