//! A fake API server on a local port, for tests of whole commands: it stores objects, enforces rights and serves watches.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use globalps_core::names;
use serde_json::{Value, json};

use crate::cli::Cli;
use crate::commands;
use crate::error::{Exit, Failure};
use crate::terminal::printer::Printer;

/// Objects by their paths.
pub(crate) type Objects = BTreeMap<String, Value>;

/// One request as RBAC sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Right {
    pub verb: String,
    /// With its group: `deployments.apps`.
    pub resource: String,
    pub namespace: String,
    /// Empty in a rule: every name.
    pub name: String,
}

impl Right {
    pub(crate) fn covers(&self, asked: &Self) -> bool {
        let name = self.name.is_empty() || self.name == asked.name;
        // A rule of a ClusterRole.
        let namespace = self.namespace.is_empty() || self.namespace == asked.namespace;
        name && namespace && (&self.verb, &self.resource) == (&asked.verb, &asked.resource)
    }
}

#[derive(Default)]
struct State {
    objects: Objects,
    /// `None`: everything is allowed.
    rights: Option<Vec<Right>>,
    /// What a controller does when a watch starts.
    controller: Option<fn(&mut Objects)>,
    /// The objects before the controller changed them.
    before: Option<Objects>,
    version: u64,
    /// Verb and path.
    requests: Vec<String>,
}

pub(crate) struct FakeApi {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl FakeApi {
    pub(crate) fn new(objects: &[(&str, Value)]) -> Self {
        let mut state = State {
            version: 100,
            ..State::default()
        };
        for (path, object) in objects {
            state.store(path, object.clone());
        }
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                std::thread::spawn(move || serve(&stream, &state));
            }
        });
        Self { address, state }
    }

    pub(crate) fn allow_only(self, rights: Vec<Right>) -> Self {
        self.lock().rights = Some(rights);
        self
    }

    /// `change` runs when the first watch starts, and every watch reports what it changed.
    pub(crate) fn with_controller(self, change: fn(&mut Objects)) -> Self {
        self.lock().controller = Some(change);
        self
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn object(&self, path: &str) -> Option<Value> {
        self.lock().objects.get(path).cloned()
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.lock().requests.clone()
    }

    /// Requests that change something.
    pub(crate) fn writes(&self) -> Vec<String> {
        let is_write = |request: &String| {
            !["get ", "list ", "watch "]
                .iter()
                .any(|verb| request.starts_with(verb))
        };
        self.requests().into_iter().filter(is_write).collect()
    }

    /// Runs a command line of the plugin against this server.
    pub(crate) fn run(&self, line: &str) -> Result<Exit, Failure> {
        let server = format!("http://{}", self.address);
        let flags = ["--kubeconfig", "/dev/null", "--server", &server];
        let words = line.split_whitespace().chain(flags);
        run(words)
    }
}

/// Runs a command line of the plugin.
pub(crate) fn run<'a>(words: impl Iterator<Item = &'a str>) -> Result<Exit, Failure> {
    let words = std::iter::once("kubectl-globalps").chain(words);
    let cli = Cli::of(words.map(OsString::from));
    commands::run(&cli.expect("flags"), &Printer::silent())
}

impl State {
    fn store(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        let (_, name) = path.rsplit_once('/').unwrap_or_default();
        object["metadata"]["name"] = json!(name);
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert(path.to_owned(), object.clone());
        object
    }

    fn is_allowed(&self, asked: &Right) -> bool {
        let rights = self.rights.as_ref();
        rights.is_none_or(|rights| rights.iter().any(|right| right.covers(asked)))
    }
}

struct Request {
    method: String,
    path: String,
    query: String,
    headers: String,
    body: Value,
}

impl Request {
    fn read(stream: &TcpStream) -> Option<Self> {
        let mut reader = BufReader::new(stream);
        let mut headers = String::new();
        while !headers.ends_with("\r\n\r\n") {
            if reader.read_line(&mut headers).ok()? == 0 {
                return None;
            }
        }
        let headers = headers.to_lowercase();
        let length = headers.split_once("content-length: ");
        let length = length.and_then(|(_, rest)| rest.lines().next()?.parse().ok());
        let mut body = vec![0; length.unwrap_or_default()];
        reader.read_exact(&mut body).ok()?;
        let mut words = headers.split_whitespace();
        let method = words.next()?.to_owned();
        let target = words.next()?;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        Some(Self {
            method,
            path: path.to_owned(),
            query: query.to_owned(),
            body: serde_json::from_slice(&body).unwrap_or_default(),
            headers,
        })
    }

    fn is_watch(&self) -> bool {
        self.query.contains("watch=")
    }

    fn selected(&self) -> &str {
        let selected = self.query.split_once("metadata.name%3d");
        let name = selected.and_then(|(_, rest)| rest.split('&').next());
        name.unwrap_or_default()
    }

