//! Limits on responses of another cluster, whose API server is not trusted. An endless response could exhaust this process's
//! memory, and endless events or requests its CPU.

use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::future::BoxFuture;
use globalps_runtime::bounds::{self, is_watch};
use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use hyper::{Request, Response};
use kube::client::Body;
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tower::{BoxError, Layer, Service};

/// Maximum size of a response, and of an event of a watch, in bytes. etcd accepts objects of up to 1.5 MiB, and each request here
/// is for one object.
pub(super) const MAX_SIZE: usize = 2 << 20;
/// Maximum duration of a response. A watch has no limit.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes per second that one client reads, after an initial burst worth this time. Each request counts as [`REQUEST`] bytes in
/// addition to its response.
const RATE: u32 = 512 << 10;
const BURST: Duration = Duration::from_secs(2);
const REQUEST: usize = 8 << 10;

/// Bytes of responses that all clients of one namespace hold at the same time, and of each response before it counts.
const TOGETHER: usize = 32 << 20;
const SMALL: usize = 16 << 10;
/// Bytes per second that they read together.
const RATE_TOGETHER: u32 = 16 << 20;

#[derive(Debug, thiserror::Error)]
#[error("a response of more than {} KiB, while others in its namespace have {} MiB", SMALL >> 10, TOGETHER >> 20)]
struct NoRoom;

#[derive(Debug, thiserror::Error)]
#[error("the response did not end within {} s: timed out", TIMEOUT.as_secs())]
struct TooSlow;

/// The memory that the clients of a namespace share: the hub connects to thousands of clusters, all of which may belong
/// to one attacker.
#[derive(Default)]
pub(crate) struct Room {
    held: AtomicUsize,
    throttle: Throttle,
}

/// Client layer that limits responses.
#[derive(Clone, Default)]
pub(crate) struct Bounds {
    pub(crate) room: Arc<Room>,
}

impl<S> Layer<S> for Bounds {
    type Service = BoundedService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        BoundedService {
            inner,
            throttle: Throttle::default(),
            room: Arc::clone(&self.room),
            pause: None,
        }
    }
}

/// The time at which everything read so far would have been read at a rate.
#[derive(Clone, Default)]
struct Throttle(Arc<Mutex<Option<Instant>>>);

impl Throttle {
    /// Adds these bytes, and returns when the next ones may be read.
    fn after(&self, bytes: usize, rate: u32) -> Instant {
        let now = Instant::now();
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let time = Duration::from_secs(1).mul_f64(f64::from(bytes) / f64::from(rate));
        let mut paid = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let until = paid.map_or(now, |until| until.max(now)) + time;
        *paid = Some(until);
        until.checked_sub(BURST).map_or(now, |at| at.max(now))
    }
}

fn pause(until: Instant) -> Option<Pin<Box<Sleep>>> {
    (until > Instant::now()).then(|| Box::pin(sleep_until(until)))
}

pub(crate) struct BoundedService<S> {
    inner: S,
    throttle: Throttle,
    room: Arc<Room>,
    /// Delay before the next request.
    pause: Option<Pin<Box<Sleep>>>,
}

impl<S, B> Service<Request<Body>> for BoundedService<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<BoundedBody<B>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(context));
            self.pause = None;
        }
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let is_watch = is_watch(&request);
        let (throttle, room) = (self.throttle.clone(), Arc::clone(&self.room));
        self.pause = pause(throttle.after(REQUEST, RATE));
        let call = self.inner.call(request);
        Box::pin(async move {
            let response = call.await.map_err(Into::into)?;
            Ok(response.map(|body| BoundedBody::new(body, (throttle, room), is_watch)))
        })
    }
}

/// A body that ends with an error if it exceeds a limit.
pub(crate) struct BoundedBody<B> {
    inner: bounds::Bounded<B>,
    /// `None`: the body of a watch.
    end: Option<Pin<Box<Sleep>>>,
    throttle: Throttle,
    room: Arc<Room>,
    /// How much of the room it holds.
    held: usize,
    /// Delay before the next read.
    pause: Option<Pin<Box<Sleep>>>,
}

impl<B> BoundedBody<B> {
    fn new(inner: B, (throttle, room): (Throttle, Arc<Room>), is_watch: bool) -> Self {
        Self {
            inner: bounds::Bounded::new(inner, MAX_SIZE, is_watch),
            end: (!is_watch).then(|| Box::pin(sleep(TIMEOUT))),
            throttle,
            room,
            held: 0,
            pause: None,
        }
    }

    fn add(&mut self, data: &[u8]) -> Result<(), NoRoom> {
        if !self.hold(self.inner.used().saturating_sub(SMALL)) {
            return Err(NoRoom);
        }
        let own = self.throttle.after(data.len(), RATE);
        let together = self.room.throttle.after(data.len(), RATE_TOGETHER);
        self.pause = pause(own.max(together));
        Ok(())
    }

