//! A fake API server on a local port, for tests of whole commands: it stores objects, enforces rights and serves watches.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use globalps_core::names;
use jiff::{SignedDuration, Timestamp};
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

type Renewal = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    objects: Objects,
    /// `None`: everything is allowed.
    rights: Option<Vec<Right>>,
    /// What server-side apply wrote last, by path.
    applied: Objects,
    /// What a controller does when a watch starts.
    controller: Option<fn(&mut Objects)>,
    /// The objects before the controller changed them.
    before: Option<Objects>,
    version: u64,
    /// By how much its clock is behind; `None`: its answers have no `Date`.
    is_behind: Option<SignedDuration>,
    /// Verb and path.
    requests: Vec<String>,
    /// What the API server does instead of responding to requests that begin like this, this many times.
    faults: Vec<(&'static str, Fault, usize)>,
    /// `None`: nobody logs in. Every other token is rejected.
    token: Option<&'static str>,
    /// The token that is valid once the first watch has started, and what happens then.
    next_token: Option<(&'static str, Renewal)>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// HTTP status.
    Code(u16),
    /// The connection stays open without a byte.
    Silence,
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

    pub(crate) fn with_object(self, path: &str, object: Value) -> Self {
        self.lock().store(path, object);
        self
    }

    pub(crate) fn without(self, path: &str) -> Self {
        self.lock().objects.remove(path);
        self
    }

    /// `change` runs when the first watch starts, and every watch reports what it changed.
    pub(crate) fn with_controller(self, change: fn(&mut Objects)) -> Self {
        self.lock().controller = Some(change);
        self
    }

    /// Its clock is this many seconds behind that of this machine.
    pub(crate) fn with_clock_behind(self, seconds: i64) -> Self {
        self.lock().is_behind = Some(SignedDuration::from_secs(seconds));
        self
    }

    /// For the first `times` requests whose verb and path begin with `request`.
    pub(crate) fn with_fault(self, request: &'static str, fault: Fault, times: usize) -> Self {
        self.lock().faults.push((request, fault, times));
        self
    }

    /// Takes the first token until the first watch starts, and then only the second one.
    pub(crate) fn with_tokens(
        self,
        first: &'static str,
        second: &'static str,
        then: impl FnOnce() + Send + 'static,
    ) -> Self {
        let mut state = self.lock();
        state.token = Some(first);
        state.next_token = Some((second, Box::new(then)));
        drop(state);
        self
    }

    pub(crate) fn address(&self) -> String {
        format!("http://{}", self.address)
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
        self.printed(line).0
    }

    /// As [`Self::run`], with stdout and stderr.
    pub(crate) fn printed(&self, line: &str) -> (Result<Exit, Failure>, [String; 2]) {
        let server = self.address();
        let flags = ["--kubeconfig", "/dev/null", "--server", &server];
        let printer = Printer::capturing();
        let ran = run_with(line.split_whitespace().chain(flags), &printer);
        (ran, printer.captured())
    }
}

/// Runs a command line of the plugin.
pub(crate) fn run<'a>(words: impl Iterator<Item = &'a str>) -> Result<Exit, Failure> {
    run_with(words, &Printer::capturing())
}

fn run_with<'a>(words: impl Iterator<Item = &'a str>, printer: &Printer) -> Result<Exit, Failure> {
    let words = std::iter::once("kubectl-globalps").chain(words);
    let cli = Cli::of(words.map(OsString::from));
    commands::run(&cli.expect("flags"), printer)
}

impl State {
    fn store(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        let (_, name) = path.rsplit_once('/').unwrap_or_default();
        object["metadata"]["name"] = json!(name);
        let mut parts = path.split("/namespaces/").skip(1);
        if let Some((namespace, _)) = parts.next().and_then(|rest| rest.split_once('/')) {
            object["metadata"]["namespace"] = json!(namespace);
        }
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert(path.to_owned(), object.clone());
        object
    }

