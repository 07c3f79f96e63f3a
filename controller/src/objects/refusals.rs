//! Performs the writes of one loop. A failed one ends nothing else: it is remembered with its object, reported, and repeated with
//! its own backoff.

use globalps_core::reasons::Reason;
use globalps_planner::refused::{Failures, Response};

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use globalps_runtime::backoff::{Backoff, random};
use jiff::Timestamp;
use tokio::time::{Instant, timeout};

use super::apply::ApplyError;
use super::namespaced::Refusal;
use crate::telemetry::clock;

/// All writes of one reconcile together wait this long for responses that don't come.
const PATIENCE: Duration = Duration::from_secs(10);
/// Each write waits at least this long.
const LEAST: Duration = Duration::from_secs(1);
/// Maximum number of writes in flight; each uses a connection.
const CONCURRENT: usize = 16;
/// The writes of one call start within this time, so that events do not wait for long.
const STARTING: Duration = Duration::from_secs(1);
/// No more writes of one call start after this many failures: thousands may fail for the same reason.
const FAILING: usize = 16;
/// Pauses between reconciles in which writes fail.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(2));

/// Performs writes, and remembers those that failed.
#[derive(Default)]
pub(crate) struct Refusals {
    pub(crate) failures: Failures,
    /// When this reconcile began.
    begun: Timestamp,
    /// Objects of the writes in this reconcile, including those whose next attempt is not due.
    needed: BTreeSet<String>,
    /// What is left of [`PATIENCE`].
    patience: Duration,
    /// Failed writes in this reconcile.
    failed: usize,
    /// The time for starting writes was over before all of them were started.
    has_left: bool,
    /// Since the first of consecutive reconciles with failed writes.
    pauses: Option<Backoff>,
}

/// The writes of one call.
pub(crate) struct Written<T> {
    /// The results of those that succeeded.
    pub(crate) done: Vec<T>,
    /// All of them succeeded.
    pub(crate) is_complete: bool,
}

impl Refusals {
    /// Call it before the writes of each reconcile.
    pub(crate) fn begin(&mut self) {
        self.begun = self.failures.set_now(clock::now());
        self.needed.clear();
        self.patience = PATIENCE;
        self.failed = 0;
        self.has_left = false;
    }

