//! One simulated cluster: its API server, and how its globalps reacts to the objects there.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use globalps_core::names::{DATA_KEY, GROUP, VERSION};
use globalps_fake_api::{Answer, Body, FakeApi, Objects, Request, failure, response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::AUTHORIZATION;
use hyper::{Method, Response};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use super::lies::{Asked, Lie};

/// Number of nodes that a member reports.
const NODES: u32 = 3;

/// Called before each write of a Secret, with text such as `PATCH member-1`; false rejects the write.
pub(super) type Admission = Arc<dyn Fn(String) -> bool + Send + Sync>;

/// Requests to all members, and their state.
#[derive(Default)]
pub(super) struct Counts {
    requests: Mutex<BTreeMap<String, usize>>,
    /// Members whose nodes have not followed a write yet: current number and maximum.
    changing: Mutex<(usize, usize)>,
}

impl Counts {
    fn add(&self, what: String) {
        *self.requests.lock().unwrap().entry(what).or_default() += 1;
    }

    pub(super) fn requests(&self) -> BTreeMap<String, usize> {
        self.requests.lock().unwrap().clone()
    }

    fn begins(&self) {
        let mut changing = self.changing.lock().unwrap();
        changing.0 += 1;
        changing.1 = changing.0.max(changing.1);
    }

    fn ends(&self) {
        self.changing.lock().unwrap().0 -= 1;
    }

    pub(super) fn most_changing(&self) -> usize {
        self.changing.lock().unwrap().1
    }
}

/// State of the member apart from its objects.
#[derive(Default)]
struct Has {
    /// Whether the nodes have not followed the hub's last write yet.
    is_changing: bool,
    /// Whether the nodes fail with any content.
    fails: bool,
    /// Number in the token that the member accepts from the hub.
    token: u32,
}

pub(super) struct Member {
    name: String,
    /// From a write of the Secret until every node of the member has it.
    time: Duration,
    api: FakeApi,
    has: Mutex<Has>,
    /// While set, connections are accepted, but requests get no response.
    frozen: watch::Sender<bool>,
    lie: Mutex<Option<Lie>>,
    counts: Arc<Counts>,
}

impl Member {
    pub(super) fn new(name: String, time: Duration, counts: &Arc<Counts>) -> Self {
        let uid = format!("uid-of-{name}");
        let namespace = json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"uid": uid},
        });
        let api = FakeApi::default().unrecorded().with_rule(own);
        let member = Self {
            name,
            time,
            api: api.with_object(&Asked::Namespace.object(), namespace),
            has: Mutex::default(),
            frozen: watch::Sender::new(false),
            lie: Mutex::default(),
            counts: Arc::clone(counts),
        };
        member.report("", false);
        member
    }

    fn has(&self) -> MutexGuard<'_, Has> {
        self.has.lock().unwrap()
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn token(&self) -> String {
        format!("token-{}-of-{}", self.has().token, self.name)
    }

    /// Makes the member accept only a new token.
    pub(super) fn rotate_token(&self) {
        self.has().token += 1;
    }

    pub(super) fn set_frozen(&self, is_frozen: bool) {
        self.frozen.send_replace(is_frozen);
    }

    async fn thawed(&self) {
        // An error would mean a dropped sender, but `self` owns it.
        let _ = self.frozen.subscribe().wait_for(|frozen| !frozen).await;
    }

    /// `None`: all responses are true.
    pub(super) fn set_lie(&self, lie: Option<Lie>) {
        let mut said = Objects::new();
        if let Some(Lie::Says(asked, object)) = &lie {
            said.insert(asked.object(), object.clone());
        }
        self.api.state().said = said;
        *self.lie.lock().unwrap() = lie;
    }

    pub(super) fn lie(&self) -> Option<Lie> {
        self.lie.lock().unwrap().clone()
    }

    /// Sets whether the nodes fail. Failed nodes retry with the next version of the Secret.
    pub(super) fn set_failing(&self, fails: bool) {
        self.has().fails = fails;
    }

    pub(super) fn secret(&self) -> Option<Value> {
        self.api.object(&Asked::Secret.object())
    }

    /// Number of open watches.
    pub(super) fn watches(&self) -> usize {
        self.api.watches()
    }

    /// Writes, changes or deletes the Secret like another client in the member.
    pub(super) fn interfere(self: &Arc<Self>, change: impl FnOnce(&mut Option<Value>)) {
        let path = Asked::Secret.object();
        let mut state = self.api.state();
        let mut secret = state.objects.get(&path).cloned();
        change(&mut secret);
        match secret {
            Some(secret) => drop(state.store(&path, secret)),
            None => drop(state.remove(&path)),
        }
        drop(state);
        self.follow();
    }

    /// `admission`: `None` admits every write.
    pub(super) async fn answer(
        self: Arc<Self>,
        request: hyper::Request<Incoming>,
        admission: Option<&Admission>,
    ) -> Response<Body> {
        self.thawed().await;
        let refused = |code, reason| response(failure(code, reason, reason));
        let expected = format!("Bearer {}", self.token());
        let token = request.headers().get(AUTHORIZATION);
        if token.is_none_or(|token| token.as_bytes() != expected.as_bytes()) {
            return refused(401, "Unauthorized");
        }
        let (parts, body) = request.into_parts();
        let asked = Asked::of(&parts.uri);
        let what = asked.map_or("something else".to_owned(), |it| format!("{it:?}"));
        self.counts.add(format!("{} {what}", parts.method));
        let Some(asked) = asked else {
            return refused(404, "NotFound");
        };
        let lie = self.lie();
        if let Some(lie) = lie.and_then(|lie| lie.response(asked)) {
            return lie;
        }
        // A killed hub may have sent only a part of the request.
        let Ok(body) = body.collect().await else {
            return refused(400, "BadRequest");
        };
        let (method, version) = (parts.method.clone(), self.version());
        if method != Method::GET
            && admission.is_some_and(|admits| !admits(format!("{method} {}", self.name)))
        {
            return refused(403, "Forbidden");
        }
        let response = self.api.respond(hyper::Request::from_parts(parts, body));
        let response = response.await;
        if method != Method::GET && self.version() != version {
            // The hub treats a member without the Secret as finished, whatever its nodes do.
            self.set_changing(method == Method::PATCH);
            self.follow();
        }
        response
    }

    fn set_changing(&self, is_changing: bool) {
        let was_changing = std::mem::replace(&mut self.has().is_changing, is_changing);
        match (was_changing, is_changing) {
            (false, true) => self.counts.begins(),
            (true, false) => self.counts.ends(),
            _ => {}
        }
    }

    /// Version of the Secret; empty if it does not exist.
    fn version(&self) -> String {
        let secret = self.secret().unwrap_or_default();
        let version = secret["metadata"]["resourceVersion"].as_str();
        version.unwrap_or_default().to_owned()
    }

    /// Simulates the member's globalps: after a while every node has the current Secret, unless a newer version exists.
    fn follow(self: &Arc<Self>) {
        let (member, about) = (Arc::clone(self), self.version());
        tokio::spawn(async move {
            sleep(member.time).await;
            member.thawed().await;
            if member.version() == about {
                let has_failed = member.has().fails && !about.is_empty();
                // Must come before the hub sees the report and begins with another member.
                member.set_changing(false);
                member.report(&about, has_failed);
            }
        });
    }

    /// Writes the `GlobalPullSecret`. `about`: the version of the Secret. `has_failed`: whether the nodes failed with it.
    fn report(&self, about: &str, has_failed: bool) {
        let (status, reason, synced) = if has_failed {
            ("False", "NodesFailed", NODES - 1)
        } else {
            ("True", "Synced", NODES)
        };
        let ready = json!({
            "type": "Ready", "status": status, "reason": reason, "message": "of its nodes",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let object = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "GlobalPullSecret",
            "metadata": {"generation": 1, "uid": format!("config-of-{}", self.name)},
            "spec": {},
            "status": {
                "observedGeneration": 1, "observedAdditional": about, "revision": 1,
                "counts": {"total": NODES, "synced": synced, "failed": NODES - synced},
                "conditions": [ready],
            },
        });
        self.api.state().store(&Asked::Watch.object(), object);
    }
}

/// A server-side apply of the Secret: it fails if it would change what another field manager owns.
fn own(request: &mut Request, objects: &mut Objects) -> Option<Answer> {
    let manager = request.parameter("fieldManager").to_owned();
    if manager.is_empty() {
        return None;
    }
    let known = objects.get(&request.path).cloned().unwrap_or_default();
    let owners = known["metadata"]["managedFields"].as_array().cloned();
    let mut owners = owners.unwrap_or_default();
    owners.retain(|it| it["manager"] != *manager);
    let is_theirs = |it: &Value| !it["fieldsV1"]["f:data"][format!("f:{DATA_KEY}")].is_null();
    let is_change = known["data"][DATA_KEY] != request.body["data"][DATA_KEY];
    if is_change && owners.iter().any(is_theirs) {
        return Some(failure(409, "Conflict", "Conflict"));
    }
    owners.push(json!({
        "manager": manager, "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {format!("f:{DATA_KEY}"): {}}, "f:type": {}},
    }));
    request.body["metadata"]["managedFields"] = owners.into();
    None
}
