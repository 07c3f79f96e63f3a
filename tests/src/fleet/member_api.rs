//! What one simulated cluster answers: as much of an API server as the hub asks for, in memory.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::stream;
use globalps_core::names::{ADDITIONAL_SECRET, GLOBAL_SECRET};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::AUTHORIZATION;
use hyper::{Method, Request, Response};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::product::NAMESPACE;

/// Nodes that a member says it has.
const NODES: u32 = 3;
const GROUP: &str = "globalps.io/v1alpha1";

pub(super) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A status code, and the object that goes with it.
type Answer = (u16, Value);

/// What all members were asked.
#[derive(Default)]
pub(super) struct Counts {
    requests: Mutex<BTreeMap<&'static str, usize>>,
    /// Watches that are open.
    watches: AtomicUsize,
}

impl Counts {
    fn add(&self, what: &'static str) {
        *self.requests.lock().unwrap().entry(what).or_default() += 1;
    }

    pub(super) fn requests(&self) -> BTreeMap<&'static str, usize> {
        self.requests.lock().unwrap().clone()
    }

    pub(super) fn watches(&self) -> usize {
        self.watches.load(Relaxed)
    }
}

/// Counts as an open watch for as long as it lives.
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

/// What the member has. All objects share a counter of versions.
#[derive(Default)]
struct Has {
    version: u64,
    secret: Option<Value>,
    /// Version of the `GlobalPullSecret`, and which version of the Secret it is about.
    config: u64,
    about: String,
}

pub(super) struct Member {
    name: String,
    /// From a write of the Secret until every node there has it.
    time: Duration,
    has: Mutex<Has>,
    /// Version of the `GlobalPullSecret`.
    news: watch::Sender<u64>,
    counts: Arc<Counts>,
}

