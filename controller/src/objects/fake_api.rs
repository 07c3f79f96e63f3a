//! An API server for unit tests: few objects, and one that can't be written.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

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

pub(crate) const REFUSALS: [Refusal; 7] = [
    Refusal::Answer(403, "exceeded quota: all, requested: count=1"),
    Refusal::Answer(
        403,
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
    /// Objects that another client made immutable.
    pub(crate) immutable: BTreeSet<String>,
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
                let Some((code, reply)) = api.reply(&parts.method, parts.uri.path(), &body) else {
                    return std::future::pending().await;
                };
                let body = Body::from(reply.to_string().into_bytes());
                Ok::<_, BoxError>(Response::builder().status(code).body(body)?)
            }
        });
        Client::new(service, "kube-system")
    }

    /// `None`: it never responds.
    fn reply(&self, method: &Method, path: &str, body: &Value) -> Option<(u16, Value)> {
        let error = |code, message: &str| {
            let status = json!({"kind": "Status", "status": "Failure", "message": message,
                "reason": if code == 404 { "NotFound" } else { "" }, "code": code});
            Some((code, status))
        };
        let mut state = self.0.lock().unwrap();
        let is_write = *method == Method::PATCH;
        let title = title(method, path);
        if let Some((of, refusal)) = &state.refused
            && *of == title
        {
            return match refusal {
                Refusal::Answer(code, message) => error(*code, message),
                Refusal::Never => None,
            };
        }
        // Only its metadata changes.
        let finalizers = &body["metadata"]["finalizers"];
        if is_write
            && finalizers.is_null()
            && body.as_object().is_some_and(|body| body.len() == 1)
            && body["status"].is_null()
        {
            return match state.objects.get(path) {
                Some(object) => Some((200, object.clone())),
                None => error(404, "not found"),
            };
        }
        if is_write && state.immutable.contains(path) {
            return error(
                422,
                "data: Forbidden: field is immutable when `immutable` is set",
            );
        }
        match *method {
            Method::PATCH => {
                state.version += 1;
                let version = state.version.to_string();
                let of = path.trim_end_matches("/status").to_owned();
                let known = state.objects.get(&of).cloned().unwrap_or(Value::Null);
                let mut object = if of == path && finalizers.is_null() {
                    body.clone()
                } else {
                    known.clone()
                };
                if of != path {
                    object["status"] = body["status"].clone();
                } else if !known["status"].is_null() {
                    object["status"] = known["status"].clone();
                }
                if !finalizers.is_null() {
                    object["metadata"]["finalizers"] = finalizers.clone();
                }
                if let Some((_, rest)) = of.split_once("/namespaces/") {
                    object["metadata"]["namespace"] = rest.split('/').next().into();
                }
                let is_same = known["spec"] == object["spec"];
                let generation = known["metadata"]["generation"].as_i64().unwrap_or_default();
                object["metadata"]["generation"] = (generation + i64::from(!is_same)).into();
                object["metadata"]["uid"] = "u".into();
                object["metadata"]["resourceVersion"] = version.into();
                state.objects.insert(of, object.clone());
                state.written.insert(title);
                Some((200, object))
            }
            Method::DELETE => {
                state.immutable.remove(path);
                let known = state.objects.get_mut(path);
                if let Some(object) = known
                    && object["metadata"]["finalizers"]
                        .as_array()
                        .is_some_and(|finalizers| !finalizers.is_empty())
                {
                    object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
                    return Some((200, object.clone()));
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
