//! One leader's record of failed writes: the error of each object, and when it is retried. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use globalps_core::backoff::doubled;
use globalps_core::reasons::Reason;
use globalps_core::rollout::Refused;
use jiff::{SignedDuration, Timestamp};

/// A failure of this duration is reported: most are shorter, such as a conflict.
pub const LASTS: SignedDuration = SignedDuration::from_secs(10);
/// The API server has ended a request without a response by then.
const SETTLED_AFTER: SignedDuration = SignedDuration::from_secs(10);
/// Longest backoff while the API server is unreachable: it serves again for all objects at once.
const OUTAGE: Duration = Duration::from_secs(5);
/// Maximum number of failures in a message, and maximum length of each in characters.
const NAMED: usize = 5;
const LENGTH: usize = 500;

/// The object's title in messages, which identifies it among the failures.
pub fn title(kind: &str, name: &str) -> String {
    format!("{kind} `{name}`")
}

/// A time by the monotonic clock. It only compares with others of its kind: a wall clock that is set must neither suspend writes nor
/// end a wait.
pub fn steady(uptime: Duration) -> Timestamp {
    let uptime = SignedDuration::try_from(uptime).unwrap_or(SignedDuration::MAX);
    after(Timestamp::UNIX_EPOCH, uptime)
}

/// Whether the API server rejected a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response {
    /// The API server answered with an error.
    Rejected,
    /// No response in time, or none that says so. The write may take effect later.
    Missing,
    /// The API server is unreachable.
    Outage,
}

/// A failed write of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// CamelCase word for programs.
    pub reason: Reason,
    /// Message for humans, without content of a response.
    pub message: String,
    attempts: u32,
    /// When the first attempt failed.
    since: Timestamp,
    /// No attempt before this time.
    pub retry_at: Timestamp,
    /// The write may take effect until then.
    settled_at: Timestamp,
}

impl Failure {
    /// An earlier attempt may still take effect.
    pub fn is_open(&self, now: Timestamp) -> bool {
        now < self.settled_at
    }

    /// How long all attempts have failed.
    pub fn lasts_for(&self, now: Timestamp) -> SignedDuration {
        now.duration_since(self.since)
    }

    /// The effect on a member of a rollout.
    pub fn of_member(&self, now: Timestamp) -> Refused {
        Refused {
            backs_off: now < self.retry_at,
            lasts: self.lasts_for(now) >= LASTS,
        }
    }
}

/// Failed writes by object, each with its own backoff.
#[derive(Clone, Debug)]
pub struct Failures {
    by_object: BTreeMap<String, Failure>,
    /// First and longest backoff.
    backoff: (Duration, Duration),
    /// The time of the last call of [`Self::set_now`].
    now: Timestamp,
}

/// The backoff of a loop's own objects. It begins short: the API server may learn a moment later than the leader who leads.
impl Default for Failures {
    fn default() -> Self {
        Self::new(Duration::from_millis(100), Duration::from_secs(30))
    }
}

impl Failures {
    /// `first` and `longest`: the pauses between attempts.
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self {
            by_object: BTreeMap::new(),
            backoff: (first, longest),
            now: Timestamp::UNIX_EPOCH,
        }
    }

    /// A loop sets the time by its monotonic clock: a step of the wall clock must not suspend an object's writes.
    pub fn set_now(&mut self, uptime: Duration) -> Timestamp {
        self.now = steady(uptime);
        self.now
    }

    /// The time that was set last.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Whether every object's last write succeeded.
    pub fn is_empty(&self) -> bool {
        self.by_object.is_empty()
    }

    /// `object`: kind and name, as the failure was recorded.
    pub fn get(&self, object: &str) -> Option<&Failure> {
        self.by_object.get(object)
    }

    /// The failure of the object with this kind and name.
    pub fn of(&self, kind: &str, name: &str) -> Option<&Failure> {
        // Thousands of members ask in each plan.
        (!self.is_empty()).then(|| self.get(&title(kind, name)))?
    }

    /// Time of the next attempt that was not due at this time. Attempts that were due are made now, or are no longer needed.
    pub fn next_retry(&self, now: Timestamp) -> Option<Timestamp> {
        let retries = self.by_object.values().map(|failure| failure.retry_at);
        retries.filter(|at| *at > now).min()
    }

    /// When the next failure that was too recent at this time lasts long enough to be reported.
    pub fn next_report(&self, now: Timestamp) -> Option<Timestamp> {
        let failures = self.by_object.values();
        let times = failures.filter_map(|failure| failure.since.checked_add(LASTS).ok());
        times.filter(|at| *at > now).min()
    }

    /// `jitter`: from 0 to 1.
    pub fn failed(
        &mut self,
        object: &str,
        (reason, message): (Reason, String),
        response: Response,
        now: Timestamp,
        jitter: f64,
    ) {
        let known = self.by_object.get(object);
        let attempts = known.map_or(0, |known| known.attempts).saturating_add(1);
        let (first, mut longest) = self.backoff;
        if response == Response::Outage {
            longest = longest.min(OUTAGE);
        }
        let pause = doubled(first, longest, attempts - 1, jitter);
        let settled_at = match response {
            Response::Rejected => now,
            Response::Missing | Response::Outage => after(now, SETTLED_AFTER),
        };
        let failure = Failure {
            reason,
            message,
            attempts,
            since: known.map_or(now, |known| known.since),
            retry_at: now.checked_add(pause).unwrap_or(Timestamp::MAX),
            settled_at,
        };
        self.by_object.insert(object.to_owned(), failure);
    }

    /// The write has no response yet, and is not repeated before this time.
    pub fn waits(&mut self, object: &str, now: Timestamp, until: Timestamp) {
        let known = self.by_object.get(object);
        let failure = Failure {
            reason: Reason::Unavailable,
            message: "waiting for a response from the API server or its webhook".to_owned(),
            attempts: known.map_or(0, |known| known.attempts),
            since: known.map_or(now, |known| known.since),
            retry_at: until,
            settled_at: until,
        };
        self.by_object.insert(object.to_owned(), failure);
    }

    /// Simulates that this time has passed.
    #[cfg(any(test, feature = "testing"))]
    pub fn age(&mut self, time: SignedDuration) {
        for failure in self.by_object.values_mut() {
            for at in [
                &mut failure.since,
                &mut failure.retry_at,
                &mut failure.settled_at,
            ] {
                *at -= time;
            }
        }
    }

    /// The object's write succeeded, or it need not be written.
    pub fn forget(&mut self, object: &str) {
        self.by_object.remove(object);
    }

    /// Forgets the failures of all other objects.
    pub fn retain(&mut self, is_needed: impl Fn(&str) -> bool) {
        self.by_object.retain(|object, _| is_needed(object));
    }

    /// The failures of these objects that have lasted long enough to be reported: first the oldest, and how many more there are.
    pub fn messages(&self, is_of: impl Fn(&str) -> bool) -> Vec<String> {
        let now = self.now;
        let failures = self.by_object.iter();
        let mut failures: Vec<_> = failures
            .filter(|(object, failure)| failure.lasts_for(now) >= LASTS && is_of(object))
            .collect();
        failures.sort_by_key(|(object, failure)| (failure.since, *object));
        let named = failures.iter().take(NAMED).map(|(_, failure)| {
            let message: String = failure.message.chars().take(LENGTH).collect();
            message
        });
        let mut named: Vec<String> = named.collect();
        if failures.len() > NAMED {
            named.push(format!("and {} more", failures.len() - NAMED));
        }
        named
    }
}

