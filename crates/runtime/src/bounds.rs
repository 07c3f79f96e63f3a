//! Limits the size of responses: who may write many or large objects must not exhaust this process's memory.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use hyper::{Method, Request};
use tower::BoxError;

/// Maximum size of one object, in bytes. etcd accepts 1.5 MiB, and JSON can need six bytes for one: `<` is `\u003c`.
const OBJECT: usize = 10 << 20;
/// Maximum size of a page of a list: decoded it can take ten times as much, and several lists are read at the same time. The same
/// of the response to a write: many are made at the same time.
const PAGE: usize = 2 << 20;

/// The response is larger than this many bytes.
#[derive(Debug, thiserror::Error)]
#[error("a response of more than {} MiB", .0 >> 20)]
pub struct TooLarge(usize);

impl TooLarge {
    /// Whether the request failed because of it.
    pub fn is_cause_of(error: &(dyn Error + 'static)) -> bool {
        error.is::<Self>() || error.source().is_some_and(Self::is_cause_of)
    }
}

/// Whether the response is a stream of events, which may last.
pub fn is_watch<B>(request: &Request<B>) -> bool {
    query(request).any(|pair| pair == "watch=true")
}

fn query<B>(request: &Request<B>) -> impl Iterator<Item = &str> {
    request.uri().query().unwrap_or_default().split('&')
}

/// Maximum size of the response to this request of a cluster's own controller.
pub fn limit<B>(request: &Request<B>) -> usize {
    let mut limits = query(request).filter_map(|pair| pair.strip_prefix("limit="));
    let is_page = limits.any(|limit| limit != "1");
    if is_page || request.method() != Method::GET {
        PAGE
    } else {
        OBJECT
    }
}

/// A body that ends with an error if it is too large. Of a watch, each event has the limit, and all of them have none.
pub struct Bounded<B> {
    inner: B,
    limit: usize,
    is_watch: bool,
    /// Bytes of the response, or of the current event of a watch.
    used: usize,
}

impl<B> Bounded<B> {
    /// `limit`: bytes of the response, or of each event of a watch.
    pub fn new(inner: B, limit: usize, is_watch: bool) -> Self {
        Self {
            inner,
            limit,
            is_watch,
            used: 0,
        }
    }

    /// Bytes of the response, or of the current event of a watch.
    pub fn used(&self) -> usize {
        self.used
    }

    fn add(&mut self, data: &[u8]) -> Result<(), TooLarge> {
        let newline = data.iter().rposition(|byte| *byte == b'\n');
        self.used = match newline.filter(|_| self.is_watch) {
            Some(at) => data.len() - at - 1,
            None => self.used.saturating_add(data.len()),
        };
        if self.used > self.limit {
            return Err(TooLarge(self.limit));
        }
        Ok(())
    }
}

impl<B> HttpBody for Bounded<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = match ready!(Pin::new(&mut self.inner).poll_frame(context)) {
            Some(frame) => frame.map_err(Into::into)?,
            None => return Poll::Ready(None),
        };
        if let Some(data) = frame.data_ref() {
            self.add(data)?;
        }
        Poll::Ready(Some(Ok(frame)))
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
    use super::*;

    #[test]
    fn one_object_may_be_large_and_a_page_may_not() {
        let of = |method, uri: &str| {
            let request = Request::builder().method(method).uri(uri).body(());
            let request = request.expect("a request");
            (limit(&request), is_watch(&request))
        };
        for (method, uri, expected) in [
            (Method::GET, "/api/v1/secrets?&limit=100", (PAGE, false)),
            (
                Method::GET,
                "/api/v1/secrets?&limit=12&continue=x",
                (PAGE, false),
            ),
            (
                Method::GET,
                "/api/v1/secrets?&limit=1&continue=limi",
                (OBJECT, false),
            ),
            (
                Method::GET,
                "/api/v1/namespaces/a/secrets/b",
                (OBJECT, false),
            ),
            (
                Method::GET,
                "/api/v1/secrets?&watch=true&timeoutSeconds=60",
                (OBJECT, true),
            ),
            (
                Method::PATCH,
                "/api/v1/namespaces/a/secrets/b?&force=true",
                (PAGE, false),
            ),
        ] {
            assert_eq!(of(method, uri), expected, "{uri}");
        }
    }

    #[test]
    fn the_cause_of_a_failed_request_is_found() {
        let failed = |cause: BoxError| {
            let inner = kube::Error::Service(cause);
            kube::Error::Service(inner.into())
        };
        assert!(TooLarge::is_cause_of(&failed(TooLarge(PAGE).into())));
        assert!(!TooLarge::is_cause_of(&failed("refused".into())));
    }
}