    /// `None`: no request for an object.
    fn right(&self) -> Option<Right> {
        let mut parts = self.path.trim_start_matches('/').split('/');
        let group = match parts.next()? {
            "api" => "",
            "apis" => parts.next()?,
            _ => return None,
        };
        let parts: Vec<&str> = parts.skip(1).collect();
        let (namespace, parts) = match parts.as_slice() {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            rest => ("", rest),
        };
        let resource = match parts {
            [resource, _, subresource] => format!("{resource}/{subresource}"),
            parts => (*parts.first()?).to_owned(),
        };
        let name = parts.get(1).copied();
        let verb = match (self.method.as_str(), name) {
            ("get", Some(_)) => "get",
            ("get", None) if self.is_watch() => "watch",
            ("get", None) => "list",
            ("post", _) => "create",
            ("put", _) => "update",
            (other, _) => other,
        };
        let group = match group {
            "" => String::new(),
            group => format!(".{group}"),
        };
        Some(Right {
            verb: verb.to_owned(),
            resource: format!("{resource}{group}"),
            namespace: namespace.to_owned(),
            name: name.unwrap_or(self.selected()).to_owned(),
        })
    }
}

fn serve(mut stream: &TcpStream, state: &Mutex<State>) {
    let Some(request) = Request::read(stream) else {
        return;
    };
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    let right = request.right();
    if let Some(right) = &right {
        state
            .requests
            .push(format!("{} {}", right.verb, request.path));
    }
    let (code, body) = match right {
        Some(right) if !is_review(&request) && !state.is_allowed(&right) => forbidden(&right),
        Some(_) if request.is_watch() => {
            let events = events(&mut state, &request);
            drop(state);
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
            let mut text = head.to_owned();
            for event in events {
                let line = format!("{event}\n");
                let length = format!("{:x}\r\n", line.len());
                text.extend([&length, &line, "\r\n"]);
            }
            let _ = stream.write_all(text.as_bytes());
            // The watch stays open for longer than any test.
            std::thread::sleep(Duration::from_mins(1));
            return;
        }
        Some(right) => answer(&mut state, &request, &right),
        None => (200, version()),
    };
    drop(state);
    let body = body.to_string();
    let text = format!(
        "HTTP/1.1 {code} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let _ = stream.write_all(text.as_bytes());
}

fn is_review(request: &Request) -> bool {
    request.path.ends_with("/selfsubjectaccessreviews")
}

fn answer(state: &mut State, request: &Request, right: &Right) -> (u16, Value) {
    let path = request.path.as_str();
    let known = state.objects.get(path).cloned();
    match (right.verb.as_str(), known) {
        ("create", _) if is_review(request) => {
            let asked = &request.body["spec"]["resourceAttributes"];
            let text = |field: &str| asked[field].as_str().unwrap_or_default().to_owned();
            let group = text("group");
            let group = if group.is_empty() {
                group
            } else {
                format!(".{group}")
            };
            let asked = Right {
                verb: text("verb"),
                resource: [text("resource"), text("subresource")]
                    .join("/")
                    .trim_end_matches('/')
                    .to_owned()
                    + &group,
                namespace: text("namespace"),
                name: text("name"),
            };
            let mut review = request.body.clone();
            review["status"] = json!({"allowed": state.is_allowed(&asked)});
            (201, review)
        }
        ("list", _) if request.headers.contains("as=table") => {
            let is_all = !request.query.contains("labelselector");
            let names = children(&state.objects, path).filter(|_| is_all);
            let rows = names.map(|(_, node)| json!({"cells": [node["metadata"]["name"], "Ready"]}));
            let columns = ["Name", "Status"].map(|name| json!({"name": name}));
            let rows: Vec<Value> = rows.collect();
            (200, json!({"columnDefinitions": columns, "rows": rows}))
        }
        ("list", _) => {
            let selected = request.selected();
            let number = |name: &str| -> Option<usize> {
                let (_, value) = request.query.split_once(&format!("{name}="))?;
                value.split('&').next()?.parse().ok()
            };
            let (from, limit) = (number("continue"), number("limit"));
            let (from, limit) = (from.unwrap_or(0), limit.unwrap_or(usize::MAX));
            let items: Vec<&Value> = children(&state.objects, path)
                .chain(of_namespaces(&state.objects, path))
                .filter(|(_, object)| selected.is_empty() || object["metadata"]["name"] == selected)
                .map(|(_, object)| object)
                .collect();
            let page: Vec<&Value> = items.iter().skip(from).take(limit).copied().collect();
            let end = from + page.len();
            let next = (end < items.len()).then(|| end.to_string());
            let list = json!({
                "apiVersion": "v1", "kind": "List", "items": page, "metadata": {
                    "resourceVersion": state.version.to_string(), "continue": next.unwrap_or_default(),
                },
            });
            (200, list)
        }
        ("create", _) if right.resource == "pods/eviction" => {
            let pod = path.trim_end_matches("/eviction");
            evict(&mut state.objects, pod, &request.body)
        }
        ("create", _) => {
            let name = request.body["metadata"]["name"]
                .as_str()
                .unwrap_or_default();
            let path = format!("{path}/{name}");
            if request.query.contains("dryrun") {
                return (201, request.body.clone());
            }
            (201, state.store(&path, request.body.clone()))
        }
        ("patch", known) if request.headers.contains("apply-patch") => {
            let mut object = known.unwrap_or_default();
            json_patch::merge(&mut object, &request.body);
            (200, state.store(path, object))
        }
        (_, None) => (404, failure(404, "NotFound", &format!("{path} not found"))),
        ("patch", Some(mut object)) => {
            json_patch::merge(&mut object, &request.body);
            (200, state.store(path, object))
        }
        ("update", Some(_)) if request.query.contains("dryrun") => (200, request.body.clone()),
        ("update", Some(_)) => (200, state.store(path, request.body.clone())),
        ("delete", Some(_)) => {
            state.objects.remove(path);
            (200, json!({"kind": "Status", "status": "Success"}))
        }
        (_, Some(object)) => (200, object),
    }
}

fn children<'a>(
    objects: &'a Objects,
    list: &'a str,
) -> impl Iterator<Item = (&'a String, &'a Value)> {
    objects.iter().filter(move |(path, _)| {
        let name = path
            .strip_prefix(list)
            .and_then(|rest| rest.strip_prefix('/'));
        name.is_some_and(|name| !name.contains('/'))
    })
}

