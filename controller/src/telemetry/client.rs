//! Counts what the API server is asked, and notes that it answers.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use hyper::{Request, Response};
use kube::Client;
use kube::client::{Body, ClientBuilder};
use tower::layer::layer_fn;
use tower::{BoxError, Service};

use crate::telemetry::health::Health;
use crate::telemetry::metrics::Metrics;

/// A client that is counted. It retries nothing by itself: whoever uses it has backoff of its own, and a deadline that
/// hidden retries would use up.
pub(crate) async fn client(health: &Arc<Health>, metrics: &Arc<Metrics>) -> anyhow::Result<Client> {
    let mut config = kube::Config::infer().await?;
    config.default_retry = false;
    let layer = layer_fn(|inner| Counted {
        inner,
        health: Arc::clone(health),
        metrics: Arc::clone(metrics),
    });
    Ok(ClientBuilder::try_from(config)?.with_layer(&layer).build())
}

struct Counted<S> {
    inner: S,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
}

impl<S, B> Service<Request<Body>> for Counted<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
    B: 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<B>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let asked = Asked {
            // kube's own word for what is asked.
            verb: request.extensions().get().copied().unwrap_or("other"),
            code: None,
            metrics: Arc::clone(&self.metrics),
        };
        let health = Arc::clone(&self.health);
        let call = self.inner.call(request);
        Box::pin(async move {
            // As a whole, so that it is dropped with this future and not before.
            let mut asked = asked;
            let response = call.await?;
            let status = response.status();
            asked.code = Some(status.as_u16());
            if !status.is_server_error() {
                health.answered();
            }
            Ok(response)
        })
    }
}

/// Counted when it is dropped: a request that is given up ends too.
struct Asked {
    verb: &'static str,
    code: Option<u16>,
    metrics: Arc<Metrics>,
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.metrics.asked(self.verb, self.code);
    }
}
