//! The API server of one simulated cluster: what the hub uses of it, in memory.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures::stream;
use globalps_core::names::ADDITIONAL_SECRET;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::AUTHORIZATION;
use hyper::{Method, Request, Response};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::lies::Asked;
use super::member::{Admission, Answer, Counts, GROUP, Member, failure};
use crate::product::NAMESPACE;

pub(super) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Counts as an open watch while it lives.
struct Open(Arc<Counts>);

impl Open {
    fn new(counts: &Arc<Counts>) -> Self {
        counts.watches.fetch_add(1, Relaxed);
        Self(Arc::clone(counts))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.watches.fetch_sub(1, Relaxed);
    }
}

impl Member {
    /// `admission`: `None` admits every write.
    pub(super) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        admission: Option<&Admission>,
    ) -> Response<Body> {
        self.thawed().await;
        let (parts, body) = request.into_parts();
        let expected = format!("Bearer {}", self.token());
        let token = parts.headers.get(AUTHORIZATION);
        if token.is_none_or(|token| token.as_bytes() != expected.as_bytes()) {
            return response(failure(401, "Unauthorized"));
        }
        let query = parts.uri.query().unwrap_or_default();
        let secret = format!("/api/v1/namespaces/{NAMESPACE}/secrets/{ADDITIONAL_SECRET}");
        let configs = format!("/apis/{GROUP}/namespaces/{NAMESPACE}/globalpullsecrets");
        let is_admitted = |method: &Method| {
            admission.is_none_or(|admits| admits(format!("{method} {}", self.name())))
        };
        let asked = match parts.uri.path() {
            "/api/v1/namespaces/kube-system" => Asked::Namespace,
            path if path == secret => Asked::Secret,
            path if path == configs && parameter(query, "watch") == "true" => Asked::Watch,
            path if path == configs => Asked::List,
            _ => {
                self.counts.add("something else");
                return response(failure(404, "NotFound"));
            }
        };
        let lie = self.lie();
        if let Some(lie) = lie.as_ref().and_then(|lie| lie.response(asked)) {
            return lie;
        }
        let mut answer = match (&parts.method, asked) {
            (&Method::GET, Asked::Namespace) => self.identity(),
            (&Method::GET, Asked::Secret) => self.get(),
            (method @ (&Method::PATCH | &Method::DELETE), Asked::Secret) => {
                let Some(body) = read(body).await else {
                    return response(failure(400, "BadRequest"));
                };
                if !is_admitted(method) {
                    return response(failure(403, "Forbidden"));
                }
                if *method == Method::DELETE {
                    self.counts.add("delete secret");
                    self.delete(&body)
                } else {
                    self.counts.add("apply secret");
                    self.apply(&body, parameter(query, "fieldManager"))
                }
            }
            (&Method::GET, Asked::Watch) => return self.watch(query),
            (&Method::GET, Asked::List) => self.list(),
            _ => failure(405, "MethodNotAllowed"),
        };
        if let Some(lie) = lie.filter(|_| answer.0 < 300) {
            lie.about(asked, &mut answer.1);
        }
        response(answer)
    }

    fn identity(&self) -> Answer {
        self.counts.add("get namespace");
        let metadata = json!({
            "name": "kube-system", "uid": format!("uid-of-{}", self.name()), "resourceVersion": "1",
        });
        let object = json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata,
        });
        (200, object)
    }

    fn get(&self) -> Answer {
        self.counts.add("get secret");
        self.secret()
            .map_or_else(|| failure(404, "NotFound"), |secret| (200, secret))
    }

    fn list(&self) -> Answer {
        self.counts.add("list config");
        let (version, object) = self.config();
        let list = json!({
            "apiVersion": GROUP, "kind": "GlobalPullSecretList",
            "metadata": {"resourceVersion": version.to_string()}, "items": [object],
        });
        (200, list)
    }

    fn watch(self: &Arc<Self>, query: &str) -> Response<Body> {
        self.counts.add("watch config");
        let seconds = parameter(query, "timeoutSeconds").parse().unwrap_or(300);
        let watch = Watch {
            member: Arc::clone(self),
            news: self.news.subscribe(),
            known: parameter(query, "resourceVersion").parse().unwrap_or(0),
            until: Instant::now() + Duration::from_secs(seconds),
            _open: Open::new(&self.counts),
        };
        let events = stream::unfold(watch, |mut watch| async move {
            let line = watch.next().await?;
            Some((Ok(Frame::data(Bytes::from(line))), watch))
        });
        let mut response = Response::new(StreamBody::new(events).boxed_unsync());
        as_json(&mut response);
        response
    }
}

/// A watch of the `GlobalPullSecret`.
struct Watch {
    member: Arc<Member>,
    news: watch::Receiver<u64>,
    /// The last version that the watcher got.
    known: u64,
    until: Instant,
    _open: Open,
}

impl Watch {
    /// The next event as a line; `None`: the watch has ended.
    async fn next(&mut self) -> Option<String> {
        loop {
            self.news.borrow_and_update();
            self.member.thawed().await;
            let (version, object) = self.member.config();
            if version > self.known {
                self.known = version;
                let event = json!({"type": "MODIFIED", "object": object});
                return Some(format!("{event}\n"));
            }
            tokio::select! {
                changed = self.news.changed() => changed.ok()?,
                () = sleep_until(self.until) => return None,
            }
        }
    }
}

fn response((code, object): Answer) -> Response<Body> {
    let body = Full::new(Bytes::from(object.to_string())).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = code.try_into().unwrap_or_default();
    as_json(&mut response);
    response
}

fn as_json(response: &mut Response<Body>) {
    let json = hyper::header::HeaderValue::from_static("application/json");
    let headers = response.headers_mut();
    headers.insert(hyper::header::CONTENT_TYPE, json);
}

async fn read(body: Incoming) -> Option<Value> {
    let bytes = body.collect().await.ok()?.to_bytes();
    serde_json::from_slice(&bytes).ok()
}

/// A parameter of a query; empty: it is absent.
fn parameter<'a>(query: &'a str, wanted: &str) -> &'a str {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .find(|(name, _)| *name == wanted)
        .map_or("", |it| it.1)
}
