//! How long this controller may write. A term that is over, or whose end is near, lets no write begin, and gives up on
//! those under way.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use hyper::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tower::{BoxError, Service};

use crate::leader::election::DURATION;
use crate::telemetry::clock;
use crate::telemetry::health::Health;

/// So long before another may lead, the last write has ended or is given up: what the API server still works on then, and
/// clocks that do not run alike, have this time.
const SETTLE: Duration = Duration::from_secs(2);
/// What a write that begins has before it at least.
const WRITE: Duration = Duration::from_secs(2);

/// The time for which the Lease is surely ours.
#[derive(Debug, Default)]
pub(crate) struct Term {
    /// Milliseconds of [`clock::now`].
    end: AtomicU64,
    closed: AtomicBool,
    /// Writes under way.
    writes: watch::Sender<u32>,
}

impl Term {
    /// The Lease was renewed by a call that was begun at this time, by [`clock::now`].
    pub(crate) fn renewed(&self, sent: Duration) {
        let end = (sent + DURATION).saturating_sub(SETTLE);
        let end = u64::try_from(end.as_millis()).unwrap_or(u64::MAX);
        self.end.store(end, Ordering::Relaxed);
    }

    /// No further write; see [`Self::settled`].
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Waits until no write is under way.
    pub(crate) async fn settled(&self) {
        // The sender is `self`, so it does not end.
        let _ = self
            .writes
            .subscribe()
            .wait_for(|writes| *writes == 0)
            .await;
    }

    /// What is left of the time in which writes may end.
    fn left(&self, now: Duration) -> Duration {
        Duration::from_millis(self.end.load(Ordering::Relaxed)).saturating_sub(now)
    }

    fn may_begin(&self, now: Duration) -> bool {
        !self.closed.load(Ordering::Relaxed) && self.left(now) >= WRITE
    }

    /// Whether a write may begin at this moment.
    pub(crate) fn is_open(&self) -> bool {
        self.may_begin(clock::now())
    }
}

/// The client of a term: what it is asked to write it writes only in its time.
pub(crate) fn client(inner: &Client, term: &Arc<Term>, health: &Arc<Health>) -> Client {
    let namespace = inner.default_namespace().to_owned();
    let bound = Bound {
        inner: inner.clone(),
        term: Arc::clone(term),
        health: Arc::clone(health),
    };
    Client::new(bound, namespace)
}

struct Bound {
    inner: Client,
    term: Arc<Term>,
    health: Arc<Health>,
}

#[derive(Debug, thiserror::Error)]
#[error("this controller does not surely lead any more")]
struct Over;

impl Service<Request<Body>> for Bound {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (client, term) = (self.inner.clone(), Arc::clone(&self.term));
        let health = Arc::clone(&self.health);
        Box::pin(async move {
            if request.method() == Method::GET {
                return Ok(client.send(request).await?);
            }
            let response = write(&term, client.send(request)).await?;
            // A round of many writes gets on too.
            health.beat();
            Ok(response)
        })
    }
}

async fn write<T>(
    term: &Term,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, BoxError> {
    if !term.is_open() {
        return Err(Over.into());
    }
    let _under_way = UnderWay::new(&term.writes);
    let mut call = pin!(call);
    let mut guarded = pin!(poll_fn(|context| {
        // Looked at before each step, not only when a timer fires: after a freeze the call may be ready to go on too.
        if term.left(clock::now()).is_zero() {
            return Poll::Ready(Err(Over.into()));
        }
        call.as_mut().poll(context).map_err(BoxError::from)
    }));
    loop {
        let end = Instant::now() + term.left(clock::now());
        tokio::select! {
            biased;
            done = &mut guarded => return done,
            // The term may have been renewed meanwhile.
            () = sleep_until(end) => {}
        }
    }
}

struct UnderWay<'a>(&'a watch::Sender<u32>);

impl<'a> UnderWay<'a> {
    fn new(writes: &'a watch::Sender<u32>) -> Self {
        writes.send_modify(|writes| *writes += 1);
        Self(writes)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|writes| *writes -= 1);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_last_write_has_ended_before_the_lease_may_be_anothers() {
        let term = Term::default();
        assert!(!term.may_begin(at(100)), "nothing before the first renewal");
        term.renewed(at(100));
        assert!(term.may_begin(at(100)) && term.may_begin(at(106)));
        assert!(!term.may_begin(at(107)), "too late to begin");
        assert!(!term.left(at(107)).is_zero() && term.left(at(108)).is_zero());
        assert!(at(108) + SETTLE <= at(100) + DURATION);
        term.renewed(at(103));
        assert!(term.may_begin(at(107)), "a renewal prolongs it");
        term.close();
        assert!(!term.may_begin(at(104)), "a closed one stays closed");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_write_is_made_in_the_term_only_and_given_up_at_its_end() {
        let term = Term::default();
        assert!(write(&term, ready(Ok(1))).await.is_err(), "no term yet");
        term.renewed(clock::now());
        assert_eq!(write(&term, ready(Ok(1))).await.ok(), Some(1));

        // 100 ms are left to end, so that one that has begun is cut off.
        let almost = clock::now() + WRITE + Duration::from_millis(100) + SETTLE;
        term.renewed(almost.saturating_sub(DURATION));
        let stuck = write(&term, pending::<Result<(), _>>());
        let mut stuck = pin!(stuck);
        assert!(futures::poll!(stuck.as_mut()).is_pending());
        assert_eq!(*term.writes.borrow(), 1);
        term.renewed(clock::now().saturating_sub(DURATION));
        assert!(stuck.await.is_err(), "a term that is over cuts it off");
        term.settled().await;
    }

    /// As after a freeze: the call could go on, and must not.
    #[tokio::test(flavor = "current_thread")]
    async fn what_could_go_on_after_the_end_does_not() {
        let term = Term::default();
        term.renewed(clock::now());
        let mut asked = 0;
        let call = poll_fn(|_| {
            asked += 1;
            if asked == 1 {
                Poll::Pending
            } else {
                Poll::Ready(Ok(()))
            }
        });
        {
            let mut writing = pin!(write(&term, call));
            assert!(futures::poll!(writing.as_mut()).is_pending());
            term.renewed(clock::now().saturating_sub(DURATION));
            assert!(futures::poll!(writing.as_mut()).is_ready());
        }
        assert_eq!(asked, 1, "it was not let go on");
    }
}
