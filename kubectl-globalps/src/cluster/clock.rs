//! The API server's clock, from the `Date` header of its responses. Timestamps in objects are compared with it, because
//! this machine's clock may be wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use hyper::header::{DATE, HeaderMap};
use hyper::{Request, Response};
use jiff::fmt::rfc2822;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::client::Body;
use tower::{BoxError, service_fn};

/// Ignores differences up to this: `Date` has a resolution of one second, and a response takes some time to arrive.
const SLACK: SignedDuration = SignedDuration::from_secs(3);

#[derive(Debug, Default)]
pub(crate) struct ServerClock {
    /// How far this machine's clock is ahead, in seconds.
    ahead: AtomicI64,
}

impl ServerClock {
    /// The API server's time, once it has responded; before that, this machine's.
    pub(super) fn now(&self) -> Timestamp {
        self.at(Timestamp::now())
    }

    /// `here`: time by this machine's clock.
    fn at(&self, here: Timestamp) -> Timestamp {
        let ahead = SignedDuration::from_secs(self.ahead.load(Ordering::Relaxed));
        here.checked_sub(ahead).unwrap_or(here)
    }

    /// Records the `Date` of a response that arrived at `here`. Ignores an unreadable one.
    fn heard(&self, headers: &HeaderMap, here: Timestamp) {
        let date = headers.get(DATE).and_then(|date| date.to_str().ok());
        let Some(there) = date.and_then(|date| rfc2822::parse(date).ok()) else {
            return;
        };
        let ahead = here.duration_since(there.timestamp());
        let is_known = ahead.abs() > SLACK;
        let ahead = if is_known { ahead.as_secs() } else { 0 };
        self.ahead.store(ahead, Ordering::Relaxed);
    }
}

/// The client; the clock records each of its responses.
pub(super) fn timed(client: Client, namespace: &str, clock: &Arc<ServerClock>) -> Client {
    let clock = Arc::clone(clock);
    let service = service_fn(move |request: Request<Body>| {
        let (client, clock) = (client.clone(), Arc::clone(&clock));
        async move {
            let response: Response<Body> = client.send(request).await?;
            clock.heard(response.headers(), Timestamp::now());
            Ok::<_, BoxError>(response)
        }
    });
    Client::new(service, namespace)
}

#[cfg(test)]
mod tests {
    use globalps_fake_api::FakeApi;

    use super::*;

    #[tokio::test]
    async fn the_api_servers_clock_counts_where_this_machines_is_wrong() {
        for (ahead, expected) in [
            (Some(300), 300),
            (Some(-86400), -86400),
            (Some(2), 0),
            (None, 0),
        ] {
            let api = FakeApi::default();
            let api = match ahead {
                Some(ahead) => api.with_clock_behind(ahead),
                None => api,
            };
            let clock = Arc::new(ServerClock::default());
            let client = timed(api.client(), "default", &clock);
            let answer = client.send(Request::new(Body::empty())).await;
            assert!(answer.is_ok(), "{ahead:?}");
            let here = Timestamp::now();
            let off = here.duration_since(clock.at(here));
            // A second may have passed since.
            assert!((off.as_secs() - expected).abs() <= 1, "{ahead:?}: {off}");
        }
    }

    #[test]
    fn a_date_that_cannot_be_read_says_nothing() {
        let clock = ServerClock::default();
        for (date, expected) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", 60),
            ("yesterday", 60),
            ("", 60),
        ] {
            let here: Timestamp = "1994-11-06T08:50:37Z".parse().expect("a time");
            let headers = [(DATE, date.parse().expect("a header"))];
            clock.heard(&headers.into_iter().collect(), here);
            let off = here.duration_since(clock.at(here));
            assert_eq!(off.as_secs(), expected, "{date}");
        }
    }
}
