//! The instrumented client: counts API requests, records that the API server responds, and limits the size of responses.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use hyper::body::{Body as HttpBody, Bytes};
use hyper::{Request, Response};
use kube::Client;
use kube::client::{Body, ClientBuilder};
use tower::layer::layer_fn;
use tower::{BoxError, Service};

use crate::telemetry::bounds::{self, Bounded};
use crate::telemetry::health::Health;
use crate::telemetry::metrics::Metrics;

/// A connection without traffic for longer is dead. Longer than any watch, see `cache::list_watch`; other requests have their own
/// deadlines.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(70);

/// A client that counts its requests. It never retries: each caller has its own backoff, and a deadline that hidden retries would
/// use up.
pub(crate) async fn instrumented_client(
    health: &Arc<Health>,
    metrics: &Arc<Metrics>,
) -> anyhow::Result<Client> {
    let mut config = kube::Config::infer().await?;
    config.default_retry = false;
    config.read_timeout = Some(READ_TIMEOUT);
    let layer = layer_fn(|inner| Instrumented {
        inner,
        health: Arc::clone(health),
        metrics: Arc::clone(metrics),
    });
    Ok(ClientBuilder::try_from(config)?.with_layer(&layer).build())
}

struct Instrumented<S> {
    inner: S,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
}

impl<S, B> Service<Request<Body>> for Instrumented<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
    B: HttpBody<Data = Bytes> + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Bounded<B>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let metric = RequestMetric {
            // Set by kube.
            verb: request.extensions().get().copied().unwrap_or("other"),
            code: None,
            metrics: Arc::clone(&self.metrics),
        };
        let (limit, is_watch) = (bounds::limit(&request), bounds::is_watch(&request));
        let health = Arc::clone(&self.health);
        let call = self.inner.call(request);
        Box::pin(async move {
            // Moved as a whole, so that it is dropped with this future and not before.
            let mut metric = metric;
            let response = call.await?;
            let status = response.status();
            metric.code = Some(status.as_u16());
            if !status.is_server_error() {
                health.answered();
            }
            Ok(response.map(|body| Bounded::new(body, limit, is_watch)))
        })
    }
}

/// Counts the request on drop, so that a canceled request is counted too.
struct RequestMetric {
    verb: &'static str,
    code: Option<u16>,
    metrics: Arc<Metrics>,
}

impl Drop for RequestMetric {
    fn drop(&mut self) {
        self.metrics.request_done(self.verb, self.code);
    }
}

/// The error without the content of an unparsable response, which may contain credentials. Of an API error only its message.
pub(crate) fn without_content(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        kube::Error::SerdeError(_) => "could not decode the API server's response".to_owned(),
        other => other.to_string(),
    }
}
