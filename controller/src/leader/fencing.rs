//! The fencing token of the leader: no write starts near the end of the lease, and writes in flight are aborted at its end.

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
use tower::{BoxError, Layer, Service, service_fn};

use crate::telemetry::clock;
use crate::telemetry::health::Health;

/// The token expires this long before another controller may lead: a margin for requests that the API server still processes, and
/// for clock drift.
const SETTLE: Duration = Duration::from_secs(2);
/// Time after the last renewal when another controller may take the Lease.
pub(crate) const LEASE_DURATION: Duration = Duration::from_secs(10);
/// Minimum time for a write: none starts later than this before the end.
const WRITE: Duration = Duration::from_secs(2);

/// Valid while this controller certainly holds the Lease.
#[derive(Debug, Default)]
pub(crate) struct FencingToken {
    /// Milliseconds of [`clock::now`].
    end: AtomicU64,
    closed: AtomicBool,
    /// Writes in flight.
    writes: watch::Sender<u32>,
}

impl FencingToken {
    /// Records a renewal of the Lease; `sent`: the time of [`clock::now`] before the request.
    pub(crate) fn renewed(&self, sent: Duration) {
        let end = (sent + LEASE_DURATION).saturating_sub(SETTLE);
        let end = u64::try_from(end.as_millis()).unwrap_or(u64::MAX);
        self.end.store(end, Ordering::Relaxed);
    }

    /// Rejects all further writes; see [`Self::settled`].
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Waits until no write is in flight.
    pub(crate) async fn settled(&self) {
        // An error means a dropped sender, and `self` is the sender.
        let _ = self
            .writes
            .subscribe()
            .wait_for(|writes| *writes == 0)
            .await;
    }

    /// Time until the token expires.
    fn left(&self, now: Duration) -> Duration {
        Duration::from_millis(self.end.load(Ordering::Relaxed)).saturating_sub(now)
    }

    fn may_begin(&self, now: Duration) -> bool {
        !self.closed.load(Ordering::Relaxed) && self.left(now) >= WRITE
    }

    /// Whether a write may start now.
    pub(crate) fn is_open(&self) -> bool {
        self.may_begin(clock::now())
    }
}

/// A client that writes only while the token is valid. Reads are not restricted.
pub(crate) fn fenced_client(
    inner: &Client,
    token: &Arc<FencingToken>,
    health: &Arc<Health>,
) -> Client {
    let namespace = inner.default_namespace().to_owned();
    let inner = inner.clone();
    let send = service_fn(move |request| {
        let inner = inner.clone();
        async move { inner.send(request).await.map_err(BoxError::from) }
    });
    let fence = Fence {
        token: Arc::clone(token),
        health: Arc::clone(health),
    };
    Client::new(fence.layer(send), namespace)
}

/// The layer of a client that lets writes through only while the token is valid.
#[derive(Clone)]
pub(crate) struct Fence {
    pub(crate) token: Arc<FencingToken>,
    pub(crate) health: Arc<Health>,
}

impl<S> Layer<S> for Fence {
    type Service = Fenced<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Fenced {
            inner,
            fence: self.clone(),
        }
    }
}

pub(crate) struct Fenced<S> {
    inner: S,
    fence: Fence,
}

#[derive(Debug, thiserror::Error)]
#[error("this controller may no longer be the leader")]
struct Expired;

impl<S, B> Service<Request<Body>> for Fenced<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<B>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let is_write = request.method() != Method::GET;
        if is_write && !self.fence.token.is_open() {
            return Box::pin(async { Err(Expired.into()) });
        }
        let call = self.inner.call(request);
        let fence = self.fence.clone();
        Box::pin(async move {
            if !is_write {
                return call.await.map_err(Into::into);
            }
            let response = write(&fence.token, call).await?;
            // A long reconcile makes progress with each write.
            fence.health.beat();
            Ok(response)
        })
    }
}

async fn write<T, E: Into<BoxError>>(
    token: &FencingToken,
    call: impl Future<Output = Result<T, E>>,
) -> Result<T, BoxError> {
    if !token.is_open() {
        return Err(Expired.into());
    }
    let _in_flight = InFlight::new(&token.writes);
    let mut call = pin!(call);
    let mut guarded = pin!(poll_fn(|context| {
        // Checked before each poll, not only when the timer fires: after the process was frozen, the call may be ready as well.
        if token.left(clock::now()).is_zero() {
            return Poll::Ready(Err(Expired.into()));
        }
        call.as_mut().poll(context).map_err(Into::into)
    }));
    loop {
        let end = Instant::now() + token.left(clock::now());
        tokio::select! {
            biased;
            done = &mut guarded => return done,
            // The token may have been renewed in the meantime.
            () = sleep_until(end) => {}
        }
    }
}

struct InFlight<'a>(&'a watch::Sender<u32>);

impl<'a> InFlight<'a> {
    fn new(writes: &'a watch::Sender<u32>) -> Self {
        writes.send_modify(|writes| *writes += 1);
        Self(writes)
    }
}

impl Drop for InFlight<'_> {
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
    fn the_last_write_ends_before_another_controller_may_lead() {
        let token = FencingToken::default();
        assert!(
            !token.may_begin(at(100)),
            "nothing before the first renewal"
        );
        token.renewed(at(100));
        assert!(token.may_begin(at(100)) && token.may_begin(at(106)));
        assert!(!token.may_begin(at(107)), "too late to begin");
        assert!(!token.left(at(107)).is_zero() && token.left(at(108)).is_zero());
        assert!(at(108) + SETTLE <= at(100) + LEASE_DURATION);
        token.renewed(at(103));
        assert!(token.may_begin(at(107)), "a renewal extends it");
        token.close();
        assert!(!token.may_begin(at(104)), "a closed one stays closed");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_write_needs_a_valid_token_and_is_aborted_at_its_end() {
        let token = FencingToken::default();
        let one = || ready(Ok::<_, BoxError>(1));
        assert!(write(&token, one()).await.is_err(), "no token yet");
        token.renewed(clock::now());
        assert_eq!(write(&token, one()).await.ok(), Some(1));

        // 100 ms are left, so a write that has started is aborted.
        let almost = clock::now() + WRITE + Duration::from_millis(100) + SETTLE;
        token.renewed(almost.saturating_sub(LEASE_DURATION));
        let stuck = write(&token, pending::<Result<(), BoxError>>());
        let mut stuck = pin!(stuck);
        assert!(futures::poll!(stuck.as_mut()).is_pending());
        assert_eq!(*token.writes.borrow(), 1);
        token.renewed(clock::now().saturating_sub(LEASE_DURATION));
        assert!(stuck.await.is_err(), "an expired token aborts it");
        token.settled().await;
    }

    /// For example after a freeze: the call could continue, but must not.
    #[tokio::test(flavor = "current_thread")]
    async fn a_write_that_could_continue_after_the_end_does_not() {
        let token = FencingToken::default();
        token.renewed(clock::now());
        let mut polls = 0;
        let call = poll_fn(|_| {
            polls += 1;
            if polls == 1 {
                Poll::Pending
            } else {
                Poll::Ready(Ok::<_, BoxError>(()))
            }
        });
        {
            let mut writing = pin!(write(&token, call));
            assert!(futures::poll!(writing.as_mut()).is_pending());
            token.renewed(clock::now().saturating_sub(LEASE_DURATION));
            assert!(futures::poll!(writing.as_mut()).is_ready());
        }
        assert_eq!(polls, 1, "it was not polled again");
    }
}