    /// Forgets the failures of objects that are no longer written, unless this says that they still need to be. Returns the time
    /// until the next reconcile, if failures require one.
    pub(crate) fn end(&mut self, is_needed: impl Fn(&str) -> bool) -> Option<Duration> {
        self.failures
            .retain(|object| self.needed.contains(object) || is_needed(object));
        let now = self.failures.set_now(clock::now());
        // What became due since the beginning may have been skipped as not due yet.
        let times = [
            self.failures.next_retry(self.begun),
            self.failures.next_report(self.begun),
        ];
        let next = times.into_iter().flatten().min();
        let next = next.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default());
        if self.failed == 0 {
            self.pauses = None;
            return if self.has_left {
                Some(Duration::ZERO)
            } else {
                next
            };
        }
        // The first time, others get the slots of what was not written immediately.
        let pause = self.pauses.as_mut().map_or(Duration::ZERO, Backoff::pause);
        self.pauses.get_or_insert(PAUSES);
        Some(next.map_or(pause, |next| next.min(pause)))
    }

    /// Whether every write of this reconcile succeeded so far.
    pub(crate) fn is_clean(&self) -> bool {
        self.failed == 0
    }

    /// The last write of this object failed.
    pub(crate) fn has(&self, object: &str) -> bool {
        self.failures.get(object).is_some()
    }

    /// Performs one write. `None`: it failed, or its next attempt is not due.
    pub(crate) async fn one<T>(
        &mut self,
        object: String,
        call: impl Future<Output = Result<T, ApplyError>>,
    ) -> Option<T> {
        self.all([(object, call)]).await.done.pop()
    }

    /// Performs independent writes concurrently.
    pub(crate) async fn all<T, F>(
        &mut self,
        calls: impl IntoIterator<Item = (String, F)>,
    ) -> Written<T>
    where
        F: Future<Output = Result<T, ApplyError>>,
    {
        let begun = Instant::now();
        let now = self.failures.set_now(clock::now());
        let mut calls = calls.into_iter();
        let mut in_flight = FuturesUnordered::new();
        let mut done = Vec::new();
        let mut is_complete = true;
        let mut failed = 0;
        let most = self.patience.max(LEAST);
        loop {
            while in_flight.len() < CONCURRENT && failed < FAILING && begun.elapsed() < STARTING {
                let Some((object, call)) = calls.next() else {
                    break;
                };
                self.needed.insert(object.clone());
                let failure = self.failures.get(&object);
                if failure.is_some_and(|failure| now < failure.retry_at) {
                    is_complete = false;
                    continue;
                }
                in_flight.push(async move { (object, timeout(most, call).await) });
            }
            let Some((object, result)) = in_flight.next().await else {
                break;
            };
            let result = result.unwrap_or_else(|_| {
                Err(ApplyError::Timeout {
                    action: "write",
                    object: object.clone(),
                })
            });
            match result {
                Ok(written) => {
                    self.failures.forget(&object);
                    done.push(written);
                }
                Err(error) => {
                    failed += 1;
                    is_complete = false;
                    self.failed += 1;
                    if error.response() == Response::Missing {
                        self.patience = self.patience.saturating_sub(begun.elapsed());
                    }
                    self.failed(&object, &error);
                }
            }
        }
        let left = calls.map(|(object, _)| self.needed.insert(object)).count();
        self.has_left |= left > 0;
        Written {
            done,
            is_complete: is_complete && left == 0,
        }
    }

    fn failed(&mut self, object: &str, error: &ApplyError) {
        let reason = match error.refusal() {
            Refusal::Because(reason) => reason,
            Refusal::Gone => Reason::NotFound,
        };
        let now = self.failures.set_now(clock::now());
        let what = (reason, error.to_string());
        self.failures
            .failed(object, what, error.response(), now, random());
        tracing::warn!(%error, reason = reason.as_str(), "a write failed; everything else continues");
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures::FutureExt as _;
    use futures::future::BoxFuture;

    use super::*;

    type Call = BoxFuture<'static, Result<&'static str, ApplyError>>;

    fn refused() -> Call {
        let status = kube::core::Status::failure("admission webhook denied it", "Forbidden");
        let source = kube::Error::Api(status.with_code(403).boxed());
        let error = ApplyError::Api {
            action: "apply",
            object: "Role `a`".to_owned(),
            source,
        };
        ready(Err(error)).boxed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_write_delays_no_other_and_is_repeated_later() {
        let never = || pending().boxed() as Call;
        let done = || ready(Ok("done")).boxed() as Call;
        let mut refusals = Refusals::default();
        refusals.begin();
        let begun = Instant::now();
        let calls = [("a", refused()), ("b", never()), ("c", done())];
        let calls = calls.map(|(object, call)| (object.to_owned(), call));
        let written = refusals.all(calls).await;
        assert_eq!((written.done, written.is_complete), (vec!["done"], false));
        assert_eq!(begun.elapsed(), PATIENCE, "for the one without a response");
        assert!(refusals.has("a") && refusals.has("b") && !refusals.has("c"));
        assert_eq!(refusals.one("d".to_owned(), never()).await, None);
        assert_eq!(begun.elapsed(), PATIENCE + LEAST, "the others wait less");
        assert_eq!(refusals.one("a".to_owned(), done()).await, None, "not due");
        assert_eq!(refusals.end(|_| false), Some(Duration::ZERO));
        refusals.begin();
        assert_eq!(refusals.one("d".to_owned(), done()).await, None, "not due");
        refusals.end(|object| object == "b");
        assert!(refusals.has("b") && refusals.has("d"));
        assert!(!refusals.has("a"), "it is no longer written");
    }

    #[tokio::test]
    async fn an_attempt_due_during_a_reconcile_is_made_in_the_next() {
        let done = || ready(Ok("done")).boxed() as Call;
        let mut refusals = Refusals::default();
        refusals.begin();
        assert_eq!(refusals.one("a".to_owned(), refused()).await, None);
        refusals.end(|_| false);
        refusals.begin();
        assert_eq!(refusals.one("a".to_owned(), done()).await, None, "not due");
        std::thread::sleep(Duration::from_millis(110));
        assert_eq!(refusals.end(|_| false), Some(Duration::ZERO), "it is now");
        refusals.begin();
        assert_eq!(refusals.one("a".to_owned(), done()).await, Some("done"));
        assert_eq!(refusals.end(|_| false), None);
    }

    #[tokio::test]
    async fn writes_not_started_in_time_start_in_the_next_reconcile() {
        let call = |number: usize| {
            let call = async move {
                if number == 0 {
                    std::thread::sleep(STARTING);
                }
                Ok("done")
            };
            (number.to_string(), call.boxed() as Call)
        };
        let mut refusals = Refusals::default();
        refusals.begin();
        let written = refusals.all((0..=CONCURRENT).map(call)).await;
        assert!(!written.is_complete);
        assert_eq!(written.done.len(), CONCURRENT);
        assert_eq!(refusals.end(|_| false), Some(Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn thousands_of_writes_failing_alike_are_few_requests() {
        let mut refusals = Refusals::default();
        refusals.begin();
        let calls = (0..5000).map(|number| (format!("Role `{number}`"), refused()));
        let written = refusals.all(calls).await;
        assert!(!written.is_complete);
        assert!(
            refusals.failed < FAILING + CONCURRENT,
            "{}",
            refusals.failed
        );
        assert_eq!(refusals.end(|_| false), Some(Duration::ZERO));
        refusals.failed = 1;
        // On a busy machine, some of them are due by now.
        refusals.failures = Failures::default();
        let pause = refusals.end(|_| true).unwrap_or_default();
        assert!(
            pause > Duration::ZERO && pause <= Duration::from_secs(2),
            "{pause:?}"
        );
    }
}
