//! The objects of one simulated cluster, and how its globalps reacts to them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use globalps_core::names::{ADDITIONAL_SECRET, DATA_KEY, GLOBAL_SECRET};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use super::lies::{Asked, Lie};
use crate::product::NAMESPACE;

/// Number of nodes that a member reports.
const NODES: u32 = 3;
pub(super) const GROUP: &str = "globalps.io/v1alpha1";

/// Status code and object of a response.
pub(super) type Answer = (u16, Value);

/// Called before each write of a Secret, with text such as `PATCH member-1`; false rejects the write.
pub(super) type Admission = Arc<dyn Fn(String) -> bool + Send + Sync>;

/// Requests to all members, and their state.
#[derive(Default)]
pub(super) struct Counts {
    requests: Mutex<BTreeMap<&'static str, usize>>,
    /// Number of open watches.
    pub(super) watches: AtomicUsize,
    /// Members whose nodes have not followed a write yet: current number and maximum.
    changing: Mutex<(usize, usize)>,
}

impl Counts {
    pub(super) fn add(&self, what: &'static str) {
        *self.requests.lock().unwrap().entry(what).or_default() += 1;
    }

    pub(super) fn requests(&self) -> BTreeMap<&'static str, usize> {
        self.requests.lock().unwrap().clone()
    }

    pub(super) fn watches(&self) -> usize {
        self.watches.load(Relaxed)
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

/// State of the member. All objects share one version counter.
#[derive(Default)]
struct Has {
    version: u64,
    secret: Option<Value>,
    /// Version of the `GlobalPullSecret`, the version of the Secret that it is about, and whether its nodes failed with
    /// it.
    config: u64,
    about: String,
    has_failed: bool,
    /// The nodes have not followed the hub's last write yet.
    is_changing: bool,
    /// The nodes fail with any content.
    fails: bool,
    /// Number in the token that the hub needs.
    token: u32,
}

pub(super) struct Member {
    name: String,
    /// From a write of the Secret until every node of the member has it.
    time: Duration,
    has: Mutex<Has>,
    /// Version of the `GlobalPullSecret`.
    pub(super) news: watch::Sender<u64>,
    /// Connections are accepted, but requests get no response.
    frozen: watch::Sender<bool>,
    lie: Mutex<Option<Lie>>,
    pub(super) counts: Arc<Counts>,
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
            frozen: watch::Sender::new(false),
            lie: Mutex::default(),
            counts: Arc::clone(counts),
        }
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

    /// From now on the hub needs another token.
    pub(super) fn rotate_token(&self) {
        self.has().token += 1;
    }

    pub(super) fn set_frozen(&self, is_frozen: bool) {
        self.frozen.send_replace(is_frozen);
    }

    pub(super) async fn thawed(&self) {
        // An error would mean a dropped sender, but `self` owns it.
        let _ = self.frozen.subscribe().wait_for(|frozen| !frozen).await;
    }

    /// `None`: responses are true.
    pub(super) fn set_lie(&self, lie: Option<Lie>) {
        *self.lie.lock().unwrap() = lie;
    }

    pub(super) fn lie(&self) -> Option<Lie> {
        self.lie.lock().unwrap().clone()
    }

    /// Sets whether the nodes fail from now on. Failed nodes retry with the next version of the Secret.
    pub(super) fn set_failing(&self, fails: bool) {
        self.has().fails = fails;
    }

    pub(super) fn secret(&self) -> Option<Value> {
        self.has().secret.clone()
    }

    /// Another client in the member writes the Secret, or a part of it, or deletes it.
    pub(super) fn interfere(self: &Arc<Self>, change: impl FnOnce(&mut Option<Value>)) {
        let mut has = self.has();
        let mut secret = has.secret.take();
        change(&mut secret);
        has.version += 1;
        let version = has.version.to_string();
        if let Some(secret) = &mut secret {
            secret["metadata"]["resourceVersion"] = json!(version);
        }
        has.secret = secret;
        let about = has.about();
        drop(has);
        self.follow(about);
    }

    pub(super) fn apply(self: &Arc<Self>, wanted: &Value, manager: &str) -> Answer {
        let mut has = self.has();
        let seen = &wanted["metadata"]["resourceVersion"];
        let known = has.secret.clone();
        let version = |secret: &Value| secret["metadata"]["resourceVersion"].clone();
        let is_seen = seen.is_null() || known.as_ref().map(version).as_ref() == Some(seen);
        if !is_seen
            || known
                .as_ref()
                .is_some_and(|it| conflicts(it, wanted, manager))
        {
            return failure(409, "Conflict");
        }
        let new = json!({
            "apiVersion": "v1", "kind": "Secret", "data": {}, "metadata": {
                "name": ADDITIONAL_SECRET, "namespace": NAMESPACE, "managedFields": [],
                "uid": format!("secret-{}-of-{}", has.version + 1, self.name),
            },
        });
        let secret = applied(known.clone().unwrap_or(new), wanted, manager);
        if known.as_ref() == Some(&secret) {
            return (200, secret);
        }
        has.version += 1;
        let mut secret = secret;
        secret["metadata"]["resourceVersion"] = json!(has.version.to_string());
        has.secret = Some(secret.clone());
        if !has.is_changing {
            has.is_changing = true;
            self.counts.begins();
        }
        let about = has.about();
        drop(has);
        self.follow(about);
        (200, secret)
    }

    pub(super) fn delete(self: &Arc<Self>, options: &Value) -> Answer {
        let mut has = self.has();
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
        // For the hub the member is finished then, whatever its nodes do.
        if std::mem::take(&mut has.is_changing) {
            self.counts.ends();
        }
        let about = has.about();
        drop(has);
        self.follow(about);
        let object = json!({"apiVersion": "v1", "kind": "Status", "status": "Success"});
        (200, object)
    }

    /// The member's globalps: after a while every node has the current Secret, unless a newer version exists.
    fn follow(self: &Arc<Self>, about: String) {
        let member = Arc::clone(self);
        tokio::spawn(async move {
            sleep(member.time).await;
            let mut has = member.has();
            if has.about() != about {
                return;
            }
            has.version += 1;
            has.config = has.version;
            has.about = about;
            has.has_failed = has.fails && has.secret.is_some();
            if std::mem::take(&mut has.is_changing) {
                member.counts.ends();
            }
            member.news.send_replace(has.config);
        });
    }

    /// The `GlobalPullSecret`, and its version.
    pub(super) fn config(&self) -> (u64, Value) {
        let has = self.has();
        let (status, reason, synced) = if has.has_failed {
            ("False", "NodesFailed", NODES - 1)
        } else {
            ("True", "Synced", NODES)
        };
        let ready = json!({
            "type": "Ready", "status": status, "reason": reason, "message": "of its nodes",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let mut object = json!({
            "apiVersion": GROUP, "kind": "GlobalPullSecret",
            "metadata": {
                "name": GLOBAL_SECRET, "namespace": NAMESPACE, "generation": 1,
                "uid": format!("config-of-{}", self.name), "resourceVersion": has.config.to_string(),
            },
            "spec": {},
            "status": {
                "observedGeneration": 1, "observedAdditional": has.about, "revision": 1,
                "counts": {"total": NODES, "synced": synced, "failed": NODES - synced},
                "conditions": [ready],
            },
        });
        if let Some(lie) = self.lie() {
            lie.about(Asked::Watch, &mut object);
        }
        (has.config, object)
    }
}

impl Has {
    /// Version of the Secret; empty: it does not exist.
    fn about(&self) -> String {
        let version = self
            .secret
            .as_ref()
            .map(|it| &it["metadata"]["resourceVersion"]);
        let version = version.and_then(Value::as_str);
        version.unwrap_or_default().to_owned()
    }
}

/// Whether another field manager owns the content and the apply would change it.
fn conflicts(known: &Value, wanted: &Value, manager: &str) -> bool {
    let owners = known["metadata"]["managedFields"].as_array();
    let mut others = owners
        .into_iter()
        .flatten()
        .filter(|it| it["manager"] != manager);
    known["data"][DATA_KEY] != wanted["data"][DATA_KEY]
        && others.any(|it| !it["fieldsV1"]["f:data"][format!("f:{DATA_KEY}")].is_null())
}

/// The Secret after a server-side apply: other clients' fields stay.
fn applied(mut secret: Value, wanted: &Value, manager: &str) -> Value {
    for field in ["labels", "annotations"] {
        secret["metadata"][field] = wanted["metadata"][field].clone();
    }
    secret["type"] = wanted["type"].clone();
    secret["data"][DATA_KEY] = wanted["data"][DATA_KEY].clone();
    let own = json!({
        "manager": manager, "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {"f:.dockerconfigjson": {}}, "f:type": {}},
    });
    if let Some(entries) = secret["metadata"]["managedFields"].as_array_mut() {
        entries.retain(|it| it["manager"] != manager);
        entries.push(own);
    }
    secret
}

pub(super) fn failure(code: u16, reason: &str) -> Answer {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "metadata": {},
        "code": code, "reason": reason, "message": reason,
    });
    (code, status)
}
