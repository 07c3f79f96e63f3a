//! An API server for unit tests: few objects, and one that can't be written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use hyper::header::CONTENT_TYPE;
use hyper::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tower::{BoxError, service_fn};

/// How the API server refuses a write.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refusal {
    Answer(u16, &'static str),
    Never,
}

pub(crate) const REFUSALS: [Refusal; 8] = [
    Refusal::Answer(403, "exceeded quota: all, requested: count=1"),
    Refusal::Answer(
        403,
        "admission webhook \"gate.example.com\" denied the request: no",
    ),
    Refusal::Answer(
        404,
        "admission webhook \"gate.example.com\" denied the request: no",
    ),
    Refusal::Answer(
        500,
        "failed calling webhook \"gate.example.com\": context deadline exceeded",
    ),
    Refusal::Answer(
        422,
        "data: Forbidden: field is immutable when `immutable` is set",
    ),
    Refusal::Answer(422, "spec: Invalid value: 1"),
    Refusal::Answer(409, "the object has been modified"),
    Refusal::Never,
];

#[derive(Default)]
pub(crate) struct State {
    /// By path.
    pub(crate) objects: BTreeMap<String, Value>,
    pub(crate) version: u64,
    /// The write that fails, as [`title`].
    pub(crate) refused: Option<(String, Refusal)>,
    /// How often it has failed.
    pub(crate) refusals: usize,
    /// Every read below this path fails with this HTTP status.
    pub(crate) unreadable: Option<(String, u16)>,
    /// Objects that another client made immutable.
    pub(crate) immutable: BTreeSet<String>,
    /// Fields by path that other clients own: a server-side apply without them keeps them.
    pub(crate) others: BTreeMap<String, Value>,
    /// The other clients set them again at once.
    pub(crate) others_insist: bool,
    /// Paths of all successful patches, in order.
    pub(crate) patched: Vec<String>,
    /// Paths of successful writes.
    pub(crate) written: BTreeSet<String>,
    /// The same of deletions, as [`title`].
    pub(crate) deleted: BTreeSet<String>,
}

/// The path, for a deletion after `DELETE `.
fn title(method: &Method, path: &str) -> String {
    match *method {
        Method::PATCH => path.to_owned(),
        _ => format!("{method} {path}"),
    }
}

/// A JSON merge patch.
fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let target = target.as_object_mut().unwrap();
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else if *value != json!({}) || target.contains_key(key) {
            merge(target.entry(key).or_insert(Value::Null), value);
        }
    }
}

/// The fields that this merge patch sets or removes have another owner now.
fn give_up(others: &mut Value, patch: &Value) {
    let (Some(others), Some(patch)) = (others.as_object_mut(), patch.as_object()) else {
        return;
    };
    for (key, value) in patch {
        if value.is_object() {
            others
                .get_mut(key)
                .into_iter()
                .for_each(|it| give_up(it, value));
        } else {
            others.remove(key);
        }
    }
}

/// What of the object is not the controller's, and stays whatever it applies.
fn kept_by_apply(known: &Value) -> Value {
    let mut kept = json!({});
    if !known["status"].is_null() {
        kept["status"] = known["status"].clone();
    }
    for field in ["finalizers", "deletionTimestamp"] {
        if !known["metadata"][field].is_null() {
            kept["metadata"][field] = known["metadata"][field].clone();
        }
    }
    kept
}

/// An API server with few objects.
#[derive(Clone, Default)]
pub(crate) struct FakeApi(Arc<Mutex<State>>);