/// The latest possible time if the sum is out of range.
pub fn after(now: Timestamp, pause: SignedDuration) -> Timestamp {
    now.checked_add(pause).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
    }

    fn failures() -> Failures {
        Failures::new(Duration::from_secs(1), Duration::from_mins(5))
    }

    fn fail(failures: &mut Failures, object: &str, response: Response, second: i64) {
        let what = (Reason::Rejected, format!("apply {object}: no"));
        failures.failed(object, what, response, at(second), 1.0);
    }

    #[test]
    fn a_backoff_doubles_up_to_its_limit_and_ends_with_a_success() {
        for (response, longest) in [
            (Response::Rejected, 300),
            (Response::Missing, 300),
            (Response::Outage, 5),
        ] {
            let mut failures = failures();
            let mut pauses = Vec::new();
            for _ in 0..100 {
                fail(&mut failures, "a", response, 0);
                let failure = failures.get("a").cloned();
                pauses.push(failure.map_or(0, |f| f.retry_at.duration_since(at(0)).as_secs()));
            }
            assert_eq!(pauses[..3], [1, 2, 4], "{response:?}");
            assert_eq!(pauses[99], longest, "{response:?}");
            failures.forget("a");
            assert!(failures.get("a").is_none());
        }
    }

    #[test]
    fn only_a_lasting_failure_is_reported() {
        let mut failures = failures();
        for second in [0, 3, 9] {
            fail(&mut failures, "Role `a`", Response::Rejected, second);
        }
        let messages = |failures: &mut Failures, second| {
            failures.set_now(Duration::from_secs(second));
            failures.messages(|_| true)
        };
        assert!(messages(&mut failures, 9).is_empty());
        assert_eq!(failures.next_report(at(9)), Some(at(10)));
        assert_eq!(messages(&mut failures, 10), ["apply Role `a`: no"]);
        assert_eq!(failures.next_report(at(10)), None);
        let others = failures.messages(|object| object != "Role `a`");
        assert!(others.is_empty());
        for number in 0..9 {
            fail(
                &mut failures,
                &format!("Role `{number}`"),
                Response::Rejected,
                1,
            );
        }
        let expected = [
            "`a`: no",
            "`0`: no",
            "`1`: no",
            "`2`: no",
            "`3`: no",
            "and 5 more",
        ];
        let messages = messages(&mut failures, 20);
        assert_eq!(messages.len(), expected.len());
        for (message, end) in messages.iter().zip(expected) {
            assert!(message.ends_with(end), "{message}");
        }
    }

    #[test]
    fn a_write_without_a_response_may_take_effect_for_a_while() {
        for (response, is_open) in [
            (Response::Rejected, false),
            (Response::Missing, true),
            (Response::Outage, true),
        ] {
            let mut failures = failures();
            fail(&mut failures, "a", response, 0);
            let failure = failures.get("a").cloned();
            let is = |second| failure.as_ref().is_some_and(|it| it.is_open(at(second)));
            assert_eq!((is(9), is(10)), (is_open, false), "{response:?}");
        }
    }
}