/// The pods of every namespace.
fn of_namespaces<'a>(
    objects: &'a Objects,
    list: &'a str,
) -> impl Iterator<Item = (&'a String, &'a Value)> {
    let is_all = list == "/api/v1/pods";
    let has = |path: &str| path.starts_with("/api/v1/namespaces/") && path.contains("/pods/");
    objects.iter().filter(move |(path, _)| is_all && has(path))
}

/// A pod with the label `budget: "0"` is one that its budget keeps.
fn evict(objects: &mut Objects, path: &str, eviction: &Value) -> (u16, Value) {
    let Some(pod) = objects.get(path) else {
        return (404, failure(404, "NotFound", "no such pod"));
    };
    let wanted = &eviction["deleteOptions"]["preconditions"];
    if pod["metadata"]["labels"]["budget"] == "0" {
        let message = "Cannot evict pod as it would violate the pod's disruption budget.";
        return (429, failure(429, "TooManyRequests", message));
    }
    if wanted["resourceVersion"] != pod["metadata"]["resourceVersion"] {
        return (409, failure(409, "Conflict", "the pod changed"));
    }
    objects.remove(path);
    (201, json!({"kind": "Status", "status": "Success"}))
}

/// What the controller changed of the watched objects.
fn events(state: &mut State, request: &Request) -> Vec<Value> {
    if let Some(change) = state.controller.take() {
        state.before = Some(state.objects.clone());
        change(&mut state.objects);
        // The status of an object is no new object.
        state.version += 1;
    }
    let Some(before) = &state.before else {
        return Vec::new();
    };
    let event = |kind: &str, object: &Value| json!({"type": kind, "object": object});
    let gone = children(before, &request.path)
        .filter(|(path, _)| !state.objects.contains_key(*path))
        .map(|(_, object)| event("DELETED", object));
    let there = children(&state.objects, &request.path)
        .filter(|(path, object)| before.get(*path) != Some(*object))
        .map(|(_, object)| event("MODIFIED", object));
    gone.chain(there).collect()
}

fn forbidden(right: &Right) -> (u16, Value) {
    let Right {
        verb,
        resource,
        namespace,
        name,
    } = right;
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    let place = match namespace.as_str() {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace \"{namespace}\""),
    };
    let message = format!(
        "{resource} \"{name}\" is forbidden: User \"u\" cannot {verb} resource \"{resource}\" in API group \"{group}\" {place}"
    );
    (403, failure(403, "Forbidden", &message))
}

fn failure(code: u16, reason: &str, message: &str) -> Value {
    json!({"kind": "Status", "status": "Failure", "message": message, "reason": reason, "code": code})
}

fn version() -> Value {
    let text = |key: &str| (key.to_owned(), json!(""));
    let keys = [
        "gitCommit",
        "gitTreeState",
        "buildDate",
        "goVersion",
        "compiler",
        "platform",
    ];
    let mut version: serde_json::Map<String, Value> = keys.map(text).into_iter().collect();
    for (key, value) in [("major", "1"), ("minor", "34"), ("gitVersion", "v1.34.0")] {
        version.insert(key.to_owned(), json!(value));
    }
    version.into()
}

/// Path of an object in the namespace of the pull secrets.
pub(crate) fn path(resource: &str, name: &str) -> String {
    let api = match resource {
        "secrets" => "/api/v1".to_owned(),
        "deployments" => {
            let namespace = names::CONTROLLER_NAMESPACE;
            return format!("/apis/apps/v1/namespaces/{namespace}/deployments/{name}");
        }
        "nodes" => return format!("/api/v1/nodes/{name}"),
        _ => format!("/apis/{}/{}", names::GROUP, names::VERSION),
    };
    format!("{api}/namespaces/{}/{resource}/{name}", names::NAMESPACE)
}
