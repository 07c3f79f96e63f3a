//! `/metrics`, `/livez` and `/readyz` over HTTP: read-only, and without anything secret.

use std::convert::Infallible;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::telemetry::clock;
use crate::telemetry::health::Health;
use crate::telemetry::metrics::Metrics;

/// Connections at a time; more wait.
const CONNECTIONS: usize = 16;
/// A connection serves one request and ends after this time.
const DEADLINE: Duration = Duration::from_secs(10);

const TEXT: &str = "text/plain; charset=utf-8";
/// Prometheus' own.
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Listens on all addresses, of both families where the machine has both.
pub(crate) async fn listen(port: u16) -> anyhow::Result<TcpListener> {
    let both = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    if let Ok(listener) = TcpListener::bind(both).await {
        return Ok(listener);
    }
    TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))
        .await
        .with_context(|| {
            format!(
                "could not listen on port {port} for probes and metrics; take another with `--port`"
            )
        })
}

/// Serves requests until the future is dropped.
pub(crate) async fn serve(listener: TcpListener, health: Arc<Health>, metrics: Arc<Metrics>) {
    let free = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        // The semaphore is never closed.
        let Ok(slot) = Arc::clone(&free).acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Possibly too many open files: the pause avoids a busy loop.
                tracing::warn!(%error, "could not accept a connection");
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (health, metrics) = (Arc::clone(&health), Arc::clone(&metrics));
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let response = respond(request.method(), request.uri().path(), &health, &metrics);
                async { Ok::<_, Infallible>(response) }
            });
            let connection = http1::Builder::new()
                .keep_alive(false)
                .max_buf_size(16 * 1024)
                .serve_connection(TokioIo::new(stream), service);
            // An error of a peer ends only its own connection.
            let _ = timeout(DEADLINE, connection).await;
            drop(slot);
        });
    }
}

fn respond(
    method: &Method,
    path: &str,
    health: &Health,
    metrics: &Metrics,
) -> Response<Full<Bytes>> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        let mut rejected = Response::new(Full::default());
        *rejected.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        let allowed = HeaderValue::from_static("GET, HEAD");
        rejected.headers_mut().insert(ALLOW, allowed);
        return rejected;
    }
    let (status, kind, body) = match path {
        "/metrics" => (StatusCode::OK, EXPOSITION, metrics.page()),
        "/livez" => verdict(health.live(clock::now())),
        "/readyz" => verdict(health.ready(clock::now())),
        _ => (
            StatusCode::NOT_FOUND,
            TEXT,
            "/metrics, /livez or /readyz\n".to_owned(),
        ),
    };
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn verdict(verdict: Result<(), String>) -> (StatusCode, &'static str, String) {
    match verdict {
        Ok(()) => (StatusCode::OK, TEXT, "ok\n".to_owned()),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{reason}\n")),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;

    /// Status line and body of the answer to a request.
    async fn request(port: u16, line: &str) -> (String, String) {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
            .await
            .expect("it listens");
        stream
            .write_all(format!("{line} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes())
            .await
            .expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("it ends");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head.lines().next().unwrap_or_default();
        (status.to_owned(), body.to_owned())
    }

    #[tokio::test(flavor = "current_thread")]
    async fn probes_and_metrics_are_served_and_a_stuck_loop_is_reported() {
        let listener = listen(0).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let health = Arc::new(Health::new());
        let metrics = Arc::new(Metrics::default());
        tokio::spawn(serve(listener, Arc::clone(&health), Arc::clone(&metrics)));

        assert_eq!(request(port, "GET /livez").await.1, "ok\n");
        let (status, _) = request(port, "GET /readyz").await;
        assert_eq!(status, "HTTP/1.1 503 Service Unavailable", "no API server");
        health.answered();
        assert_eq!(request(port, "GET /readyz").await.1, "ok\n");
        let (status, page) = request(port, "GET /metrics").await;
        assert_eq!(status, "HTTP/1.1 200 OK");
        assert_eq!(page, metrics.page());
        health.stuck_for(Duration::from_secs(61));
        for path in ["/livez", "/readyz"] {
            let (status, reason) = request(port, &format!("GET {path}")).await;
            assert_eq!(status, "HTTP/1.1 503 Service Unavailable");
            assert_eq!(reason, "the loop is stuck for 61 s\n");
        }
        let (status, _) = request(port, "GET /secrets").await;
        assert_eq!(status, "HTTP/1.1 404 Not Found");
        let (status, _) = request(port, "POST /metrics").await;
        assert_eq!(status, "HTTP/1.1 405 Method Not Allowed");
    }

    /// All slots are taken by connections that send nothing.
    #[tokio::test(flavor = "current_thread")]
    async fn silent_connections_delay_others_only_until_their_deadline() {
        let listener = listen(0).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (health, metrics) = (Arc::new(Health::new()), Arc::new(Metrics::default()));
        tokio::spawn(serve(listener, health, metrics));
        let mut silent = Vec::new();
        for _ in 0..CONNECTIONS {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await;
            silent.push(stream.expect("it listens"));
        }
        let late = timeout(DEADLINE * 2, request(port, "GET /livez")).await;
        assert_eq!(late.map(|(_, body)| body), Ok("ok\n".to_owned()));
    }
}