impl Member {
    pub(super) fn new(name: String, time: Duration, counts: &Arc<Counts>) -> Self {
        let has = Has {
            version: 1,
            config: 1,
            ..Has::default()
        };
        Self {
            name,
            time,
            has: Mutex::new(has),
            news: watch::Sender::new(1),
            counts: Arc::clone(counts),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn token(&self) -> String {
        format!("token-of-{}", self.name)
    }

    pub(super) async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let expected = format!("Bearer {}", self.token());
        let token = parts.headers.get(AUTHORIZATION);
        if token.is_none_or(|token| token.as_bytes() != expected.as_bytes()) {
            return response(failure(401, "Unauthorized"));
        }
        let query = parts.uri.query().unwrap_or_default();
        let secret = format!("/api/v1/namespaces/{NAMESPACE}/secrets/{ADDITIONAL_SECRET}");
        let configs = format!("/apis/{GROUP}/namespaces/{NAMESPACE}/globalpullsecrets");
        match (&parts.method, parts.uri.path()) {
            (&Method::GET, "/api/v1/namespaces/kube-system") => response(self.identity()),
            (&Method::GET, path) if path == secret => response(self.secret()),
            (&Method::PATCH, path) if path == secret => {
                let manager = parameter(query, "fieldManager");
                response(self.apply(manager, body).await)
            }
            (&Method::DELETE, path) if path == secret => response(self.delete(body).await),
            (&Method::GET, path) if path == configs => {
                if parameter(query, "watch") == "true" {
                    self.watch(query)
                } else {
                    response(self.list())
                }
            }
            _ => {
                self.counts.add("something else");
                response(failure(404, "NotFound"))
            }
        }
    }

    fn identity(&self) -> Answer {
        self.counts.add("get namespace");
        let metadata = json!({
            "name": "kube-system", "uid": format!("uid-of-{}", self.name), "resourceVersion": "1",
        });
        let object = json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata,
        });
        (200, object)
    }

    fn secret(&self) -> Answer {
        self.counts.add("get secret");
        let secret = self.has.lock().unwrap().secret.clone();
        secret.map_or_else(|| failure(404, "NotFound"), |secret| (200, secret))
    }

    async fn apply(self: &Arc<Self>, manager: &str, body: Incoming) -> Answer {
        self.counts.add("apply secret");
        let Some(wanted) = read(body).await else {
            return failure(400, "BadRequest");
        };
        let mut has = self.has.lock().unwrap();
        let seen = &wanted["metadata"]["resourceVersion"];
        let version = |secret: &Value| secret["metadata"]["resourceVersion"].clone();
        if !seen.is_null() && has.secret.as_ref().map(version).as_ref() != Some(seen) {
            return failure(409, "Conflict");
        }
        let secret = self.applied(wanted, manager, has.version + 1);
        if let Some(known) = &has.secret
            && is_same(known, &secret)
        {
            return (200, known.clone());
        }
        has.version += 1;
        has.secret = Some(secret.clone());
        drop(has);
        self.follow(version(&secret).as_str().unwrap_or_default());
        (200, secret)
    }

    fn applied(&self, mut secret: Value, manager: &str, version: u64) -> Value {
        let metadata = &mut secret["metadata"];
        metadata["namespace"] = json!(NAMESPACE);
        metadata["uid"] = json!(format!("secret-of-{}", self.name));
        metadata["resourceVersion"] = json!(version.to_string());
        metadata["managedFields"] = json!([{
            "manager": manager, "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:.dockerconfigjson": {}}, "f:type": {}},
        }]);
        secret
    }

    async fn delete(self: &Arc<Self>, body: Incoming) -> Answer {
        self.counts.add("delete secret");
        let options = read(body).await.unwrap_or_default();
        let mut has = self.has.lock().unwrap();
        let Some(secret) = &has.secret else {
            return failure(404, "NotFound");
        };
        let is_meant = |field: &str| {
            let wanted = &options["preconditions"][field];
            wanted.is_null() || *wanted == secret["metadata"][field]
        };
        if !is_meant("uid") || !is_meant("resourceVersion") {
            return failure(409, "Conflict");
        }
        has.version += 1;
        has.secret = None;
        drop(has);
        self.follow("");
        let object = json!({"apiVersion": "v1", "kind": "Status", "status": "Success"});
        (200, object)
    }

    /// The member's globalps: after a while every node has what is there, if it is still the newest.
    fn follow(self: &Arc<Self>, about: &str) {
        let (member, about) = (Arc::clone(self), about.to_owned());
        tokio::spawn(async move {
            sleep(member.time).await;
            let mut has = member.has.lock().unwrap();
            let secret = has.secret.as_ref();
            let newest = secret.and_then(|it| it["metadata"]["resourceVersion"].as_str());
            if newest.unwrap_or_default() == about {
                has.version += 1;
                has.config = has.version;
                has.about = about;
                member.news.send_replace(has.config);
            }
        });
    }

    /// The `GlobalPullSecret`, and its version.
    fn config(&self) -> (u64, Value) {
        let has = self.has.lock().unwrap();
        let ready = json!({
            "type": "Ready", "status": "True", "reason": "Synced", "message": "every node has it",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let object = json!({
            "apiVersion": GROUP, "kind": "GlobalPullSecret",
            "metadata": {
                "name": GLOBAL_SECRET, "namespace": NAMESPACE, "generation": 1,
                "uid": format!("config-of-{}", self.name), "resourceVersion": has.config.to_string(),
            },
            "spec": {},
            "status": {
                "observedGeneration": 1, "observedAdditional": has.about, "revision": 1,
                "counts": {"total": NODES, "synced": NODES}, "conditions": [ready],
            },
        });
        (has.config, object)
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
    /// Version that the watcher has.
    known: u64,
    until: Instant,
    _open: Open,
}

impl Watch {
    /// The next event as a line; `None`: the watch is over.
    async fn next(&mut self) -> Option<String> {
        loop {
            self.news.borrow_and_update();
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

/// Whether all that the hub writes is the same.
fn is_same(one: &Value, other: &Value) -> bool {
    let of = |it: &Value| {
        let metadata = &it["metadata"];
        let fields = [&metadata["labels"], &metadata["annotations"], &it["data"]];
        fields.map(Value::clone)
    };
    of(one) == of(other)
}

fn failure(code: u16, reason: &str) -> Answer {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "metadata": {},
        "code": code, "reason": reason, "message": reason,
    });
    (code, status)
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

/// A parameter of a query; empty: there is none.
fn parameter<'a>(query: &'a str, wanted: &str) -> &'a str {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .find(|(name, _)| *name == wanted)
        .map_or("", |it| it.1)
}
