//! The HTTP pages of the controller: `/livez` and `/readyz` on one port, `/metrics` on another, so that a slow scrape delays no
//! probe. Read-only, and without secrets.

use std::sync::Arc;
use std::time::Duration;

use super::clock;
use super::health::Health;
use super::http::{NOT_FOUND, OK, Page, Pages, TEXT, UNAVAILABLE};
use super::metrics::Metrics;

/// Maximum duration of a probe's connection: the kubelet gives up after a second.
pub(crate) const PROBE: Duration = Duration::from_secs(2);
/// Maximum duration of a scrape's connection: Prometheus gives up after ten seconds.
pub(crate) const SCRAPE: Duration = Duration::from_secs(10);

/// Prometheus' content type.
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(crate) fn probes(health: Arc<Health>) -> Pages {
    Box::new(move |path| match path {
        "/livez" => verdict(health.live(clock::now())),
        "/readyz" => verdict(health.ready(clock::now())),
        _ => page(NOT_FOUND, "/livez or /readyz"),
    })
}

pub(crate) fn metrics(metrics: Arc<Metrics>) -> Pages {
    Box::new(move |path| match path {
        "/metrics" => Page {
            status: OK,
            content_type: EXPOSITION,
            body: metrics.page(),
        },
        _ => page(NOT_FOUND, "/metrics"),
    })
}

fn verdict(verdict: Result<(), String>) -> Page {
    match verdict {
        Ok(()) => page(OK, "ok"),
        Err(reason) => page(UNAVAILABLE, &reason),
    }
}

fn page(status: &'static str, line: &str) -> Page {
    Page {
        status,
        content_type: TEXT,
        body: format!("{line}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::http::tests::request;
    use super::super::http::{listen, serve};
    use super::*;

    async fn start(deadline: Duration, pages: Pages) -> u16 {
        let listener = listen(0).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        tokio::spawn(serve(listener, deadline, pages));
        port
    }

    #[tokio::test(flavor = "current_thread")]
    async fn probes_and_metrics_are_served_and_a_stuck_loop_is_reported() {
        let health = Arc::new(Health::new());
        let figures = Arc::new(Metrics::default());
        let probes = start(PROBE, probes(Arc::clone(&health))).await;
        let scrapes = start(SCRAPE, metrics(Arc::clone(&figures))).await;

        assert_eq!(request(probes, "GET /livez").await.1, "ok\n");
        let (status, _) = request(probes, "GET /readyz").await;
        assert_eq!(status, UNAVAILABLE, "no API server");
        health.answered();
        assert_eq!(request(probes, "GET /readyz").await.1, "ok\n");
        let (status, page) = request(scrapes, "GET /metrics").await;
        assert_eq!(status, OK);
        assert_eq!(page, figures.page());
        health.stuck_for(Duration::from_secs(61));
        for path in ["/livez", "/readyz"] {
            let (status, reason) = request(probes, &format!("GET {path}")).await;
            assert_eq!(status, UNAVAILABLE);
            assert_eq!(reason, "the loop has been stuck for 61 s\n");
        }
        for (port, path) in [
            (probes, "/metrics"),
            (scrapes, "/livez"),
            (scrapes, "/secrets"),
        ] {
            let (status, _) = request(port, &format!("GET {path}")).await;
            assert_eq!(status, NOT_FOUND, "{path}");
        }
    }
}