impl FakeApi {
    pub(crate) fn client(&self) -> Client {
        let api = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move {
                let (parts, body) = request.into_parts();
                let bytes = body.collect_bytes().await?;
                let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
                let kind = parts.headers.get(CONTENT_TYPE);
                let is_merge = kind.is_some_and(|kind| kind == "application/merge-patch+json");
                let path = parts.uri.path();
                let Some((code, reply)) = api.reply(&parts.method, path, &body, is_merge) else {
                    return std::future::pending().await;
                };
                let body = Body::from(reply.to_string().into_bytes());
                Ok::<_, BoxError>(Response::builder().status(code).body(body)?)
            }
        });
        Client::new(service, "kube-system")
    }

    /// `None`: it never responds.
    fn reply(
        &self,
        method: &Method,
        path: &str,
        body: &Value,
        is_merge: bool,
    ) -> Option<(u16, Value)> {
        let error = |code, message: &str| {
            let status = json!({"kind": "Status", "status": "Failure", "message": message,
                "reason": if code == 404 { "NotFound" } else { "" }, "code": code});
            Some((code, status))
        };
        let mut state = self.0.lock().unwrap();
        // A Secret that is created; others are only confirmed.
        if *method == Method::POST && path.ends_with("/secrets") {
            let name = body["metadata"]["name"].as_str().unwrap_or_default();
            let path = format!("{path}/{name}");
            if state.objects.contains_key(&path) {
                let status = json!({"kind": "Status", "status": "Failure", "message": "exists",
                    "reason": "AlreadyExists", "code": 409});
                return Some((409, status));
            }
            drop(state);
            return self.reply(&Method::PATCH, &path, body, false);
        }
        let title = title(method, path);
        if let Some((of, refusal)) = state.refused.clone()
            && of == title
        {
            state.refusals += 1;
            return match refusal {
                Refusal::Answer(code, message) => error(code, message),
                Refusal::Never => None,
            };
        }
        if *method == Method::GET
            && let Some((below, code)) = &state.unreadable
            && path.starts_with(below.as_str())
        {
            return error(*code, "unreadable");
        }
        match *method {
            Method::PATCH => {
                let of = path.trim_end_matches("/status").to_owned();
                let Some(known) = state
                    .objects
                    .get(&of)
                    .cloned()
                    .or((!is_merge).then_some(Value::Null))
                else {
                    return error(404, "not found");
                };
                let version = &body["metadata"]["resourceVersion"];
                if is_merge
                    && !version.is_null()
                    && *version != known["metadata"]["resourceVersion"]
                {
                    return error(409, "the object has been modified");
                }
                let has_content = !is_merge || !body["data"].is_null() || !body["spec"].is_null();
                if has_content && state.immutable.contains(path) {
                    return error(
                        422,
                        "data: Forbidden: field is immutable when `immutable` is set",
                    );
                }
                // A JSON patch.
                if body.is_array() {
                    let mut object = known;
                    let steps: json_patch::Patch = serde_json::from_value(body.clone()).unwrap();
                    if object.is_null() {
                        return error(404, "not found");
                    }
                    if json_patch::patch(&mut object, &steps).is_err() {
                        return error(422, "the server rejected our request");
                    }
                    state.objects.insert(of, object.clone());
                    return Some((200, object));
                }
                let mut object = if is_merge {
                    if !state.others_insist
                        && let Some(others) = state.others.get_mut(path)
                    {
                        give_up(others, body);
                    }
                    known.clone()
                } else {
                    kept_by_apply(&known)
                };
                merge(&mut object, body);
                if let Some(others) = state.others.get(path) {
                    let mut merged = others.clone();
                    merge(&mut merged, &object);
                    object = merged;
                }
                if let Some((_, rest)) = of.split_once("/namespaces/") {
                    object["metadata"]["namespace"] = rest.split('/').next().into();
                }
                let is_same = known["spec"] == object["spec"];
                let generation = known["metadata"]["generation"].as_i64().unwrap_or_default();
                if !is_same || known.is_null() {
                    object["metadata"]["generation"] = (generation + i64::from(!is_same)).into();
                }
                let uid = &known["metadata"]["uid"];
                object["metadata"]["uid"] = uid.as_str().unwrap_or("u").into();
                let is_news = object != known;
                if is_news {
                    state.version += 1;
                    object["metadata"]["resourceVersion"] = state.version.to_string().into();
                    state.objects.insert(of, object.clone());
                }
                if is_news || !is_merge {
                    state.written.insert(title);
                    state.patched.push(path.to_owned());
                }
                Some((200, object))
            }
            Method::DELETE => {
                state.immutable.remove(path);
                if let Some(object) = state.objects.get_mut(path) {
                    let finalizers = object["metadata"]["finalizers"].as_array_mut();
                    let is_kept = finalizers.is_some_and(|finalizers| {
                        // Those of the garbage collector, by which the earlier deletion waits for the dependents.
                        finalizers.retain(|it| *it != "foregroundDeletion");
                        !finalizers.is_empty()
                    });
                    if is_kept {
                        object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
                        return Some((200, object.clone()));
                    }
                }
                match state.objects.remove(path) {
                    Some(_) => {
                        state.deleted.insert(title);
                        Some((200, json!({"kind": "Status", "status": "Success"})))
                    }
                    None => error(404, "not found"),
                }
            }
            Method::GET => match state.objects.get(path) {
                Some(object) => Some((200, object.clone())),
                None => error(404, "not found"),
            },
            _ => Some((201, body.clone())),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub(crate) fn put(&self, path: &str, object: &impl serde::Serialize) {
        let object = serde_json::to_value(object).unwrap();
        self.0
            .lock()
            .unwrap()
            .objects
            .insert(path.to_owned(), object);
    }

    pub(crate) fn written(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.0.lock().unwrap().written)
    }

    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.0.lock().unwrap().objects.get(path).cloned()
    }
}