    /// Whether the room has space for this much of it.
    fn hold(&mut self, bytes: usize) -> bool {
        let held = &self.room.held;
        let before = std::mem::replace(&mut self.held, bytes);
        held.fetch_sub(before, Relaxed);
        held.fetch_add(bytes, Relaxed).saturating_add(bytes) <= TOGETHER || bytes == 0
    }
}

impl<B> Drop for BoundedBody<B> {
    fn drop(&mut self) {
        self.hold(0);
    }
}

impl<B> HttpBody for BoundedBody<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if let Some(end) = &mut this.end
            && end.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Some(Err(TooSlow.into())));
        }
        if let Some(pause) = &mut this.pause {
            ready!(pause.as_mut().poll(context));
            this.pause = None;
        }
        let frame = ready!(Pin::new(&mut this.inner).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            this.add(data)?;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// The same part, this many times; then the body stays open.
    struct Parts(Bytes, usize);

    impl HttpBody for Parts {
        type Data = Bytes;
        type Error = BoxError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
            if self.1 == 0 {
                return Poll::Pending;
            }
            self.1 -= 1;
            Poll::Ready(Some(Ok(Frame::data(self.0.clone()))))
        }
    }

    /// Parts of 64 KiB.
    fn parts(byte: u8, number: usize) -> Parts {
        Parts(vec![byte; 1 << 16].into(), number)
    }

    /// Bytes until the error, and the error.
    async fn read(mut body: BoundedBody<Parts>) -> (usize, String) {
        let mut bytes = 0;
        loop {
            let frame = poll_fn(|context| Pin::new(&mut body).poll_frame(context));
            match frame.await.unwrap() {
                Ok(frame) => bytes += frame.data_ref().unwrap().len(),
                Err(error) => return (bytes, error.to_string()),
            }
        }
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn an_endless_response_is_cut() {
        for (case, byte, is_watch) in [
            ("a response", b'x', false),
            ("a response of empty lines", b'\n', false),
            ("an event", b'x', true),
        ] {
            let body = BoundedBody::new(parts(byte, usize::MAX), Default::default(), is_watch);
            let (bytes, error) = read(body).await;
            assert_eq!(
                (bytes, error.as_str()),
                (MAX_SIZE, "a response of more than 2 MiB"),
                "{case}"
            );
        }
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn many_responses_together_are_limited_and_small_ones_are_not() {
        let room = Arc::<Room>::default();
        let body = |room: &Arc<Room>, size| {
            let part = Parts(vec![b'x'; size].into(), 1);
            BoundedBody::new(part, (Throttle::default(), Arc::clone(room)), true)
        };
        let mut held = Vec::new();
        let mut end = String::new();
        while end.is_empty() {
            let mut body = body(&room, MAX_SIZE);
            let frame = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
            match frame.unwrap() {
                Ok(_) => held.push(body),
                Err(error) => end = error.to_string(),
            }
        }
        assert_eq!(held.len(), TOGETHER / (MAX_SIZE - SMALL));
        assert!(end.starts_with("a response of more than"), "{end}");
        for (size, room) in [(SMALL, &room), (MAX_SIZE, &Arc::default())] {
            let mut body = body(room, size);
            let frame = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
            assert!(frame.unwrap().is_ok(), "{size}");
        }
        drop(held);
        assert_eq!(room.held.load(Relaxed), 0);
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn a_stalled_response_times_out_and_a_watch_does_not() {
        let parts = Parts(Bytes::from_static(b"x"), 7);
        let (bytes, error) = read(BoundedBody::new(parts, Default::default(), false)).await;
        assert_eq!(bytes, 7);
        assert!(error.contains("within 30 s"), "{error}");
        // All events together exceed the limit of one.
        let events = Parts(Bytes::from_static(b"{\"type\": \"BOOKMARK\"}\n"), MAX_SIZE);
        let watch = read(BoundedBody::new(events, Default::default(), true));
        let continues = tokio::time::timeout(Duration::from_mins(5), watch).await;
        assert!(continues.is_err(), "{continues:?}");
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn reads_and_requests_wait_for_the_rate_limit() {
        let (throttle, begun) = (Throttle::default(), Instant::now());
        assert_eq!(
            throttle.after(2 * RATE as usize, RATE),
            begun,
            "the first burst"
        );
        let later = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!(throttle.after(RATE as usize, RATE), later(1));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(
            throttle.after(RATE as usize, RATE),
            later(10),
            "a new burst"
        );
        for _ in 1..640 {
            throttle.after(REQUEST, RATE);
        }
        assert_eq!(throttle.after(REQUEST, RATE), later(19), "64 a second");
        // 6 MiB at 0.5 MiB a second, with a burst of 1 MiB.
        let begun = Instant::now();
        let mut rest = BoundedBody::new(parts(b'\n', 96), Default::default(), true);
        for _ in 0..96 {
            let frame = poll_fn(|context| Pin::new(&mut rest).poll_frame(context)).await;
            assert!(frame.unwrap().is_ok());
        }
        let time = begun.elapsed().as_secs();
        assert!((9..=10).contains(&time), "{time} s");
    }
}