    fn apply(&mut self, request: &Request, mut object: Value) -> Value {
        let (path, body) = (request.path.as_str(), &request.body);
        if let Some(last) = self.applied.get(path) {
            take_back(&mut object, last, body);
        }
        json_patch::merge(&mut object, body);
        if request.query.contains("dryrun") {
            return object;
        }
        self.applied.insert(path.to_owned(), body.clone());
        self.store(path, object)
    }

    /// A finalizer keeps it.
    fn delete(&mut self, path: &str, mut object: Value) {
        if object["metadata"]["finalizers"].is_array() {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            self.store(path, object);
        } else {
            self.objects.remove(path);
        }
    }

    fn is_logged_in(&self, request: &Request) -> bool {
        let header = |token| format!("authorization: bearer {token}\r\n");
        let token = self.token;
        token.is_none_or(|token| request.headers.contains(&header(token)))
    }

    fn fault(&mut self, request: &str) -> Option<Fault> {
        let mut faults = self.faults.iter_mut();
        let (_, fault, left) =
            faults.find(|(start, _, left)| request.starts_with(start) && *left > 0)?;
        *left -= 1;
        Some(*fault)
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

    fn is_table(&self) -> bool {
        self.headers.contains("as=table")
    }

    fn is_metadata(&self) -> bool {
        self.headers.contains("as=partialobjectmetadata")
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
        let name = parts.get(1).copied();
        // A subresource such as `pods/log`.
        let resource = match parts.get(2) {
            Some(subresource) => format!("{}/{subresource}", parts.first()?),
            None => (*parts.first()?).to_owned(),
        };
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
    let mut fault = None;
    if let Some(right) = &right {
        let table = if request.is_table() {
            " as a table"
        } else {
            ""
        };
        let text = format!("{} {}{table}", right.verb, request.path);
        fault = state.fault(&text);
        state.requests.push(text);
    }
    if let Some(Fault::Silence) = fault {
        drop(state);
        std::thread::sleep(Duration::from_mins(1));
        return;
    }
    let is_logged_in = state.is_logged_in(&request);
    if request.is_watch()
        && is_logged_in
        && let Some((next, then)) = state.next_token.take()
    {
        state.token = Some(next);
        then();
    }
    let (code, body) = match right {
        _ if !is_logged_in => (401, failure(401, "Unauthorized", "Unauthorized")),
        Some(_) if let Some(Fault::Code(code)) = fault => (code, failure(code, "", "broken")),
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
    let date = state.is_behind.map_or_else(String::new, |behind| {
        let now = Timestamp::now() - behind;
        now.strftime("Date: %a, %d %b %Y %H:%M:%S GMT\r\n")
            .to_string()
    });
    drop(state);
    let body = body.to_string();
    let text = format!(
        "HTTP/1.1 {code} X\r\n{date}Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
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
                resource: match text("subresource").as_str() {
                    "" => text("resource") + &group,
                    subresource => format!("{}/{subresource}", text("resource")),
                },
                namespace: text("namespace"),
                name: text("name"),
            };
            let mut review = request.body.clone();
            review["status"] = json!({"allowed": state.is_allowed(&asked)});
            (201, review)
        }
        ("list", _) if request.is_table() => {
            let is_all = !request.query.contains("labelselector");
            let nodes = children(&state.objects, path).filter(|_| is_all);
            let nodes: Vec<&Value> = nodes.map(|(_, node)| node).collect();
            let mut table = table(&nodes, true);
            table["metadata"] = json!({"resourceVersion": state.version.to_string()});
            (200, table)
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
                .filter(|(_, object)| selected.is_empty() || object["metadata"]["name"] == selected)
                .map(|(_, object)| object)
                .collect();
            let page: Vec<&Value> = items.iter().skip(from).take(limit).copied().collect();
            let end = from + page.len();
            let next = (end < items.len()).then(|| end.to_string());
            // As the real one, if it has no metadata to show.
            let items = (!page.is_empty() || !request.is_metadata()).then_some(page);
            let list = json!({
                "apiVersion": "v1", "kind": "List", "items": items, "metadata": {
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
            if state.objects.contains_key(&path) {
                return (409, failure(409, "AlreadyExists", "it already exists"));
            }
            if request.query.contains("dryrun") {
                return (201, request.body.clone());
            }
            (201, state.store(&path, request.body.clone()))
        }
        ("patch", known) if request.headers.contains("apply-patch") => {
            (200, state.apply(request, known.unwrap_or_default()))
        }
        (_, None) => (404, failure(404, "NotFound", &format!("{path} not found"))),
        ("patch", Some(mut object)) => {
            json_patch::merge(&mut object, &request.body);
            (200, state.store(path, object))
        }
        ("update", Some(_)) if request.query.contains("dryrun") => (200, request.body.clone()),
        ("update", Some(_)) => (200, state.store(path, request.body.clone())),
        ("delete", Some(object)) => {
            if request.body["dryRun"].is_null() {
                state.delete(path, object);
            }
            (200, json!({"kind": "Status", "status": "Success"}))
        }
        (_, Some(object)) => (200, object),
    }
}

/// Removes what an apply named before and does not name now. A list is one value.
fn take_back(object: &mut Value, before: &Value, now: &Value) {
    let (Some(object), Some(before)) = (object.as_object_mut(), before.as_object()) else {
        return;
    };
    for (field, before) in before {
        match (now.get(field), object.get_mut(field)) {
            (Some(now), Some(object)) => take_back(object, before, now),
            (None, Some(_)) => drop(object.remove(field)),
            (_, None) => {}
        }
    }
}

/// `has_columns`: whether it is the first event of a watch, or a list.
fn table(nodes: &[&Value], has_columns: bool) -> Value {
    let row = |node: &&Value| {
        let conditions = node["status"]["conditions"].as_array();
        let ready = conditions.is_none_or(|all| all.iter().all(|it| it["status"] == "True"));
        let status = if ready { "Ready" } else { "NotReady" };
        json!({"cells": [node["metadata"]["name"], status], "object": {"metadata": node["metadata"]}})
    };
    let columns = ["Name", "Status"].map(|name| json!({"name": name}));
    let columns = if has_columns {
        json!(columns)
    } else {
        Value::Null
    };
    let rows: Vec<Value> = nodes.iter().map(row).collect();
    json!({"kind": "Table", "columnDefinitions": columns, "rows": rows})
}

fn children<'a>(
    objects: &'a Objects,
    list: &'a str,
) -> impl Iterator<Item = (&'a String, &'a Value)> {
    let (api, resource) = list.rsplit_once('/').unwrap_or_default();
    objects.iter().filter(move |(path, _)| {
        let Some((parent, _)) = path.rsplit_once('/') else {
            return false;
        };
        // Of every namespace.
        let namespaced = parent
            .strip_prefix(api)
            .and_then(|rest| rest.strip_prefix("/namespaces/"))
            .and_then(|rest| rest.split_once('/'));
        parent == list || namespaced.is_some_and(|(_, found)| found == resource)
    })
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
    let event = |kind: &'static str, object: &Value| (kind, object.clone());
    let gone = children(before, &request.path)
        .filter(|(path, _)| !state.objects.contains_key(*path))
        .map(|(_, object)| event("DELETED", object));
    let there = children(&state.objects, &request.path)
        .filter(|(path, object)| before.get(*path) != Some(*object))
        .map(|(_, object)| event("MODIFIED", object));
    let as_asked = |(number, (kind, object)): (usize, (&str, Value))| {
        let mut object = object;
        if request.is_table() {
            let version = object["metadata"]["resourceVersion"].clone();
            object = table(&[&object], number == 0);
            object["metadata"] = json!({"resourceVersion": version});
        }
        json!({"type": kind, "object": object})
    };
    gone.chain(there).enumerate().map(as_asked).collect()
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
