//! The instrumented client: counts API requests, records that the API server responds, and limits the size of responses.

use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;

use anyhow::Context as _;
use futures::future::BoxFuture;
use globalps_core::kubeconfig::parse;
use globalps_runtime::bounds::{self, Bounded};
use hyper::body::{Body as HttpBody, Bytes};
use hyper::{Request, Response};
use kube::client::{Body, ClientBuilder};
use kube::config::KubeConfigOptions;
use kube::{Client, Config};
use tower::layer::layer_fn;
use tower::{BoxError, Service};

use crate::telemetry::health::Health;
use crate::telemetry::metrics::Metrics;

/// A connection without traffic for longer is dead. Longer than any watch, see `globalps_runtime::list_watch`; other requests have their own
/// deadlines.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(70);

/// A client that counts its requests. It never retries: each caller has its own backoff, and a deadline that hidden retries would
/// use up.
pub(crate) async fn instrumented_client(
    health: &Arc<Health>,
    metrics: &Arc<Metrics>,
) -> anyhow::Result<Client> {
    let mut config = config().await?;
    config.default_retry = false;
    config.read_timeout = Some(READ_TIMEOUT);
    let layer = layer_fn(|inner| Instrumented {
        inner,
        health: Arc::clone(health),
        metrics: Arc::clone(metrics),
    });
    Ok(ClientBuilder::try_from(config)?.with_layer(&layer).build())
}

/// The configuration of a pod or, outside a cluster, from the kubeconfig in the variable `KUBECONFIG`.
async fn config() -> anyhow::Result<Config> {
    let file = std::env::var_os("KUBECONFIG").filter(|file| !file.is_empty());
    let Some(file) = file else {
        return Ok(Config::incluster()?);
    };
    let text = std::fs::read_to_string(file).context("`KUBECONFIG` can't be read")?;
    let kubeconfig = parse(&text).context("`KUBECONFIG` names no kubeconfig")?;
    Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
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

    fn poll_ready(&mut self, context: &mut task::Context<'_>) -> Poll<Result<(), BoxError>> {
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
